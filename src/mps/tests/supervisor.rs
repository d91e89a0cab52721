//! divvy-mps as a process, over fakes of the driver's control daemon and of NVML.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use divvy_mps::MpsDirectory;
use fake_nvml::{Call, CardState, MigScenario, NvmlReturn, Process, Scenario};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

const CONTROL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fake-gpu/mps/nvidia-cuda-mps-control");
const DEFAULT: u32 = 0;
const PROHIBITED: u32 = 2;
const EXCLUSIVE_PROCESS: u32 = 3;

/// A node with a driver, and where its supervisor keeps things.
struct Node {
    directory: TempDir,
    scenario: Scenario,
    mps: MpsDirectory,
}

/// A supervisor, killed with its test.
struct Supervisor(Child);

impl Node {
    fn new(scenario: Scenario) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let built = std::env::current_exe().unwrap().with_file_name("libfake_nvml.so");
        fake_nvml::install(&built, directory.path()).unwrap();
        fs::create_dir(directory.path().join("bin")).unwrap();
        fs::copy(CONTROL, directory.path().join("bin/nvidia-cuda-mps-control")).unwrap();
        let mps = MpsDirectory::new(&directory.path().join("run"));
        let node = Self { directory, scenario, mps };
        node.write();
        node
    }

    fn with_cards(count: u32) -> Self {
        Self::new(Scenario::uniform(count, "NVIDIA L4", 24 << 30))
    }

    fn write(&self) {
        self.scenario.write(&self.path("scenario.json")).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy-mps"));
        command.arg("--drain-timeout=2s").arg("--driver-root").arg(root);
        command.arg("--run-dir").arg(self.path("run"));
        command.env_clear().env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        command.env("LD_LIBRARY_PATH", self.directory.path());
        command.stderr(fs::File::options().create(true).append(true).open(self.path("stderr")).unwrap());
        command
    }

    fn start(&self) -> Supervisor {
        self.start_in(Path::new("/"))
    }

    /// With a driver whose root is there.
    fn start_in(&self, root: &Path) -> Supervisor {
        Supervisor(self.command(root).spawn().unwrap())
    }

    /// Its end, where it can't go on.
    fn refused(&self) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = self.command(Path::new("/")).stderr(Stdio::piped()).output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    }

    fn mode(&self, card: u32) -> u32 {
        fake_card::compute_mode(self.directory.path(), &Scenario::uuid(card))
    }

    fn set_mode(&self, card: u32, mode: u32) {
        fake_card::set_compute_mode(self.directory.path(), &Scenario::uuid(card), mode).unwrap();
    }

    fn modes_file(&self) -> PathBuf {
        self.path("run/mps/compute-modes")
    }

    /// Lines that the control daemon has noted, without the questions whether it is up.
    fn noted(&self) -> Vec<String> {
        let text = fs::read_to_string(self.mps.log().join("control.log")).unwrap_or_default();
        text.lines().filter(|line| *line != "get_server_list").map(str::to_owned).collect()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    fn control(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.mps.pipe().join("nvidia-cuda-mps-control.pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    fn is_up(&self) -> bool {
        self.mps.supervisor().is_ok()
    }

    /// Waits until that is so.
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds(self) {
            assert!(Instant::now() < deadline, "not within a minute: {what}; it said:\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Of a supervisor that was killed.
        if let Some(control) = self.control() {
            let _it_may_have_ended = kill_process(control, Signal::KILL);
        }
    }
}

impl Supervisor {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
    }

    /// Its exit code.
    fn ends(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn sigterm_stops_the_daemon_and_restores_compute_modes() {
    let node = Node::with_cards(2);
    node.set_mode(1, PROHIBITED);
    let mut supervisor = node.start();
    node.until("it is up", Node::is_up);
    assert_eq!(node.mps.supervisor(), Ok(supervisor.pid()));
    assert_eq!((node.mode(0), node.mode(1)), (EXCLUSIVE_PROCESS, EXCLUSIVE_PROCESS));
    let cards = format!("{},{}", Scenario::uuid(0), Scenario::uuid(1));
    assert_eq!(node.noted(), [format!("start --multiuser-server CUDA_VISIBLE_DEVICES={cards}")]);
    let directories = [node.path("run/mps"), node.mps.pipe(), node.mps.log(), node.mps.shared_memory()];
    assert_eq!(directories.each_ref().map(|path| mode_of(path)), [0o755, 0o1777, 0o1777, 0o1777]);
    let control = node.control().unwrap();
    supervisor.terminate();
    assert_eq!(supervisor.ends(), Some(0), "{}", node.log());
    assert!(!node.is_up() && test_kill_process(control).is_err());
    assert_eq!(node.noted()[1..], ["quit"]);
    assert_eq!((node.mode(0), node.mode(1)), (DEFAULT, PROHIBITED));
    assert!(!node.modes_file().exists());
}

#[test]
fn daemon_that_exits_is_restarted_with_backoff() {
    let node = Node::with_cards(1);
    let mut supervisor = node.start();
    node.until("it is up", Node::is_up);
    let first = node.control().unwrap();
    // It dies at once when it is started again, too.
    fs::write(node.mps.pipe().join("die"), "").unwrap();
    kill_process(first, Signal::KILL).unwrap();
    node.until("containers are refused", |node| !node.is_up());
    node.until("two more starts", |node| node.noted().len() >= 3);
    assert!(!node.is_up());
    fs::remove_file(node.mps.pipe().join("die")).unwrap();
    node.until("it is up again", Node::is_up);
    assert_ne!(node.control(), Some(first));
    let said = node.log();
    assert!(said.contains("control daemon exited; clients lost their GPU contexts: signal: 9"), "{said}");
    assert!(said.contains("control daemon exited at startup: exit status: 3; restarting it in 2s"), "{said}");
    assert_eq!(node.mode(0), EXCLUSIVE_PROCESS);
    supervisor.terminate();
    assert_eq!(supervisor.ends(), Some(0));
}

#[test]
fn hanging_daemon_is_killed_only_on_sigterm() {
    let node = Node::with_cards(1);
    let mut supervisor = node.start();
    node.until("it is up", Node::is_up);
    let control = node.control().unwrap();
    let mute = node.mps.pipe().join("mute");
    fs::write(&mute, "").unwrap();
    node.until("containers are refused", |node| !node.is_up());
    assert!(test_kill_process(control).is_ok());
    fs::remove_file(&mute).unwrap();
    node.until("it answers again", Node::is_up);
    assert_eq!(node.control(), Some(control));
    fs::write(&mute, "").unwrap();
    supervisor.terminate();
    assert_eq!(supervisor.ends(), Some(0), "{}", node.log());
    assert!(test_kill_process(control).is_err());
    assert!(node.log().contains("didn't exit within 2s and was killed"), "{}", node.log());
    assert_eq!(node.mode(0), DEFAULT);
}

#[test]
fn restart_after_kill_replaces_the_orphaned_daemon() {
    let node = Node::with_cards(1);
    let mut first = node.start();
    node.until("it is up", Node::is_up);
    let orphan = node.control().unwrap();
    first.kill();
    assert!(!node.is_up(), "the lock ends with its holder");
    assert_eq!(node.mode(0), EXCLUSIVE_PROCESS);
    let mut second = node.start();
    node.until("it is up again", Node::is_up);
    assert_eq!(node.noted()[1], "quit", "two would not share the pipe");
    assert_ne!(node.control(), Some(orphan));
    second.terminate();
    assert_eq!((second.ends(), node.mode(0)), (Some(0), DEFAULT));
}

#[test]
fn start_waits_while_processes_use_the_gpus() {
    let mut node = Node::with_cards(2);
    node.scenario.cards[1].processes.push(Process { pid: 77, memory_used: 1, utilization: 0 });
    node.write();
    let mut supervisor = node.start();
    let waits = format!("processes 77 use {} and would lose it", Scenario::uuid(1));
    node.until("it waits", |node| node.log().contains(&waits));
    assert_eq!((node.mode(0), node.mode(1), node.noted()), (DEFAULT, DEFAULT, vec![]));
    node.scenario.cards[1].processes.clear();
    node.write();
    node.until("it is up", Node::is_up);
    assert_eq!(node.log().matches(&waits).count(), 1);
    supervisor.terminate();
    assert_eq!(supervisor.ends(), Some(0));
}

#[test]
fn mig_mode_and_lost_gpus_are_left_out() {
    let mut node = Node::with_cards(3);
    node.scenario.cards[2].state = CardState::Lost;
    node.scenario.cards[0].mig = Some(MigScenario { enabled: true, ..MigScenario::default() });
    node.write();
    let supervisor = node.start();
    node.until("it is up", Node::is_up);
    assert!(node.log().contains("GPU at index 2 is left out: "), "{}", node.log());
    assert!(node.noted()[0].ends_with(&format!("CUDA_VISIBLE_DEVICES={}", Scenario::uuid(1))), "{:?}", node.noted());
    drop(supervisor);
}

#[test]
fn missing_program_and_second_supervisor_exit_with_1() {
    let node = Node::with_cards(1);
    fs::write(node.path("bin/nvidia-cuda-mps-control"), "#!/bin/sh\n").unwrap();
    let mut first = node.start();
    node.until("it says what old drivers lack", |node| node.log().contains("lacks --multiuser-server"));
    let (code, said) = node.refused();
    assert!(code == Some(1) && said.contains("another divvy-mps runs on this node"), "{said}");
    first.kill();
    fs::remove_file(node.path("bin/nvidia-cuda-mps-control")).unwrap();
    let (code, said) = node.refused();
    assert!(code == Some(1) && said.contains("nvidia-cuda-mps-control not found in any directory of PATH"), "{said}");
}

#[test]
fn start_waits_while_compute_mode_cannot_be_set() {
    let mut node = Node::with_cards(1);
    let call: Call = Call::any("nvmlDeviceSetComputeMode");
    node.scenario.errors.insert(call, NvmlReturn::NoPermission);
    node.write();
    let mut supervisor = node.start();
    node.until("it waits", |node| node.log().contains("nvmlDeviceSetComputeMode EXCLUSIVE_PROCESS"));
    assert!(!node.is_up());
    supervisor.terminate();
    assert_eq!((supervisor.ends(), node.mode(0)), (Some(0), DEFAULT));
    assert!(!node.modes_file().exists());
}

/// Mounts this machine's root at the first argument, and the second below that at /mnt, and runs the others.
///
/// A real NVML of this machine is hidden by the stand-in.
const MOUNT_AND_RUN: &str = r#"mount --rbind / "$0" && mount --bind "$1" "$0/mnt" && shift &&
    for real in "$0"/usr/lib/*/libnvidia-ml.so.1 "$0"/usr/lib64/libnvidia-ml.so.1 "$0"/usr/lib/libnvidia-ml.so.1; do
        [ ! -e "$real" ] || mount --bind "$LD_LIBRARY_PATH/libnvidia-ml.so.1" "$real" || exit
    done && exec "$@""#;

/// Another program, in a mount namespace of its own; `None` if this machine allows none.
fn in_namespace(script: &str) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command
    };
    if !unshare().arg("mount -t tmpfs none /tmp").status().is_ok_and(|status| status.success()) {
        eprintln!("left out: this machine allows no mounts in a namespace");
        return None;
    }
    let mut command = unshare();
    command.arg(script);
    Some(command)
}

#[test]
fn driver_root_is_the_root_of_the_daemon() {
    let Some(mut command) = in_namespace(MOUNT_AND_RUN) else { return };
    let node = Node::with_cards(1);
    let root = node.path("driver");
    fs::create_dir(&root).unwrap();
    let supervisor = node.command(&root);
    command.arg(&root).arg(node.path("bin")).arg(supervisor.get_program()).args(supervisor.get_args());
    // The program is there below the driver's root only.
    command.env_clear().env("PATH", "/mnt:/usr/bin:/bin").env("LD_LIBRARY_PATH", node.directory.path());
    command.stderr(fs::File::create(node.path("stderr")).unwrap());
    let mut supervisor = Supervisor(command.spawn().unwrap());
    node.until("it is up", Node::is_up);
    assert!(node.log().contains(&format!("/mnt/nvidia-cuda-mps-control in {}", root.display())), "{}", node.log());
    supervisor.terminate();
    assert_eq!(supervisor.ends(), Some(0));
}

#[test]
fn shared_memory_is_mounted_once() {
    let Some(mut command) = in_namespace(r#""$@" && "$@" && cat /proc/self/mountinfo && stat -c %a "$0""#) else {
        return;
    };
    let node = Node::with_cards(1);
    let program = node.command(Path::new("/"));
    command
        .arg(node.mps.shared_memory())
        .arg(program.get_program())
        .args(program.get_args())
        .arg("--mount-shared-memory");
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let table = String::from_utf8(stdout).unwrap();
    let path = node.mps.shared_memory().display().to_string();
    let mounts: Vec<&str> = table.lines().filter(|line| line.split(' ').nth(4) == Some(&path)).collect();
    let [mount] = mounts[..] else { panic!("not once: {mounts:?}") };
    assert!(mount.contains(" rw,nosuid,nodev") && mount.contains(" - tmpfs divvy-mps "), "{mount}");
    assert_eq!(table.lines().last(), Some("1777"));
}

#[test]
fn mount_that_fails_exits_with_1_and_says_what_it_takes() {
    let node = Node::with_cards(1);
    let mount = |program: &mut Command| {
        let Output { status, stderr, .. } =
            program.arg("--mount-shared-memory").stderr(Stdio::piped()).output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    fs::write(node.path("run"), "").unwrap();
    let (code, said) = mount(&mut node.command(Path::new("/")));
    assert!(code == Some(1) && said.contains("/run/mps/shm: run-dir must be writable: "), "{said}");
    fs::remove_file(node.path("run")).unwrap();
    // In a user namespace, root may mount nothing in the mount namespace outside.
    let program = node.command(Path::new("/"));
    let mut command = Command::new("unshare");
    command.arg("--map-root-user").arg(program.get_program()).args(program.get_args());
    let (code, said) = mount(&mut command);
    if in_namespace("true").is_some() {
        assert!(
            code == Some(1) && said.contains("/run/mps/shm, which takes root in a privileged container: "),
            "{said}"
        );
    }
}
