//! The playground end to end: real daemons, sockets and files, and little of everything.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use divvy_playground::args::Args;
use divvy_playground::checks::Invariant;
use divvy_playground::console::Console;
use divvy_playground::report::Report;
use divvy_playground::run::{Inputs, run};
use divvy_testkit::binaries::Binaries;

/// The program itself.
const PLAYGROUND: &str = env!("CARGO_BIN_EXE_divvy-playground");
const PATIENCE: Duration = Duration::from_secs(30);

fn args(flags: &str) -> Args {
    let args = ["divvy-playground"].into_iter().chain(flags.split(' ')).map(OsString::from);
    Args::read(args).expect("valid flags")
}

async fn play(flags: &str) -> Report {
    let args = args(flags);
    let inputs = Inputs::read(&args).expect("no files");
    let binaries = Binaries::get(false).await.expect("built");
    let directory = tempfile::Builder::new().prefix("divvy-").tempdir_in("/tmp").expect("a directory");
    let session = run(&args, inputs, &binaries, directory.path(), Console::new(std::io::sink())).await;
    let report = session.expect("played").report().clone();
    if !report.checks.broken.is_empty() {
        print_logs(directory.path());
    }
    report
}

/// Prints what the programs of a session have logged: each in the session's directory or in one of its own in that.
fn print_logs(directory: &Path) {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries(directory).flat_map(|path| entries(&path).chain([path]).collect::<Vec<_>>());
    for log in files.filter(|path| path.extension().is_some_and(|extension| extension == "log")) {
        eprintln!("{}:\n{}", log.display(), fs::read_to_string(&log).unwrap_or_default());
    }
}

fn ended(flags: &[&str]) -> Output {
    Command::new(PLAYGROUND).args(flags).output().expect("started")
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_decide_alone_keep_every_invariant_in_trouble() {
    let report = play("--no-webhook --node-limit 2 --admissions 60 --load 150 --chaos --seed 3").await;
    assert_eq!(report.checks.broken, []);
    assert_eq!(report.offered, 60);
    accounted(&report, 60);
    assert!(report.refused.values().flat_map(|refusals| refusals.texts.keys()).all(|text| !text.is_empty()));
    assert!(!report.chaos.is_empty());
    for invariant in [Invariant::I1, Invariant::I2, Invariant::I4, Invariant::Refusal, Invariant::Recovery] {
        assert!(report.checks.checked.get(&invariant).is_some_and(|checks| *checks > 0), "{invariant} is checked");
    }
    for resource in ["nodes", "gpunodes.divvy.dev", "pods"] {
        assert!(report.writes.get(resource).is_some_and(|writes| *writes > 0), "{resource} are written");
    }
    assert!(report.latencies["Allocate"].calls > 0 && report.latencies["Allocate"].p50_us > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_pass_webhook_and_extender_and_keep_reservations() {
    let report = play("--node-limit 2 --admissions 60 --load 120 --seed 5").await;
    assert_eq!(report.checks.broken, []);
    accounted(&report, 60);
    let denied = &report.refused["admission"];
    let both = "spec.containers[0].resources.limits[nvidia.com/gpumem-percentage]: excludes nvidia.com/gpumem in the \
                same container: set one of them";
    assert!(denied.texts.contains_key(both), "{denied:#?}");
    let Report { waited, reservations, .. } = &report;
    assert!(waited.texts.keys().any(|text| text.contains("none could ever run this pod")), "{waited:#?}");
    assert_eq!(waited.explained + waited.told, waited.pods, "all that wait are told why: {waited:#?}");
    assert!(reservations.seen.kept > 0 && reservations.counted["kept"] > 0, "{reservations:#?}");
    assert_eq!((reservations.seen.moved, reservations.counted["moved"], reservations.seen.refused), (0, 0, 0));
    for invariant in [Invariant::I5, Invariant::Reservation] {
        assert!(report.checks.checked.get(&invariant).is_some_and(|checks| *checks > 0), "{invariant} is checked");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_webhook_replicas_never_reserve_twice() {
    let report = play("--node-limit 2 --admissions 70 --load 120 --chaos --seed 8").await;
    assert_eq!(report.checks.broken, []);
    accounted(&report, 70);
    for kill in ["leading webhook gone", "other webhook killed"] {
        assert!(report.chaos.contains_key(kill), "{:?}", report.chaos);
    }
    assert!(report.reservations.seen.kept > 0, "{:#?}", report.reservations);
}

/// Every pod is admitted, refused, or found no room.
fn accounted(report: &Report, offered: u64) {
    let refused: u64 = report.refused.values().map(|refusals| refusals.count).sum();
    assert_eq!(report.admitted + refused + report.waited.given_up, offered, "{report:#?}");
    assert!(report.admitted > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_running_after_sigterm() {
    Binaries::get(false).await.expect("built");
    let mut playground = Command::new(PLAYGROUND)
        .args(["--no-build", "--verbose", "--admissions", "1000000", "--node-limit", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(playground.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let serves = lines.find(|line| line.contains("its log: ")).expect("a node serves");
    let log = serves.split("its log: ").last().expect("a path");
    let directory = log.strip_suffix("/0/divvy-node.log").expect("the first node's").to_owned();
    assert_eq!(programs(&directory), 4, "two daemons and two webhooks");

    let killed = Command::new("kill").arg(playground.id().to_string()).status().expect("kill exists");
    assert!(killed.success());
    // What it still prints must go somewhere.
    lines.for_each(drop);
    assert_eq!(playground.wait().expect("ended").code(), Some(1));
    let start = Instant::now();
    while programs(&directory) > 0 {
        assert!(start.elapsed() < PATIENCE, "programs of {directory} still run");
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn staying_cluster_prints_access_and_ends_cleanly() {
    Binaries::get(false).await.expect("built");
    let mut playground = Command::new(PLAYGROUND)
        .args(["--no-build", "--stay", "--admissions", "10", "--node-limit", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(playground.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let export = lines.find(|line| line.contains("export KUBECONFIG=")).expect("a way in");
    let file = export.split('=').next_back().expect("a path").to_owned();
    let directory = file.strip_suffix("/kubeconfig").expect("in the work directory").to_owned();
    let config = fs::read_to_string(&file).expect("a kubeconfig");
    assert!(config.contains("https://127.0.0.1:"), "{config}");
    assert_eq!(programs(&directory), 4, "two daemons and two webhooks");
    let told = Command::new("kill").args(["-s", "INT", &playground.id().to_string()]).status().expect("kill exists");
    assert!(told.success());
    lines.for_each(drop);
    assert_eq!(playground.wait().expect("ended").code(), Some(0));
    let start = Instant::now();
    while programs(&directory) > 0 {
        assert!(start.elapsed() < PATIENCE, "programs of {directory} still run");
        std::thread::yield_now();
    }
}

/// Processes that were started with a file of this directory.
fn programs(directory: &str) -> usize {
    let processes = fs::read_dir("/proc").expect("proc").filter_map(Result::ok);
    let lines = processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(directory)).count()
}

#[test]
fn wrong_flags_and_files_exit_with_64_and_say_where() {
    let flag = ended(&["--nods", "x"]);
    assert_eq!(flag.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&flag.stderr).contains("--nodes"));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("nodes.csv");
    fs::write(&file, "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,two,P100\n").expect("written");
    let path = file.to_str().expect("UTF-8");
    let output = ended(&["--nodes", path]);
    assert_eq!(output.status.code(), Some(64));
    let expected = format!("{path}:2:18: \"two\" is not a whole number from 0 to 32\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert_eq!(ended(&["--help"]).status.code(), Some(0));
}
