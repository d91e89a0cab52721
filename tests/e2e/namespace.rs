//! The namespaces that a run lives in, and what is mounted there.
//!
//! The test starts itself a second time under `unshare`: as the second process of a PID namespace, beside a shell that
//! takes in orphans. When it ends for any reason, everything in there is killed by the kernel; it ends too when its
//! standard input closes, so that it never outlives whoever started it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, bail};

use crate::files::Files;

/// Set, to the run's directory, in the inner process.
const INNER: &str = "DIVVY_E2E_INNER";
/// Under each hierarchy of cgroups; a number of the run's own follows.
const CGROUP: &str = "divvy-e2e-";

/// The run's directory, in the inner process.
pub fn inner() -> Option<PathBuf> {
    std::env::var_os(INNER).map(PathBuf::from)
}

/// Runs this program again, inside, on the run's directory. Its arguments stay the same.
pub fn enter(directory: &Path) -> anyhow::Result<ExitStatus> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"]);
    // The shell reaps orphans, and must not be replaced by its last command.
    command.args(["sh", "-c", r#""$0" "$@"; exit $?"#]).arg(program).args(std::env::args_os().skip(1));
    command.env(INNER, directory).stdin(Stdio::piped());
    let mut child = command.spawn().context("starting unshare")?;
    // Kept open until the child has ended.
    let lifeline = child.stdin.take();
    let status = child.wait().context("waiting for the inner process");
    drop(lifeline);
    sweep_cgroups();
    status
}

/// Ends this process when the outer one does.
pub fn end_with_the_outer_process() {
    std::thread::spawn(|| {
        // Nobody writes: this returns when the pipe closes.
        drop(std::io::stdin().read(&mut [0]));
        std::process::exit(1);
    });
}

/// Puts directories of the run where programs insist on theirs. Returns the cgroup that pods are to live in.
pub fn mount(files: &Files, node: &str) -> anyhow::Result<String> {
    let binds = [
        ("kubelet", "/var/lib/kubelet"),
        ("container-logs", "/var/log/containers"),
        // Shims put their sockets there, whatever containerd's own configuration says.
        ("run-containerd", "/run/containerd"),
    ];
    for (own, place) in binds {
        fs::create_dir_all(place).with_context(|| format!("creating {place}"))?;
        bind(&files.directory(own)?, place)?;
    }
    // Volumes of pods are mounted below, and containers must see them.
    execute("mount", &["--make-rshared", "/var/lib/kubelet"])?;
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    bind(&files.write("hosts", format!("{hosts}\n127.0.0.1 {node}\n"))?, "/etc/hosts")?;
    let cgroup = format!("{CGROUP}{}", rand::random::<u32>());
    for hierarchy in hierarchies() {
        // A hierarchy that refuses is one that the kubelet doesn't use.
        fs::create_dir(hierarchy.join(&cgroup)).unwrap_or_default();
    }
    Ok(format!("/{cgroup}"))
}

/// Where the cgroup that pods live in is seen: below the controller `memory` with cgroup v1, which has a tree for each.
pub fn seen(cgroup: &str) -> PathBuf {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchy = Some(root.join("memory")).filter(|memory| memory.is_dir()).unwrap_or_else(|| root.to_owned());
    hierarchy.join(cgroup.trim_start_matches('/'))
}

fn bind(own: &Path, place: &str) -> anyhow::Result<()> {
    execute("mount", &["--bind", &own.display().to_string(), place])
}

/// Runs a program of the machine to its end.
pub fn execute(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("starting {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// cgroup v2 has one, v1 a directory for each controller.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let below = fs::read_dir(root).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let all = [root.to_owned()].into_iter().chain(below);
    all.filter(|hierarchy| hierarchy.join("cgroup.procs").exists()).collect()
}

/// Removes the cgroups of runs that are over. Those of a run that isn't can't be removed.
fn sweep_cgroups() {
    for hierarchy in hierarchies() {
        let groups = fs::read_dir(hierarchy).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let own = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(CGROUP));
        groups.filter(own).for_each(|group| remove_tree(&group));
    }
}

fn remove_tree(group: &Path) {
    let below = fs::read_dir(group).into_iter().flatten().filter_map(Result::ok);
    below
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .for_each(|entry| remove_tree(&entry.path()));
    fs::remove_dir(group).unwrap_or_default();
}
