//! The explanation for people: the verdict, what to do about it, what is asked for, and every node.

use std::collections::BTreeMap;

use divvy_api::annotation::{CardShare, Cards, DialectAnnotation, Planned, PlannedCards};
use divvy_api::{CardId, Memory, Tier};
use divvy_index::explain::{CardAnswer, ContainerAsks, Explanation, Fits, GroupAnswer, NodeAnswer, State};
use divvy_index::{Expectation, ExpectedPart, Unschedulable};

use divvy_placement::Kind;

use super::fetch::FoundExplanation;
use super::hints::hints;
use crate::text::{self, Columns, Row, listed, plain, table};

/// Most nodes that are all shown one by one. Of more, those that don't fit are shown by their reasons.
const MOST_ROWS: usize = 16;
/// Most fitting nodes that are shown one by one where there are more than [`MOST_ROWS`] nodes.
const MOST_FITTING: usize = 10;

/// Text for a terminal.
pub(super) fn render(found: &FoundExplanation, wide: bool, with_heads: bool) -> String {
    let Explanation { namespace, name, verdict, asks, state, priority, fitting, group, expected, nodes, .. } =
        &found.explanation;
    let pod = if name.is_empty() { namespace.clone() } else { format!("{namespace}/{name}") };
    let counted = *fitting > 0 && matches!(state, State::Waiting { .. });
    let asked = nodes.iter().filter(|node| node.fits != Fits::Unknown).count();
    let of_asked = if asked < nodes.len() { " that were asked in time" } else { "" };
    let count = if counted { format!(" ({fitting} of {asked} nodes{of_asked} can run it)") } else { String::new() };
    let head = format!("{}: {}{count}\n", plain(&pod), plain(verdict));
    let mut lines = Vec::new();
    if *priority != 0 {
        lines.push(format!("  priority: {priority}\n"));
    }
    lines.extend(group.as_ref().map(|group| format!("  {}\n", plain(&of_group(group)))));
    let wishes = asks.iter().flat_map(|asks| &asks.wishes);
    lines.extend(wishes.map(|(key, wish)| format!("  wish: {key}: {}\n", plain(wish))));
    lines.extend(
        asks.iter().filter_map(|asks| asks.dialect.as_ref()).map(|dialect| format!("  {}\n", plain(&origin(dialect)))),
    );
    if let Some(Expectation { pods, .. }) = expected.as_ref().filter(|_| wide) {
        lines.push(format!("  expected: requests like those of {pods} pods\n"));
    }
    lines.extend(hints(&found.explanation).iter().map(|hint| format!("  hint: {}\n", plain(hint))));
    let containers = asks.iter().flat_map(|asks| &asks.containers).map(container_row).collect();
    let columns = Columns { wide, has_host: nodes.iter().any(|node| node.host_memory_mi.is_some()) };
    let cards: Vec<Row> = nodes.iter().filter(|_| wide).flat_map(|node| card_rows(node, columns)).collect();
    let expected = expected.iter().filter(|_| wide).flat_map(|expected| &expected.requests).map(expected_row).collect();
    let tables = [containers, allocated_rows(state), node_rows(nodes, columns), cards, expected];
    let tables =
        tables.into_iter().filter(|rows| !rows.is_empty()).map(|rows| format!("\n{}", table(rows, with_heads)));
    std::iter::once(head).chain(lines).chain(tables).collect()
}

/// Whether the pod's group can start.
fn of_group(GroupAnswer { name, reason }: &GroupAnswer) -> String {
    let fits = || format!("pod group {name}: free GPUs for all pods that start together");
    reason.clone().unwrap_or_else(fits)
}

/// What was written in another system's words.
fn origin(DialectAnnotation { name, containers, annotations, .. }: &DialectAnnotation) -> String {
    let container = |(container, limits): (&String, &BTreeMap<String, String>)| {
        let limits: Vec<String> = limits.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
        format!("{container}: {}", limits.join(", "))
    };
    let annotations = annotations.iter().map(|(key, value)| format!("{key}: {value}"));
    let parts: Vec<String> = containers.iter().map(container).chain(annotations).collect();
    format!("translated from {name}: {}", parts.join("; "))
}

fn container_row(asks: &ContainerAsks) -> Row {
    let ContainerAsks { name, kind, profile, cards, memory, cores, exclusive } = asks;
    let mut row =
        vec![("CONTAINER", name.clone()), ("KIND", text::kind(*kind).to_owned()), ("GPUS", cards.to_string())];
    row.extend(profile.as_ref().map(|profile| ("MIG", profile.to_string())));
    row.extend([("MEMORY", memory.to_string()), ("CORES", cores.to_string()), ("EXCLUSIVE", exclusive.to_string())]);
    row
}

/// A kind of request that nodes are ranked by.
fn expected_row(ExpectedPart { percent, kind }: &ExpectedPart) -> Row {
    let Kind { request, profile, instances, models, avoid_models, cpu_milli } = kind;
    let models: Vec<String> =
        models.iter().cloned().chain(avoid_models.iter().map(|model| format!("not {model}"))).collect();
    vec![
        ("EXPECTED", format!("{percent:.1}%")),
        ("GPUS", request.cards.to_string()),
        (
            "MIG",
            profile.as_ref().map(ToString::to_string).or(instances.then(|| "whole".to_owned())).unwrap_or_default(),
        ),
        ("MEMORY", request.memory.to_string()),
        ("CORES", request.cores.to_string()),
        ("CPU", format!("{cpu_milli}m")),
        ("MODELS", models.join(", ")),
    ]
}

/// Cards that are reserved for the pod or allocated to it.
fn allocated_rows(state: &State) -> Vec<Row> {
    match state {
        State::Bound { node, planned: Some(Planned { containers, .. }) } => {
            containers.iter().flat_map(|(container, cards)| planned_rows(node, container, cards)).collect()
        }
        State::Given { node, cards: Cards { tier, containers, .. } } => {
            let shares =
                containers.iter().flat_map(|(container, shares)| shares.iter().map(move |share| (container, share)));
            let has_host = containers.values().flatten().any(|card| !card.share.host.is_zero());
            shares.map(|(container, card)| share_row(node, container, card, *tier, has_host)).collect()
        }
        _ => Vec::new(),
    }
}

fn planned_rows(node: &str, container: &str, cards: &PlannedCards) -> Vec<Row> {
    let chosen = cards.chosen.iter().map(|card| (card, "chosen"));
    let planned = chosen.chain(cards.reused.iter().map(|card| (card, "may be reused")));
    planned
        .map(|(card, how)| [&allocated_row(node, container, card)[..], &[("PLANNED", how.to_owned())]].concat())
        .collect()
}

fn share_row(node: &str, container: &str, card: &CardShare, tier: Tier, has_host: bool) -> Row {
    let mut row = allocated_row(node, container, &card.uuid);
    row.push(("MEMORY", card.share.memory.to_string()));
    row.extend(has_host.then(|| ("HOST MEMORY", card.share.host.to_string())));
    row.extend([
        ("CORES", card.share.cores.to_string()),
        ("EXCLUSIVE", card.share.exclusive.to_string()),
        ("TIER", tier.to_string()),
    ]);
    row
}

/// The first cells of a line about a card of a container.
fn allocated_row(node: &str, container: &str, card: &CardId) -> Row {
    vec![("CONTAINER", container.to_owned()), ("NODE", node.to_owned()), ("GPU", card.as_str().to_owned())]
}

fn node_rows(nodes: &[NodeAnswer], columns: Columns) -> Vec<Row> {
    if columns.wide || nodes.len() <= MOST_ROWS {
        return nodes.iter().map(|node| node_row(&[node], columns)).collect();
    }
    let fitting = nodes.iter().take_while(|node| node.fits == Fits::Now).count();
    let (fitting, others) = nodes.split_at(fitting);
    let (named, more) = fitting.split_at(fitting.len().min(MOST_FITTING));
    let mut groups: Vec<Vec<&NodeAnswer>> = named.iter().map(|node| vec![node]).collect();
    groups.extend((!more.is_empty()).then(|| more.iter().collect()));
    let mut alike: BTreeMap<_, Vec<&NodeAnswer>> = BTreeMap::new();
    for node in others {
        alike.entry((node.fits, &node.reason)).or_default().push(node);
    }
    let mut alike: Vec<_> = alike.into_iter().collect();
    alike.sort_by_key(|((fits, _), nodes)| (*fits, std::cmp::Reverse(nodes.len())));
    groups.extend(alike.into_iter().map(|(_, nodes)| nodes));
    groups.iter().map(|group| node_row(group, columns)).collect()
}

/// A node, or several that give the same answer.
fn node_row(nodes: &[&NodeAnswer], columns: Columns) -> Row {
    let first = nodes[0];
    let most = |free: fn(&CardAnswer) -> u64| nodes.iter().flat_map(|node| &node.cards).map(free).max().unwrap_or(0);
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let mut row = vec![
        ("NODE", listed(&names, 1)),
        ("FITS", in_words(first).to_owned()),
        ("SCORE", first.score.to_string()),
        ("FREE MEMORY", Memory::mib(most(|card| card.memory_mi.free)).to_string()),
    ];
    if columns.has_host {
        let free = nodes.iter().filter_map(|node| Some(node.host_memory_mi?.free)).max();
        row.push(("FREE HOST MEMORY", free.map(|mib| Memory::mib(mib).to_string()).unwrap_or_default()));
    }
    row.push(("FREE CORES", most(|card| card.cores.free).to_string()));
    if columns.wide {
        row.push(("TIER", first.tier.to_string()));
    }
    row.push(("REASON", first.reason.clone().unwrap_or_default()));
    row
}

fn in_words(node: &NodeAnswer) -> &'static str {
    match node.fits {
        Fits::Now => "yes",
        Fits::Barred => match node.barred {
            Some(Unschedulable::Gone) => "gone",
            Some(Unschedulable::NotReady) => "not ready",
            Some(Unschedulable::Cordoned) | None => "cordoned",
        },
        Fits::ByEviction => "by eviction",
        Fits::Later => "not now",
        Fits::Unknown => "unknown",
        Fits::Never => "never",
    }
}

fn card_rows(node: &NodeAnswer, columns: Columns) -> Vec<Row> {
    node.cards.iter().map(|card| card_row(&node.name, card, columns)).collect()
}

fn card_row(node: &str, card: &CardAnswer, columns: Columns) -> Row {
    let would = if card.chosen { "would be given" } else { "" };
    let part = |free: String, capacity: String| format!("{free}/{capacity}");
    let mib = |amount: u64| Memory::mib(amount).to_string();
    let mut row = vec![
        ("NODE", node.to_owned()),
        ("GPU", card.uuid.to_string()),
        ("MODEL", card.model.clone()),
        ("FREE MEMORY", part(mib(card.memory_mi.free), mib(card.memory_mi.capacity))),
    ];
    row.extend(columns.has_host.then(|| ("HOST MEMORY", card.held_host_memory_mi.to_string())));
    row.extend([
        ("FREE CORES", part(card.cores.free.to_string(), card.cores.capacity.to_string())),
        ("PODS", card.pods.to_string()),
        ("REASON", card.reason.clone().unwrap_or_else(|| would.to_owned())),
    ]);
    row
}
