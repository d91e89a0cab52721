//! The `divvy.dev/cards` annotation: the GPUs allocated to each container of a pod.

use std::collections::BTreeMap;

use divvy_api::Tier;
use divvy_api::annotation::{self, CardShare, Cards, DialectAnnotation, Document};
use k8s_openapi::jiff::Timestamp;

use crate::apiserver::view::View;
use divvy_node_core::allocator::allocated_share;
use divvy_node_core::ledger::{Holding, PodEntry};
use divvy_node_core::pod::PodRef;

/// A pod and the value of its annotation. The value depends on the pod's own allocations and on the tier that the node serves,
/// the strongest that any pod has except those with whole MIG instances.
pub(in crate::apiserver) fn annotations(view: &View, served: Tier) -> impl Iterator<Item = (&PodRef, Cards)> {
    view.allocations.pods().map(move |entry| {
        let shares = |holding: &Holding| {
            let share = |part: &divvy_node_core::ledger::Part| CardShare { uuid: part.card.clone(), share: part.share };
            holding.parts.iter().map(share).collect()
        };
        let containers = entry.holdings().map(|(name, holding)| (name.to_owned(), shares(holding))).collect();
        let tiers = entry.holdings().map(|(_, holding)| holding.terms_under(served).tier);
        let tier = tiers.min().unwrap_or(served);
        let ledger_revision = view.allocations.changed_at(&entry.pod.uid).unwrap_or(view.revision);
        (&entry.pod, Cards { ledger_revision, tier, containers })
    })
}

/// What the pod gets beside it: annotations of the system that it was written for, if its programs are told in that system's
/// words.
pub(in crate::apiserver) fn of_dialect(view: &View, pod: &PodRef, now: Timestamp) -> BTreeMap<String, String> {
    let Some(record) = listed::<DialectAnnotation>(view, pod) else { return BTreeMap::new() };
    let first = |holding: &Holding| allocated_share(&view.inventory.node, holding.parts.first()?);
    let holdings = view.allocations.pod(&pod.uid).into_iter().flat_map(PodEntry::holdings);
    let shares: Vec<_> = holdings.filter_map(|(name, holding)| Some((name, first(holding)?))).collect();
    divvy_systems::annotations(&record, &shares, now.as_nanosecond())
}

/// Whether the pod was listed with this annotation and those beside it: by an earlier daemon, whose ledger may have had another
/// revision.
pub(in crate::apiserver) fn is_listed(view: &View, pod: &PodRef, cards: &Cards) -> bool {
    let written = listed::<Cards>(view, pod);
    written.is_some_and(|written| (written.tier, &written.containers) == (cards.tier, &cards.containers))
        && of_dialect(view, pod, Timestamp::UNIX_EPOCH).keys().all(|key| text(view, pod, key).is_some())
}

/// An annotation that the pod was listed with; none that can't be read.
fn listed<D: Document>(view: &View, pod: &PodRef) -> Option<D> {
    annotation::decode(text(view, pod, D::KEY)?).ok()
}

fn text<'v>(view: &'v View, pod: &PodRef, key: &str) -> Option<&'v String> {
    view.listed.iter().find(|listed| listed.uid == pod.uid)?.annotations.get(key)
}
