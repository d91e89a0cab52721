//! Other systems' programs in a cluster: how their DaemonSets are recognised, and what stays when they are removed.

use std::collections::BTreeMap;

use crate::{ALL, is_meant};

/// A program that allocates GPUs.
#[derive(Debug)]
pub struct Program {
    /// Name for people; also that of a part of a system.
    pub name: &'static str,
    /// Names of its DaemonSets, without the Helm release in front.
    pub daemon_sets: &'static [&'static str],
    /// What it alone writes, or makes users write, on Nodes.
    pub marks: &'static [Mark],
    /// What others use too: counts only on a Node with one of `marks`.
    pub shared: &'static [Mark],
    /// Paths of objects without namespace.
    pub objects: &'static [&'static str],
    /// Others write the marks too, so they count only where divvy-node runs.
    pub only_beside_divvy: bool,
}

/// What a Node carries: a key, or all that start with what is before `*`. A label may name its value.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// An annotation.
    Annotation(&'static str),
    /// A label.
    Label(&'static str),
    /// A resource in its capacity or allocatable.
    Resource(&'static str),
}

// === impl Program ===

impl Program {
    /// Nothing that could be recognised.
    pub(crate) const NONE: Self =
        Self { name: "", daemon_sets: &[], marks: &[], shared: &[], objects: &[], only_beside_divvy: false };

    /// Those of all systems.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        ALL.into_iter().flat_map(|system| system.programs)
    }

    /// The program that a DaemonSet of this name belongs to; of several the one whose own name is the longest, as
    /// `volcano-vgpu-device-plugin` may also be `vgpu-device-plugin` of a release `volcano`.
    pub fn with_daemon_set(name: &str) -> Option<&'static Self> {
        let is_release = |release: &str| release.is_empty() || release.ends_with('-');
        let length = |program: &Self| {
            let ends = program.daemon_sets.iter().filter(|end| name.strip_suffix(**end).is_some_and(is_release));
            ends.map(|end| end.len()).max()
        };
        let found = Self::all().filter_map(|program| Some((length(program)?, program)));
        found.max_by_key(|(length, _)| *length).map(|(_, program)| program)
    }
}

// === impl Mark ===

impl Mark {
    /// Those of a Node's keys that are meant.
    pub fn keys<'n>(
        self,
        annotations: &'n BTreeMap<String, String>,
        labels: &'n BTreeMap<String, String>,
        resources: impl Iterator<Item = &'n str>,
    ) -> Vec<&'n str> {
        let keys = |pattern, map: &'n BTreeMap<String, String>| {
            map.keys().map(String::as_str).filter(|key| is_meant(pattern, key)).collect()
        };
        match self {
            Self::Annotation(pattern) => keys(pattern, annotations),
            Self::Resource(pattern) => resources.filter(|key| is_meant(pattern, key)).collect(),
            Self::Label(label) => match label.split_once('=') {
                Some((key, value)) => {
                    let labels = labels.get_key_value(key).filter(|(_, found)| *found == value);
                    labels.map(|(key, _)| key.as_str()).into_iter().collect()
                }
                None => keys(label, labels),
            },
        }
    }
}
