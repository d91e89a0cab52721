//! Why a configuration is refused.

use std::ffi::OsString;
use std::path::PathBuf;

use divvy_api::config::ClusterConfigError;

/// A configuration that is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such file, or not ours to read.
    #[error("reading configuration file {}: {source}", file.display())]
    Unreadable {
        /// `--config-file`.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Not the YAML that it should be; the parser gives line, column and the keys or values that are allowed.
    #[error("configuration file {}: {problem}", file.display())]
    File {
        /// `--config-file`.
        file: PathBuf,
        /// What the parser says.
        problem: String,
    },
    /// A variable whose text isn't a value of its key.
    #[error("environment variable {name}={value:?}: {problem}")]
    Environment {
        /// The variable.
        name: String,
        /// The variable's text.
        value: OsString,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// A key without a default that no source names.
    #[error(
        "{0} is missing: set --{1}, the environment variable {2} or {0} in the file",
        camel_case(key), key.replace('_', "-"), key.to_uppercase()
    )]
    Missing {
        /// In snake case.
        key: &'static str,
    },
    /// Names of resources that don't go together.
    #[error(transparent)]
    Resources(#[from] ClusterConfigError),
    /// Values that are legal each, and wrong together: which keys, their values and what is allowed.
    #[error("{0}")]
    Disagreement(String),
}

/// serde's `rename_all = "camelCase"`.
fn camel_case(snake: &str) -> String {
    let (first, rest) = snake.split_once('_').unwrap_or((snake, ""));
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    first.to_owned() + &rest.split('_').filter(|word| !word.is_empty()).map(capital).collect::<String>()
}
