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

    /// What is at `path` in this directory.
    #[must_use]
    pub fn child(&self, path: &'static str) -> Self {
        Self(self.0.join(path))
    }

    /// This path of the host, for a program that sees the host's root directory at `host_root`.
    #[must_use]
    pub fn on_host(&self, host_root: &Self) -> Self {
        // The root itself would get a slash at its end.
        Self(host_root.0.join(self.0.strip_prefix("/").unwrap_or(&self.0)).components().collect())
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
