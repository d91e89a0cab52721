use divvy_api::gpunode::{GpuNode, HealthStatus, ShareStatus};
use divvy_api::gpuquota::GpuQuotaSpec;
use divvy_api::{Memory, MemoryAmount};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::explain::Fits;
use crate::fixture::{AGES, condition, container, node, pod, share, status};
use crate::pod::SchedulingTerms;
use crate::{NodeObject, Unschedulable};
use divvy_api::ContainerKind;

fn index(nodes: &[GpuNode]) -> Index {
    let index = Index::new(SchedulingConfig::default());
    for node in nodes {
        index.apply_gpu_node(node.metadata.name.as_deref().expect("a name"), node);
    }
    index
}

fn texts(index: &Index, pod: &PodView, objects: &Objects) -> String {
    let line = |suggestion: Suggestion| {
        let cards: Vec<&str> = suggestion.cards.iter().map(CardId::as_str).collect();
        format!("{} [{}] {:?}\n", suggestion.text, cards.join(" "), suggestion.command)
    };
    index.suggest(pod, objects, AGES).into_iter().map(line).collect()
}

fn known(name: &str, end: PodEnd) -> (String, KnownPod) {
    (name.to_owned(), KnownPod { name: name.to_owned(), end })
}

fn at(text: &str) -> k8s_openapi::jiff::Timestamp {
    text.parse().expect("a time")
}

#[test]
fn every_kind_of_change_is_named() {
    let [mut full, mut sick, mut closed, well] = [node("full", 1), node("sick", 2), node("closed", 1), node("well", 1)];
    status(&mut full).shares = vec![share(&full, "low", 0, 30, 0)];
    sick.spec.unschedulable_cards = vec!["GPU-sick-1".to_owned()];
    let card = &mut status(&mut sick).cards[0];
    (card.health, card.reason) = (HealthStatus::Unhealthy, Some("XID 79".to_owned()));
    status(&mut closed).conditions.push(condition("Draining", "True", "the daemon is about to stop"));
    let index = index(&[full, sick, closed, well]);
    index.apply_node("well", NodeObject { unschedulable: Some(Unschedulable::Cordoned), ..NodeObject::default() });
    index.apply_pod(&PodView { node: Some("full".into()), ..pod("low", 1, 30, 0) }, Instant::now());
    let objects = Objects { pods: [known("low", PodEnd::Open)].into(), ..Objects::default() };
    let p = PodView { priority: 5, ..pod("p", 1, 20, 0) };
    insta::assert_snapshot!("kinds", texts(&index, &p, &objects));

    index.apply_node("well", NodeObject::default());
    assert_eq!(texts(&index, &p, &objects), "", "it fits now");
    let kept_off = [("well".to_owned(), "the pod doesn't tolerate the node's taint a:NoSchedule".to_owned())].into();
    let objects = Objects { kept_off, ..objects };
    let gates = vec![GATE.to_owned(), "example.com/queue".to_owned()];
    let p = PodView { scheduling: SchedulingTerms { gates, ..SchedulingTerms::default() }.into(), ..p };
    insta::assert_snapshot!("kept_off", texts(&index, &p, &objects));
    assert_eq!(texts(&index, &PodView { node: Some("full".into()), ..p.clone() }, &objects), "", "it is bound");
}

#[test]
fn pods_that_end_soon_are_named_first() {
    let ends = [
        ("deleted", PodEnd::Deleted { at: at("2026-01-01T00:00:30Z") }),
        ("deadline", PodEnd::Deadline { at: at("2026-01-01T01:00:00Z") }),
        ("job", PodEnd::Completes),
        ("server", PodEnd::Open),
    ];
    let nodes: Vec<GpuNode> = ends
        .iter()
        .map(|(name, _)| {
            let mut node = node(&format!("of-{name}"), 1);
            status(&mut node).shares = vec![share(&node, name, 0, 35, 0)];
            node
        })
        .collect();
    let objects = Objects { pods: ends.iter().map(|(name, end)| known(name, *end)).collect(), ..Objects::default() };
    insta::assert_snapshot!("ends", texts(&index(&nodes), &pod("p", 1, 20, 0), &objects));
    // Of two on one GPU the one that ends is enough; for more, both have to.
    let mut both = node("both", 1);
    status(&mut both).shares = vec![share(&both, "server", 0, 15, 0), share(&both, "job", 0, 15, 0)];
    insta::assert_snapshot!(
        "both",
        [20, 30].map(|gib| texts(&index(std::slice::from_ref(&both)), &pod("p", 1, gib, 0), &objects)).join("\n")
    );
}

#[test]
fn smaller_requests_are_the_largest_that_fit() {
    let mut n1 = node("n1", 2);
    status(&mut n1).shares = vec![share(&n1, "a", 0, 25, 40), share(&n1, "b", 1, 10, 70)];
    let index = index(&[n1]);
    let none = Objects::default();
    let mut whole = pod("p", 1, 0, 0);
    whole.containers[0].limits.retain(|name, _| name == "nvidia.com/gpu");
    let mut two = pod("p", 1, 35, 0);
    two.containers.push(container("other", ContainerKind::App, 1, 35, 0));
    let asked = [pod("p", 1, 35, 50), pod("p", 1, 20, 80), pod("p", 3, 10, 0), whole, two];
    insta::assert_snapshot!("smaller", asked.map(|pod| texts(&index, &pod, &none)).join("\n"));
}

#[test]
fn annotations_and_quotas_in_the_way_are_named() {
    let index = index(&[node("n1", 1)]);
    let mut picky = pod("p", 1, 8, 0);
    picky.annotations.insert("divvy.dev/card-model".to_owned(), "T4".to_owned());
    picky.annotations.insert("divvy.dev/card-policy".to_owned(), "spread".to_owned());
    insta::assert_snapshot!("annotation", texts(&index, &picky, &Objects::default()));

    let limit = |gpus: u32| {
        let quota: GpuQuotaSpec = serde_json::from_value(json!({ "hard": { "gpu": gpus } })).expect("a quota");
        index.apply_quota("default", "all", Ok(&quota));
    };
    limit(1);
    assert_eq!(texts(&index, &pod("p", 1, 8, 0), &Objects::default()), "", "it is within the quota");
    limit(0);
    let all = index.suggest(&pod("p", 1, 8, 0), &Objects::default(), AGES);
    let is_of = |change: &Change| matches!(change, Change::Quota { reason } if reason.contains("GpuQuota all"));
    assert!(all.len() == 1 && is_of(&all[0].change) && all[0].node.as_deref() == Some("n1"), "{all:?}");
}

#[test]
fn node_that_is_not_ready_or_gone_is_no_suggestion_to_uncordon() {
    let index = index(&["silent", "gone"].map(|name| node(name, 1)));
    let unschedulable = Some(Unschedulable::NotReady);
    index.apply_node("silent", NodeObject { unschedulable, ..NodeObject::default() });
    index.keep_nodes(&["silent".to_owned()].into());
    let all = index.suggest(&pod("p", 1, 8, 0), &Objects::default(), AGES);
    assert!(matches!(&all[..], [Suggestion { change: Change::NodeReady { .. }, .. }]), "{all:?}");
}

/// A small cluster, in which a pod rarely fits.
fn cluster() -> impl Strategy<Value = (Vec<GpuNode>, Vec<usize>)> {
    let card = (0_u64..41, 0_u32..101, 0_u8..6);
    let nodes = vec((vec(vec(card, 0..3), 1..4), any::<bool>()), 1..4);
    nodes.prop_map(|nodes| {
        let mut cordoned = Vec::new();
        let made = nodes.into_iter().enumerate().map(|(number, (cards, is_cordoned))| {
            let mut made = node(&format!("n{number}"), cards.len());
            cordoned.extend((is_cordoned && number > 0).then_some(number));
            for (at, held) in cards.iter().enumerate() {
                let (mut memory, mut cores) = (40, 100);
                for (which, (gib, percent, trouble)) in held.iter().enumerate() {
                    let (gib, percent) = ((*gib).min(memory), (*percent).min(cores).min(99));
                    (memory, cores) = (memory - gib, cores - percent);
                    if gib > 0 {
                        let held = share(&made, &format!("h{number}-{at}-{which}"), at, gib, percent);
                        status(&mut made).shares.push(held);
                    }
                    match trouble {
                        0 => made.spec.unschedulable_cards.push(format!("GPU-n{number}-{at}")),
                        1 => {
                            let card = &mut status(&mut made).cards[at];
                            (card.health, card.reason) = (HealthStatus::Unhealthy, Some("XID 79".to_owned()));
                        }
                        _ => {}
                    }
                }
            }
            made
        });
        (made.collect(), cordoned)
    })
}

/// Whether the pod fits on the node of this cluster.
fn fits(nodes: &[GpuNode], cordoned: &[usize], pod: &PodView, name: &str) -> bool {
    let index = index_of(nodes, cordoned);
    index.explain(pod, AGES).nodes.iter().any(|node| node.name == name && node.fits == Fits::Now)
}

fn fits_somewhere(nodes: &[GpuNode], cordoned: &[usize], pod: &PodView) -> bool {
    index_of(nodes, cordoned).explain(pod, AGES).fitting > 0
}

fn index_of(nodes: &[GpuNode], cordoned: &[usize]) -> Index {
    let index = index(nodes);
    for number in 0..nodes.len() {
        let unschedulable = cordoned.contains(&number).then_some(Unschedulable::Cordoned);
        index.apply_node(&format!("n{number}"), NodeObject { unschedulable, ..NodeObject::default() });
    }
    index
}

fn without(nodes: &[GpuNode], gone: &[&str]) -> Vec<GpuNode> {
    let mut nodes = nodes.to_vec();
    let stays = |share: &ShareStatus| !gone.contains(&&*share.pod_uid);
    for node in &mut nodes {
        status(node).shares.retain(stays);
    }
    nodes
}

fn healthy(nodes: &[GpuNode], gpus: &[CardId]) -> Vec<GpuNode> {
    let mut nodes = nodes.to_vec();
    for node in &mut nodes {
        node.spec.unschedulable_cards.retain(|uuid| !gpus.iter().any(|gpu| gpu.as_str() == uuid));
        for card in status(node).cards.iter_mut().filter(|card| gpus.contains(&card.uuid)) {
            (card.health, card.reason) = (HealthStatus::Healthy, None);
        }
    }
    nodes
}

fn asking(pod: &PodView, changed: &[ChangedRequest]) -> PodView {
    let mut pod = pod.clone();
    for ChangedRequest { container, to, .. } in changed {
        let of = pod.containers.iter_mut().find(|of| of.name == *container).expect("a container of the pod");
        let memory = match to.memory {
            MemoryAmount::Absolute(memory) => ("nvidia.com/gpumem", format!("{}Mi", memory.as_mib())),
            MemoryAmount::Percent(percent) => ("nvidia.com/gpumem-percentage", percent.to_string()),
        };
        let limits =
            [("nvidia.com/gpu", to.cards.to_string()), memory, ("nvidia.com/gpucores", to.cores.units().to_string())];
        of.limits = limits.map(|(name, amount)| (name.to_owned(), amount)).into();
        of.limits.retain(|_, amount| amount != "0");
    }
    pod
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// After any suggestion the pod fits on the node that it names, and with less of the change it doesn't.
    #[test]
    fn pods_fit_after_each_suggestion_and_not_before_it(
        (nodes, cordoned) in cluster(), cards in 1_u32..4, gib in 1_u64..41, cores in 0_u32..101, second in any::<bool>(),
    ) {
        let mut p = pod("p", cards, gib, cores);
        if second {
            p.containers.push(container("other", ContainerKind::App, 1, gib.div_ceil(2), cores / 2));
        }
        let suggestions = index_of(&nodes, &cordoned).suggest(&p, &Objects::default(), AGES);
        prop_assert!(suggestions.is_empty() || !fits_somewhere(&nodes, &cordoned, &p));
        for Suggestion { change, node, .. } in suggestions {
            let node = node.expect("each of these is about a node");
            let is_enough = |nodes: &[GpuNode], cordoned: &[usize], pod: &PodView| fits(nodes, cordoned, pod, &node);
            match &change {
                Change::Uncordon => prop_assert!(is_enough(&nodes, &[], &p), "{change:?}"),
                Change::EndOfPods { pods } => {
                    let uids: Vec<&str> = pods.iter().map(|pod| &*pod.uid).collect();
                    prop_assert!(is_enough(&without(&nodes, &uids), &cordoned, &p), "{change:?}");
                    for kept in 0..uids.len() {
                        let mut fewer = uids.clone();
                        fewer.remove(kept);
                        prop_assert!(!is_enough(&without(&nodes, &fewer), &cordoned, &p), "not all of {change:?} are needed");
                    }
                }
                Change::UncordonGpus { gpus } | Change::HealthyGpus { gpus } => {
                    prop_assert!(is_enough(&healthy(&nodes, gpus), &cordoned, &p), "{change:?}");
                    for kept in 0..gpus.len() {
                        let mut fewer = gpus.clone();
                        fewer.remove(kept);
                        prop_assert!(!is_enough(&healthy(&nodes, &fewer), &cordoned, &p), "not all of {change:?} are needed");
                    }
                }
                Change::SmallerRequest { containers } => {
                    prop_assert!(is_enough(&nodes, &cordoned, &asking(&p, containers)), "{change:?}");
                    if let [ChangedRequest { container, from, to }] = &containers[..]
                        && let MemoryAmount::Absolute(memory) = to.memory
                        && from.memory != to.memory
                    {
                        let more = GpuRequest { memory: MemoryAmount::Absolute(Memory::mib(memory.as_mib() + 1)), ..*to };
                        let more = [ChangedRequest { container: container.clone(), from: *from, to: more }];
                        prop_assert!(!fits_somewhere(&nodes, &cordoned, &asking(&p, &more)), "more than {change:?} fits");
                    }
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}

#[test]
fn cordoned_gpu_that_is_also_sick_is_no_cordoned_one() {
    let mut n1 = node("n1", 1);
    n1.spec.unschedulable_cards = vec!["GPU-n1-0".to_owned()];
    let card = &mut status(&mut n1).cards[0];
    (card.health, card.reason) = (HealthStatus::Unhealthy, Some("XID 79".to_owned()));
    let all = index(&[n1]).suggest(&pod("p", 1, 8, 0), &Objects::default(), AGES);
    assert!(matches!(&all[..], [Suggestion { change: Change::HealthyGpus { .. }, .. }]), "{all:?}");
}
