//! The command line, and how flags, environment and file become one configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory, FromArgMatches, Parser};
use serde_json::Value;

use crate::config::{Config, ConfigError, Keys};

/// `EX_USAGE` of BSD's sysexits: wrong flags and wrong configuration, which no restart will heal.
pub const EX_USAGE: u8 = 64;

/// Shares the GPUs of this node among the pods that the kubelet admits
#[derive(Debug, Parser)]
#[command(name = "divvy-node", version, max_term_width = 120)]
struct CommandLine {
    /// YAML file with any of the keys below, in camel case, under "version: v1" [env: CONFIG_FILE]
    #[arg(long)]
    config_file: Option<PathBuf>,
    /// Take everything of ours off this node that no pod uses, and end; the daemon must not run
    #[arg(long)]
    uninstall: bool,
    #[command(flatten)]
    keys: Keys,
}

/// Why no configuration came of it.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// Help or version was asked for, or a flag is wrong.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// A flag, a variable or the file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Where this node's configuration comes from. The file may change while the daemon runs.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Flags, and the environment where there is no flag.
    stated: Keys,
    /// `--config-file`.
    file: Option<PathBuf>,
    /// `--uninstall`.
    pub uninstall: bool,
}

/// What the sources make together on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The configuration.
    pub config: Config,
    /// The selectors of the overrides that are in effect, the strongest last.
    pub overrides: Vec<String>,
    /// Whether it depends on the node's labels.
    pub by_labels: bool,
}

/// What `args` (the program's name first) and `env` say, and the file that they name.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Sources, Stop> {
    let CommandLine { config_file, uninstall, keys } =
        CommandLine::from_arg_matches(&command().try_get_matches_from(args)?)?;
    let stated = keys.or(Keys::from_env(&env)?);
    let file = config_file.or_else(|| env("CONFIG_FILE").filter(|path| !path.is_empty()).map(PathBuf::from));
    Ok(Sources { stated, file, uninstall })
}

/// The command line with each key's variable and default in its help.
fn command() -> Command {
    let node_name = Keys::from_env(|name| (name == "NODE_NAME").then(|| "node".into()));
    let defaults = node_name.and_then(Keys::into_config).expect("a node's name is all that has no default");
    let defaults = serde_json::to_value(defaults).expect("a flat struct always serialises");
    CommandLine::command().mut_args(|arg| described(arg, &defaults))
}

fn described(arg: Arg, defaults: &Value) -> Arg {
    let variable = arg.get_id().as_str().to_uppercase();
    let key = camel_case(arg.get_id().as_str());
    let Some(default) = defaults.get(&key) else { return arg };
    let default = match default {
        _ if key == "nodeName" => " [required]".to_owned(),
        Value::Null => String::new(),
        Value::String(text) => format!(" [default: {text}]"),
        Value::Array(items) => {
            format!(" [default: {}]", items.iter().map(Value::to_string).collect::<Vec<_>>().join(","))
        }
        other => format!(" [default: {other}]"),
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.help(format!("{help} [env: {variable}]{default}"))
}

/// serde's `rename_all = "camelCase"`.
fn camel_case(snake: &str) -> String {
    let (first, rest) = snake.split_once('_').unwrap_or((snake, ""));
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    first.to_owned() + &rest.split('_').filter(|word| !word.is_empty()).map(capital).collect::<String>()
}

// === impl Sources ===

impl Sources {
    /// The file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The configuration of a node with these labels, the file read anew.
    pub fn effective(&self, labels: &BTreeMap<String, String>) -> Result<Effective, ConfigError> {
        let file = self.file.as_ref().map_or_else(|| Ok(Keys::default()), |path| Keys::read(path))?;
        let by_labels = file.has_overrides();
        let (keys, overrides) = file.on(labels);
        Ok(Effective { config: self.stated.clone().or(keys).into_config()?, overrides, by_labels })
    }
}

// === impl Effective ===

impl Effective {
    /// The configuration as a file that would say the same; the overrides in effect are its first lines.
    pub fn to_yaml(&self) -> String {
        let overrides = self.overrides.iter().map(|selector| ["# overrides in effect: ", selector, "\n"].concat());
        overrides.collect::<String>() + &self.config.to_yaml()
    }
}

// === impl Stop ===

impl Stop {
    /// Tells the user (help and version on stdout, all else on stderr) and gives the process's exit code.
    pub fn report(&self) -> u8 {
        match self {
            Self::CommandLine(told) => match told.print() {
                Ok(()) if told.use_stderr() => EX_USAGE,
                Ok(()) => 0,
                Err(_closed) => 1,
            },
            Self::Config(refused) => {
                eprintln!("error: {refused}");
                EX_USAGE
            }
        }
    }
}

#[cfg(test)]
mod tests;
