//! Whether processes of a pod may still run, after the kubelet has stopped to list it.
//!
//! A pod that is deleted by force leaves the kubelet's list at once, and its containers run on for seconds (seen on
//! 1.36.3). The kubelet makes a pod's cgroup before its first container and removes it when the last one is dead, so the
//! cgroup tells what the list doesn't. That a pod has none says nothing by itself: it may not have been started yet, and
//! after a reboot it hasn't been started again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use divvy_node_core::pod::CgroupState;
use divvy_runtime::logging::WarnOnce;

/// Names of the cgroup that contains those of all pods, with the driver `cgroupfs` and with `systemd`
/// (`cm.NewCgroupName`, `cm.ToSystemd`).
const PODS: [&str; 2] = ["kubepods", "kubepods.slice"];
/// Names of the cgroups below it for the QoS classes Burstable and BestEffort.
const CLASSES: [&str; 4] = ["burstable", "besteffort", "kubepods-burstable.slice", "kubepods-besteffort.slice"];

/// The cgroups of this node's pods.
#[derive(Debug)]
pub struct PodCgroups {
    root: PathBuf,
    /// Pods, by UID, whose cgroup was there since this process was started. Not locked while directories are read.
    found: Mutex<HashSet<String>>,
    warning: Mutex<WarnOnce>,
}

// === impl PodCgroups ===

impl PodCgroups {
    /// Cgroups below `root`, where the host's are mounted: one hierarchy, or one for each controller.
    pub fn new(root: PathBuf) -> Self {
        Self { root, found: Mutex::default(), warning: Mutex::default() }
    }

    /// Looks for the cgroups of these pods while they are listed, and forgets all other pods.
    pub fn follow(&self, uids: &HashSet<String>) {
        let classes = classes(&self.root);
        let known = {
            let mut found = self.found();
            found.retain(|uid| uids.contains(uid));
            found.clone()
        };
        let new = uids.iter().filter(|uid| !known.contains(*uid) && has_cgroup(&classes, uid));
        let new: Vec<String> = new.cloned().collect();
        self.found().extend(new);
    }

    /// State of these pods' cgroups, by UID; a pod whose cgroup was never visible has no entry.
    pub fn states(&self, uids: Vec<String>) -> HashMap<String, CgroupState> {
        if uids.is_empty() {
            return HashMap::new();
        }
        let classes = classes(&self.root);
        if classes.is_empty() {
            self.warning.lock().unwrap_or_else(PoisonError::into_inner).warn(format!(
                "cgroupRoot {}: no cgroup kubepods found, so shares of pods deleted by force are released before their processes have exited",
                self.root.display()
            ));
            return HashMap::new();
        }
        uids.into_iter().filter_map(|uid| self.state(&classes, &uid).map(|state| (uid, state))).collect()
    }

    fn state(&self, classes: &[PathBuf], uid: &str) -> Option<CgroupState> {
        if has_cgroup(classes, uid) {
            self.found().insert(uid.to_owned());
            return Some(CgroupState::Exists);
        }
        self.found().contains(uid).then_some(CgroupState::Removed)
    }

    fn found(&self) -> MutexGuard<'_, HashSet<String>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The directories of a pod's cgroup: one, or one for each controller. None where cgroups, or this pod's, aren't seen.
pub fn of_pod(root: &Path, uid: &str) -> Vec<PathBuf> {
    classes(root).iter().map(|class| pod_in(class, uid)).filter(|pod| pod.is_dir()).collect()
}

/// The directories in which pods have theirs.
fn classes(root: &Path) -> Vec<PathBuf> {
    let controllers = fs::read_dir(root).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let pods = controllers.chain([root.to_owned()]).flat_map(|parent| PODS.map(|name| parent.join(name)));
    let pods = pods.filter(|pods| pods.is_dir());
    pods.flat_map(|pods| CLASSES.map(|class| pods.join(class)).into_iter().chain([pods.clone()])).collect()
}

fn has_cgroup(classes: &[PathBuf], uid: &str) -> bool {
    classes.iter().any(|class| pod_in(class, uid).is_dir())
}

fn pod_in(class: &Path, uid: &str) -> PathBuf {
    let slice = class.file_name().and_then(|name| name.to_str()?.strip_suffix(".slice"));
    match slice {
        Some(slice) => class.join(format!("{slice}-pod{}.slice", uid.replace('-', "_"))),
        None => class.join(format!("pod{uid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "5d8e01f4-33aa-4c4e-9d2e-0123456789ab";

    fn trace(cgroups: &PodCgroups) -> Option<CgroupState> {
        let states = cgroups.states(vec![UID.to_owned(), "another".to_owned()]);
        assert!(!states.contains_key("another"));
        states.get(UID).copied()
    }

    fn lingers(directories: &[&str]) -> bool {
        let root = tempfile::tempdir().expect("a directory");
        for directory in directories {
            fs::create_dir_all(root.path().join(directory)).expect("a directory");
        }
        trace(&PodCgroups::new(root.path().to_owned())) == Some(CgroupState::Exists)
    }

    #[test]
    fn cgroup_of_a_pod_is_found_for_every_driver() {
        for place in [
            "kubepods/pod5d8e01f4-33aa-4c4e-9d2e-0123456789ab",
            "kubepods/burstable/pod5d8e01f4-33aa-4c4e-9d2e-0123456789ab",
            "memory/kubepods/besteffort/pod5d8e01f4-33aa-4c4e-9d2e-0123456789ab",
            "kubepods.slice/kubepods-pod5d8e01f4_33aa_4c4e_9d2e_0123456789ab.slice",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod5d8e01f4_33aa_4c4e_9d2e_0123456789ab.slice",
            "cpu/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod5d8e01f4_33aa_4c4e_9d2e_0123456789ab.slice",
        ] {
            assert!(lingers(&[place]), "{place}");
        }
    }

    #[test]
    fn without_its_cgroup_a_pod_does_not_linger() {
        assert!(!lingers(&[]));
        assert!(!lingers(&["kubepods/burstable", "memory/kubepods/pod0"]));
    }

    #[test]
    fn pod_has_ended_once_its_cgroup_is_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let cgroup = root.path().join(format!("kubepods/pod{UID}"));
        let cgroups = PodCgroups::new(root.path().to_owned());
        let pods = HashSet::from([UID.to_owned()]);
        fs::create_dir_all(root.path().join("kubepods")).expect("a directory");
        cgroups.follow(&pods);
        assert_eq!(trace(&cgroups), None, "it may be about to start");
        fs::create_dir(&cgroup).expect("a directory");
        cgroups.follow(&pods);
        fs::remove_dir(&cgroup).expect("ours");
        assert_eq!(trace(&cgroups), Some(CgroupState::Removed));
        cgroups.follow(&pods);
        assert_eq!(trace(&cgroups), Some(CgroupState::Removed), "until its share has ended");
        fs::remove_dir(root.path().join("kubepods")).expect("ours");
        assert_eq!(trace(&cgroups), None, "nobody's can be seen");
        fs::create_dir(root.path().join("kubepods")).expect("a directory");
        cgroups.follow(&HashSet::new());
        assert_eq!(trace(&cgroups), None, "forgotten");
    }
}
