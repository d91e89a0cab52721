//! `GpuNode`: a node's cards and who holds them. Its status is written by that node's daemon alone, and read by all others
//! as a [`GpuNodeReport`].

mod card_status;
mod fields;
mod report;

use divvy_region::Tier;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

pub use crate::card::{Oversubscription, Scales};
use crate::card_id::CardId;
use crate::links::LinkedCards;
use crate::pod::ContainerKind;
use crate::quantity::{Cores, Memory};
use crate::share::Share;
pub use card_status::{CardStatus, HealthStatus};
pub use report::GpuNodeReport;

/// Administrator's settings for a node's GPUs.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "divvy.dev",
    version = "v1alpha1",
    kind = "GpuNode",
    plural = "gpunodes",
    shortname = "gn",
    category = "divvy",
    status = "GpuNodeStatus",
    derive = "Default",
    doc = "The GPUs of one node, and the pods that hold a share of them",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"GPUs","type":"string","description":"healthy of all","jsonPath":".status.summary.cards"}"#,
    printcolumn = r#"{"name":"Memory","type":"string","description":"held of all","jsonPath":".status.summary.memory"}"#,
    printcolumn = r#"{"name":"Cores","type":"string","description":"held of all","jsonPath":".status.summary.cores"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","description":"pods that hold a share","jsonPath":".status.summary.pods"}"#,
    printcolumn = r#"{"name":"Tier","type":"string","description":"how shares are enforced","jsonPath":".status.tier"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GpuNodeSpec {
    /// UUIDs of GPUs that take no new pods; those that run keep their shares. As `spec.unschedulable` of a Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unschedulable_cards: Vec<String>,
    /// The daemon closes NVML, so that the driver can be unloaded and replaced; until then no GPU takes new pods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub release_driver: bool,
}

/// GPUs and shares as the daemon reports them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = RecursiveTransform(without_integer_format))]
pub struct GpuNodeStatus {
    /// Every GPU of the node.
    #[serde(default)]
    pub cards: Vec<CardStatus>,
    /// Links between the GPUs, groups of the best class first; two GPUs of no common group are linked as `SYS`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkedCards>,
    /// Every share held.
    #[serde(default)]
    pub shares: Vec<ShareStatus>,
    /// Weakest tier by which shares are enforced on this node.
    #[serde(default)]
    pub tier: Tier,
    /// Part of each GPU that can be allocated, in percent of what it has, unless the GPU has its own.
    #[serde(default)]
    pub scales: Scales,
    /// Most containers that can share a GPU, unless the GPU has its own; `None` in reports of older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_per_card: Option<u32>,
    /// NVLink domain and clique of the GPUs, as the label `nvidia.com/gpu.clique` has them, where NVLink reaches other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clique: Option<String>,
    /// Oversubscription of the GPUs' memory, where the node is configured for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oversubscription: Option<Oversubscription>,
    /// Revision of the ledger that this status shows; grows with every change of a share.
    #[serde(default)]
    pub ledger_revision: u64,
    /// `Ready`, `InventoryKnown`, `SpecApplied`, `SharesHeld`, `Draining`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The printer columns' texts.
    #[serde(default)]
    pub summary: Summary,
}

/// GPUs of a report that are believed, at most: a daemon that reports more is broken, or not ours.
pub const MOST_CARDS: usize = 1024;

/// One share of one container. A pod's shares stand in admission order and don't simply add up: its init containers
/// hold theirs one after another, before the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShareStatus {
    /// UID of the pod.
    pub pod_uid: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// What the container is to its pod: `init`, `sidecar` or `app`.
    #[serde(default)]
    pub kind: ContainerKind,
    /// The GPU.
    pub card: CardId,
    /// The part of it.
    #[serde(flatten)]
    pub share: Share,
    /// Another device plugin has allocated it, or the pod's requests can't be read: the container holds the GPU alone until its
    /// pod ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

/// Texts for `kubectl get gpunodes`, whose JSONPath can't add up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// `7/8`: healthy of all.
    #[serde(default)]
    pub cards: String,
    /// `120Gi/640Gi`: held of all.
    #[serde(default)]
    pub memory: String,
    /// `340/800`: held of all.
    #[serde(default)]
    pub cores: String,
    /// Pods that hold a share.
    #[serde(default)]
    pub pods: u32,
}

/// Removes an integer's `format`: `minimum` and `maximum` bound it. Kubernetes 1.34 and newer answer a schema with
/// `uint32` or `uint64` with the warning `unrecognized format`, 1.34.0 one with `int32` or `int64` too
/// (kubernetes/kubernetes#133896).
pub(crate) fn without_integer_format(schema: &mut Schema) {
    let has_integers = schema.get("type").is_some_and(|kind| kind.to_string().contains("\"integer\""));
    if has_integers {
        schema.remove("format");
    }
}

// === impl GpuNodeStatus ===

impl GpuNodeStatus {
    /// Fields that are left out where they have nothing to say: a writer that merges has to remove them.
    pub const OPTIONAL: [&str; 4] = ["links", "slotsPerCard", "clique", "oversubscription"];
}

// === impl Summary ===

impl Summary {
    /// The texts for these amounts; `cards` and the pairs are (part, whole).
    pub fn new(cards: (usize, usize), memory: (Memory, Memory), cores: (Cores, Cores), pods: u32) -> Self {
        Self {
            cards: format!("{}/{}", cards.0, cards.1),
            memory: format!("{}/{}", memory.0, memory.1),
            cores: format!("{}/{}", cores.0, cores.1),
            pods,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;
    use crate::gpuquota::GpuQuota;

    /// Above the definitions, which `UPDATE_CRD=1` writes anew.
    const HEADER: &str = "# GpuNode::crd() and GpuQuota::crd() of src/api, which a test compares. After a change there:\n\
        # UPDATE_CRD=1 cargo test -p divvy-api\n";

    #[test]
    fn crd_manifest_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/manifests/crd.yaml");
        let definition = |crd| serde_saphyr::to_string(&crd).expect("a definition is plain data");
        let text = format!("{HEADER}{}---\n{}", definition(GpuNode::crd()), definition(GpuQuota::crd()));
        if std::env::var_os("UPDATE_CRD").is_some() {
            std::fs::write(path, &text).expect("the manifests lie in the same tree");
        }
        let given = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            given == text,
            "deploy/manifests/crd.yaml is not what src/api defines: run UPDATE_CRD=1 cargo test -p divvy-api and review the change"
        );
    }

    /// Formats of strings that every supported API server knows, without dashes: `formats.go` of apiextensions-apiserver,
    /// Kubernetes 1.36. There are more; a new one in our schema is to be looked up there.
    const STRING_FORMATS: [&str; 4] = ["byte", "date", "datetime", "duration"];

    #[test]
    fn crd_has_no_format_that_the_api_server_warns_about() {
        fn collect(value: &serde_json::Value, unknown: &mut Vec<String>) {
            if let Some(format) = value["format"].as_str() {
                let is_known = value["type"] == "string" && STRING_FORMATS.contains(&&*format.replace('-', ""));
                unknown.extend((!is_known).then(|| value.to_string()));
            }
            match value {
                serde_json::Value::Object(fields) => fields.values().for_each(|field| collect(field, unknown)),
                serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, unknown)),
                _ => {}
            }
        }
        let mut unknown = Vec::new();
        collect(&serde_json::json!([GpuNode::crd(), GpuQuota::crd()]), &mut unknown);
        assert_eq!(unknown, Vec::<String>::new());
    }

    #[test]
    fn empty_spec_serialises_as_empty_object() {
        let spec: GpuNodeSpec = serde_json::from_str("{}").expect("every field has a default");
        assert_eq!(serde_json::to_string(&spec).expect("JSON"), "{}");
    }

    #[test]
    fn optional_fields_of_the_status_are_known() {
        let left_out = serde_json::to_value(GpuNodeStatus::default()).expect("JSON");
        let schema = serde_json::to_value(schemars::schema_for!(GpuNodeStatus)).expect("JSON");
        let all = schema["properties"].as_object().expect("a struct").keys();
        let optional: Vec<&String> = all.filter(|field| left_out.get(field).is_none()).collect();
        let mut known = GpuNodeStatus::OPTIONAL;
        known.sort_unstable();
        assert_eq!(optional, known);
    }

    #[test]
    fn status_of_a_newer_daemon_is_read() {
        let text = r#"{"cards":[{"uuid":"GPU-a","model":"H200","memoryMi":143771,"health":"Healthy","newField":1}],"later":{}}"#;
        let status: GpuNodeStatus = serde_json::from_str(text).expect("unknown fields are passed over");
        assert_eq!(status.cards[0].memory, Memory::mib(143_771));
    }
}
