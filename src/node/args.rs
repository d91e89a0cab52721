//! The command line, and how flags, environment and file become one configuration.

use std::ffi::OsString;
use std::path::PathBuf;

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

/// The configuration that `args` (the program's name first), `env` and the file that they name make together.
pub fn parse(args: impl IntoIterator<Item = OsString>, env: impl Fn(&str) -> Option<OsString>) -> Result<Config, Stop> {
    let CommandLine { config_file, keys } = CommandLine::from_arg_matches(&command().try_get_matches_from(args)?)?;
    let variables = Keys::from_env(&env)?;
    let file = config_file.or_else(|| env("CONFIG_FILE").filter(|path| !path.is_empty()).map(PathBuf::from));
    let file = file.map_or_else(|| Ok(Keys::default()), |path| Keys::read(&path))?;
    Ok(keys.or(variables).or(file).into_config()?)
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
