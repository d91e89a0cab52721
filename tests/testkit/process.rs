//! A program of ours as a process of its own.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use serde_json::Value;
use tokio::process::{Child, Command};

/// Resident memory of a process in MiB, now and at most (`VmRSS` and `VmHWM` of proc(5)), while it runs.
pub fn resident(process: impl Display) -> Option<[u64; 2]> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    Some([kib("VmRSS:")?, kib("VmHWM:")?].map(|kib: u64| kib / 1024))
}

/// What is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Name of the process and of its files.
    pub name: &'static str,
    /// Command that starts the executable, such as `nsenter` with its options; none: it is started itself.
    pub prefix: Vec<OsString>,
    /// Variables that it sees.
    pub environment: Vec<(&'static str, PathBuf)>,
    /// Where its configuration has it serve `/metrics`.
    pub pages: SocketAddr,
}

/// The process and how to start it anew. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    program: Program,
    config: PathBuf,
    /// What it writes to stderr, over all its lives.
    pub log: PathBuf,
    child: Child,
}

/// A loopback address that nobody else has, so that a port stays free while its process is down: the kernel gives
/// connections to 127.0.0.1 ports of that address alone.
pub fn own_address() -> Ipv4Addr {
    let [a, b, c] = rand::random::<[u8; 3]>();
    Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254))
}

// === impl Process ===

impl Process {
    /// Writes the configuration into `directory` and starts the program.
    pub fn start(program: Program, directory: &Path, keys: &Value) -> anyhow::Result<Self> {
        let file = |extension| directory.join(program.name).with_extension(extension);
        let (config, log) = (file("yaml"), file("log"));
        // JSON is YAML.
        std::fs::write(&config, keys.to_string()).with_context(|| format!("writing {}", config.display()))?;
        let child = spawn(&program, &config, &log)?;
        Ok(Self { program, config, log, child })
    }

    /// Kills it (`SIGKILL`) and waits for its end.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("killing {}", self.program.name))
    }

    /// Starts it again, after [`kill`](Self::kill).
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.program, &self.config, &self.log)?;
        Ok(())
    }

    /// Process ID, while the process runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Where `/metrics` is.
    pub fn pages(&self) -> SocketAddr {
        self.program.pages
    }

    /// That it ended by itself, if it did, and where it says why.
    pub fn ended(&mut self) -> Result<(), String> {
        match self.child.try_wait().ok().flatten() {
            Some(status) => {
                Err(format!("{} ended by itself ({status}): see {}", self.program.name, self.log.display()))
            }
            None => Ok(()),
        }
    }
}

/// In a process group of its own: Ctrl-C is for us, and we end our programs.
fn spawn(program: &Program, config: &Path, log: &Path) -> anyhow::Result<Child> {
    let open = || OpenOptions::new().create(true).append(true).open(log);
    let log: File = open().with_context(|| format!("opening {}", log.display()))?;
    let mut words = program.prefix.iter().map(OsString::as_os_str).chain([program.path.as_os_str()]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    // Keys come from the environment too: a developer's KUBECONFIG must not bring these programs there.
    command.env_clear().envs(program.environment.iter().map(|(name, value)| (name, value))).env("NO_COLOR", "1");
    command.arg("--config-file").arg(config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).kill_on_drop(true);
    command.spawn().with_context(|| format!("starting {}", program.path.display()))
}
