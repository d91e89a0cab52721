//! The control daemon, which starts the service's servers and shows clients the way to them: NVIDIA's program, and how it
//! is talked to (its manual page, and NVIDIA's MPS documentation).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fmt, fs, io};

use anyhow::Context as _;
use divvy_api::CardId;
use divvy_api::container::MPS_PIPE_DIRECTORY;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tracing::warn;

use super::{Place, list};

/// The daemon, and also the program that passes commands to it.
const NAME: &str = "nvidia-cuda-mps-control";
/// One server for all users; without it the processes of one user wait until those of another have ended. Newer drivers
/// have it, and name it in their help.
const MULTI_USER: &str = "--multiuser-server";
/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Cards that the service shall have, by UUID.
const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Where it writes what it does.
const LOG_DIRECTORY: &str = "CUDA_MPS_LOG_DIRECTORY";

/// How it is started, and talked to.
#[derive(Debug)]
pub(super) struct Control {
    /// The driver's, which is made its root: it looks for the server's program there.
    root: PathBuf,
    /// As it stands below that.
    program: PathBuf,
    has_multi_user: bool,
    environment: Vec<(&'static str, String)>,
}

/// Why it doesn't answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("running {NAME}: {0}")]
    Run(#[from] io::Error),
    #[error("no answer within {ANSWER:?}")]
    Late,
    #[error("{0}")]
    Refused(String),
}

/// The program in the directories of `PATH` below the root, and where that is from here.
fn find(root: &Path) -> Option<(PathBuf, PathBuf)> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut programs = env::split_paths(&path).map(|directory| directory.join(NAME));
    programs.find_map(|program| {
        let seen = root.join(program.strip_prefix("/").ok()?);
        seen.is_file().then_some((program, seen))
    })
}

// === impl Control ===

impl Control {
    /// The one that the driver below `root` brings.
    pub(super) fn find(root: &Path, place: &Place) -> anyhow::Result<Self> {
        let (program, seen) = find(root).with_context(|| {
            format!(
                "there is no {NAME} in any directory of PATH below driverRootCtrPath {}: it comes with the driver",
                root.display()
            )
        })?;
        let text = fs::read(&seen).with_context(|| format!("reading {}", seen.display()))?;
        let has_multi_user = text.windows(MULTI_USER.len()).any(|part| part == MULTI_USER.as_bytes());
        if !has_multi_user {
            warn!("{} has no {MULTI_USER}: containers of different users wait for each other", seen.display());
        }
        let environment = vec![
            (MPS_PIPE_DIRECTORY, place.pipe().display().to_string()),
            (LOG_DIRECTORY, place.log().display().to_string()),
        ];
        Ok(Self { root: root.to_owned(), program, has_multi_user, environment })
    }

    /// For these cards alone.
    pub(super) fn with_cards(mut self, cards: &[CardId]) -> Self {
        self.environment.push((VISIBLE_DEVICES, list(cards)));
        self
    }

    fn command(&self) -> Command {
        let mut command = if self.root == Path::new("/") {
            Command::new(&self.program)
        } else {
            let mut command = Command::new("chroot");
            command.arg(&self.root).arg(&self.program);
            command
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        // The way to NVML from here; the driver's programs know their own.
        command.env_remove("LD_LIBRARY_PATH").kill_on_drop(true);
        command
    }

    /// Starts the daemon, which stays a child of ours; its servers are in its process group.
    pub(super) fn start(&self) -> io::Result<Child> {
        let switches = [Some("-f"), self.has_multi_user.then_some(MULTI_USER)];
        self.command().args(switches.into_iter().flatten()).stdin(Stdio::null()).process_group(0).spawn()
    }

    /// Whether it answers.
    pub(super) async fn is_up(&self) -> Result<(), AskError> {
        self.ask("get_server_list").await
    }

    /// Tells it to end, with its servers. That it has ended is for the caller to see.
    pub(super) async fn tell_to_end(&self) {
        if let Err(problem) = self.ask("quit").await {
            warn!("telling the control daemon to end: {problem}");
        }
    }

    /// Ends it and what it has started.
    pub(super) async fn kill(&self, child: &mut Child) {
        let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(Err(error)) = group.map(|group| kill_process_group(group, Signal::KILL)) {
            warn!("killing the control daemon: {error}");
        }
        drop(child.wait().await);
    }

    async fn ask(&self, command: &str) -> Result<(), AskError> {
        let asked = async {
            let mut program =
                self.command().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            let mut input = program.stdin.take().ok_or_else(|| io::Error::other("no standard input"))?;
            input.write_all(format!("{command}\n").as_bytes()).await?;
            drop(input);
            program.wait_with_output().await
        };
        let output = timeout(ANSWER, asked).await.map_err(|_elapsed| AskError::Late)??;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(AskError::Refused(format!("{}: {}", output.status, String::from_utf8_lossy(&said).trim())))
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.program.display(), self.root.display())
    }
}
