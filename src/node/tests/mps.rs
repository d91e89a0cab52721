//! The daemon beside MPS, whose lock stands for it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use divvy_mps::MpsDirectory;
use fake_nvml::Scenario;
use tempfile::TempDir;

/// A node with one GPU, on which MPS can run.
struct Node {
    directory: TempDir,
    mps: MpsDirectory,
}

/// A daemon, killed with its test.
struct Daemon(Child);

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let built = std::env::current_exe().unwrap().with_file_name("libfake_nvml.so");
        let driver = fake_nvml::install_driver(&built, &directory.path().join("host")).unwrap();
        Scenario::uniform(1, "NVIDIA L4", 24 << 30).write(&driver.join("scenario.json")).unwrap();
        let mps = MpsDirectory::new(&directory.path().join("run"));
        mps.create().unwrap();
        Self { directory, mps }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// Waits until that is so.
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds(self) {
            let log = fs::read_to_string(self.path("daemon")).unwrap_or_default();
            assert!(Instant::now() < deadline, "not within a minute: {what}; log:\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The command of a daemon without kubelet or API server, and the address of its pages.
    fn daemon(&self, tier: &str) -> (Command, SocketAddr) {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        fs::write(self.path("libdivvy.so"), b"\x7fELF and so on").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy-node"));
        command.args(["--node-name=n1", "--drain-timeout=2s", "--tier", tier]);
        let paths = [
            ("--run-dir", "run"),
            ("--state-dir", "state"),
            ("--cdi-dir", "cdi"),
            ("--kubelet-root-dir", "kubelet"),
            ("--libdivvy-path", "libdivvy.so"),
            ("--host-root", "host"),
            // Made by nobody.
            ("--kubelet-ca", "ca.crt"),
        ];
        command.args(paths.iter().flat_map(|(flag, path)| [(*flag).into(), self.path(path).into_os_string()]));
        command.args([format!("--listen-address={address}"), "--admin-address=127.0.0.1:0".to_owned()]).env_clear();
        command.stderr(fs::File::options().create(true).append(true).open(self.path("daemon")).unwrap());
        (command, address)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Whether the daemon's metrics have this line. Without labels a metric may have empty braces.
fn shows(address: SocketAddr, line: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap_or_default();
    text.lines().any(|found| found.replace("{}", "") == line)
}

#[test]
fn tier_mps_is_served_while_mps_is_up() {
    let node = Node::new();
    let (mut command, address) = node.daemon("mps");
    let refused = command.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(64), "{said}");
    assert!(said.starts_with("error: tier mps can't be served: CUDA's MPS is not up"), "{said}");
    let up = node.mps.mark_ready().unwrap();
    let log = fs::File::create(node.path("daemon")).unwrap();
    let _daemon = Daemon(command.stderr(log).spawn().unwrap());
    node.until("the tier is told", |_| shows(address, "divvy_tier_info{tier=\"mps\"} 1.0"));
    assert!(shows(address, "divvy_tier_served 1.0"));
    drop(up);
    node.until("it is missed", |_| shows(address, "divvy_tier_served 0.0"));
    node.until("and said", |node| {
        fs::read_to_string(node.path("daemon")).unwrap().contains("containers are refused: CUDA's MPS")
    });
    assert!(shows(address, "divvy_tier_info{tier=\"mps\"} 1.0"), "it isn't given up for something weaker");
    let _up = node.mps.mark_ready().unwrap();
    node.until("it is there again", |_| shows(address, "divvy_tier_served 1.0"));
}

#[test]
fn tier_auto_changes_to_mps_when_it_comes_up() {
    let node = Node::new();
    let (mut command, address) = node.daemon("auto");
    let _daemon = Daemon(command.spawn().unwrap());
    node.until("what it has", |_| shows(address, "divvy_tier_info{tier=\"shim\"} 1.0"));
    let _up = node.mps.mark_ready().unwrap();
    node.until("more", |_| shows(address, "divvy_tier_info{tier=\"mps\"} 1.0"));
}
