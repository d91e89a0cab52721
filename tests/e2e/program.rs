//! A process that can be killed and started again with the same words.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use divvy_testkit::process::resident;
use tokio::process::{Child, Command};

/// A program with its arguments, its log, and its process while it runs.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    path: PathBuf,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    log: PathBuf,
    /// Whether it is started again when it has ended by itself.
    restarts: bool,
    child: Option<Child>,
}

/// Runs a program of the machine to its end.
pub fn execute(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = std::process::Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("starting {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Time on processors of a process since its start (`utime` and `stime` of proc(5), in hundredths of a second).
pub fn processor_time(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // A program's name may hold anything, and ends with the last bracket.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Duration::from_millis((user + system) * 10))
}

// === impl Program ===

impl Program {
    /// A program that writes to `<logs>/<name>.log`. Nothing is started yet.
    pub fn new(name: &'static str, path: PathBuf, args: Vec<String>, logs: &Path) -> Self {
        let log = logs.join(name).with_extension("log");
        Self { name, path, args, envs: Vec::new(), log, restarts: false, child: None }
    }

    /// With this variable in its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.envs.push((name.to_owned(), value.into()));
        self
    }

    /// Lets [`Self::check`] start it again when it has ended by itself, as the kubelet does with a static pod.
    pub fn restart_by_itself(&mut self) {
        self.restarts = true;
    }

    /// Starts another executable from now on, and returns the one that it was.
    pub fn set_path(&mut self, path: PathBuf) -> PathBuf {
        std::mem::replace(&mut self.path, path)
    }

    /// Gives it these values for the arguments that begin like this; those with an empty value it has no more.
    pub fn set_args(&mut self, args: &[(&str, &str)]) {
        for (begins, value) in args {
            self.args.retain(|arg| !arg.starts_with(begins));
            self.args.extend((!value.is_empty()).then(|| format!("{begins}{value}")));
        }
    }

    /// Starts it; its log goes on where it ended.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let open = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = open.with_context(|| format!("opening {}", self.log.display()))?;
        let mut command = Command::new(&self.path);
        command.args(&self.args).envs(self.envs.iter().cloned()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log).process_group(0).kill_on_drop(true);
        self.child = Some(command.spawn().with_context(|| format!("starting {}", self.path.display()))?);
        Ok(())
    }

    /// Starts it if it doesn't run.
    pub fn start_if_down(&mut self) -> anyhow::Result<()> {
        if self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            Ok(())
        } else {
            self.start()
        }
    }

    /// Kills it (`SIGKILL`), if it runs, and waits for its end.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await.with_context(|| format!("killing {}", self.name)),
            None => Ok(()),
        }
    }

    /// Sends it `TERM`, and returns the process, which goes about its end.
    pub fn terminate(&mut self) -> anyhow::Result<Child> {
        self.signal("TERM")?;
        self.child.take().with_context(|| format!("{} doesn't run", self.name))
    }

    /// Sends it `STOP` or `CONT`: it stands still, and goes on as if no time had passed.
    pub fn signal(&self, name: &str) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).with_context(|| format!("{} doesn't run", self.name))?;
        execute("sh", &["-c", &format!("kill -s {name} {id}")])
    }

    /// Resident memory in MiB, now and at most, while the program runs.
    pub fn memory(&self) -> Option<[u64; 2]> {
        resident(self.child.as_ref()?.id()?)
    }

    /// Time on processors since its start, threads that have ended included, while it runs.
    pub fn processor_time(&self) -> Option<Duration> {
        processor_time(self.child.as_ref()?.id()?)
    }

    /// Fails if it was started and has ended by itself.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) else { return Ok(()) };
        if self.restarts {
            return self.start();
        }
        bail!("{} ended ({status}): see {}", self.name, self.log.display())
    }
}
