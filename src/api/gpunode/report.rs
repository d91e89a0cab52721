//! The one reader of `GpuNode`s: one of a newer or older divvy-node gives what can be read, and what can't is said.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::card_status::{self, NodeDefaults};
use super::fields::Fields;
use super::{GpuNode, ShareStatus};
use crate::card::NodeCards;
use crate::config::SLOTS_PER_CARD;
use crate::links::{LinkedCards, Links};
use crate::quantity::Memory;
use crate::share::Share;
use divvy_region::Tier;

/// A `GpuNode` as its readers have it: every GPU with its effective values.
#[derive(Clone, Debug, Default, Resource)]
#[resource(inherit = GpuNode)]
pub struct GpuNodeReport {
    /// Metadata of the object.
    pub metadata: ObjectMeta,
    /// GPUs, in the order of the report.
    pub node: NodeCards,
    /// Every share held, also of GPUs that aren't listed.
    pub shares: Vec<ShareStatus>,
    /// Weakest tier by which shares are enforced there; `None` where the daemon hasn't said.
    pub tier: Option<Tier>,
    /// Most containers that can share a GPU without a number of its own; `None` where the daemon hasn't said.
    pub slots_per_card: Option<u32>,
    /// NVLink domain and clique of the GPUs, where NVLink reaches other nodes.
    pub clique: Option<String>,
    /// Revision of the ledger that this shows.
    pub ledger_revision: Option<u64>,
    /// `Ready`, `InventoryKnown`, `SpecApplied`, `SharesHeld`, `Draining`.
    pub conditions: Vec<Condition>,
    /// `spec.releaseDriver`: no GPU takes new pods.
    pub release_driver: bool,
    /// Whether the daemon has reported anything.
    pub has_status: bool,
    /// Path of each field that couldn't be read, and why. What stands there counts as absent.
    pub unread: Vec<String>,
}

// === impl GpuNodeReport ===

impl GpuNodeReport {
    /// Reads the data of a `GpuNode`: its `spec` and its `status`.
    pub fn read(metadata: ObjectMeta, data: &Value) -> Self {
        let mut unread = Vec::new();
        let mut spec = Fields { object: &data["spec"], path: "spec.".to_owned(), unread: &mut unread };
        let cordoned: Vec<String> = spec.optional("unschedulableCards").unwrap_or_default();
        let release_driver = spec.optional("releaseDriver").unwrap_or_default();
        let object = &data["status"];
        let mut status = Fields { object, path: "status.".to_owned(), unread: &mut unread };
        let tier = status.optional("tier");
        let slots_per_card = status.optional("slotsPerCard");
        let defaults = NodeDefaults {
            tier: tier.unwrap_or_default(),
            scales: status.optional("scales").unwrap_or_default(),
            slots: slots_per_card.unwrap_or(SLOTS_PER_CARD),
        };
        let cards = status.each("cards", |card| card_status::read(card, defaults, &cordoned));
        let links = read_links(object, cards.len());
        let report = Self {
            metadata,
            node: NodeCards {
                cards,
                links: Arc::new(links),
                undivided: tier == Some(Tier::Mig),
                oversubscription: status.optional("oversubscription"),
            },
            shares: status.each("shares", read_share),
            tier,
            slots_per_card,
            clique: status.optional("clique"),
            ledger_revision: status.optional("ledgerRevision"),
            conditions: status.optional("conditions").unwrap_or_default(),
            release_driver,
            has_status: object.is_object(),
            unread: Vec::new(),
        };
        Self { unread, ..report }
    }

    /// Host memory that is booked for shares of GPUs that aren't listed.
    pub fn host_elsewhere(&self) -> Memory {
        let is_elsewhere = |share: &&ShareStatus| self.node.card(&share.card).is_none();
        self.shares.iter().filter(is_elsewhere).map(|share| share.share.host).sum()
    }
}

impl<'de> Deserialize<'de> for GpuNodeReport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            metadata: ObjectMeta,
            #[serde(flatten)]
            data: Value,
        }
        let Object { metadata, data } = Object::deserialize(deserializer)?;
        Ok(Self::read(metadata, &data))
    }
}

/// What readers make of a `GpuNode` that is at hand.
impl From<&GpuNode> for GpuNodeReport {
    fn from(node: &GpuNode) -> Self {
        let data = serde_json::to_value(node).expect("fields of a GpuNode are texts, numbers, and lists of these");
        Self::read(node.metadata.clone(), &data)
    }
}

/// Links of so many cards. A class that isn't known counts as the worst.
fn read_links(status: &Value, cards: usize) -> Links {
    let groups = status["links"].as_array().into_iter().flatten();
    let groups: Vec<_> = groups.filter_map(|group| LinkedCards::deserialize(group).ok()).collect();
    Links::from_groups(cards, &groups)
}

fn read_share(mut fields: Fields<'_>) -> Option<ShareStatus> {
    let card = fields.required("card")?;
    Some(ShareStatus {
        pod_uid: fields.required("podUid").unwrap_or_default(),
        namespace: fields.required("namespace").unwrap_or_default(),
        pod: fields.required("pod").unwrap_or_default(),
        container: fields.required("container").unwrap_or_default(),
        kind: fields.optional("kind").unwrap_or_default(),
        card,
        share: Share {
            memory: fields.required("memoryMi").unwrap_or_default(),
            host: fields.optional("hostMemoryMi").unwrap_or_default(),
            cores: fields.required("cores").unwrap_or_default(),
            exclusive: fields.optional("exclusive").unwrap_or_default(),
        },
        adopted: fields.optional("adopted").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
