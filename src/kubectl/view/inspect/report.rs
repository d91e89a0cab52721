//! Report on nodes, from which tables and structured output are made.
//!
//! `-o json` and `-o yaml` write a [`InspectReport`] with its fields in camel case. Fields are added without notice; one that
//! changes its meaning, or goes, comes with another `version`. Memory is in MiB (`memoryMi`), compute in percent of a card
//! (`cores`).

mod card;

use std::collections::{BTreeMap, HashSet};

use divvy_api::CardId;
use divvy_api::gpunode::{GpuNodeReport, Oversubscription, ShareStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

pub use self::card::{Amount, CardReport, ShareReport, Totals};
use super::fetch::FoundNode;

/// What of a node's own report can't be read is named so often.
const UNREAD: usize = 3;

/// Nodes and what is on them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectReport {
    /// `v1`: of this structure.
    pub version: &'static str,
    /// The namespace whose pods' shares are listed, and the nodes that have some; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// By name.
    pub nodes: Vec<NodeReport>,
    /// Sums over these nodes.
    pub totals: Totals,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Name of Node and `GpuNode`.
    pub name: String,
    /// Nothing that is known of daemon, kubelet and Node keeps new pods away; each card may still have reasons.
    pub takes_pods: bool,
    /// How shares are enforced, on its weakest GPU; absent if the daemon hasn't said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Most containers that can share a GPU, unless the GPU has its own number; absent if the daemon hasn't said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_per_card: Option<u32>,
    /// NVLink domain and clique of the GPUs, where NVLink reaches other nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clique: Option<String>,
    /// Oversubscription of the GPUs' memory, where the node is configured for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oversubscription: Option<OversubscriptionReport>,
    /// Revision of the ledger that this shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_revision: Option<u64>,
    /// Problems of the node, and of this report's data, in words.
    pub problems: Vec<String>,
    /// As the `GpuNode` has them.
    pub conditions: Vec<Condition>,
    /// Every card, and then cards that pods hold and the daemon doesn't list.
    pub cards: Vec<CardReport>,
    /// Sums over these cards.
    pub totals: Totals,
}

/// Oversubscription of a node's GPU memory.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OversubscriptionReport {
    /// Memory that pods may allocate, in percent of the GPU memory that is booked for them.
    pub memory_scale: u32,
    /// Host memory that is booked for the rest, in MiB.
    pub host_memory_mi: Amount,
}

/// How long ago, in words that follow a statement: ` for 5m`.
pub(super) fn age(since: Option<&Time>, now: Timestamp) -> String {
    let Some(Time(since)) = since else { return String::new() };
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    // As kubectl rounds ages.
    let age = match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    format!(" for {age}")
}

// === impl InspectReport ===

impl InspectReport {
    /// Builds the report of these nodes, with the shares of one namespace only, if one is given.
    pub fn new(found: &[FoundNode], namespace: Option<&str>, now: Timestamp) -> Self {
        let mut nodes: Vec<NodeReport> = found.iter().map(|found| NodeReport::new(found, now)).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(namespace) = namespace {
            for card in nodes.iter_mut().flat_map(|node| &mut node.cards) {
                card.shares.retain(|share| share.status.namespace == namespace);
            }
            nodes.retain(|node| node.cards.iter().any(|card| !card.shares.is_empty()));
        }
        let totals = nodes.iter().map(|node| node.totals).fold(Totals::default(), Totals::plus);
        Self { version: "v1", namespace: namespace.map(str::to_owned), nodes, totals }
    }
}

// === impl NodeReport ===

impl NodeReport {
    pub(crate) fn new(found: &FoundNode, now: Timestamp) -> Self {
        let reported = &found.gpu_node;
        let serves = reported.node.cards.iter().any(|card| card::without_cordon(&card.health).0 == card::HEALTHY);
        let mut problems = found.host.problems(serves, now);
        problems.extend(conditions(reported, now));
        let takes_pods = problems.is_empty();
        problems.extend(remarks(reported));
        let cards = cards(reported, takes_pods && reported.unread.is_empty());
        let mut totals = cards.iter().map(CardReport::totals).fold(Totals::default(), Totals::plus);
        totals.pods = reported.shares.iter().map(|share| &share.pod_uid).collect::<HashSet<_>>().len();
        let held = cards.iter().map(|card| card.host_memory_mi).sum();
        let oversubscription = reported.node.oversubscription.map(|Oversubscription { memory_scale, host_memory }| {
            OversubscriptionReport { memory_scale, host_memory_mi: Amount::of_host(host_memory, held) }
        });
        Self {
            name: found.name.clone(),
            takes_pods,
            tier: reported.tier.map(|tier| tier.to_string()),
            slots_per_card: reported.slots_per_card,
            clique: reported.clique.clone(),
            oversubscription,
            ledger_revision: reported.ledger_revision,
            problems,
            conditions: reported.conditions.clone(),
            cards,
            totals,
        }
    }
}

/// Conditions that keep new pods away. What depends on another condition for the same reason isn't said twice.
fn conditions(reported: &GpuNodeReport, now: Timestamp) -> Vec<String> {
    let of = |kind: &str| reported.conditions.iter().find(|condition| condition.type_ == kind);
    let bad = [("InventoryKnown", "True"), ("Ready", "True"), ("Draining", "False")];
    let bad: Vec<&Condition> =
        bad.iter().filter_map(|(kind, good)| of(kind).filter(|condition| condition.status != *good)).collect();
    let repeats = |at: usize| bad[..at].iter().any(|other| other.message == bad[at].message);
    let mut problems: Vec<String> =
        (0..bad.len()).filter(|at| !repeats(*at)).map(|at| in_words(bad[at], now)).collect();
    if of("Ready").is_none() {
        problems.push(
            if reported.has_status {
                "divvy-node doesn't say whether it is ready"
            } else {
                "divvy-node has not reported anything yet"
            }
            .to_owned(),
        );
    }
    problems
}

fn in_words(condition: &Condition, now: Timestamp) -> String {
    let Condition { type_, status, reason, message, last_transition_time, .. } = condition;
    format!("{type_} is {status}{} ({reason}): {message}", age(Some(last_transition_time), now))
}

/// What is wrong and keeps no pod away.
fn remarks(reported: &GpuNodeReport) -> Vec<String> {
    let mut remarks = Vec::new();
    let concerns = |condition: &&Condition| {
        matches!(&*condition.type_, "SpecApplied" | "SharesHeld") && condition.status != "True"
    };
    let bad = reported.conditions.iter().filter(concerns);
    remarks.extend(bad.map(|condition| format!("{}: {}", condition.reason, condition.message)));
    if let Some(more) = reported.unread.len().checked_sub(1) {
        let named = reported.unread.iter().take(UNREAD).cloned().collect::<Vec<_>>().join("; ");
        let more = if more < UNREAD { String::new() } else { format!(" and {} more", more + 1 - UNREAD) };
        remarks.push(format!(
            "not all of this can be read, and what can't counts as nothing; another version of divvy-node may have written it: \
             {named}{more}"
        ));
    }
    remarks
}

fn cards(reported: &GpuNodeReport, takes_pods: bool) -> Vec<CardReport> {
    let mut shares: BTreeMap<&CardId, Vec<&ShareStatus>> = BTreeMap::new();
    for share in &reported.shares {
        shares.entry(&share.card).or_default().push(share);
    }
    let listed = reported.node.cards.iter().enumerate().map(|(at, card)| {
        let shares = shares.remove(&card.id).unwrap_or_default();
        CardReport::new(reported, at, &shares, takes_pods)
    });
    let mut cards: Vec<CardReport> = listed.collect();
    cards.extend(shares.into_iter().map(|(id, shares)| CardReport::missing(id, &shares)));
    cards
}
