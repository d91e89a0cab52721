//! What containers really have, read from their processes: environment, mounts, device nodes, limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use divvy_api::CardId;
use divvy_node::container::{LIMITS_FILE, LIMITS_MOUNT, REGION_MOUNT, limits};
use divvy_testkit::outside::Given;

use crate::namespace::KUBEPODS;

/// Where cards are named by mounts.
const CARDS_AS_MOUNTS: &str = "/var/run/nvidia-container-devices/";

/// A container by its pod's UID and its own name.
pub type ContainerKey = (String, String);

/// A running container.
#[derive(Clone, Debug)]
pub struct Running {
    /// First process of the container.
    pub pid: u32,
    /// Cards and limits of the container.
    pub given: Given,
    /// Whether its region directory is mounted.
    pub has_region: bool,
    /// Mount points in it.
    pub mounts: BTreeSet<String>,
}

// === impl Running ===

impl Running {
    /// Whether its first process hasn't ended: of one that has nothing is left but its number.
    pub fn lives(&self) -> bool {
        fs::read(format!("/proc/{}/environ", self.pid)).is_ok_and(|environment| !environment.is_empty())
    }

    /// Whether both have the same cards and limits.
    pub fn is_given_as(&self, other: &Self) -> bool {
        self.given.named == other.given.named && self.given.limits == other.given.limits
    }
}

/// Fails where a process of `before` has other cards or limits now; processes that are gone are passed over.
pub fn keep_their_shares(
    before: &BTreeMap<ContainerKey, Running>,
    now: &BTreeMap<ContainerKey, Running>,
) -> anyhow::Result<()> {
    for (key, old) in before {
        let new = now.get(key).filter(|new| new.pid == old.pid).unwrap_or(old);
        ensure!(new.is_given_as(old), "container {key:?} had {:?}, has {:?}", old.given, new.given);
    }
    Ok(())
}

/// Fails where a process of `before` has other cards or limits now, or has ended.
pub fn run_on(before: &BTreeMap<ContainerKey, Running>, now: &BTreeMap<ContainerKey, Running>) -> anyhow::Result<()> {
    for (key, old) in before {
        let pid = now.get(key).map(|new| new.pid);
        ensure!(pid == Some(old.pid), "container {key:?} was process {}, is {pid:?}", old.pid);
    }
    keep_their_shares(before, now)
}

/// All running containers of pods, found by the kubelet's mount of the termination message, which names pod and
/// container. `minors` are the numbers of the cards' device nodes.
pub fn running(minors: &BTreeMap<u32, CardId>) -> BTreeMap<ContainerKey, Running> {
    let mut found: BTreeMap<ContainerKey, Running> = BTreeMap::new();
    for pid in processes() {
        let root = PathBuf::from(format!("/proc/{pid}"));
        let Some((key, mounts)) = container_of(&root) else { continue };
        if found.contains_key(&key) {
            continue;
        }
        let read =
            Running { pid, given: given(&root, &mounts, minors), has_region: mounts.contains(REGION_MOUNT), mounts };
        // What was read of a process that has ended meanwhile is half of the truth.
        if read.lives() {
            found.insert(key, read);
        }
    }
    found
}

/// Kills a container's first process, and so the container.
pub fn kill(container: &Running) -> anyhow::Result<()> {
    kill_process(container.pid)
}

/// Kills a process.
pub fn kill_process(pid: u32) -> anyhow::Result<()> {
    crate::program::execute("sh", &["-c", &format!("kill -9 {pid}")])
}

/// Processes of this program.
pub fn processes_of(program: &str) -> Vec<u32> {
    let mut all = processes();
    all.retain(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == program));
    all
}

/// Kills the runtime's own processes and everything in the kubelet's cgroups.
pub fn kill_all() -> anyhow::Result<()> {
    let is_of_pod =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|groups| groups.contains(KUBEPODS));
    let shims = processes_of("containerd-shim");
    shims.into_iter().chain(processes().into_iter().filter(is_of_pod)).try_for_each(|pid| {
        // One may have ended with another.
        kill_process(pid).or_else(|error| if Path::new(&format!("/proc/{pid}")).exists() { Err(error) } else { Ok(()) })
    })
}

/// Lowest first: a container's first process started its others.
fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// The container that a process belongs to, and its mount points.
fn container_of(process: &Path) -> Option<(ContainerKey, BTreeSet<String>)> {
    // The runtime's own process before it becomes the container's.
    if fs::read_to_string(process.join("comm")).ok()?.starts_with("runc") {
        return None;
    }
    let mounts = fs::read_to_string(process.join("mountinfo")).ok()?;
    // proc(5): the fourth field is the mounted path in its file system, the fifth the mount point.
    let fields = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    let mounts: Vec<(String, String)> = mounts.lines().filter_map(fields).collect();
    let (source, _) = mounts.iter().find(|(_, point)| point == "/dev/termination-log")?;
    // …/pods/<UID>/containers/<name>/<instance>
    let mut parts = source.rsplit('/').skip(1);
    let name = parts.next()?.to_owned();
    let uid = parts.nth(1)?.to_owned();
    Some(((uid, name), mounts.into_iter().map(|(_, point)| point).collect()))
}

fn given(process: &Path, mounts: &BTreeSet<String>, minors: &BTreeMap<u32, CardId>) -> Given {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let variables = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let visible =
        variables.filter_map(|line| Some(line.strip_prefix("NVIDIA_VISIBLE_DEVICES=")?.to_owned())).next_back();
    let visible = visible.unwrap_or_default();
    let nodes = fs::read_dir(process.join("root/dev")).into_iter().flatten().filter_map(|entry| {
        let minor: u32 = entry.ok()?.file_name().to_str()?.strip_prefix("nvidia")?.parse().ok()?;
        Some(minors.get(&minor).map_or_else(|| format!("unknown device nvidia{minor}"), ToString::to_string))
    });
    let cards = |list: &str| list.split(',').filter(|id| id.parse::<CardId>().is_ok()).map(str::to_owned).collect();
    let named: [(&'static str, BTreeSet<String>); 3] = [
        ("environment", cards(&visible)),
        ("mounts", mounts.iter().filter_map(|point| Some(point.strip_prefix(CARDS_AS_MOUNTS)?.to_owned())).collect()),
        ("device nodes", nodes.collect()),
    ];
    let named = named.into_iter().filter(|(_, cards)| !cards.is_empty()).collect();
    let limits = mounts.contains(LIMITS_MOUNT).then(|| {
        let file = process.join("root").join(LIMITS_MOUNT.trim_start_matches('/')).join(LIMITS_FILE);
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        limits::read(&text).map_err(|error| format!("{}: {error}", file.display()))
    });
    Given { named, limits }
}
