//! Processes of a pod, found by its cgroup, with the PID that each has inside its container.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::{fs, io};

use divvy_region::Owner;

use crate::cgroups;

#[cfg(test)]
mod tests;

/// Most cgroups of a pod that are read; a tenant that can make cgroups must not keep the daemon busy.
const MAX_CGROUPS: usize = 1000;

/// Processes of one pod at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PodProcesses {
    /// Index of each process's cgroup within the pod, by PID on the host.
    pub(super) pids: BTreeMap<u32, usize>,
    /// Whether the pod's cgroup is visible.
    pub(super) is_there: bool,
    /// Whether these are all processes of the pod.
    pub(super) is_whole: bool,
    /// Whether there are others, without a PID in this PID namespace: the kernel writes 0 for each.
    pub(super) has_hidden_processes: bool,
}

/// PID of a process inside its container and its start time, as in its slot.
pub(super) type Identity = (u32, u64);

/// Live processes of one pod, as slots name them.
#[derive(Debug)]
pub(super) struct LiveProcesses {
    known: HashSet<Identity>,
    is_whole: bool,
}

// === impl PodProcesses ===

impl PodProcesses {
    /// Processes of the pod of this UID, whose cgroup is somewhere below `root`.
    pub(super) fn find(root: &Path, uid: &str) -> Self {
        let mut rest = cgroups::of_pod(root, uid);
        let is_there = !rest.is_empty();
        let mut found = Self { is_there, is_whole: is_there, ..Self::default() };
        let mut looked = 0;
        while let Some(directory) = rest.pop() {
            looked += 1;
            if looked > MAX_CGROUPS {
                found.is_whole = false;
                break;
            }
            let Ok(procs) = fs::read_to_string(directory.join("cgroup.procs")) else {
                found.is_whole = false;
                continue;
            };
            for line in procs.lines() {
                match line.trim().parse() {
                    Ok(pid) if pid != 0 => drop(found.pids.insert(pid, looked)),
                    number => {
                        found.is_whole = false;
                        found.has_hidden_processes |= number == Ok(0);
                    }
                }
            }
            let below = fs::read_dir(&directory).into_iter().flatten().flatten();
            rest.extend(
                below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
            );
        }
        found
    }

    /// Looks up the processes' identities inside their containers.
    pub(super) fn live_processes(&self) -> LiveProcesses {
        let mut live_processes = LiveProcesses { known: HashSet::new(), is_whole: self.is_whole };
        for pid in self.pids.keys() {
            match identity(*pid) {
                Ok(Some(identity)) => drop(live_processes.known.insert(identity)),
                Err(error) if is_gone(&error) => {}
                Ok(None) | Err(_) => live_processes.is_whole = false,
            }
        }
        live_processes
    }
}

// === impl LiveProcesses ===

impl LiveProcesses {
    /// Whether a slot's process is dead. In doubt it isn't. One that is dead stays so: its number may come again, its
    /// start doesn't. One that had no `/proc` to look into doesn't know its start, and says 0.
    pub(super) fn is_dead(&self, owner: &Owner) -> bool {
        let is_known = match owner.started {
            0 => self.known.iter().any(|(pid, _)| *pid == owner.pid),
            started => self.known.contains(&(owner.pid, started)),
        };
        self.is_whole && !is_known
    }
}

/// Identity of a host process inside its container; `None` if the kernel's text has an unexpected form.
pub(super) fn identity(pid: u32) -> io::Result<Option<Identity>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(inner_pid(&status).zip(start(&stat)))
}

/// The last number of `NSpid`: that in the innermost namespace.
fn inner_pid(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

/// Whether a process was started by another, or by one that was: what a process's name says anybody can write, and its
/// parent nobody.
pub(super) fn descends(pid: u32, ancestor: u32) -> bool {
    /// The service's servers are two below their supervisor.
    const FAR: usize = 8;
    let parent = |pid: &u32| parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    std::iter::successors(parent(&pid), parent).take(FAR).any(|parent| parent == ancestor)
}

/// Field 4. The second is the name, as below.
pub(super) fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Field 22, in ticks since boot. The second field is the name in parentheses, which may have any in it.
fn start(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}
