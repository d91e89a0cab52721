//! Paths as keys have them.

use std::ops::Deref;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A path from the root, without `..`: it is the same place for every process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct AbsolutePath(PathBuf);

// === impl AbsolutePath ===

impl AbsolutePath {
    /// A default.
    pub fn new(path: &'static str) -> Self {
        Self(path.into())
    }
}

impl TryFrom<String> for AbsolutePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let path = Path::new(&text);
        let upwards = path.components().any(|part| part == Component::ParentDir);
        if path.is_absolute() && !upwards {
            return Ok(Self(text.into()));
        }
        Err(format!("\"{text}\" is not an absolute path: expected one that starts with / and has no .. in it"))
    }
}

impl Deref for AbsolutePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}
