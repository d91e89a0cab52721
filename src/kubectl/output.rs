//! Output of a subcommand: its format, and the exit code that follows from it.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

use crate::text::plain;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people
    Table,
    /// Tables with every column and row
    Wide,
    /// Structured data for programs, memory in MiB
    Json,
    /// JSON's fields as YAML
    Yaml,
}

/// Flags of subcommands that answer with a table.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TableArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
    /// Don't print column headers
    #[arg(long)]
    no_headers: bool,
}

/// Output of a subcommand.
#[derive(Debug, Default)]
pub struct CommandOutput {
    /// Text for standard output.
    pub answer: String,
    /// Lines for standard error.
    pub remarks: Vec<String>,
    /// Whether something that was asked for is missing.
    pub incomplete: bool,
}

/// Arguments that make no sense, whatever the cluster says.
#[derive(Debug, thiserror::Error)]
#[error("error: {0}")]
pub struct Misused(Box<dyn std::error::Error + Send + Sync>);

/// Formats an answer, for people by `text`, which is told whether it is to be wide.
pub(crate) fn format(
    answer: &impl Serialize,
    output: Format,
    text: impl FnOnce(bool) -> String,
) -> anyhow::Result<String> {
    Ok(match output {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(answer)?),
        Format::Yaml => serde_saphyr::to_string(answer)?,
        Format::Table => text(false),
        Format::Wide => text(true),
    })
}

/// Writes to standard error, if it is still open.
pub(crate) fn write_stderr(text: &str) {
    drop(io::stderr().write_all(text.as_bytes()));
}

// === impl TableArgs ===

impl TableArgs {
    /// Formats an answer, for people by `table`, which is told whether it is to be wide and to have column headers.
    pub(crate) fn format(
        &self,
        answer: &impl Serialize,
        table: impl FnOnce(bool, bool) -> String,
    ) -> anyhow::Result<String> {
        format(answer, self.output, |wide| table(wide, !self.no_headers))
    }
}

// === impl Misused ===

impl Misused {
    /// Refusal for this reason.
    pub fn new(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(reason.into())
    }
}

// === impl CommandOutput ===

impl CommandOutput {
    pub(crate) fn failed(error: &anyhow::Error) -> Self {
        Self { remarks: vec![error.to_string()], incomplete: true, ..Self::default() }
    }

    pub(crate) fn end(mut self) -> ExitCode {
        let mut out = io::stdout().lock();
        match out.write_all(self.answer.as_bytes()).and_then(|()| out.flush()) {
            // `| head` has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.remarks.push(format!("error: standard output: {error}"));
                self.incomplete = true;
            }
            _ => {}
        }
        for remark in &self.remarks {
            write_stderr(&format!("{}\n", plain(remark)));
        }
        if self.incomplete { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
