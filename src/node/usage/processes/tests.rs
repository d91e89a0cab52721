use std::process::{self, Command};

use super::*;

const UID: &str = "5d8e01f4-33aa-4c4e-9d2e-0123456789ab";

/// A pod's cgroup with one container's in it, and these processes in both.
fn pod(own: &str, container: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join(format!("kubepods/burstable/pod{UID}"));
    fs::create_dir_all(directory.join("abc")).expect("a directory");
    fs::write(directory.join("cgroup.procs"), own).expect("a file");
    fs::write(directory.join("abc/cgroup.procs"), container).expect("a file");
    root
}

fn owner(pid: u32, started: u64) -> Owner {
    Owner { pid, started, ..Owner::default() }
}

#[test]
fn processes_are_found_in_all_cgroups_of_their_pod() {
    let found = PodProcesses::find(pod("", "12\n13\n").path(), UID);
    let pids = [(12, 2), (13, 2)].into();
    assert_eq!(found, PodProcesses { pids, is_there: true, is_whole: true, has_hidden_processes: false });
    assert!(PodProcesses::find(pod("0\n", "12\n").path(), UID).has_hidden_processes);
    assert!(!PodProcesses::find(Path::new("/nowhere"), UID).is_there);
}

#[test]
fn hidden_processes_are_never_taken_for_dead() {
    let gone = owner(1, 1);
    let is_dead = |root: &Path| PodProcesses::find(root, UID).live_processes().is_dead(&gone);
    assert!(is_dead(pod("", "").path()), "its cgroup is empty");
    assert!(!is_dead(pod("", "0\n").path()), "somebody is there without a number here");
    assert!(!is_dead(pod("", "what").path()));
    assert!(!is_dead(Path::new("/nowhere")));
    let unreadable = pod("", "");
    fs::remove_file(unreadable.path().join(format!("kubepods/burstable/pod{UID}/abc/cgroup.procs"))).expect("ours");
    assert!(!is_dead(unreadable.path()));
}

#[test]
fn process_is_identified_by_pid_and_start_time() {
    let own = process::id();
    let (pid, started) = identity(own).expect("it runs").expect("Linux tells");
    let live_processes = PodProcesses::find(pod("", &own.to_string()).path(), UID).live_processes();
    assert!(!live_processes.is_dead(&owner(pid, started)));
    assert!(live_processes.is_dead(&owner(pid, started + 1)), "the number has come again");
    assert!(live_processes.is_dead(&owner(pid + 1, started)));
    assert!(!live_processes.is_dead(&owner(pid, 0)), "it doesn't know its start");
    assert!(live_processes.is_dead(&owner(pid + 1, 0)));
}

#[test]
fn zombie_process_is_dead() {
    let mut child = Command::new("true").spawn().expect("a process");
    child.wait().expect("it ends");
    let live_processes = PodProcesses::find(pod("", &child.id().to_string()).path(), UID).live_processes();
    assert!(live_processes.is_dead(&owner(child.id(), 1)));
}

#[test]
fn process_name_may_hold_any_bytes() {
    let stat = "12 (a) R 1 (b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
    assert_eq!((start(stat), start("12 (a"), start("")), (Some(4711), None, None));
    assert_eq!(inner_pid("Name:\tx\nNSpid:\t4000\t21\t7\n"), Some(7));
    assert_eq!(inner_pid("Name:\tx\n"), None);
}
