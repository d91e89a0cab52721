//! The file: YAML with any of a program's keys, under `version: v1`.

use std::path::Path;

use divvy_api::config::{ClusterConfig, ClusterConfigError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::settings::{ConfigError, KeySet};

/// Reads a program's own file.
pub fn read<K: KeySet>(path: &Path) -> Result<K, ConfigError> {
    let keys: K = parse(path)?;
    if keys.version().is_none() {
        let problem = "version is missing: the first line should be \"version: v1\"".to_owned();
        return Err(ConfigError::File { file: path.to_owned(), problem });
    }
    Ok(keys)
}

/// Reads the cluster's configuration, and checks what its keys must agree on.
pub fn read_cluster(path: &Path) -> Result<ClusterConfig, ConfigError> {
    let config: ClusterConfig = parse(path)?;
    let refused =
        |refused: ClusterConfigError| ConfigError::File { file: path.to_owned(), problem: refused.to_string() };
    config.check().map_err(refused)?;
    Ok(config)
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { file: path.to_owned(), source })?;
    let refused = |error| ConfigError::File { file: path.to_owned(), problem: explain(&text, &error) };
    serde_saphyr::from_str(&text).map_err(refused)
}

/// The configuration as a file that would say the same.
pub fn to_yaml(config: &impl Serialize) -> String {
    let keys = serde_saphyr::to_string(config).expect("a flat struct of texts, numbers and lists always serialises");
    format!("version: v1\n{keys}")
}

/// What the parser says, after line, column and the key that it is about.
fn explain(text: &str, error: &serde_saphyr::Error) -> String {
    let problem = error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let Some(place) = error.location() else { return problem };
    let line = place.line();
    let column = place.column();
    let problem = problem.strip_suffix(&format!(" at line {line}, column {column}")).unwrap_or(&problem);
    // A value's key is the last one that begins a line, or an item of a list.
    let key = |line: &str| {
        let (key, _) = line.trim_start_matches([' ', '-']).split_once(':')?;
        Some(key.to_owned()).filter(|key| key.starts_with(char::is_alphabetic))
    };
    let seen = usize::try_from(line).unwrap_or(usize::MAX);
    let key = text.lines().take(seen).filter_map(key).last().map(|key| format!("{key}: ")).unwrap_or_default();
    format!("line {line}, column {column}: {key}{problem}")
}
