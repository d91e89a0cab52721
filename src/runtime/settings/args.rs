//! The command line's part of a configuration, and what is said and returned when none comes of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use crate::settings::{ConfigError, KeySet};

/// `EX_USAGE` of BSD's sysexits: wrong flags and wrong configuration, which no restart will heal.
pub const EX_USAGE: u8 = 64;

/// The flag that names the file. It stands before a program's other flags.
#[derive(Debug, Args)]
pub struct FileFlag {
    /// YAML file with any of the keys below, in camel case, under "version: v1" [env: CONFIG_FILE]
    #[arg(long)]
    config_file: Option<PathBuf>,
}

/// Where a configuration comes from. The file may change while the program runs.
#[derive(Clone, Debug)]
pub struct Sources<K> {
    /// Flags, and the environment where there is no flag.
    stated: K,
    /// `--config-file`.
    file: Option<PathBuf>,
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

/// A program's command line with each key's variable and default in its help.
#[must_use]
pub fn described<K: KeySet>(command: Command) -> Command {
    let hints = K::hints();
    command.mut_args(|arg| {
        let Some((key, hint)) = hints.iter().find(|(key, _)| arg.get_id() == key) else { return arg };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        arg.help(format!("{help} [env: {}] {hint}", key.to_uppercase()).trim_end().to_owned())
    })
}

// === impl Sources ===

impl<K: KeySet> Sources<K> {
    /// What the flags and `env` say, and the file that they name.
    pub fn new(file: FileFlag, flags: K, env: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let stated = flags.or(K::from_env(&env)?);
        let variable = || env("CONFIG_FILE").filter(|path| !path.is_empty()).map(PathBuf::from);
        Ok(Self { stated, file: file.config_file.or_else(variable) })
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What flags and environment say, and `file`'s keys for the rest.
    pub fn over(&self, file: K) -> K {
        self.stated.clone().or(file)
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
