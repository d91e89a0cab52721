//! What containers really use of their cards: what a daemon answers at `/usage`, and `kubectl divvy top` reads.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::card::CardId;
use crate::share::Share;

/// What the containers of one node use, and what is wrong with that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUsage {
    /// The node.
    pub node: String,
    /// A line for each card of each container that holds a share.
    #[serde(default)]
    pub containers: Vec<ContainerUsage>,
    /// What stands now.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Why it isn't known what processes use by the driver, if so: then nothing can be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<String>,
}

/// What one container uses of one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerUsage {
    /// The container.
    #[serde(flatten)]
    pub of: ContainerRef,
    /// The card.
    pub card: CardId,
    /// What it may use.
    #[serde(flatten)]
    pub share: Share,
    /// By its own books; `None` where there is no library to keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub books: Option<OwnBooks>,
    /// Memory by the driver, in bytes; `None` where it isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_bytes: Option<u64>,
    /// What of that no allocation asked for, such as contexts and modules, in bytes. It counts against the share beside what
    /// the books say.
    #[serde(default)]
    pub overhead_bytes: u64,
}

/// A container, as people know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRef {
    /// UID of its pod.
    pub pod_uid: String,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// Its name.
    pub container: String,
}

/// What the processes of a container have written into the books that they share. A tenant can write anything there, and
/// lies about its own share only. What is counted is counted since the daemon started, or since the books were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnBooks {
    /// Memory held by allocations, in bytes.
    pub used_bytes: u64,
    /// Memory that they have opened and others made, in bytes: it is charged to those.
    #[serde(default)]
    pub imported_bytes: u64,
    /// GPU time of the last two seconds, in percent of that time, at most 100. `None` at the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u32>,
    /// GPU time used, in ns.
    pub busy_ns: u64,
    /// Time that launches were held back, in ns.
    pub throttled_ns: u64,
    /// Launches of kernels and graphs.
    pub launches: u64,
    /// Allocations refused for lack of memory.
    pub out_of_memory: u64,
    /// Functions of the driver that should be hooked, in a revision that the library doesn't know.
    pub unhooked: u64,
    /// Processes that have a place in the books.
    pub processes: u32,
}

/// Something that a promise doesn't allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// On which card.
    pub card: CardId,
    /// Whose doing it is, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<ContainerRef>,
    /// The processes, by the host's numbers.
    pub pids: Vec<u32>,
    /// What they use of the card by the driver, in bytes.
    pub bytes: u64,
    /// For how many seconds it has been seen.
    pub seconds: u64,
    /// The same for people.
    pub message: String,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A container uses more memory than its share, by the driver.
    AboveShare,
    /// A process of a container that has the library uses a card without it.
    WithoutLibrary,
    /// A process that belongs to no container which holds a share of the card.
    Foreign,
}

// === impl FindingKind ===

impl FindingKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AboveShare, Self::WithoutLibrary, Self::Foreign];

    /// As metrics and JSON name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AboveShare => "above-share",
            Self::WithoutLibrary => "without-library",
            Self::Foreign => "foreign",
        }
    }

    /// One word in camel case: a reason of events and conditions.
    pub fn reason(self) -> &'static str {
        match self {
            Self::AboveShare => "AboveShare",
            Self::WithoutLibrary => "WithoutLibrary",
            Self::Foreign => "ForeignProcess",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl ContainerRef ===

impl fmt::Display for ContainerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, pod, container, .. } = self;
        write!(f, "container {container} of pod {namespace}/{pod}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Cores, Memory};

    #[test]
    fn a_node_s_usage_is_read_as_it_was_written() {
        let of = ContainerRef {
            pod_uid: "u".to_owned(),
            namespace: "team".to_owned(),
            pod: "train-0".to_owned(),
            container: "main".to_owned(),
        };
        let card: CardId = "GPU-a".parse().expect("a UUID");
        let usage = NodeUsage {
            node: "n".to_owned(),
            containers: vec![ContainerUsage {
                of: of.clone(),
                card: card.clone(),
                share: Share { memory: Memory::mib(8192), cores: Cores::new(30), exclusive: false },
                books: Some(OwnBooks { used_bytes: 1 << 30, busy_percent: Some(29), ..OwnBooks::default() }),
                driver_bytes: Some(3 << 30),
                overhead_bytes: 2 << 30,
            }],
            findings: vec![Finding {
                kind: FindingKind::AboveShare,
                card,
                of: Some(of),
                pids: vec![7],
                bytes: 9 << 30,
                seconds: 12,
                message: "m".to_owned(),
            }],
            unmeasured: None,
        };
        let text = serde_json::to_string_pretty(&usage).expect("JSON");
        insta::assert_snapshot!(text);
        assert_eq!(serde_json::from_str::<NodeUsage>(&text).expect("the same"), usage);
        let newer = text.replacen('{', "{ \"later\": [],", 1);
        assert_eq!(serde_json::from_str::<NodeUsage>(&newer).expect("unknown fields are passed over"), usage);
    }

    #[test]
    fn kinds_have_one_name() {
        for kind in FindingKind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("JSON"), kind.as_str());
        }
    }
}
