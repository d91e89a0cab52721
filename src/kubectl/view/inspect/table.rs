//! The report for people: a line for each node, its problems, its GPUs, and the pods that hold shares of them.

use divvy_api::Memory;

use super::report::{Amount, CardReport, InspectReport, NodeReport, OversubscriptionReport, ShareReport, Totals};
use crate::text::{self, Columns, distinct_length, plain, table};

/// Text for a terminal; none, if there are no nodes.
pub(super) fn render(report: &InspectReport, wide: bool, with_heads: bool) -> String {
    let mut blocks: Vec<String> = report.nodes.iter().map(|node| block(node, wide, with_heads)).collect();
    if let nodes @ 2.. = report.nodes.len() {
        let taking = report.nodes.iter().filter(|node| node.takes_pods).count();
        blocks.push(format!("{nodes} nodes, {taking} taking pods: {}\n", sums(&report.totals)));
    }
    blocks.join("\n")
}

fn block(node: &NodeReport, wide: bool, with_heads: bool) -> String {
    let state = if node.takes_pods { "takes pods" } else { "TAKES NO PODS" };
    let tier = node.tier.as_ref().map(|tier| format!(", tier {}", plain(tier))).unwrap_or_default();
    let host_memory = node.oversubscription.map(host_memory).unwrap_or_default();
    let clique = node.clique.as_ref().filter(|_| wide).map(|clique| format!(", NVLink clique {}", plain(clique)));
    let clique = clique.unwrap_or_default();
    let head = format!("{}: {state}{tier}{clique}, {}{host_memory}\n", plain(&node.name), sums(&node.totals));
    let problems = node.problems.iter().map(|problem| format!("  problem: {}\n", plain(problem)));
    let length =
        if wide { usize::MAX } else { distinct_length(node.cards.iter().map(|card| card.uuid.as_str()).collect()) };
    let uuid = |card: &CardReport| card.uuid.chars().take(length).collect::<String>();
    let has_host = node.oversubscription.is_some() || node.cards.iter().any(|card| !card.host_memory_mi.is_zero());
    let columns = Columns { wide, has_host };
    let cards = node.cards.iter().map(|card| card_row(node, card, uuid(card), columns)).collect();
    let by_card = node.cards.iter().flat_map(|card| card.shares.iter().map(move |share| (card, share)));
    let shares = by_card.map(|(card, share)| share_row(share, uuid(card), columns)).collect();
    let tables = [table(cards, with_heads), table(shares, with_heads)];
    let tables = tables.into_iter().filter(|table| !table.is_empty()).map(|table| format!("\n{table}"));
    std::iter::once(head).chain(problems).chain(tables).collect()
}

fn sums(totals: &Totals) -> String {
    let Totals { cards, healthy_cards, pods, memory_mi, cores } = totals;
    let memory = held_of(memory_mi, mib);
    let free = mib(memory_mi.free);
    let pods = if *pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
    let all = held_of(cores, count);
    let spare = cores.free;
    format!("{healthy_cards}/{cards} GPUs healthy, {pods}, memory {memory} ({free} free), cores {all} ({spare} free)")
}

fn host_memory(OversubscriptionReport { memory_scale, host_memory_mi }: OversubscriptionReport) -> String {
    let held = held_of(&host_memory_mi, mib);
    let free = mib(host_memory_mi.free);
    format!(", memory oversubscribed to {memory_scale}% with host memory {held} ({free} free)")
}

fn card_row(node: &NodeReport, card: &CardReport, uuid: String, columns: Columns) -> Vec<(&'static str, String)> {
    let health = if card.cordoned { format!("{},Cordoned", card.health) } else { card.health.to_owned() };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut row = vec![
        ("GPU", uuid),
        ("MODEL", text(&card.model)),
        ("HEALTH", health),
        ("MEMORY", held_of(&card.memory_mi, mib)),
        ("FREE MEMORY", mib(card.memory_mi.free)),
    ];
    row.extend(columns.has_host.then(|| ("HOST MEMORY", card.host_memory_mi.to_string())));
    row.extend([
        ("CORES", held_of(&card.cores, count)),
        ("FREE CORES", count(card.cores.free)),
        ("PODS", card.pods.to_string()),
    ]);
    // Only where GPUs differ.
    if node.cards.iter().any(|card| card.tier.is_some()) {
        row.push(("TIER", text(&card.tier.clone().or_else(|| node.tier.clone()))));
    }
    if node.cards.iter().any(|card| card.slots.is_some()) {
        row.push(("SLOTS", card.slots.or(node.slots_per_card).map(|slots| slots.to_string()).unwrap_or_default()));
    }
    if columns.wide {
        row.push(("NUMA", card.numa.map(|numa| numa.to_string()).unwrap_or_default()));
        row.push(("MIG", text(&card.mig)));
        row.push(("BUSY", card.utilization.map(|percent| format!("{percent}%")).unwrap_or_default()));
        row.push(("LINKS", card.topology.clone()));
    }
    row.push(("REASON", text(&card.reason)));
    row
}

fn share_row(report: &ShareReport, uuid: String, columns: Columns) -> Vec<(&'static str, String)> {
    let share = &report.status;
    let part = share.share;
    let mut row = vec![
        ("GPU", uuid),
        ("NAMESPACE", share.namespace.clone()),
        ("POD", share.pod.clone()),
        ("CONTAINER", share.container.clone()),
        ("KIND", text::kind(share.kind).to_owned()),
        ("MEMORY", part.memory.to_string()),
    ];
    row.extend(columns.has_host.then(|| ("HOST MEMORY", part.host.to_string())));
    row.extend([("CORES", part.cores.to_string()), ("EXCLUSIVE", exclusive(report))]);
    if columns.wide {
        row.push(("POD UID", share.pod_uid.clone()));
    }
    row
}

fn exclusive(report: &ShareReport) -> String {
    if report.status.adopted {
        "another plugin's".to_owned()
    } else if report.by_hardware {
        "by hardware".to_owned()
    } else {
        report.status.share.exclusive.to_string()
    }
}

fn held_of(amount: &Amount, write: fn(u64) -> String) -> String {
    format!("{}/{}", write(amount.held), write(amount.capacity))
}

fn mib(amount: u64) -> String {
    Memory::mib(amount).to_string()
}

fn count(amount: u64) -> String {
    amount.to_string()
}
