//! `kubectl divvy dashboard` of the playground's cluster, as its user would start it.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The program, which ends when this is dropped, and the line that says where the page is.
pub struct Dashboard {
    /// URL of the page, and of the API server, in a sentence.
    pub line: String,
    _program: Child,
}

// === impl Dashboard ===

impl Dashboard {
    /// Starts it, and waits until it serves.
    pub async fn start(plugin: &Path, kubeconfig: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(plugin);
        command.arg("dashboard").env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut program =
            command.kill_on_drop(true).spawn().with_context(|| format!("starting {}", plugin.display()))?;
        let output = program.stdout.take().context("standard output of the dashboard")?;
        let line = BufReader::new(output).lines().next_line().await.context("reading what the dashboard says")?;
        let Some(line) = line else { bail!("{} dashboard ended at once: see above", plugin.display()) };
        Ok(Self { line, _program: program })
    }
}
