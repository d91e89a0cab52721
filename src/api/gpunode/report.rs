//! The one reader of `GpuNode`s: one of a newer or older divvy-node gives what can be read, and what can't is said.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{CardStatus, GpuNode, HealthStatus, ShareStatus};
use crate::card::{Card, Health, MigInstance, NodeCards, Scales};
use crate::card_id::{CardId, MigProfile};
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

/// One object on the way to its fields.
struct Fields<'a> {
    object: &'a Value,
    /// With a dot at its end, for messages.
    path: String,
    unread: &'a mut Vec<String>,
}

/// What holds for GPUs that have nothing of their own.
#[derive(Clone, Copy)]
struct NodeDefaults {
    tier: Tier,
    scales: Scales,
    slots: u32,
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
        let cards = status.each("cards", |card| read_card(card, defaults, &cordoned));
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

/// What is written of a GPU; [`read_card`] is the way back. What differs from its node's stands nowhere yet.
impl From<&Card> for CardStatus {
    fn from(card: &Card) -> Self {
        let (health, reason) = match &card.health {
            Health::Healthy => (HealthStatus::Healthy, None),
            Health::Cordoned { also } => (HealthStatus::Unhealthy, also.as_ref()),
            Health::Unhealthy { reason } => (HealthStatus::Unhealthy, Some(reason)),
        };
        Self {
            health,
            reason: reason.map(ToString::to_string),
            cordoned: matches!(card.health, Health::Cordoned { .. }),
            numa: card.numa,
            mig: card.mig.as_ref().map(|mig| mig.profile.to_string()),
            plain: card.mig.is_some() && card.requested_profile().is_none(),
            ..Self::healthy(card.id.clone(), &*card.model, card.memory)
        }
    }
}

fn read_card(mut fields: Fields<'_>, of_node: NodeDefaults, cordoned: &[String]) -> Option<Card> {
    let id: CardId = fields.required("uuid")?;
    let is_cordoned =
        fields.optional("cordoned").unwrap_or_default() || cordoned.iter().any(|uuid| uuid == id.as_str());
    let health = read_health(&mut fields, is_cordoned);
    let profile: Option<MigProfile> = fields.optional("mig");
    let is_plain: bool = fields.optional("plain").unwrap_or_default();
    Some(Card {
        id,
        model: fields.optional::<String>("model").unwrap_or_default().into(),
        memory: fields.required("memoryMi").unwrap_or_default(),
        numa: fields.optional("numa"),
        mig: profile.map(|profile| MigInstance { profile, by_profile: !is_plain }),
        slots: fields.optional("slots").unwrap_or(of_node.slots),
        tier: fields.optional("tier").unwrap_or(of_node.tier),
        scales: fields.optional("scales").unwrap_or(of_node.scales),
        health,
        utilization: fields.optional("utilization"),
    })
}

/// Health of a card. A word that isn't known here keeps pods off, and stands before the reason.
fn read_health(fields: &mut Fields<'_>, is_cordoned: bool) -> Health {
    let word: String = fields.required("health").unwrap_or_default();
    let reason: String = fields.optional("reason").unwrap_or_default();
    let health = match word.as_str() {
        "Healthy" => Health::Healthy,
        // So a cordon alone is reported.
        "Unhealthy" if is_cordoned && reason.is_empty() => Health::Healthy,
        "Unhealthy" => Health::unhealthy(reason),
        _ if reason.is_empty() => Health::unhealthy(word),
        _ => Health::unhealthy(format!("{word}: {reason}")),
    };
    if is_cordoned { health.cordoned() } else { health }
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

// === impl Fields ===

impl Fields<'_> {
    /// The field; `None` where there is none or where it can't be read.
    fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.object.get(name).filter(|value| !value.is_null())?;
        let read = T::deserialize(value);
        read.map_err(|error| self.unread.push(format!("{}{name}: {error}", self.path))).ok()
    }

    /// A field that every version writes.
    fn required<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        if self.object.get(name).is_none_or(Value::is_null) {
            self.unread.push(format!("{}{name} is missing", self.path));
        }
        self.optional(name)
    }

    /// The items of a list of objects, but for those that say too little.
    fn each<T>(&mut self, name: &str, read: impl Fn(Fields<'_>) -> Option<T>) -> Vec<T> {
        let empty = Vec::new();
        let items = match self.object.get(name) {
            Some(Value::Array(items)) => items,
            None | Some(Value::Null) => &empty,
            Some(_) => {
                self.unread.push(format!("{}{name}: expected a list", self.path));
                &empty
            }
        };
        let path = |at: usize| format!("{}{name}[{at}].", self.path);
        let items = items.iter().enumerate();
        items.filter_map(|(at, object)| read(Fields { object, path: path(at), unread: self.unread })).collect()
    }
}

#[cfg(test)]
mod tests;
