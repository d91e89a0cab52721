//! `GpuNode.status`: every GPU, and the shares allocated on it.

use divvy_api::gpunode::{CardStatus, GpuNodeStatus, ShareStatus, Summary};
use divvy_api::usage::{NodeUsage, ShareViolation, ViolationKind};
use divvy_api::{Card, ContainerRequest, Cores, Memory, Tier};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::apiserver::PublishSettings;
use crate::apiserver::view::View;
use divvy_node_core::ledger::{ContainerEntry, Holding, Origin, Part, PodEntry};
use divvy_node_core::pod::PodRef;

/// The status for `view`. `seen`: the one in the cluster, whose transition times are kept for conditions that haven't changed.
pub(in crate::apiserver) fn status(
    view: &View,
    settings: &PublishSettings,
    seen: Option<&GpuNodeStatus>,
    now: Timestamp,
) -> GpuNodeStatus {
    let PublishSettings { scales, slots_per_card, .. } = *settings;
    let cards = view.inventory.cards();
    let tier = cards.iter().map(|card| card.tier).min().unwrap_or(settings.tier);
    GpuNodeStatus {
        cards: cards.iter().map(|card| card_status(card, settings, tier)).collect(),
        links: view.inventory.node.links.groups(),
        shares: shares(view),
        tier,
        scales,
        slots_per_card: Some(slots_per_card),
        clique: view.inventory.clique().map(str::to_owned),
        oversubscription: view.inventory.node.oversubscription,
        ledger_revision: view.revision,
        conditions: conditions(view, seen.map_or(&[], |seen| &seen.conditions), now),
        summary: summary(view),
    }
}

/// A card, with those of its settings that aren't the node's.
fn card_status(card: &Card, of_node: &PublishSettings, tier: Tier) -> CardStatus {
    CardStatus {
        tier: Some(card.tier).filter(|own| *own != tier),
        scales: Some(card.scales).filter(|own| *own != of_node.scales),
        slots: Some(card.slots).filter(|own| *own != of_node.slots_per_card),
        ..CardStatus::from(card)
    }
}

fn shares(view: &View) -> Vec<ShareStatus> {
    let mut shares = Vec::new();
    for PodEntry { pod, containers } in view.allocations.pods() {
        for ContainerEntry { request, holding } in containers {
            let Some(holding) = holding else { continue };
            shares.extend(holding.parts.iter().map(|part| share(pod, request, holding, part)));
        }
    }
    shares
}

fn share(pod: &PodRef, request: &ContainerRequest, holding: &Holding, part: &Part) -> ShareStatus {
    ShareStatus {
        pod_uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: request.name.clone(),
        kind: request.kind,
        card: part.card.clone(),
        share: part.share,
        adopted: holding.origin == Origin::Adopted,
    }
}

fn summary(view: &View) -> Summary {
    let cards = view.inventory.cards();
    let healthy = cards.iter().filter(|card| card.is_healthy()).count();
    let held: Vec<_> = cards.iter().map(|card| view.allocations.held(&card.id, None)).collect();
    let memory: (Memory, Memory) =
        (held.iter().map(|held| held.memory).sum(), cards.iter().map(Card::memory_capacity).sum());
    let cores: (Cores, Cores) =
        (held.iter().map(|held| held.cores).sum(), cards.iter().map(Card::cores_capacity).sum());
    let pods = u32::try_from(view.allocations.pods().count()).unwrap_or(u32::MAX);
    Summary::new((healthy, cards.len()), memory, cores, pods)
}

fn conditions(view: &View, seen: &[Condition], now: Timestamp) -> Vec<Condition> {
    let problem = view.inventory.problem.as_deref();
    let (known, reason, message) = match problem {
        None => (true, "CardsKnown", "NVML answers"),
        Some(problem) => (false, "NvmlProblem", problem),
    };
    let serving = view.serving.as_ref().map(|problem| (problem.kind.reason(), problem.to_string()));
    let ready = if let Some(conflict) = &view.conflict {
        (false, "AnotherPlugin", conflict.as_str())
    } else if !view.registered {
        (false, "NotRegistered", "device plugin is not registered with the kubelet")
    } else if !known {
        (false, reason, message)
    } else if let Some((reason, problem)) = &serving {
        (false, *reason, problem.as_str())
    } else if let Some(problem) = &view.tier_problem {
        (false, "TierNotServed", problem.as_str())
    } else {
        (true, "Registered", "device plugin is registered with the kubelet")
    };
    let unknown = view.unknown_cards.join(", ");
    let unknown = format!("spec.unschedulableCards lists GPUs that this node doesn't have: {unknown}");
    let applied = if view.unknown_cards.is_empty() {
        (true, "Applied", "the spec is in effect")
    } else {
        (false, "UnknownCard", unknown.as_str())
    };
    let shares = shares_held(view);
    let draining = if view.draining {
        (true, "Stopping", "divvy-node is shutting down; the node accepts no new pods")
    } else {
        (false, "Serving", "the node accepts new pods")
    };
    let states = [
        ("Ready", ready),
        ("InventoryKnown", (known, reason, message)),
        ("SpecApplied", applied),
        ("SharesHeld", (shares.0, shares.1, &shares.2)),
        ("Draining", draining),
    ];
    states.map(|(kind, state)| condition(kind, state, seen, now)).into()
}

/// Condition `SharesHeld`: false if a process uses more of a GPU than its share, with the first violation and the number of
/// further ones.
fn shares_held(view: &View) -> (bool, &'static str, String) {
    let NodeUsage { findings, unmeasured, .. } = &*view.usage;
    match (findings.first(), unmeasured) {
        (Some(first), _) => {
            let more =
                if findings.len() > 1 { format!("; {} more at /usage", findings.len() - 1) } else { String::new() };
            (false, first.kind.reason(), format!("{}{more}", what(first)))
        }
        (None, Some(problem)) => (true, "NotMeasured", format!("share violations are not detected: {problem}")),
        (None, None) => (true, "NothingFound", "no process uses more of a GPU than its container's share".to_owned()),
    }
}

/// Description of a violation without the figures that change from one measurement to the next: each would be a write.
fn what(finding: &ShareViolation) -> String {
    let of = finding.of.as_ref().map_or_else(|| "a process without a share".to_owned(), ToString::to_string);
    let card = &finding.card;
    match finding.kind {
        ViolationKind::AboveShare => format!("{of} uses more of {card} than its share"),
        ViolationKind::WithoutLibrary => format!("{of} uses {card} without libdivvy"),
        ViolationKind::UnhookedFunction => format!("{of} calls driver functions that libdivvy doesn't know"),
        ViolationKind::Foreign => format!("{of} uses {card}"),
    }
}

fn condition(kind: &str, state: (bool, &str, &str), seen: &[Condition], now: Timestamp) -> Condition {
    let (holds, reason, message) = state;
    let status = if holds { "True" } else { "False" };
    let known = seen.iter().find(|known| known.type_ == kind && known.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: None,
        last_transition_time: known.map_or(Time(now), |known| known.last_transition_time.clone()),
    }
}
