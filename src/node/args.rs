//! The command line, and how flags, environment and file become one configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use clap::{Command, CommandFactory, FromArgMatches, Parser, ValueEnum};
use divvy_runtime::settings::FileFlags;
pub use divvy_runtime::settings::{EX_USAGE, Stop};

use crate::config::{Config, ConfigError, Keys};
use crate::container::isolation;

/// Share the GPUs of this node among the pods that the kubelet admits
#[derive(Debug, Parser)]
#[command(name = "divvy-node", version, max_term_width = 120)]
struct CommandLine {
    #[command(flatten)]
    files: FileFlags,
    /// Remove what Divvy left and running pods don't need, then exit; stop the daemon first. node: files of this node, and what its Node carries. watch: files, again and again as pods end, until SIGTERM. cluster: daemon and webhook, then what all Nodes carry
    #[arg(long, value_name = "WHERE", value_enum, hide_possible_values = true, num_args = 0..=1, require_equals = true, default_missing_value = "node")]
    uninstall: Option<Uninstall>,
    #[command(flatten)]
    keys: Keys,
}

/// Job of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Run the daemon.
    Serve,
    /// `--uninstall`.
    Uninstall(Uninstall),
}

/// What is uninstalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Uninstall {
    /// Files on this node that no running pod needs, and amounts, labels and annotations of its Node; stop the daemon first
    Node,
    /// Files on this node, again and again as pods end, until SIGTERM
    Watch,
    /// Daemon and webhook, then what they wrote to Nodes, soft taints included; for the Job of deploy/uninstall
    Cluster,
}

/// Where this node's configuration comes from. The file may change while the daemon runs.
#[derive(Clone, Debug)]
pub struct Sources {
    keys: divvy_runtime::settings::Sources<Keys>,
    /// Job that the program was started for.
    pub job: Job,
}

/// Configuration of one node, merged from all sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The configuration.
    pub config: Config,
    /// The selectors of the overrides that are in effect, the strongest last.
    pub overrides: Vec<String>,
    /// Whether the configuration depends on the node's labels.
    pub by_labels: bool,
}

/// Parses `args` (the program's name first) and `env`, and reads the file that they name.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Sources, Stop> {
    let line = CommandLine::from_arg_matches(&command().try_get_matches_from(args)?)?;
    let job = line.uninstall.map_or(Job::Serve, Job::Uninstall);
    Ok(Sources { keys: divvy_runtime::settings::Sources::new(line.files, line.keys, env)?, job })
}

fn command() -> Command {
    let command = CommandLine::command().mut_arg("tier", |tier| tier.help(isolation::help()));
    divvy_runtime::settings::described::<Keys>(command)
}

// === impl Sources ===

impl Sources {
    /// Configuration files: the daemon's own, and the cluster's.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.keys.files()
    }

    /// The configuration of a node with these labels, the files read anew.
    pub fn effective(&self, labels: &BTreeMap<String, String>) -> Result<Effective, ConfigError> {
        let file = self.keys.file().map_or_else(|| Ok(Keys::default()), Keys::read)?;
        let by_labels = file.has_overrides();
        let (keys, overrides) = file.on(labels);
        Ok(Effective { config: self.keys.over(keys)?.into_config()?, overrides, by_labels })
    }
}

// === impl Effective ===

impl Effective {
    /// The configuration as an equivalent file; the overrides in effect are comments at its top.
    pub fn to_yaml(&self) -> String {
        let overrides = self.overrides.iter().map(|selector| ["# overrides in effect: ", selector, "\n"].concat());
        overrides.collect::<String>() + &self.config.to_yaml()
    }
}

#[cfg(test)]
mod tests;
