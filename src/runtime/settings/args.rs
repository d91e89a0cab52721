//! Command line, sources of the configuration, and exit code of a refused one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use divvy_api::config::ClusterConfig;

use crate::settings::{ConfigError, KeySet, read_cluster};

/// `EX_USAGE` of BSD's sysexits: wrong flags and wrong configuration, which no restart will heal.
pub const EX_USAGE: u8 = 64;

/// Flags that name files. They stand before a program's other flags.
#[derive(Debug, Args)]
pub struct FileFlags {
    /// YAML file with any of the keys below, in camel case, under "version: v1" [env: CONFIG_FILE]
    #[arg(long)]
    config_file: Option<PathBuf>,
    /// YAML file with the keys that all parts of Divvy share, from the ConfigMap divvy-config; keys of config-file win [env: CLUSTER_CONFIG]
    #[arg(long)]
    cluster_config: Option<PathBuf>,
}

/// Where a configuration comes from. The files may change while the program runs.
#[derive(Clone, Debug)]
pub struct Sources<K> {
    /// Flags, and the environment where there is no flag.
    stated: K,
    /// `--config-file`.
    file: Option<PathBuf>,
    /// `--cluster-config`.
    cluster: Option<PathBuf>,
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
    /// Reads flags and environment, and the names of the files from both.
    pub fn new(files: FileFlags, flags: K, env: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let stated = flags.or(K::from_env(&env)?);
        let variable = |name| env(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let file = files.config_file.or_else(|| variable("CONFIG_FILE"));
        let cluster = files.cluster_config.or_else(|| variable("CLUSTER_CONFIG"));
        Ok(Self { stated, file, cluster })
    }

    /// The program's own file, if it is named.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The files that are named: the program's own, the cluster's.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.file, &self.cluster].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Completes flags and environment with the keys of the program's own file, and those with the cluster's, read anew.
    pub fn over(&self, file: K) -> Result<K, ConfigError>
    where
        K: From<ClusterConfig>,
    {
        let own = self.stated.clone().or(file);
        Ok(match &self.cluster {
            Some(path) => own.or(read_cluster(path)?.into()),
            None => own,
        })
    }
}

// === impl Stop ===

impl Stop {
    /// Tells the user (help and version on stdout, all else on stderr) and gives the process's exit code.
    pub fn report(&self) -> u8 {
        match self {
            Self::CommandLine(message) => match message.print() {
                Ok(()) if message.use_stderr() => EX_USAGE,
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
