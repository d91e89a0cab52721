//! A program that is tested, seen from outside: it is told a line and answers one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::program::{Place, Speed};

/// A running program, ended with this.
pub(crate) struct Tenant {
    child: Child,
    answers: Receiver<String>,
}

/// How long an answer may take: a hang is a finding, too.
const PATIENCE: Duration = Duration::from_secs(60);

// === impl Tenant ===

impl Tenant {
    /// Starts this very executable again by a command that is ready but for its arguments, and waits until it has a context.
    pub(crate) fn start(command: Command, place: Place) -> Result<Self> {
        let tenant = Self::launch(command, place)?;
        tenant.hear().context("starting")?;
        Ok(tenant)
    }

    /// Starts without waiting: the first [answer](Self::hear) is whether it has a context.
    pub(crate) fn launch(mut command: Command, Place { card, speed }: Place) -> Result<Self> {
        let steps = match speed {
            Speed::Steps(of_ns) => of_ns.to_string(),
            Speed::Grid => "grid".to_owned(),
        };
        command.args(["obey", &card.to_string(), &steps]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take().context("it is piped")?;
        let (said, answers) = channel();
        thread::spawn(move || {
            // Whoever isn't listened to any more has ended.
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| said.send(line)).ok()
        });
        Ok(Self { child, answers })
    }

    /// Tells it something, and waits for the answer.
    pub(crate) fn ask(&mut self, line: &str) -> Result<Value> {
        self.tell(line)?;
        self.hear().with_context(|| line.to_owned())
    }

    /// Tells it something. It will [answer](Self::hear).
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("it is piped")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// The program's next answer.
    pub(crate) fn hear(&self) -> Result<Value> {
        let line = match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => bail!("no answer in {} s", PATIENCE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("the program ended"),
        };
        let answer: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }

    /// The program's process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Tenant {
    /// By the end of its input, as a program that ends by itself.
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..200 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A number of an answer.
pub(crate) fn number(answer: &Value, name: &str) -> Result<f64> {
    answer.get(name).and_then(Value::as_f64).with_context(|| format!("{answer}: no number {name:?}"))
}
