//! What containers really use, with processes of tenants that write their books as `libdivvy` does, and are killed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use divvy_api::container::{LIMITS_MOUNT, OVERHEAD_FILE, REGION_MOUNT};
use divvy_api::usage::{ContainerUsage, NodeUsage, ViolationKind};
use divvy_region::layout::{self, LINE};
use divvy_testkit::pods::GPU;
use fake_kubelet::Workload;
use fake_nvml::{Call, NvmlReturn};
use nix::fcntl::{FcntlArg, fcntl};

use crate::bench::Bench;
use crate::bench::cluster::events;
use crate::bench::part;

const BOOKS: &str = "DIVVY_TEST_BOOKS";
const UNHOOKED: &str = "DIVVY_TEST_UNHOOKED";
const MIB: u64 = 1 << 20;

/// A process that has a slot, and holds 64 MiB of card 0 in it.
pub(crate) struct Tenant(Child);

impl Tenant {
    /// One that has looked up so many functions which the library doesn't know.
    pub(crate) fn start(books: &Path, unhooked: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", "usage::a_tenants_process"]).env(BOOKS, books);
        command.env(UNHOOKED, unhooked.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("seated")), "it has requested a slot");
        Self(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The first slot whose lock is free, an allocation, and some work.
#[test]
#[ignore = "a process that other tests start"]
fn a_tenants_process() {
    let Some(path) = std::env::var_os(BOOKS) else { return };
    let file = File::options().read(true).write(true).open(path).unwrap();
    let locks = |slot: &usize| {
        let (start, kind) = (i64::try_from(*slot).unwrap(), i16::try_from(libc::F_WRLCK).unwrap());
        let lock = libc::flock { l_type: kind, l_whence: 0, l_start: start, l_len: 1, l_pid: 0 };
        fcntl(&file, FcntlArg::F_SETLK(&lock)).is_ok()
    };
    let slot = (0..layout::SLOTS).find(locks).unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let started: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let write = |at: usize, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&bytes, at as u64).unwrap();
    };
    write(layout::use_bytes(1, 0, slot + 1).end - LINE, &[0, 64 * MIB, 0, 0, 0, 1_500_000_000]);
    let unhooked = std::env::var(UNHOOKED).unwrap().parse().unwrap();
    write(LINE + 16, &[10, 5, 250_000_000, 3, 1, unhooked]);
    write(layout::slot_bytes(1, slot).start, &[1 | u64::from(process::id()) << 32, started, 99]);
    file.write_all_at(&u32::try_from(slot + 1).unwrap().to_ne_bytes(), 28).unwrap();
    println!("\nseated");
    std::io::stdin().lines().for_each(drop);
}

impl Bench {
    async fn usage(&self) -> NodeUsage {
        let (status, text) = self.admin_page("/usage").await.expect("it answers");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The one line of a pod, once there is one.
    async fn usage_of(&self, uid: &str) -> ContainerUsage {
        let of_pod = |line: &ContainerUsage| line.of.pod_uid == uid;
        self.until_so("its line", async || self.usage().await.containers.into_iter().find(of_pod)).await
    }

    /// Waits until the books of a pod say that so many processes hold so many MiB.
    async fn until_used(&self, uid: &str, processes: u32, mib: u64) -> ContainerUsage {
        self.until_so(&format!("{processes} processes with {mib} MiB"), async || {
            let usage = self.usage().await.containers.into_iter().find(|line| line.of.pod_uid == uid)?;
            let books = usage.region?;
            (books.processes == processes && books.used_bytes == mib * MIB).then_some(usage)
        })
        .await
    }

    /// Where a pod's processes find their books. The file is made if the daemon's tier makes none.
    pub(crate) fn books(&self, uid: &str) -> PathBuf {
        let given = self.kubelet.view().pods[uid].containers[0].given.clone().unwrap();
        let mount = given.mounts.iter().find(|mount| mount.container_path == REGION_MOUNT).expect("a region");
        let path = Path::new(&mount.host_path).join("books");
        if !path.exists() {
            let mut bytes = vec![0; layout::size(1)];
            bytes[..LINE].copy_from_slice(&layout::header(1, 0).unwrap());
            fs::write(&path, bytes).unwrap();
        }
        path
    }

    /// What a pod's processes are told of what the driver charges them beyond their books.
    fn overhead(&self, uid: &str) -> Option<String> {
        let given = self.kubelet.view().pods[uid].containers[0].given.clone().unwrap();
        let mount = given.mounts.iter().find(|mount| mount.container_path == LIMITS_MOUNT).expect("limits");
        fs::read_to_string(Path::new(&mount.host_path).join(OVERHEAD_FILE)).ok()
    }

    /// What the kernel would say of a pod's cgroup.
    pub(crate) fn set_processes(&self, uid: &str, pids: &[u32]) {
        let lines: Vec<String> = pids.iter().map(ToString::to_string).collect();
        let cgroup = self.kubelet.cgroups().join(format!("kubepods/besteffort/pod{uid}"));
        fs::write(cgroup.join("cgroup.procs"), lines.join("\n")).unwrap();
    }

    /// What NVML says of a card: processes, and MiB of each.
    pub(crate) fn set_on_card(&mut self, card: &str, processes: &[(u32, u64)]) {
        let process =
            |(pid, mib): &(u32, u64)| fake_nvml::Process { pid: *pid, memory_used: mib * MIB, utilization: 0 };
        let processes = processes.iter().map(process).collect();
        self.change_scenario(|scenario| scenario.card_mut(card).unwrap().processes = processes);
    }
}

/// Lines of metrics about containers and findings, without values that differ from run to run.
fn told(metrics: &str, uid: &str) -> String {
    let about = |line: &&str| line.contains("divvy_container_") || line.contains("divvy_share_violations");
    metrics.lines().filter(about).collect::<Vec<_>>().join("\n").replace(uid, "<uid>")
}

fn named(name: &str) -> Workload {
    Workload::new(name).app("main", &[(GPU, "1"), ("nvidia.com/gpumem", "1000"), ("nvidia.com/gpucores", "30")])
}

#[tokio::test]
async fn usage_is_reported_and_memory_of_killed_process_is_freed() {
    let mut bench = Bench::new().await;
    let uid = bench.run(named("train")).await;
    assert_eq!(bench.usage_of(&uid).await.region, None, "without a library");
    let (card, _) = bench.given(&uid)[0].clone();
    let books = bench.books(&uid);
    let (first, second) = (Tenant::start(&books, 2), Tenant::start(&books, 2));
    bench.set_processes(&uid, &[first.pid(), second.pid()]);
    bench.set_on_card(&card, &[(first.pid(), 70), (second.pid(), 80)]);
    bench.until_used(&uid, 2, 128).await;
    bench
        .until_so("the driver's figure, and what of it nobody asked for", async || {
            let usage = bench.usage_of(&uid).await;
            (usage.driver_bytes == Some(150 * MIB) && usage.overhead_bytes == 22 * MIB).then_some(())
        })
        .await;
    assert_eq!(bench.overhead(&uid), Some(format!("{card} {}\n", 22 * MIB)));
    let mut usage = bench.usage().await;
    usage.containers[0].of.pod_uid = "<uid>".to_owned();
    usage.containers[0].card = "GPU-x".parse().unwrap();
    // The counters of one file: both processes wrote the same ones. The first look has no earlier one to compare with.
    usage.containers[0].region.as_mut().unwrap().busy_percent = None;
    insta::assert_json_snapshot!("usage", usage);
    let (_, metrics) = bench.page("/metrics").await.unwrap();
    insta::assert_snapshot!("metrics", told(&metrics, &uid).replace(&card, "GPU-x"));

    drop(first);
    let after = bench.until_used(&uid, 1, 64).await.region.unwrap();
    assert_eq!((after.busy_ns, after.launches), (3_000_000_000, 15), "counters stay");
    drop(second);
    bench.until_used(&uid, 0, 0).await;
    let third = Tenant::start(&books, 2);
    bench.set_processes(&uid, &[third.pid()]);
    let again = bench.until_used(&uid, 1, 64).await.region.unwrap();
    assert_eq!(again.busy_ns, 4_500_000_000);
    bench.killed(|_| {}).await;
    bench.until_used(&uid, 1, 64).await;
    // The stand-in can't remove a directory that isn't empty, as the kernel can a cgroup.
    fs::remove_file(bench.kubelet.cgroups().join(format!("kubepods/besteffort/pod{uid}/cgroup.procs"))).unwrap();
    bench.gone(&uid).await;
    bench.until_so("its end", async || bench.usage().await.containers.is_empty().then_some(())).await;
}

#[tokio::test]
async fn hostile_region_is_reported_and_affects_no_other() {
    let bench = Bench::new().await;
    let (sound, hostile) = (bench.run(named("sound")).await, bench.run(named("hostile")).await);
    let _tenant = Tenant::start(&bench.books(&sound), 0);
    let path = bench.books(&hostile);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(bench.books(&sound), &path).unwrap();
    bench
        .until_said(
            "container main of pod default/hostile: reading its accounting region failed: it is not a regular file",
        )
        .await;
    fs::remove_file(&path).unwrap();
    fs::write(&path, vec![0xff; 1 << 20]).unwrap();
    bench.until_said("region begins with 0xffffffffffffffff").await;
    bench.until_used(&sound, 1, 64).await;
    assert_eq!(bench.usage_of(&hostile).await.region, None);
}

/// A program that no linker loads a library into, where there is a C compiler that makes one.
fn statically_linked(bench: &Bench) -> Command {
    let (source, program) = (bench.path("wait.c"), bench.path("wait"));
    fs::write(&source, "int pause(void); int main(void) { return pause(); }").unwrap();
    let made = Command::new("cc").args(["-static", "-o"]).args([&program, &source]).status();
    if made.is_ok_and(|made| made.success()) {
        return Command::new(program);
    }
    eprintln!("not statically linked: there is no C compiler for it");
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    sleep
}

#[tokio::test]
async fn share_violations_are_detected_and_published() {
    let mut bench = Bench::publishing().await;
    let uid = bench.run(named("greedy")).await;
    let (card, _) = bench.given(&uid)[0].clone();
    let tenant = Tenant::start(&bench.books(&uid), 0);
    let bypass = statically_linked(&bench).spawn().map(Tenant).unwrap();
    bench.set_processes(&uid, &[tenant.pid(), bypass.pid()]);
    bench.set_on_card(&card, &[(tenant.pid(), 64), (bypass.pid(), 2000), (process::id(), 7)]);
    bench
        .until_told("it isn't held", |node| {
            node.conditions.iter().any(|condition| condition.type_ == "SharesHeld" && condition.status == "False")
        })
        .await;
    let findings = bench.usage().await.findings;
    let found: Vec<_> =
        findings.iter().map(|finding| (finding.kind, finding.pids.clone(), finding.bytes / MIB)).collect();
    let both = [tenant.pid(), bypass.pid()];
    let mut sorted = both;
    sorted.sort_unstable();
    assert_eq!(
        found,
        [
            (ViolationKind::AboveShare, sorted.to_vec(), 2064),
            (ViolationKind::WithoutLibrary, vec![bypass.pid()], 2000),
            (ViolationKind::Foreign, vec![process::id()], 7),
        ]
    );
    let said = findings[1].message.replace(&card, "GPU-x").replace(&bypass.pid().to_string(), "PID");
    let expected = "container main of pod default/greedy uses GPU-x without libdivvy, so its share is not \
                    enforced: process PID of the host, 2000Mi";
    assert_eq!(said, expected);
    for (reason, about) in [("AboveShare", "greedy"), ("WithoutLibrary", "greedy"), ("ForeignProcess", "node")] {
        let notes =
            bench.until_shown(reason, |view| Some(events(view, reason)).filter(|events| !events.is_empty())).await;
        assert!(notes.len() == 1 && notes[0].0 == about, "{notes:?}");
    }
    bench.set_on_card(&card, &[(tenant.pid(), 64)]);
    bench
        .until_told("it is held", |node| {
            node.conditions
                .iter()
                .any(|condition| condition.type_ == "SharesHeld" && condition.reason == "NothingFound")
        })
        .await;
}

#[tokio::test]
async fn missing_process_list_is_reported() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("100")).await;
    let call = Call::any("nvmlDeviceGetComputeRunningProcesses_v3");
    bench.change_scenario(|scenario| scenario.errors.extend([(call, NvmlReturn::NotSupported)]));
    bench.until_so("a word about it", async || bench.usage().await.unmeasured).await;
    assert_eq!(bench.usage_of(&uid).await.driver_bytes, None);
}
