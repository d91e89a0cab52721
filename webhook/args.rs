//! The command line, and how flags, environment and file become one configuration.

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches, Parser};
use divvy_runtime::settings::{FileFlags, Sources, Stop};

use crate::config::{Config, Keys};

/// Admission webhook and scheduler extender of Divvy: mutates and validates pods that request GPUs, and chooses nodes for them
#[derive(Debug, Parser)]
#[command(name = "divvy-webhook", version, max_term_width = 120)]
struct CommandLine {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    keys: Keys,
}

/// What `args` (the program's name first), `env` and the file that they name make together.
pub fn parse(args: impl IntoIterator<Item = OsString>, env: impl Fn(&str) -> Option<OsString>) -> Result<Config, Stop> {
    let CommandLine { files, keys } = CommandLine::from_arg_matches(&command().try_get_matches_from(args)?)?;
    let sources = Sources::new(files, keys, env)?;
    let file = sources.file().map_or_else(|| Ok(Keys::default()), divvy_runtime::settings::read)?;
    Ok(sources.over(file)?.into_config()?)
}

fn command() -> Command {
    divvy_runtime::settings::described::<Keys>(CommandLine::command())
}

#[cfg(test)]
mod tests;
