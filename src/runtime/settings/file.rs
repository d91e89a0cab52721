//! The file: YAML with any of a program's keys, under `version: v1`.

use std::path::Path;

use serde::Serialize;

use crate::settings::{ConfigError, KeySet};

/// Reads the file at `path`.
pub fn read<K: KeySet>(path: &Path) -> Result<K, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { file: path.to_owned(), source })?;
    let refused = |problem| ConfigError::File { file: path.to_owned(), problem };
    let keys: K = serde_saphyr::from_str(&text).map_err(|error| refused(explain(&text, &error)))?;
    if keys.version().is_none() {
        return Err(refused("version is missing: the first line should be \"version: v1\"".to_owned()));
    }
    Ok(keys)
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
    let (line, column) = (place.line(), place.column());
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
