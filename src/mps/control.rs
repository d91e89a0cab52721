//! The MPS control daemon, NVIDIA's program that starts MPS servers and connects clients to them, and the commands it takes
//! (its manual page, and NVIDIA's MPS documentation).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fmt, fs, io, thread};

use anyhow::Context as _;
use divvy_api::CardId;
use divvy_api::container::MPS_PIPE_DIRECTORY;
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Pid, Signal, chdir, chroot, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::warn;

use crate::directory::MpsDirectory;

/// The daemon, and also the client that sends it commands.
const NAME: &str = "nvidia-cuda-mps-control";
/// One server for all users; without it the processes of one user wait until those of another have exited. Newer drivers
/// have the flag, and name it in their help.
const MULTI_USER: &str = "--multiuser-server";
/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Environment variable for the GPUs that MPS serves, by UUID.
const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Environment variable for the directory of its logs.
const LOG_DIRECTORY: &str = "CUDA_MPS_LOG_DIRECTORY";

/// Starts the control daemon and sends it commands.
#[derive(Debug)]
pub(super) struct Control {
    /// Root of the driver's installation, which becomes the daemon's root: it looks for the server's program there.
    root: PathBuf,
    /// Path of the program below that root.
    program: PathBuf,
    has_multi_user: bool,
    environment: Vec<(&'static str, String)>,
}

/// Why the control daemon didn't take a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("running {NAME}: {0}")]
    Run(#[from] io::Error),
    #[error("no answer within {ANSWER_TIMEOUT:?}")]
    Timeout,
    #[error("{0}")]
    Refused(String),
}

/// Finds the program in the directories of `PATH` below the root: its path there, and its path from here.
fn find(root: &Path) -> Option<(PathBuf, PathBuf)> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut programs = env::split_paths(&path).map(|directory| directory.join(NAME));
    programs.find_map(|program| {
        let seen = root.join(program.strip_prefix("/").ok()?);
        seen.is_file().then_some((program, seen))
    })
}

/// UUIDs, separated by commas.
pub(crate) fn list(gpus: &[CardId]) -> String {
    gpus.iter().map(CardId::as_str).collect::<Vec<_>>().join(",")
}

// === impl Control ===

impl Control {
    /// Finds the program of the driver whose installation is at `root`.
    pub(super) fn find(root: &Path, directory: &MpsDirectory) -> anyhow::Result<Self> {
        let (program, seen) = find(root).with_context(|| {
            format!(
                "{NAME} not found in any directory of PATH below {}, the driver-root below host-root: it comes with the driver",
                root.display()
            )
        })?;
        let text = fs::read(&seen).with_context(|| format!("reading {}", seen.display()))?;
        let has_multi_user = text.windows(MULTI_USER.len()).any(|part| part == MULTI_USER.as_bytes());
        if !has_multi_user {
            warn!("{} lacks {MULTI_USER}: containers of different users wait for each other", seen.display());
        }
        let environment = vec![
            (MPS_PIPE_DIRECTORY, directory.pipe().display().to_string()),
            (LOG_DIRECTORY, directory.log().display().to_string()),
        ];
        Ok(Self { root: root.to_owned(), program, has_multi_user, environment })
    }

    /// Restricts MPS to these GPUs.
    pub(super) fn with_gpus(mut self, gpus: &[CardId]) -> Self {
        self.environment.push((VISIBLE_DEVICES, list(gpus)));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        // For programs of this root; the driver's know their own way.
        command.env_remove("LD_LIBRARY_PATH").kill_on_drop(true);
        command
    }

    /// Starts the daemon in the foreground, as a child; its servers are in its process group.
    pub(super) fn start(&self) -> io::Result<Child> {
        let switches = [Some("-f"), self.has_multi_user.then_some(MULTI_USER)];
        self.spawn(self.command().args(switches.into_iter().flatten()).stdin(Stdio::null()).process_group(0))
    }

    /// Starts the program in the driver's root, by a thread that has that root: the others keep theirs.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        if self.root == Path::new("/") {
            return command.spawn();
        }
        let runtime = Handle::current();
        let spawned = thread::scope(|scope| scope.spawn(|| self.spawn_in_root(&runtime, command)).join());
        spawned.unwrap_or_else(|_panic| Err(io::Error::other("the thread that starts it panicked")))
    }

    /// Gives this thread the driver's root, and starts the program.
    fn spawn_in_root(&self, runtime: &Handle, command: &mut Command) -> io::Result<Child> {
        let _runtime = runtime.enter();
        unshare(CloneFlags::CLONE_FS)?;
        chroot(&self.root).and_then(|()| chdir("/")).map_err(|error| {
            let root = self.root.display();
            io::Error::new(
                error.kind(),
                format!("chroot to {root}, the driver-root below host-root, which takes root: {error}"),
            )
        })?;
        command.spawn()
    }

    /// Succeeds if the daemon answers.
    pub(super) async fn check(&self) -> Result<(), CommandError> {
        self.send("get_server_list").await
    }

    /// Asks the daemon to exit, with its servers. The caller waits for the exit.
    pub(super) async fn quit(&self) {
        if let Err(problem) = self.send("quit").await {
            warn!("sending quit to the control daemon: {problem}");
        }
    }

    /// Kills the daemon and its servers.
    pub(super) async fn kill(&self, child: &mut Child) {
        let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(Err(error)) = group.map(|group| kill_process_group(group, Signal::KILL)) {
            warn!("killing the control daemon: {error}");
        }
        drop(child.wait().await);
    }

    async fn send(&self, command: &str) -> Result<(), CommandError> {
        let answered = async {
            let mut started = self.command();
            let piped = started.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut program = self.spawn(piped)?;
            let mut input = program.stdin.take().ok_or_else(|| io::Error::other("no standard input"))?;
            input.write_all(format!("{command}\n").as_bytes()).await?;
            drop(input);
            program.wait_with_output().await
        };
        let output = timeout(ANSWER_TIMEOUT, answered).await.map_err(|_elapsed| CommandError::Timeout)??;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        Err(CommandError::Refused(format!("{}: {}", output.status, String::from_utf8_lossy(&text).trim())))
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.program.display(), self.root.display())
    }
}
