//! Versions.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::str::FromStr;

/// `resourceVersion`: the milliseconds since 1970 and the tag of who gave it. A later one of the same store is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64);

/// What isn't a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid resource version: expected a number")]
pub struct BadVersion;

/// Gives versions.
#[derive(Debug)]
pub struct Clock {
    /// The lowest bits of its versions.
    tag: u64,
    first: Version,
    last: Version,
}

/// Bits of a tag. 41 bits hold the milliseconds until 2039, one more until 2109.
const TAG: u32 = 22;
const TAGS: u64 = 1 << TAG;

// === impl Version ===

impl FromStr for Version {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<Self, BadVersion> {
        text.parse().map(Self).map_err(|_error| BadVersion)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Clock ===

impl Clock {
    /// Begins at so many milliseconds since 1970, with a tag of its own: two replicas have the same one in 4 million.
    pub fn new(millis: u64) -> Self {
        Self::with_tag(millis, RandomState::new().hash_one(()))
    }

    pub(super) fn with_tag(millis: u64, tag: u64) -> Self {
        let tag = tag % TAGS;
        let first = Version(millis.min(u64::MAX >> TAG) << TAG | tag);
        Self { tag, first, last: first }
    }

    /// The latest version.
    pub fn now(&self) -> Version {
        self.last
    }

    #[cfg(test)]
    pub(super) fn first_version(&self) -> Version {
        self.first
    }

    /// Gives another one, also when the wall clock stands still or goes back.
    pub(super) fn tick(&mut self, millis: u64) -> Version {
        let next = (self.last.0 >> TAG).saturating_add(1).max(millis).min(u64::MAX >> TAG);
        self.last = Version(next << TAG | self.tag);
        self.last
    }

    /// Whether it gave this version, or may have.
    pub(super) fn gave(&self, version: Version) -> bool {
        version.0 % TAGS == self.tag && (self.first..=self.last).contains(&version)
    }
}
