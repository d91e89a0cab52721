//! Measured use of cards by containers: the daemon's `/usage` page, which `kubectl divvy top` reads.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::card_id::CardId;
use crate::share::Share;

/// Measured use on one node, and violations of shares.
///
/// `K` is what their kinds are read as. A daemon knows its own; readers take a [`String`], since a newer daemon reports kinds
/// that they don't know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "K: Deserialize<'de>"))]
pub struct NodeUsage<K = ViolationKind> {
    /// The node.
    pub node: String,
    /// Entries, one for each card of each container that holds a share.
    #[serde(default)]
    pub containers: Vec<ContainerUsage>,
    /// Active violations.
    #[serde(default)]
    pub findings: Vec<ShareViolation<K>>,
    /// Why the driver's per-process figures are missing, if they are: violations can't be detected then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<String>,
}

/// Measured use of one card by one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerUsage {
    /// The container.
    #[serde(flatten)]
    pub of: ContainerRef,
    /// The card.
    pub card: CardId,
    /// The container's share of the card.
    #[serde(flatten)]
    pub share: Share,
    /// Use recorded in the container's accounting region; `None` without libdivvy.
    #[serde(rename = "books", default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionUsage>,
    /// Memory reported by NVML, in bytes; `None` where it isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_bytes: Option<u64>,
    /// Memory in bytes that no allocation asked for, such as modules. It counts against the share, in addition
    /// to the accounting region.
    #[serde(default)]
    pub overhead_bytes: u64,
}

/// Container by namespace, pod and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRef {
    /// UID of its pod.
    pub pod_uid: String,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
}

/// Counters of a container's accounting region, since the daemon started or the region was made. A tenant can write
/// anything there, and lies about its own share only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionUsage {
    /// Memory held by allocations, in bytes.
    pub used_bytes: u64,
    /// Memory imported from other containers, in bytes: it is charged to the exporter.
    #[serde(default)]
    pub imported_bytes: u64,
    /// Managed memory, in bytes, part of `used_bytes`: the driver attributes it to no process.
    #[serde(default)]
    pub managed_bytes: u64,
    /// What contexts are taken to cost, in bytes, part of `used_bytes`.
    #[serde(default)]
    pub context_bytes: u64,
    /// GPU time of the last two seconds, in percent of that time, at most 100. `None` before the second sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u32>,
    /// GPU time used, in ns.
    pub busy_ns: u64,
    /// Time for which launches were throttled, in ns.
    pub throttled_ns: u64,
    /// Launches of kernels and graphs.
    pub launches: u64,
    /// Allocations refused for lack of memory.
    pub out_of_memory: u64,
    /// Functions of the driver that should be hooked, in a revision that the library doesn't know.
    pub unhooked: u64,
    /// Processes registered in the accounting region.
    pub processes: u32,
}

/// Use of a card that exceeds or bypasses a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareViolation<K = ViolationKind> {
    /// Kind of the violation, such as [`ViolationKind`].
    pub kind: K,
    /// The card.
    pub card: CardId,
    /// The container responsible, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<ContainerRef>,
    /// PIDs of the processes, in the host's PID namespace.
    pub pids: Vec<u32>,
    /// Memory of these processes on the card reported by NVML, in bytes.
    pub bytes: u64,
    /// Seconds since the violation was first observed.
    pub seconds: u64,
    /// Description for people.
    pub message: String,
}

/// Kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViolationKind {
    /// A container uses more memory than its share, by NVML's figures.
    AboveShare,
    /// A process of a container that has the library uses a card without it.
    WithoutLibrary,
    /// A process that belongs to no container which holds a share of the card.
    Foreign,
    /// A container calls functions of the driver that are newer than the library, which holds none of them to the share.
    UnhookedFunction,
}

// === impl NodeUsage ===

/// No container, no violation.
impl<K> Default for NodeUsage<K> {
    fn default() -> Self {
        Self { node: String::new(), containers: Vec::new(), findings: Vec::new(), unmeasured: None }
    }
}

// === impl ViolationKind ===

impl ViolationKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::AboveShare, Self::WithoutLibrary, Self::Foreign, Self::UnhookedFunction];

    /// Name in metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AboveShare => "above-share",
            Self::WithoutLibrary => "without-library",
            Self::Foreign => "foreign",
            Self::UnhookedFunction => "unhooked-function",
        }
    }

    /// Reason of events and conditions, in camel case.
    pub fn reason(self) -> &'static str {
        match self {
            Self::AboveShare => "AboveShare",
            Self::WithoutLibrary => "WithoutLibrary",
            Self::Foreign => "ForeignProcess",
            Self::UnhookedFunction => "UnhookedFunction",
        }
    }
}

impl fmt::Display for ViolationKind {
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
    fn node_usage_roundtrip_skips_unknown_fields() {
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
                share: Share { memory: Memory::mib(8192), cores: Cores::new(30), ..Share::default() },
                region: Some(RegionUsage { used_bytes: 1 << 30, busy_percent: Some(29), ..RegionUsage::default() }),
                driver_bytes: Some(3 << 30),
                overhead_bytes: 2 << 30,
            }],
            findings: vec![ShareViolation {
                kind: ViolationKind::AboveShare,
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
    fn reader_keeps_a_kind_that_it_does_not_know() {
        let finding = r#"{"kind":"later","card":"GPU-a","pids":[],"bytes":0,"seconds":0,"message":"m"}"#;
        let usage = format!(r#"{{"node":"n","containers":[],"findings":[{finding}]}}"#);
        let read: NodeUsage<String> = serde_json::from_str(&usage).expect("it is read");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), usage);
    }

    #[test]
    fn violation_kinds_serialise_as_their_name() {
        for kind in ViolationKind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("JSON"), kind.as_str());
        }
    }
}
