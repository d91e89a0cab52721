//! Directories that can't be written.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use crate::bench::{Bench, Stderr, binaries, length, part};

/// Mounts an empty file system over a directory, with the options in `$OPTIONS`, then runs the other arguments.
const MOUNT_AND_RUN: &str = r#"mount -t tmpfs -o "$OPTIONS" none "$0" && exec "$@""#;

/// A daemon of this bench whose state directory is a file system of its own, with these options; `None` if this machine
/// allows no mounts in a namespace.
async fn mounted(bench: &Bench, options: &str) -> Option<Command> {
    // Permission bits don't stop root: only a mount does, which needs namespaces that not every machine allows.
    let in_namespace = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", MOUNT_AND_RUN]).arg(bench.path("state")).arg(program);
        command.env("OPTIONS", options);
        command
    };
    if !in_namespace(Path::new("true")).status().await.is_ok_and(|status| status.success()) {
        eprintln!("left out: this machine allows no mounts in a namespace");
        return None;
    }
    let mut daemon = in_namespace(&binaries().await.daemon);
    daemon.arg("--config-file").arg(bench.path("config.yaml")).kill_on_drop(true);
    Some(daemon)
}

/// What a daemon says that ends by itself.
async fn said_at_its_end(mut daemon: Command) -> Output {
    timeout(Duration::from_secs(30), daemon.output()).await.expect("it ends by itself").unwrap()
}

#[tokio::test]
async fn read_only_cdi_directory_fails_cdi_but_not_auto() {
    let mut bench = Bench::stopped(json!({ "deviceListStrategy": "cdi-cri" })).await;
    // A directory can't be made below a file, not even by root.
    fs::write(bench.path("file"), "").unwrap();
    let cdi = bench.path("file/cdi");
    bench.set_key("cdiDir", cdi.to_str().unwrap());
    bench.start(Stderr::Log).await;
    bench.ready().await;
    let message = bench.refused(part("100")).await;
    let said = ["which deviceListStrategy requires", "writing CDI specification", "mount cdiDir writable"];
    assert!(said.iter().all(|said| message.contains(said)), "{message}");
    bench.kill().await;
    bench.set_key("deviceListStrategy", "auto");
    let before = bench.kubelet.view().registrations.len();
    bench.start(Stderr::Log).await;
    bench.registered(before).await;
    bench.ready().await;
    let uid = bench.run(part("100")).await;
    let (_, metrics) = bench.page("/metrics").await.unwrap();
    let delivered =
        r#"divvy_device_list_strategy_info{strategy="volume-mounts",bypassable="false",reason="auto: no CDI"#;
    assert!(metrics.contains(delivered), "{metrics}");
    let given = bench.kubelet.view().pods[&uid].containers[0].given.clone().unwrap();
    assert!(given.cdi_devices.is_empty());
    assert!(
        given.mounts.iter().any(|mount| mount.container_path.starts_with("/var/run/nvidia-container-devices/GPU-"))
    );
}

#[tokio::test]
async fn full_disk_fails_pods_and_loses_no_share() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("1000")).await;
    let given = bench.given(&uid);
    bench.limit_file_size(Some(length(&bench.journal()) + 100)).await;
    let message = bench.refused(part("2000")).await;
    let journal = bench.journal().display().to_string();
    let said = [&journal, "cannot write the ledger's journal: File too large", "stateDir must be a directory"];
    assert!(said.iter().all(|said| message.contains(said)), "{message}");
    let writable = async |bench: &Bench, value: &str| {
        let metrics = bench.page("/metrics").await.unwrap().1;
        assert!(metrics.contains(&format!("\ndivvy_journal_writable{{}} {value}\n")), "{metrics}");
    };
    writable(&bench, "0.0").await;
    bench.limit_file_size(None).await;
    bench.serving().await;
    bench.limit_file_size(Some(10)).await;
    let message = bench.refused(part("2000")).await;
    assert!(message.contains("writing limits") && message.contains("File too large"), "{message}");
    bench.limit_file_size(None).await;
    bench.serving().await;
    bench.run(part("3000")).await;
    writable(&bench, "1.0").await;
    bench.until_booked(&[1000, 3000]).await;
    bench.killed(|_| {}).await;
    bench.until_booked(&[1000, 3000]).await;
    assert_eq!(bench.given(&uid), given);
    assert_eq!(fs::read_dir(bench.path("run/containers")).unwrap().count(), 2, "no directory of a pod that failed");
}

#[tokio::test]
async fn read_only_run_directory_fails_new_pods_and_loses_nothing() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("1000")).await;
    let given = bench.given(&uid);
    let (containers, aside) = (bench.path("run/containers"), bench.path("aside"));
    fs::rename(&containers, &aside).unwrap();
    fs::write(&containers, "").unwrap();
    let message = bench.refused(part("2000")).await;
    let said = ["making directory", containers.to_str().unwrap(), "runDir must be a directory"];
    assert!(said.iter().all(|said| message.contains(said)), "{message}");
    assert!(bench.runs());
    bench.until_booked(&[1000]).await;
    fs::remove_file(&containers).unwrap();
    fs::rename(&aside, &containers).unwrap();
    bench.serving().await;
    bench.run(part("3000")).await;
    bench.until_booked(&[1000, 3000]).await;
    assert_eq!(bench.given(&uid), given);
}

#[tokio::test]
async fn read_only_state_directory_at_start_exits_with_1() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("1000")).await;
    let given = bench.given(&uid);
    bench.kill().await;
    let (state, aside) = (bench.path("state"), bench.path("aside"));
    fs::rename(&state, &aside).unwrap();
    fs::write(&state, "").unwrap();
    bench.start(Stderr::Log).await;
    assert_eq!(bench.ended().await.code(), Some(1));
    let log = bench.log();
    let said = [state.to_str().unwrap(), ": File exists", "stateDir must be a directory that the daemon can write to"];
    assert!(said.iter().all(|said| log.contains(said)), "{log}");
    fs::remove_file(&state).unwrap();
    fs::rename(&aside, &state).unwrap();
    let before = bench.kubelet.view().registrations.len();
    bench.start(Stderr::Log).await;
    bench.registered(before).await;
    bench.until_booked(&[1000]).await;
    assert_eq!(bench.given(&uid), given);
}

#[tokio::test]
async fn readonly_state_directory_exits_with_1() {
    let mut bench = Bench::new().await;
    bench.kill().await;
    let Some(daemon) = mounted(&bench, "ro").await else { return };
    let output = said_at_its_end(daemon).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let journal = bench.path("state/journal.new");
    let said = [journal.to_str().unwrap(), "Read-only file system", "stateDir must be a directory"];
    assert!(output.status.code() == Some(1) && said.iter().all(|said| stderr.contains(said)), "{stderr}");
}

#[tokio::test]
async fn library_on_noexec_mount_is_not_mounted() {
    let mut bench = Bench::new().await;
    bench.kill().await;
    fs::write(bench.path("libdivvy.so"), b"\x7fELF").unwrap();
    bench.set_key("tier", "shim");
    bench.write_keys();
    let Some(daemon) = mounted(&bench, "noexec").await else { return };
    let output = said_at_its_end(daemon).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = format!("tier shim can't be served: stateDir: {}: mounted noexec", bench.path("state").display());
    assert!(output.status.code() == Some(64) && stderr.contains(&said), "{stderr}");
}

#[tokio::test]
async fn unwritable_log_ends_nothing() {
    let mut bench = Bench::stopped(json!({})).await;
    bench.start(Stderr::Full).await;
    bench.ready().await;
    bench.run(part("100")).await;
    assert!(bench.runs());
}
