mod cliques;
mod gangs;
mod histories;
mod planning;
mod quotas;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use divvy_api::annotation::{self, Planned, PolicyName};
use divvy_api::gpunode::{GpuNode, GpuNodeReport, HealthStatus, Oversubscription, Scales};
use divvy_api::names::annotation::{AVOID_CARD_UUID, CARD_MODEL, CARD_UUID, OVERSUBSCRIBE, PLANNED, TIER};
use divvy_api::names::taint;
use divvy_api::pod::wire::Resources;
use divvy_api::{Memory, Tier};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::fit::Query;
use crate::fixture::{AGES, condition, cut, node, pod, share, status};
use crate::state::BOUND_WITHIN;
use crate::{Feasibility, Unschedulable};

fn index(nodes: &[&GpuNode]) -> Index {
    let index = Index::new(SchedulingConfig::default());
    for node in nodes {
        index.apply_gpu_node(node.metadata.name.as_deref().expect("a name"), *node);
    }
    index
}

fn demand(pod: &PodView) -> Arc<Demand> {
    Arc::new(Demand::read(pod, &SchedulingConfig::default()).expect("a request").expect("cards"))
}

/// What is held of each card, in GiB.
fn held(index: &Index, node: &str) -> Vec<u64> {
    index
        .snapshot()
        .node(node)
        .expect("it has reported")
        .state
        .held
        .iter()
        .map(|held| held.memory.as_mib() >> 10)
        .collect()
}

fn card_of(planned: &Planned) -> &str {
    planned.containers["main"].chosen[0].as_str()
}

fn bound(mut pod: PodView, planned: &Planned) -> PodView {
    pod.node = Some(planned.node.clone());
    pod.annotations.insert(PLANNED.to_owned(), annotation::encode(planned));
    pod
}

#[test]
fn reservation_counts_until_ledger_shows_it() {
    let (mut n1, now) = (node("n1", 2), Instant::now());
    let index = index(&[&n1]);
    let planned = index.reserve(&demand(&pod("a", 1, 30, 0)), "n1", now).expect("empty cards");
    assert_eq!(card_of(&planned), "GPU-n1-0");
    assert_eq!(index.reserve(&demand(&pod("a", 1, 30, 0)), "n1", now), Ok(planned), "the same answer again");
    let other = index.reserve(&demand(&pod("b", 1, 30, 0)), "n1", now).expect("the other card");
    assert_eq!(card_of(&other), "GPU-n1-1");
    assert!(matches!(index.reserve(&demand(&pod("c", 1, 30, 0)), "n1", now), Err(NotReserved::NoPlan { .. })));
    assert_eq!(held(&index, "n1"), [30, 30]);

    status(&mut n1).shares = vec![share(&n1, "a", 0, 30, 0), share(&n1, "b", 0, 30, 0)];
    index.apply_gpu_node("n1", &n1);
    assert_eq!(held(&index, "n1"), [60, 0], "the node is right");
    let outcomes = index.outcomes();
    assert_eq!((outcomes.get(Outcome::Kept), outcomes.get(Outcome::Moved)), (1, 1));
    assert_eq!(index.reserve(&demand(&pod("a", 1, 30, 0)), "n1", now), Err(NotReserved::Confirmed));
}

#[test]
fn reservation_ends_on_failed_binding_ended_pod_or_timeout() {
    let (n1, now) = (node("n1", 1), Instant::now());
    let index = index(&[&n1]);
    let a = pod("a", 1, 30, 0);
    index.reserve(&demand(&a), "n1", now).expect("an empty card");
    index.failed("a");
    assert_eq!(held(&index, "n1"), [0]);

    let planned = index.reserve(&demand(&a), "n1", now).expect("an empty card");
    index.apply_pod(&bound(a.clone(), &planned), now);
    index.failed("a");
    assert_eq!(held(&index, "n1"), [30], "the API server said that it is bound");
    index.apply_pod(&PodView { ended: true, ..bound(a.clone(), &planned) }, now);
    assert_eq!((held(&index, "n1"), index.outcomes().get(Outcome::Ended)), (vec![0], 1));

    index.reserve(&demand(&a), "n1", now).expect("an empty card");
    index.expire(now);
    assert_eq!(held(&index, "n1"), [30]);
    index.expire(now + AGES);
    assert_eq!((held(&index, "n1"), index.outcomes().get(Outcome::Unbound)), (vec![0], 1));

    let again = now + BOUND_WITHIN / 2;
    for asked in [now, again] {
        index.reserve(&demand(&a), "n1", asked).expect("an empty card, or the same again");
    }
    index.expire(now + BOUND_WITHIN);
    assert_eq!(held(&index, "n1"), [30], "the second Binding may be on its way");
    index.expire(again + BOUND_WITHIN);
    assert_eq!(held(&index, "n1"), [0]);

    let planned = index.reserve(&demand(&a), "n1", now).expect("an empty card");
    index.apply_pod(&bound(a, &planned), now);
    index.expire(now + AGES);
    assert_eq!((held(&index, "n1"), index.outcomes().get(Outcome::Expired)), (vec![0], 1), "bound, and not reported");
}

#[test]
fn reservations_are_read_from_pods_in_any_event_order() {
    let (n1, now) = (node("n1", 2), Instant::now());
    let planned = index(&[&n1]).reserve(&demand(&pod("a", 1, 30, 0)), "n1", now).expect("empty cards");
    let a = bound(pod("a", 1, 30, 0), &planned);
    let pods_first = Index::new(SchedulingConfig::default());
    pods_first.apply_pod(&a, now);
    pods_first.apply_gpu_node("n1", &n1);
    let nodes_first = index(&[&n1]);
    nodes_first.apply_pod(&a, now);
    for index in [pods_first, nodes_first] {
        assert_eq!(held(&index, "n1"), [30, 0]);
        index.delete_pod("a");
        assert_eq!(held(&index, "n1"), [0, 0]);
        assert_eq!(index.outcomes(), Outcomes::default(), "another's reservation is no prediction of ours");
    }
}

#[test]
fn reservation_stays_until_ledger_shows_all_containers() {
    let (mut n1, now) = (node("n1", 2), Instant::now());
    let index = index(&[&n1]);
    let mut two = pod("a", 1, 30, 0);
    two.containers.push(crate::fixture::container("second", divvy_api::ContainerKind::App, 1, 20, 0));
    index.reserve(&demand(&two), "n1", now).expect("empty cards");
    status(&mut n1).shares = vec![share(&n1, "a", 0, 30, 0)];
    index.apply_gpu_node("n1", &n1);
    assert_eq!(held(&index, "n1").iter().sum::<u64>(), 50);
    assert_eq!(index.reserved().len(), 1);
}

#[test]
fn heartbeat_of_a_node_changes_nothing() {
    let (index, allocatable) = (index(&[&node("n1", 1)]), Some(Resources::of_cpu(8000)));
    index.apply_node("n1", NodeObject { allocatable: allocatable.clone(), ..NodeObject::default() });
    let before = index.snapshot().node("n1").cloned().expect("known");
    assert_eq!((&before.free, before.unschedulable), (&allocatable, None));
    index.apply_node("n1", NodeObject { allocatable: allocatable.clone(), ..NodeObject::default() });
    assert_eq!(index.snapshot().node("n1").expect("known").revision, before.revision);
    index.apply_node(
        "n1",
        NodeObject { unschedulable: Some(Unschedulable::Cordoned), allocatable, ..NodeObject::default() },
    );
    assert_eq!(index.snapshot().node("n1").expect("known").unschedulable, Some(Unschedulable::Cordoned));
}

#[test]
fn busy_gpus_come_last_and_reservations_stay() {
    let (mut n1, mut n2, now) = (node("n1", 2), node("n2", 2), Instant::now());
    let best = |index: &Index, pod: &PodView| {
        let (demand, names) = (demand(pod), ["n1", "n2"]);
        let ranking = index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), &names, true);
        names[ranking.fitting.iter().max_by_key(|(_, score)| *score).expect("room").0.name]
    };
    let busy = |index: &Index| {
        index.snapshot().node("n1").expect("known").state.held.iter().map(|held| held.busy).collect::<Vec<_>>()
    };
    for policy in [PolicyName::Binpack, PolicyName::Spread, PolicyName::LeastFragmentation, PolicyName::Topology] {
        let config = SchedulingConfig {
            card_policy: policy,
            node_policy: policy,
            load_aware: true,
            ..SchedulingConfig::default()
        };
        let index = Index::new(config);
        let mut report = |utilization: [Option<u32>; 2]| {
            status(&mut n1).shares = vec![share(&n1, "held", 0, 10, 30)];
            status(&mut n2).shares = vec![share(&n2, "held", 0, 10, 30), share(&n2, "other", 1, 10, 30)];
            status(&mut n1).cards.iter_mut().zip(utilization).for_each(|(card, percent)| card.utilization = percent);
            for (node, name) in [(&n1, "n1"), (&n2, "n2")] {
                index.apply_gpu_node(name, node);
            }
        };
        report([Some(100), Some(20)]);
        assert_eq!(busy(&index), [70, 20]);
        let planned = index.reserve(&demand(&pod("a", 1, 5, 10)), "n1", now).expect("room");
        assert_eq!(card_of(&planned), "GPU-n1-1", "{policy:?}");
        assert_eq!(busy(&index), [70, 20], "what is reserved isn't at work yet");
        assert_eq!(best(&index, &pod("b", 2, 5, 10)), "n2", "{policy:?}: of n1 it would take the busy card too");
        report([Some(40), Some(100)]);
        assert_eq!(index.reserve(&demand(&pod("a", 1, 5, 10)), "n1", now), Ok(planned), "it was reserved");
        report([None, Some(250)]);
        assert_eq!(busy(&index), [0, 100], "what isn't said counts nothing, and nothing more than all");
        assert!(index.reserve(&demand(&pod("c", 2, 5, 10)), "n1", now).is_ok(), "it is no reason to refuse");
    }
    let unaware = index(&[&n1]);
    assert_eq!(busy(&unaware), [0, 0]);
}

#[test]
fn node_with_inconsistent_report_takes_no_pods() {
    let lie = |lie: fn(&mut GpuNode)| {
        let mut node = node("n1", 2);
        lie(&mut node);
        index(&[&node]).snapshot().node("n1").expect("it is known").closed.as_deref().map(str::to_owned)
    };
    let lies = [
        lie(|node| node.status = None),
        lie(|node| status(node).cards[1].uuid = "GPU-n1-0".parse().expect("a card's name")),
        lie(|node| status(node).cards[0].memory = Memory::mib(u64::MAX)),
        lie(|node| status(node).cards[0].mig = Some("half".into())),
        lie(|node| status(node).scales.cores = 0),
        lie(|node| status(node).cards[1].scales = Some(Scales { memory: 0, cores: 100 })),
        lie(|node| status(node).shares = vec![share(node, "", 0, 1, 0)]),
        lie(|node| status(node).conditions = vec![condition("Draining", "True", "the daemon is about to stop")]),
        lie(|node| status(node).conditions = vec![condition("Ready", "False", "the kubelet has not registered it")]),
        lie(|node| status(node).conditions.clear()),
        lie(|node| node.spec.release_driver = true),
        lie(|_| {}),
    ];
    insta::assert_debug_snapshot!(lies);

    let index = index(&[&node("n1", 1), &node("n2", 1)]);
    index.apply_gpu_node(
        "n1",
        GpuNodeReport::read(ObjectMeta::default(), &serde_json::json!({ "status": { "cards": [{}] } })),
    );
    let closed = index.snapshot().node("n1").expect("it is known").closed.clone();
    assert_eq!(closed.as_deref(), Some("GpuNode can't be decoded: status.cards[0].uuid is missing"));
    assert!(index.snapshot().node("n2").expect("it is known").closed.is_none(), "the others aren't concerned");
}

#[test]
fn cordoned_gpus_take_nothing_and_equal_nodes_share_links() {
    let (mut n1, n2) = (node("n1", 2), node("n2", 2));
    n1.spec.unschedulable_cards = vec!["GPU-n1-0".to_owned()];
    let index = index(&[&n1, &n2]);
    let planned = index.reserve(&demand(&pod("a", 1, 1, 0)), "n1", Instant::now()).expect("the other card");
    assert_eq!(card_of(&planned), "GPU-n1-1");
    let links = |name: &str| Arc::clone(&index.snapshot().node(name).expect("it is known").state.node.links);
    assert!(Arc::ptr_eq(&links("n1"), &links("n2")));
    index.delete_gpu_node("n1");
    assert!(index.snapshot().node("n1").is_none());
}

#[test]
fn mig_instances_match_by_profile_unless_reported_as_plain() {
    let mut n1 = node("n1", 2);
    for (card, plain) in status(&mut n1).cards.iter_mut().zip([false, true]) {
        (card.mig, card.plain) = (Some("1g.10gb".into()), plain);
    }
    let index = index(&[&n1]);
    let planned = index.reserve(&demand(&pod("a", 1, 1, 0)), "n1", Instant::now()).expect("the plain one");
    assert_eq!(card_of(&planned), "GPU-n1-1");
    let mut by_profile = pod("b", 1, 1, 0);
    let count = by_profile.containers[0].limits.remove("nvidia.com/gpu").expect("a count");
    by_profile.containers[0].limits.insert("nvidia.com/mig-1g.10gb".to_owned(), count);
    let planned = index.reserve(&demand(&by_profile), "n1", Instant::now()).expect("the other one");
    assert_eq!(card_of(&planned), "GPU-n1-0");
}

#[test]
fn feasibility_says_where_pods_fit_now_or_ever() {
    let (mut n1, n2) = (node("n1", 2), node("n2", 1));
    status(&mut n1).shares = vec![share(&n1, "a", 0, 30, 0), share(&n1, "b", 1, 20, 0)];
    let index = index(&[&n1, &n2]);
    let outlook = |cards, gib| {
        let demand = demand(&pod("p", cards, gib, 0));
        index.snapshot_for(&demand).feasibility(&demand, AGES)
    };
    insta::assert_debug_snapshot!([outlook(1, 8), outlook(1, 35), outlook(2, 15), outlook(2, 35), outlook(1, 41)]);
}

/// Whoever reads "never" must not think that it is a matter of who holds what, or of a daemon that is about to stop.
#[test]
fn infeasible_pods_are_judged_against_empty_nodes() {
    let [mut full, mut closed, mut sick] = [node("full", 2), node("closed", 2), node("sick", 2)];
    status(&mut full).shares = vec![share(&full, "a", 0, 40, 100), share(&full, "b", 1, 40, 100)];
    status(&mut closed).conditions = vec![condition("Draining", "True", "the daemon is about to stop")];
    status(&mut sick).cards[0].health = HealthStatus::Unhealthy;
    let index = index(&[&full, &closed, &sick]);
    let told = |cards, gib, wish: &[(&str, &str)]| {
        let annotations = wish.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let demand = demand(&PodView { annotations, ..pod("p", cards, gib, 0) });
        index.snapshot_for(&demand).feasibility(&demand, AGES).to_string()
    };
    let told = [
        told(16, 40, &[]),
        told(1, 41, &[]),
        told(1, 8, &[(TIER, "shim")]),
        told(1, 8, &[(TIER, "mig")]),
        told(1, 8, &[(OVERSUBSCRIBE, "true")]),
        told(1, 8, &[(CARD_MODEL, "T4")]),
        told(1, 8, &[(CARD_UUID, "GPU-nobody-has")]),
        // One of the cards of a kind of which others were asked before.
        told(1, 8, &[(CARD_UUID, "GPU-full-1")]),
        told(1, 8, &[(AVOID_CARD_UUID, "GPU-full-0,GPU-full-1,GPU-sick-0,GPU-sick-1")]),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn gpus_of_one_node_differ_in_tier_scale_and_slots() {
    let mut mixed = node("mixed", 3);
    status(&mut mixed).slots_per_card = Some(2);
    status(&mut mixed).cards[1].tier = Some(Tier::Shim);
    status(&mut mixed).cards[1].scales = Some(Scales { memory: 50, cores: 100 });
    status(&mut mixed).cards[2].slots = Some(1);
    let (index, now) = (index(&[&mixed, &node("plain", 1)]), Instant::now());
    let wants = |name: &str, gib: u64, tier: &str| {
        let annotations = [(TIER.to_owned(), tier.to_owned())].into();
        PodView { annotations, ..pod(name, 1, gib, 0) }
    };
    let why_not = |pod: &PodView, name: &str| {
        let (demand, view) = (demand(pod), index.snapshot().view);
        let query = Query::new(&demand, index.config());
        let nodes = view.look_up(&[name], |_| {});
        assert!(index.snapshot_for(query.demand).rank(&query, &[name], true).fitting.is_empty(), "{name}");
        index.snapshot_for(query.demand).refusals(&query, &nodes)[0].reason.to_string()
    };
    assert_eq!(why_not(&wants("a", 1, "shim"), "plain"), "node(s) had tier accounting (tier shim requested)");
    assert_eq!(why_not(&wants("a", 1, "mps"), "mixed"), "node(s) had tier shim (tier mps requested)");
    assert_eq!(
        why_not(&wants("a", 21, "shim"), "mixed"),
        "Insufficient GPUs (1 too small, largest 20Gi; 2 of a weaker tier than the pod requests)"
    );
    let reserve = |pod: &PodView| index.reserve(&demand(pod), "mixed", now).map(|plan| card_of(&plan).to_owned());
    assert_eq!(reserve(&wants("a", 10, "shim")).expect("fits"), "GPU-mixed-1");
    let taken = ["b", "c", "d", "e"].map(|name| reserve(&pod(name, 1, 1, 0)).expect("a slot is free"));
    assert_eq!(taken.iter().filter(|card| *card == "GPU-mixed-2").count(), 1, "{taken:?}");
    assert_eq!(why_not(&pod("f", 1, 1, 0), "mixed"), "Insufficient GPUs (3 without free slots)");
}

/// A node with GPUs of 40 GiB whose memory is oversubscribed by 1.5, with so much host memory.
fn oversubscribing(name: &str, cards: usize, host_gib: u64) -> GpuNode {
    let mut node = node(name, cards);
    status(&mut node).tier = Tier::Shim;
    status(&mut node).oversubscription =
        Some(Oversubscription { memory_scale: 150, host_memory: Memory::mib(host_gib << 10) });
    node
}

fn asking(name: &str, gib: u64) -> PodView {
    let annotations = [(OVERSUBSCRIBE.to_owned(), "true".to_owned())].into();
    PodView { annotations, ..pod(name, 1, gib, 0) }
}

#[test]
fn oversubscribed_memory_is_filtered_with_reasons() {
    let (both, plain, now) = (oversubscribing("both", 2, 25), node("plain", 1), Instant::now());
    let index = index(&[&both, &plain]);
    let why_not = |index: &Index, pod: &PodView, name: &str| {
        let (demand, view) = (demand(pod), index.snapshot().view);
        let query = Query::new(&demand, index.config());
        let nodes = view.look_up(&[name], |_| {});
        assert!(index.snapshot_for(query.demand).rank(&query, &[name], true).fitting.is_empty(), "{name}");
        index.snapshot_for(query.demand).refusals(&query, &nodes)[0].reason.to_string()
    };
    assert_eq!(
        why_not(&index, &asking("a", 30), "plain"),
        "node(s) had tier accounting, which can't limit host memory (oversubscribe requested)"
    );
    // 20 GiB of a GPU and 10 of the host, each.
    for name in ["a", "b"] {
        assert_eq!(card_of(&index.reserve(&demand(&asking(name, 30)), "both", now).expect("fits")), "GPU-both-0");
    }
    assert_eq!(card_of(&index.reserve(&demand(&pod("c", 1, 30, 0)), "both", now).expect("fits")), "GPU-both-1");
    assert_eq!(held(&index, "both"), [40, 30]);
    assert_eq!(
        why_not(&index, &pod("d", 1, 11, 0), "both"),
        "Insufficient GPUs (1 short of memory, largest free 10Gi; 1 holding pods with oversubscribed memory)"
    );
    assert_eq!(
        why_not(&index, &asking("d", 1), "both"),
        "Insufficient GPUs (1 short of memory, largest free 0Mi; 1 holding pods without oversubscribed memory)"
    );
    index.delete_pod("c");
    assert_eq!(
        why_not(&index, &asking("d", 18), "both"),
        "Insufficient GPUs (1 short of memory, largest free 0Mi; 1 short of host memory, 6Gi needed, 5Gi left)"
    );
    let fits = |index: &Index, pod: &PodView| {
        let demand = demand(pod);
        index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), &["both"], true).fitting.len()
    };
    assert_eq!([fits(&index, &asking("d", 15)), fits(&index, &pod("d", 1, 40, 0))], [1, 1]);
    index.delete_pod("a");
    index.delete_pod("b");
    assert_eq!([fits(&index, &asking("d", 40)), fits(&index, &asking("d", 41))], [1, 0], "never more than a GPU has");

    let mut off = node("both", 2);
    status(&mut off).tier = Tier::Shim;
    index.apply_gpu_node("both", &off);
    assert_eq!(
        why_not(&index, &asking("d", 15), "both"),
        "node(s) didn't oversubscribe memory (oversubscribe requested)"
    );
}

#[test]
fn host_memory_behind_a_gpu_that_is_gone_stays_reserved() {
    let mut node = oversubscribing("n1", 1, 10);
    let mut elsewhere = share(&node, "a", 0, 30, 0);
    (elsewhere.card, elsewhere.share.host) = ("GPU-gone".parse().expect("a UUID"), Memory::mib(8 << 10));
    status(&mut node).shares = vec![elsewhere];
    let index = index(&[&node]);
    let reserve = |name, gib| index.reserve(&demand(&asking(name, gib)), "n1", Instant::now());
    assert!(matches!(reserve("b", 7), Err(NotReserved::NoPlan { .. })), "3 GiB of the host");
    assert!(reserve("b", 6).is_ok(), "2 GiB of the host");
}

/// The two nodes differ in nothing else, so that one of them could stand for both.
#[test]
fn nodes_with_mig_instances_differ_from_nodes_with_gpus() {
    let [n1, mut n2] = ["n1", "n2"].map(|name| node(name, 1));
    cut(&mut n2, &[40]);
    status(&mut n2).shares = vec![share(&n2, "a", 0, 40, 100)];
    let mut strict = pod("p", 1, 8, 0);
    strict.annotations.insert(TIER.to_owned(), "mig".to_owned());
    let demand = demand(&strict);
    for nodes in [[&n1, &n2], [&n2, &n1]] {
        let index = index(&nodes);
        let outlook = index.snapshot_for(&demand).feasibility(&demand, AGES);
        assert_eq!((outlook.now, outlook.ever), (Some(false), true), "{outlook}");
    }
    assert!(demand.kinds().all(|kind| kind.instances));
}

#[test]
fn feasibility_is_formatted_as_a_sentence() {
    let why_not = |now, ever, asked| {
        let reasons = vec![("no GPUs".into(), 3), ("GPUs unhealthy".into(), 1)];
        Feasibility { now, ever, nodes: 4, asked, reasons, ..Feasibility::default() }.to_string()
    };
    let best = vec!["n2".into(), "n7".into()];
    let told = [
        Feasibility { now: Some(true), ever: true, best, nodes: 9, ..Feasibility::default() }.to_string(),
        why_not(Some(false), true, 4),
        why_not(Some(false), false, 3),
        why_not(None, true, 3),
        Feasibility::default().to_string(),
    ];
    insta::assert_snapshot!(told.join("\n"), @"
    best now: n2, n7
    0/4 nodes are available: 3 no GPUs, 1 GPUs unhealthy
    0/4 nodes are available, and none could ever run this pod (reasons of 3 nodes): 3 no GPUs, 1 GPUs unhealthy
    unknown: not all nodes were evaluated in time
    0/0 nodes are available: no node has reported GPUs
    ");
}

#[test]
fn evicted_gpus_are_reserved_for_the_nominated_pod() {
    let (mut n1, now) = (node("n1", 1), Instant::now());
    status(&mut n1).shares = vec![share(&n1, "victim", 0, 30, 0)];
    let index = index(&[&n1]);
    index.apply_pod(&PodView { node: Some("n1".into()), ..pod("victim", 1, 30, 0) }, now);
    let preemptor = PodView { priority: 10, nominated: Some("n1".into()), ..pod("preemptor", 1, 35, 0) };
    index.apply_pod(&preemptor, now);
    assert!(index.reserved().is_empty(), "nobody was told");
    status(&mut n1).shares.clear();
    index.apply_gpu_node("n1", &n1);
    let refused = index.reserve(&demand(&pod("quick", 1, 20, 0)), "n1", now);
    assert!(matches!(refused, Err(NotReserved::NoPlan { .. })), "{refused:?}");
    index.reserve(&demand(&preemptor), "n1", now).expect("room was made for it");
    assert_eq!((held(&index, "n1"), index.reserved().len()), (vec![35], 1));

    index.failed("preemptor");
    index.apply_pod(&preemptor, now);
    assert_eq!(held(&index, "n1"), [35]);
    index.apply_pod(&PodView { nominated: None, ..preemptor }, now);
    assert_eq!(held(&index, "n1"), [0], "it is to go elsewhere");
}

#[test]
fn nomination_reserves_the_gpu_that_was_freed() {
    let (mut n1, now) = (node("n1", 3), Instant::now());
    let shares: Vec<_> =
        ["a", "b", "c"].into_iter().zip(0..).map(|(uid, card)| share(&n1, uid, card, 40, 100)).collect();
    for freed in 0..3 {
        status(&mut n1).shares = shares.clone();
        let index = index(&[&n1]);
        for uid in ["a", "b", "c"] {
            index.apply_pod(&PodView { node: Some("n1".into()), ..pod(uid, 1, 40, 100) }, now);
        }
        let preemptor = PodView { priority: 10, nominated: Some("n1".into()), ..pod("preemptor", 1, 35, 0) };
        index.apply_pod(&preemptor, now);
        status(&mut n1).shares.remove(freed);
        index.apply_gpu_node("n1", &n1);
        let thief = index.reserve(&demand(&pod("thief", 1, 20, 0)), "n1", now);
        assert!(matches!(thief, Err(NotReserved::NoPlan { .. })), "card {freed}: {thief:?}");
        let planned = index.reserve(&demand(&preemptor), "n1", now).expect("room was made for it");
        assert_eq!(card_of(&planned), format!("GPU-n1-{freed}"));
    }
}

/// Nodes by reason, a line each.
fn refused(index: &Index, names: &[String], pod: &PodView) -> String {
    let demand = demand(pod);
    let query = Query::new(&demand, index.config());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ranking = index.snapshot_for(query.demand).rank(&query, &names, true);
    assert!(ranking.fitting.is_empty());
    let mut reasons = BTreeMap::new();
    for refusal in index.snapshot_for(query.demand).refusals(&query, &ranking.failing) {
        *reasons.entry(refusal.reason).or_insert(0) += 1;
    }
    reasons.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect::<Vec<_>>().join("\n")
}

#[test]
fn reasons_of_few_nodes_are_detailed_and_of_many_short() {
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let index = index(&[]);
    for (number, name) in (0..).zip(&names) {
        let mut node = node(name, 2);
        let shares = [share(&node, "a", 0, 1 + number % 20, 60), share(&node, "b", 1, 30, 100)];
        status(&mut node).shares = shares[..if number % 2 == 0 { 2 } else { 1 }].into();
        status(&mut node).cards[1].health = HealthStatus::Unhealthy;
        index.apply_gpu_node(name, &node);
    }
    insta::assert_snapshot!(refused(&index, &names[..3], &pod("x", 1, 40, 0)), @r"
    1 Insufficient GPUs (1 unhealthy; 1 short of memory, largest free 37Gi)
    1 Insufficient GPUs (1 unhealthy; 1 short of memory, largest free 38Gi)
    1 Insufficient GPUs (1 unhealthy; 1 short of memory, largest free 39Gi)
    ");
    insta::assert_snapshot!(refused(&index, &names, &pod("x", 1, 40, 0)), @"40 Insufficient GPUs (unhealthy; short of memory)");
    insta::assert_snapshot!(refused(&index, &names, &pod("x", 2, 1, 50)), @"40 Insufficient GPUs (unhealthy; short of cores)");
    insta::assert_snapshot!(refused(&index, &names, &pod("x", 3, 1, 0)), @"40 Insufficient GPUs (3 requested, 2 on the node)");
}

/// An event of kube-scheduler aggregates with the one before only if its text is the same.
#[test]
fn reasons_stay_the_same_when_unrelated_pods_move() {
    let mut n1 = node("n1", 3);
    let reported = |n1: &GpuNode| {
        let index = index(&[n1]);
        let whole = refused(&index, &["n1".to_owned()], &pod("whole", 1, 40, 100));
        let large = refused(&index, &["n1".to_owned()], &pod("large", 1, 35, 0));
        let explained = index.explain(&pod("large", 1, 35, 0), AGES).verdict;
        [whole, large, explained]
    };
    let shares = |first: u64, second: u64, more: usize, n1: &GpuNode| {
        let mut shares = vec![share(n1, "a", 0, 30, 10), share(n1, "b", 1, first, 10), share(n1, "c", 2, second, 10)];
        shares.extend((0..more).map(|number| share(n1, &format!("more-{number}"), 1 + number % 2, 1, 1)));
        shares
    };
    status(&mut n1).shares = shares(31, 38, 0, &n1.clone());
    let before = reported(&n1);
    assert_eq!(before[0], "1 Insufficient GPUs (3 in use by other pods)");
    assert_eq!(before[2], "0/1 nodes are available: 1 Insufficient GPUs (3 short of memory, largest free 10Gi)");
    for (first, second, more) in [(31, 38, 1), (33, 35, 4), (36, 31, 7)] {
        status(&mut n1).shares = shares(first, second, more, &n1.clone());
        assert_eq!(reported(&n1), before, "GPU 0 stays as it is");
    }
    status(&mut n1).shares = shares(31, 20, 0, &n1.clone());
    assert_ne!(reported(&n1), before, "the largest part that is free has changed");
}

#[test]
fn node_whose_kubelet_has_no_gpus_takes_no_pods_until_it_has() {
    let index = Index::new(SchedulingConfig::default());
    let mut sick = node("sick", 1);
    status(&mut sick).cards[0].health = HealthStatus::Unhealthy;
    let mut instances = node("instances", 1);
    cut(&mut instances, &[10, 20]);
    for card in &mut status(&mut instances).cards {
        card.plain = false;
    }
    for (name, node) in [("n1", node("n1", 1)), ("sick", sick), ("instances", instances)] {
        index.apply_gpu_node(name, &node);
    }
    let closed = |name: &str| index.snapshot().node(name).expect("it is known").closed.as_deref().map(str::to_owned);
    let show =
        |name: &str, gpus| index.apply_node(name, NodeObject { allocatable_gpus: gpus, ..NodeObject::default() });
    let gone = "divvy-node isn't registered there: the kubelet has 0 allocatable nvidia.com/gpu";
    for (gpus, expected) in [(None, None), (Some(0), Some(gone)), (Some(32), None), (Some(0), Some(gone)), (None, None)]
    {
        show("n1", gpus);
        assert_eq!(closed("n1").as_deref(), expected, "{gpus:?}");
    }
    // These have no healthy GPU of that resource, so that 0 is what the kubelet should have.
    show("sick", Some(0));
    show("instances", Some(0));
    assert_eq!([closed("sick"), closed("instances")], [None, None]);

    show("n1", Some(0));
    let waiting = pod("p", 1, 8, 0);
    index.apply_pod(&waiting, Instant::now());
    let demand = index.demand("p").expect("it waits");
    index.reserve(&demand, "n1", Instant::now()).expect_err("nothing is promised there");
    show("n1", Some(32));
    index.reserve(&demand, "n1", Instant::now()).expect("it fits");
}

#[test]
fn soft_taints_are_due_where_they_differ_from_those_wanted() {
    let mut full = node("full", 1);
    status(&mut full).shares = vec![share(&full, "held", 0, 40, 100)];
    let index = index(&[&node("free", 1), &node("guarded", 1), &full]);
    let carry = |name: &str, soft_taints: [bool; 2], is_tainted: bool| {
        let taint = |key: &str, effect: &str| Taint { key: key.into(), effect: effect.into(), ..Taint::default() };
        let soft = taint::SOFT.into_iter().zip(soft_taints).filter(|(_, is_there)| *is_there);
        let soft = soft.map(|(key, _)| taint(key, taint::EFFECT));
        let hard = is_tainted.then(|| taint("team", "NoSchedule"));
        index.apply_node(name, NodeObject { taints: soft.chain(hard).collect(), ..NodeObject::default() });
    };
    for name in ["free", "full", "without"] {
        carry(name, [false; 2], false);
    }
    carry("guarded", [false; 2], true);
    let due = |enabled| {
        let mut due = index.soft_taints_due(enabled);
        due.sort();
        due
    };
    assert_eq!(due(true), [("free".to_owned(), 1)], "while nothing is expected, whatever is free counts");
    let revision = index.snapshot().node("free").expect("known").revision;
    for name in ["free", "full", "guarded", "without"] {
        carry(name, [true, false], name == "guarded");
    }
    assert_eq!(
        index.snapshot().node("free").expect("known").revision,
        revision,
        "taints change nothing that is computed of nodes"
    );
    let surplus = ["full", "guarded", "without"].map(|name| (name.to_owned(), 0));
    assert_eq!(due(true), surplus);
    assert_eq!(due(false).len(), 4, "all that carry one");
    carry("free", [false, true], false);
    assert!(due(true).contains(&("free".to_owned(), 1)), "the second without the first");
}

#[test]
fn release_is_told_once_and_only_while_a_pod_waits() {
    let mut n1 = node("n1", 2);
    let index = index(&[&n1]);
    let mut report = |index: &Index, held: &[&str]| {
        let shares = held.iter().enumerate().map(|(card, pod)| share(&n1, pod, card, 40, 0)).collect();
        status(&mut n1).shares = shares;
        index.apply_gpu_node("n1", &n1);
        index.take_freed()
    };
    assert_eq!(report(&index, &["a", "b"]), None);
    assert_eq!(report(&index, &["a"]), None, "nobody waits");
    index.apply_pod(&pod("waits", 1, 10, 0), Instant::now());
    assert_eq!(index.take_freed(), None, "it is asked with what is known");
    assert_eq!(report(&index, &["a", "b"]), None, "nothing was released");
    index.apply_node("n1", NodeObject::default());
    report(&index, &["a", "b"]);
    let taints =
        [taint::SOFT[0]].map(|key| Taint { key: key.into(), effect: taint::EFFECT.into(), ..Taint::default() });
    index.apply_node("n1", NodeObject { taints: taints.into(), ..NodeObject::default() });
    assert_eq!(report(&index, &["a", "b"]), None, "a soft taint keeps no pod off");
    assert_eq!(report(&index, &["a"]).as_deref(), Some("n1"));
    assert_eq!((index.take_freed(), report(&index, &["a"])), (None, None), "told before");
    n1.spec.unschedulable_cards = vec!["GPU-n1-1".to_owned()];
    index.apply_gpu_node("n1", &n1);
    index.take_freed();
    n1.spec.unschedulable_cards.clear();
    index.apply_gpu_node("n1", &n1);
    assert_eq!(index.take_freed().as_deref(), Some("n1"), "a GPU is open again");
    index.apply_gpu_node("n2", &node("n2", 1));
    assert_eq!(index.take_freed().as_deref(), Some("n2"), "a new node");
}
