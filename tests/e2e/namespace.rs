//! The namespaces that a run lives in, and what is mounted there.
//!
//! The test starts itself a second time under `unshare`: as the second process of a PID namespace, beside a shell that
//! takes in orphans. When it ends for any reason, everything in there is killed by the kernel; it ends too when its
//! standard input closes, so that it never outlives whoever started it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::Context as _;

use crate::files::{Files, RUN_DIRECTORY, STATE_DIRECTORY};
use crate::network::Network;
use crate::program::execute;

/// Set, to the run's directory, in the inner process.
const INNER: &str = "DIVVY_E2E_INNER";

/// The cgroup that a kubelet makes for its pods unless told otherwise.
pub(crate) const KUBEPODS: &str = "kubepods";

/// The run's directory, in the inner process.
pub fn inner() -> Option<PathBuf> {
    std::env::var_os(INNER).map(PathBuf::from)
}

/// Runs this program again, inside, on the run's directory. Its arguments stay the same.
pub fn enter(directory: &Path, network: &Network) -> anyhow::Result<ExitStatus> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"]);
    if network.is_own {
        command.arg("--net");
    }
    // The shell reaps orphans, and must not be replaced by its last command.
    command.args(["sh", "-c", r#""$0" "$@"; exit $?"#]).arg(program).args(std::env::args_os().skip(1));
    command.env(INNER, directory).stdin(Stdio::piped());
    let mut child = command.spawn().context("starting unshare")?;
    // Kept open until the child has ended.
    let lifeline = child.stdin.take();
    let status = child.wait().context("waiting for the inner process");
    drop(lifeline);
    // Its own alone: another run may go on, and misses what is empty for a moment. In a network of its own the kubelet
    // uses the default one, of which stays what isn't empty.
    let cgroup = if network.is_own { KUBEPODS.to_owned() } else { cgroup(directory) };
    for hierarchy in hierarchies() {
        remove_tree(&hierarchy.join(&cgroup));
    }
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

/// Puts directories of the run where programs insist on theirs, and with a network of its own where pods expect those of their
/// node. Returns the cgroup that pods are to live in.
pub fn mount(files: &Files, node: &str, network: &Network) -> anyhow::Result<String> {
    let binds = [
        ("kubelet", "/var/lib/kubelet"),
        ("container-logs", "/var/log/containers"),
        // Shims put their sockets there, whatever containerd's own configuration says.
        ("run-containerd", "/run/containerd"),
    ];
    bind_all(files, &binds)?;
    // Volumes of pods are mounted below, and containers must see them.
    execute("mount", &["--make-rshared", "/var/lib/kubelet"])?;
    // As in the daemon's pod, with `mountPropagation: Bidirectional`.
    let run_dir = files.directory(RUN_DIRECTORY)?;
    bind(&run_dir, &run_dir.display().to_string())?;
    execute("mount", &["--make-shared", &run_dir.display().to_string()])?;
    if network.is_own {
        // As systemd has it.
        execute("mount", &["--make-rshared", "/"])?;
        let binds = [
            (STATE_DIRECTORY, "/var/lib/divvy"),
            ("cdi", "/var/run/cdi"),
            (RUN_DIRECTORY, "/run/divvy"),
            ("kubernetes", "/etc/kubernetes"),
        ];
        bind_all(files, &binds)?;
    }
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    bind(&files.write("hosts", format!("{hosts}\n{} {node}\n", network.node))?, "/etc/hosts")?;
    if network.is_own {
        // Where the daemon looks, as on any node.
        return Ok("/".to_owned());
    }
    let cgroup = cgroup(&files.at(""));
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

/// Puts this library among the host's, as a driver's installation does; returns the directory.
pub fn install_library(files: &Files, library: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let directory = PathBuf::from(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    install(files, "driver", library, &directory.join(name))?;
    Ok(directory)
}

/// Puts a file among those of a directory of the host, by a layer of this name over the directory.
pub fn install(files: &Files, layer: &str, file: &Path, place: &Path) -> anyhow::Result<()> {
    let (directory, name) = (place.parent().context("no directory")?, place.file_name().context("no name")?);
    let (own, work) = (files.directory(layer)?, files.directory(format!("{layer}-work"))?);
    fs::copy(file, own.join(name)).with_context(|| format!("copying {}", file.display()))?;
    let directory = directory.display().to_string();
    let options = format!("lowerdir={directory},upperdir={},workdir={}", own.display(), work.display());
    execute("mount", &["-t", "overlay", "-o", &options, "overlay", &directory])
}

/// Unmounts everything below a directory, and removes it.
pub fn empty(directory: &Path) -> anyhow::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    // proc(5): the fifth field is the mount point.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    let mut below: Vec<&Path> = points.filter(|point| point.starts_with(directory) && *point != directory).collect();
    below.sort_unstable();
    for point in below.into_iter().rev() {
        execute("umount", &["--lazy", &point.display().to_string()])?;
    }
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let removed =
            if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

fn bind_all(files: &Files, binds: &[(&str, &str)]) -> anyhow::Result<()> {
    for (own, place) in binds {
        fs::create_dir_all(place).with_context(|| format!("creating {place}"))?;
        bind(&files.directory(own)?, place)?;
    }
    Ok(())
}

fn bind(own: &Path, place: &str) -> anyhow::Result<()> {
    execute("mount", &["--bind", &own.display().to_string(), place])
}

/// cgroup v2 has one, v1 a directory for each controller.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let below = fs::read_dir(root).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let all = [root.to_owned()].into_iter().chain(below);
    all.filter(|hierarchy| hierarchy.join("cgroup.procs").exists()).collect()
}

/// The cgroup of the run in this directory, by its name in each hierarchy: that of the directory.
fn cgroup(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn remove_tree(group: &Path) {
    let below = fs::read_dir(group).into_iter().flatten().filter_map(Result::ok);
    below
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .for_each(|entry| remove_tree(&entry.path()));
    fs::remove_dir(group).unwrap_or_default();
}
