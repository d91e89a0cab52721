//! kubectl, with an administrator's rights.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

/// Longest wait for it.
const DEADLINE: Duration = Duration::from_secs(90);

/// The program and whom it speaks for.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    /// Caches what it discovers there.
    home: PathBuf,
    kubeconfig: PathBuf,
}

/// What it wrote.
#[derive(Clone, Debug)]
pub struct Told {
    /// To standard output.
    pub answer: String,
    /// To standard error.
    pub warnings: String,
}

// === impl Kubectl ===

impl Kubectl {
    /// The program at `program`, with this kubeconfig.
    pub fn new(program: PathBuf, home: &Path, kubeconfig: PathBuf) -> Self {
        Self { program, home: home.to_owned(), kubeconfig }
    }

    /// Somebody else's.
    #[must_use]
    pub fn with(&self, kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), ..self.clone() }
    }

    /// The kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs it to its end, and returns what it wrote.
    pub async fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        let Told { answer, .. } = self.say(args).await?;
        Ok(answer)
    }

    /// Starts it with `--watch`; the file has what it writes.
    pub fn watch(&self, args: &[&str], file: &Path) -> anyhow::Result<(Child, PathBuf)> {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args).arg("--watch").env("HOME", &self.home);
        let output = std::fs::File::create(file).with_context(|| format!("creating {}", file.display()))?;
        let child = command.stdin(Stdio::null()).stdout(output).kill_on_drop(true).spawn();
        Ok((child.with_context(|| format!("starting {}", self.program.display()))?, file.to_owned()))
    }

    /// The same, with its warnings.
    pub async fn say(&self, args: &[&str]) -> anyhow::Result<Told> {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args).env("HOME", &self.home);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(DEADLINE, output).await.context("kubectl hangs")?;
        let output = output.with_context(|| format!("starting {}", self.program.display()))?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(Told { answer: text(&output.stdout), warnings: text(&output.stderr) })
    }
}
