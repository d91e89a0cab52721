//! Whether processes of a pod may still run, after the kubelet has stopped to list it.
//!
//! A pod that is deleted by force leaves the kubelet's list at once, and its containers run on for seconds (seen on
//! 1.36.3). The kubelet removes a pod's cgroup when its containers are dead, so the cgroup tells what the list doesn't.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::logging::Once;

/// Under these names the kubelet keeps the cgroups of pods, with the driver `cgroupfs` and with `systemd`
/// (`cm.NewCgroupName`, `cm.ToSystemd`).
const PODS: [&str; 2] = ["kubepods", "kubepods.slice"];
/// Below them those of the classes Burstable and BestEffort.
const CLASSES: [&str; 4] = ["burstable", "besteffort", "kubepods-burstable.slice", "kubepods-besteffort.slice"];

/// The cgroups of this node's pods.
#[derive(Debug)]
pub struct PodCgroups {
    root: PathBuf,
    said: Once,
}

// === impl PodCgroups ===

impl PodCgroups {
    /// Cgroups below `root`, where the host's are mounted: one hierarchy, or one for each controller.
    pub fn new(root: PathBuf) -> Self {
        Self { root, said: Once::default() }
    }

    /// Those of the pods that still have a cgroup. Where no pod's cgroup can be seen that is none of them.
    pub fn lingering(&mut self, uids: Vec<String>) -> HashSet<String> {
        if uids.is_empty() {
            return HashSet::new();
        }
        let classes = self.classes();
        if classes.is_empty() {
            self.said.warn(format!(
                "cgroupRoot {}: no kubepods there, so the share of a pod that is deleted by force ends before its processes do",
                self.root.display()
            ));
        }
        uids.into_iter().filter(|uid| classes.iter().any(|class| has_pod(class, uid))).collect()
    }

    /// The directories in which pods have theirs.
    fn classes(&self) -> Vec<PathBuf> {
        let controllers = fs::read_dir(&self.root).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let pods = controllers.chain([self.root.clone()]).flat_map(|parent| PODS.map(|name| parent.join(name)));
        let pods = pods.filter(|pods| pods.is_dir());
        pods.flat_map(|pods| CLASSES.map(|class| pods.join(class)).into_iter().chain([pods.clone()])).collect()
    }
}

fn has_pod(class: &Path, uid: &str) -> bool {
    let slice = class.file_name().and_then(|name| name.to_str()?.strip_suffix(".slice"));
    match slice {
        Some(slice) => class.join(format!("{slice}-pod{}.slice", uid.replace('-', "_"))).is_dir(),
        None => class.join(format!("pod{uid}")).is_dir(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "5d8e01f4-33aa-4c4e-9d2e-0123456789ab";

    fn lingers(directories: &[&str]) -> bool {
        let root = tempfile::tempdir().expect("a directory");
        for directory in directories {
            fs::create_dir_all(root.path().join(directory)).expect("a directory");
        }
        let mut cgroups = PodCgroups::new(root.path().to_owned());
        cgroups.lingering(vec![UID.to_owned(), "another".to_owned()]) == HashSet::from([UID.to_owned()])
    }

    #[test]
    fn a_pods_cgroup_is_found_wherever_the_kubelet_puts_it() {
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
    fn without_its_cgroup_a_pod_is_over() {
        assert!(!lingers(&[]));
        assert!(!lingers(&["kubepods/burstable", "memory/kubepods/pod0"]));
    }
}
