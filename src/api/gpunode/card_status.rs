//! One GPU in a `GpuNode`: how it is written, and how it is read.

use divvy_region::Tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::Fields;
use crate::card::{Card, Health, MigInstance, Scales};
use crate::card_id::{CardId, MigProfile};
use crate::quantity::Memory;

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CardStatus {
    /// The GPU's UUID.
    pub uuid: CardId,
    /// Product name as NVML gives it.
    pub model: String,
    /// Total memory in MiB.
    #[serde(rename = "memoryMi")]
    pub memory: Memory,
    /// `Healthy` or `Unhealthy`; `Unhealthy` too while it is cordoned.
    pub health: HealthStatus,
    /// Why it is unhealthy, apart from a cordon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether `spec.unschedulableCards` names it, or the GPU whose instance it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// NUMA node, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// MIG profile, for an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<String>,
    /// Whether this is a MIG instance that pods request as `nvidia.com/gpu`, not by its profile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// Tier by which shares of it are enforced, where that is a stronger one than the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Part of it that can be allocated, where that isn't the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scales: Option<Scales>,
    /// Most containers that can share it, where that isn't the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Percent of the last minute or two in which a kernel ran on it, in steps of 10, where the daemon publishes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<u32>,
}

/// Whether new shares are given from a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HealthStatus {
    /// Serves.
    #[default]
    Healthy,
    /// Gives no new share; held ones stay.
    Unhealthy,
}

/// What holds for GPUs that have nothing of their own.
#[derive(Clone, Copy)]
pub(super) struct NodeDefaults {
    pub(super) tier: Tier,
    pub(super) scales: Scales,
    pub(super) slots: u32,
}

// === impl CardStatus ===

impl CardStatus {
    /// A healthy GPU of which nothing else is known.
    pub fn healthy(uuid: CardId, model: impl Into<String>, memory: Memory) -> Self {
        Self {
            uuid,
            model: model.into(),
            memory,
            health: HealthStatus::Healthy,
            reason: None,
            cordoned: false,
            numa: None,
            mig: None,
            plain: false,
            tier: None,
            scales: None,
            slots: None,
            utilization: None,
        }
    }
}

/// All but what stands there only where it differs from the node's.
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

/// The GPU of an entry with its effective values, if the entry says whose they are.
pub(super) fn read(mut fields: Fields<'_>, of_node: NodeDefaults, cordoned: &[String]) -> Option<Card> {
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
