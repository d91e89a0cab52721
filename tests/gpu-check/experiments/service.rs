//! CUDA's multi-process service for as long as an experiment lasts. No setting of the card is changed: in its compute mode
//! `DEFAULT` programs may be clients of the service, and need not.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context as _, Result, ensure};
use divvy_api::container::{MPS_MEMORY_LIMIT, MPS_PIPE_DIRECTORY, MPS_THREAD_PERCENTAGE};

use crate::container::{SERVICE_CONTROL, Site};
use crate::run::{Prepared, end_within};

/// Longest wait for the control daemon's start, and for its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The control daemon, until this is dropped.
pub(super) struct Service {
    program: PathBuf,
    /// Where it has its sockets. Their paths may be 108 bytes long.
    pipe: PathBuf,
    card: String,
    daemon: Child,
}

/// The control daemon's program, if the driver came with it.
pub(super) fn program(site: &Site) -> Option<PathBuf> {
    let directories: Vec<PathBuf> = match site.driver() {
        Some(stand_in) => vec![stand_in.to_owned()],
        None => env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect(),
    };
    let mut programs = directories.into_iter().map(|directory| directory.join(SERVICE_CONTROL));
    programs.find(|program| program.is_file())
}

// === impl Service ===

impl Service {
    /// Starts the control daemon for one card, and waits until it takes commands.
    pub(super) fn start(site: &Site, program: PathBuf) -> Result<Self> {
        let pipe = site.directory().join("mps");
        if pipe.exists() {
            // What an earlier daemon left would look like this one.
            fs::remove_dir_all(&pipe)?;
        }
        fs::create_dir(&pipe)?;
        let mut command = command(&program, &pipe, &site.uuid);
        command.arg("-f").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        // SAFETY: between fork and exec it makes one system call: the daemon ends with this process, however that ends.
        let command = unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        };
        let daemon = command.spawn().with_context(|| program.display().to_string())?;
        let mut service = Self { program, pipe, card: site.uuid.clone(), daemon };
        let deadline = Instant::now() + PATIENCE;
        while !service.pipe.join("nvidia-cuda-mps-control.pid").exists() {
            let ended = service.daemon.try_wait()?;
            ensure!(ended.is_none(), "{SERVICE_CONTROL}: {}", ended.unwrap_or_default());
            ensure!(Instant::now() < deadline, "{SERVICE_CONTROL}: no start within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(service)
    }

    /// Gives a program without the library the variables of a client with so many MiB and percent.
    pub(super) fn limit(&self, program: &mut Command, limits: (u64, u32)) {
        program.env(MPS_PIPE_DIRECTORY, &self.pipe);
        self.tell(program, limits);
    }

    /// Gives a program in a container, which the library makes a client with the container's share, variables that say
    /// something else: the library's are put in their place when it asks for the driver.
    pub(super) fn mislead(&self, program: &mut Command, container: &Prepared, limits: (u64, u32)) -> Result<()> {
        container.use_service(&self.pipe)?;
        program.env(MPS_PIPE_DIRECTORY, "/nowhere");
        self.tell(program, limits);
        Ok(())
    }

    fn tell(&self, program: &mut Command, (memory, cores): (u64, u32)) {
        program.env(MPS_MEMORY_LIMIT, format!("0={memory}M")).env(MPS_THREAD_PERCENTAGE, cores.to_string());
        // Whom the program asks for the service's clients, and where.
        program.env("SERVICE_CONTROL", &self.program).env("SERVICE_PIPE", &self.pipe);
    }

    fn quit(&mut self) -> io::Result<()> {
        let mut client = command(&self.program, &self.pipe, &self.card);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        if let Some(mut input) = client.stdin.take() {
            input.write_all(b"quit\n")?;
        }
        if end_within(&mut client, PATIENCE)?.is_none() {
            client.kill()?;
            client.wait()?;
        }
        end_within(&mut self.daemon, PATIENCE).map(drop)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.quit() {
            eprintln!("gpu-check: {SERVICE_CONTROL}: {error}");
        }
        if !matches!(self.daemon.try_wait(), Ok(Some(_))) {
            // SAFETY: numbers; the group is that of a child which wasn't waited for, and of the servers it started.
            unsafe { libc::kill(-self.daemon.id().cast_signed(), libc::SIGKILL) };
            drop(self.daemon.wait());
        }
    }
}

/// The daemon, or a command to it.
fn command(program: &Path, pipe: &Path, card: &str) -> Command {
    let mut command = Command::new(program);
    let log = ("CUDA_MPS_LOG_DIRECTORY", pipe);
    command.envs([(MPS_PIPE_DIRECTORY, pipe), log]).env("CUDA_VISIBLE_DEVICES", card);
    command
}
