//! What is kept between questions against what is found out anew.

use std::cmp::Reverse;
use std::time::Instant;

use divvy_api::gpunode::GpuNode;
use divvy_api::pod::wire::Resources;
use divvy_api::{ContainerKind, Cores, GpuRequest, Memory, MemoryAmount};
use divvy_placement::{Expected, Kind};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::demand::{Demand, SchedulingConfig};
use crate::fixture::{container, node, pod, share, status};
use crate::pod::PodView;
use crate::unpoisoned;
use crate::{Index, NodeObject};

const NAMES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", "n5"];

#[derive(Clone, Debug)]
enum Step {
    Report {
        node: usize,
        cards: usize,
        utilization: u32,
        shares: Vec<(usize, u64, u32)>,
    },
    Delete(usize),
    Machine(usize, u32),
    Bound {
        pod: usize,
        node: usize,
        cpu: u32,
    },
    Ended(usize),
    Reserved {
        cards: u32,
        gib: u64,
    },
    NodeRef {
        cards: u32,
        gib: u64,
        cores: u32,
        cpu: u32,
        is_mixed: bool,
    },
    AskedInAdvance,
    /// One of two sets of requests.
    Expected(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let shares = prop::collection::vec((0..4usize, 1u64..20, 0u32..50), 0..4);
    // Few, so that they come again after nodes have changed.
    let amounts = (select(vec![4u64, 30]), select(vec![0u32, 40, 100]), select(vec![0u32, 4000]));
    let asked = (0u32..3, amounts, prop::bool::weighted(0.3));
    prop_oneof![
        4 => (0..6usize, 1..5usize, select(vec![0, 50, 100]), shares)
            .prop_map(|(node, cards, utilization, shares)| Step::Report { node, cards, utilization, shares }),
        1 => (0..6usize).prop_map(Step::Delete),
        2 => (0..6usize, 0u32..32_000).prop_map(|(node, cpu)| Step::Machine(node, cpu)),
        3 => (0..5usize, 0..6usize, 0u32..9000).prop_map(|(pod, node, cpu)| Step::Bound { pod, node, cpu }),
        1 => (0..5usize).prop_map(Step::Ended),
        3 => (1u32..3, 1u64..30).prop_map(|(cards, gib)| Step::Reserved { cards, gib }),
        4 => asked.prop_map(|(cards, (gib, cores, cpu), is_mixed)| Step::NodeRef { cards, gib, cores, cpu, is_mixed }),
        2 => Just(Step::AskedInAdvance),
        2 => (0..2usize).prop_map(Step::Expected),
    ]
}

/// Without requests for several cards, as the weights of their slots are set only now and then.
fn mix() -> impl Strategy<Value = ExpectedRequests> {
    let request = (1u64..40, 0u32..60, 0u32..8000, 1u32..5).prop_map(|(gib, cores, cpu_milli, weight)| {
        let request =
            GpuRequest { cards: 1, memory: MemoryAmount::Absolute(Memory::mib(gib << 10)), cores: Cores::new(cores) };
        let kind =
            Kind { request, profile: None, instances: false, models: Vec::new(), avoid_models: Vec::new(), cpu_milli };
        Expected { kind, weight }
    });
    prop::collection::vec(request, 1..6).prop_map(|requests| ExpectedRequests { requests, counted: 1000 })
}

fn index(mix: &ExpectedRequests) -> Index {
    let index = Index::new(SchedulingConfig { load_aware: true, ..SchedulingConfig::default() });
    index.expect(mix.clone());
    index
}

/// Requests for so many GiB of one card.
fn expected(gib: u64) -> Expected {
    let request = GpuRequest { cards: 1, memory: MemoryAmount::Absolute(Memory::mib(gib << 10)), cores: Cores::ZERO };
    let kind =
        Kind { request, profile: None, instances: false, models: Vec::new(), avoid_models: Vec::new(), cpu_milli: 0 };
    Expected { kind, weight: 1 }
}

fn without_cards(pod: usize, node: usize, cpu_milli: u32) -> PodView {
    let (uid, node) = (format!("busy-{pod}"), Some(NAMES[node].to_owned()));
    PodView { name: uid.clone(), uid, node, requests: Resources::of_cpu(cpu_milli), ..PodView::default() }
}

/// Nodes with what they are worth, in the order of the names.
fn ranked(index: &Index, asked: &PodView) -> Vec<(usize, NodeScore)> {
    let demand =
        Demand::read(asked, index.config()).expect("a request").unwrap_or_else(|| Demand::without_cards(asked));
    let ranking = index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), &NAMES, true);
    let mut found: Vec<(usize, NodeScore)> =
        ranking.fitting.iter().map(|(asked, score)| (asked.name, *score)).collect();
    found.sort_unstable_by_key(|(name, _)| *name);
    found
}

/// The best first; of equals the one that was known first.
fn in_order(mut found: Vec<(usize, NodeScore)>) -> Vec<usize> {
    found.sort_by_key(|(at, score)| (Reverse(*score), *at));
    found.into_iter().map(|(at, _)| at).collect()
}

/// What the API server has.
#[derive(Default)]
struct Cluster {
    reports: HashMap<usize, GpuNode>,
    node_objects: HashMap<usize, u32>,
    pods: HashMap<String, PodView>,
}

// === impl Cluster ===

impl Cluster {
    /// As a process knows it that has just started, and expects the same as another.
    fn anew(&self, other: &Index) -> Index {
        let mix = Arc::clone(other.snapshot().expected());
        let index = index(&mix);
        self.reports.iter().for_each(|(at, report)| index.apply_gpu_node(NAMES[*at], report));
        self.node_objects.iter().for_each(|(at, cpu)| {
            index.apply_node(
                NAMES[*at],
                NodeObject { allocatable: Some(Resources::of_cpu(*cpu)), ..NodeObject::default() },
            );
        });
        self.pods.values().for_each(|pod| index.apply_pod(pod, Instant::now()));
        // It has counted these pods meanwhile.
        index.expect((*mix).clone());
        index
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cached_scores_equal_scores_of_a_fresh_index(mixes in [mix(), mix()], steps in prop::collection::vec(steps(), 1..60)) {
        let (index, mut cluster) = (index(&mixes[0]), Cluster::default());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Report { node: at, cards, utilization, shares } => {
                    let mut report = node(NAMES[at], cards);
                    let shares = shares.iter().enumerate().filter(|(_, (card, ..))| *card < cards);
                    let shares = shares.map(|(held, (card, gib, cores))| share(&report, &format!("held-{held}"), *card, *gib, *cores));
                    let shares = shares.collect();
                    status(&mut report).shares = shares;
                    status(&mut report).cards[0].utilization = Some(utilization);
                    index.apply_gpu_node(NAMES[at], &report);
                    cluster.reports.insert(at, report);
                }
                Step::Delete(at) => {
                    index.delete_gpu_node(NAMES[at]);
                    cluster.reports.remove(&at);
                }
                Step::Machine(at, cpu) => {
                    index.apply_node(NAMES[at], NodeObject { allocatable: Some(Resources::of_cpu(cpu)), ..NodeObject::default() });
                    cluster.node_objects.insert(at, cpu);
                }
                Step::AskedInAdvance => index.snapshot().score_in_advance(),
                Step::Expected(at) => index.expect(mixes[at].clone()),
                Step::Bound { pod, node, cpu } => {
                    let pod = without_cards(pod, node, cpu);
                    index.apply_pod(&pod, Instant::now());
                    cluster.pods.insert(pod.uid.clone(), pod);
                }
                Step::Ended(pod) => {
                    let uid = without_cards(pod, 0, 0).uid;
                    index.delete_pod(&uid);
                    cluster.pods.remove(&uid);
                }
                Step::Reserved { cards, gib } => {
                    let pod = PodView { requests: Resources::of_cpu(500), ..pod(&format!("p{number}"), cards, gib, 10) };
                    let Some((at, _)) = ranked(&index, &pod).into_iter().max_by_key(|(_, score)| *score) else { continue };
                    let demand = Demand::read(&pod, index.config()).expect("a request").expect("cards");
                    let Ok(planned) = index.reserve(&Arc::new(demand), NAMES[at], Instant::now()) else { continue };
                    let mut bound = PodView { node: Some(planned.node.clone()), ..pod };
                    let planned = divvy_api::annotation::encode(&planned);
                    bound.annotations.insert(divvy_api::names::annotation::PLANNED.to_owned(), planned);
                    cluster.pods.insert(bound.uid.clone(), bound);
                }
                Step::NodeRef { cards, gib, cores, cpu, is_mixed } => {
                    let mut asked = PodView { requests: Resources::of_cpu(cpu), ..pod("a", cards, gib, cores) };
                    if cards == 0 {
                        asked.containers.clear();
                    } else if is_mixed {
                        // Its plan takes a search.
                        asked.containers.push(container("other", ContainerKind::App, 1, 10, 20));
                    }
                    prop_assert_eq!(ranked(&index, &asked), ranked(&cluster.anew(&index), &asked));
                }
            }
        }
        let asked = pod("a", 1, 1, 0);
        let anew = cluster.anew(&index);
        ranked(&index, &asked);
        ranked(&anew, &asked);
        let sums = |index: &Index| {
            let snapshot = index.snapshot();
            unpoisoned(snapshot.scores.lock()).scorer.sums()
        };
        prop_assert_eq!(sums(&index), sums(&anew));
    }
}

#[test]
fn pods_go_where_least_usable_capacity_is_lost() {
    let large = Kind {
        request: GpuRequest { cards: 1, memory: MemoryAmount::Absolute(Memory::mib(30 << 10)), cores: Cores::new(70) },
        profile: None,
        instances: false,
        models: Vec::new(),
        avoid_models: Vec::new(),
        cpu_milli: 8000,
    };
    let index = index(&ExpectedRequests { requests: vec![Expected { kind: large, weight: 1 }], counted: 1000 });
    for (name, cpu) in [("n0", 8000), ("n1", 7000), ("n2", 64_000)] {
        index.apply_node(name, NodeObject { allocatable: Some(Resources::of_cpu(cpu)), ..NodeObject::default() });
        index.apply_gpu_node(name, &node(name, 1));
    }
    let best =
        |pod: &PodView| ranked(&index, pod).into_iter().max_by_key(|(_, score)| *score).map(|(name, _)| NAMES[name]);
    assert_eq!(best(&pod("small", 1, 5, 10)), Some("n1"), "its card is lost to large ones already");
    let small = PodView { requests: Resources::of_cpu(1000), containers: Vec::new(), ..pod("busy", 1, 1, 1) };
    assert_eq!(best(&small), Some("n1"), "without cards, too");
    let busy = PodView { requests: Resources::of_cpu(60_000), node: Some("n2".into()), ..small };
    index.apply_pod(&busy, Instant::now());
    index.delete_gpu_node("n1");
    assert_eq!(best(&pod("small", 1, 5, 10)), Some("n2"), "4 cores are left there, too few for a large one");
}

#[test]
fn busy_gpu_costs_as_much_as_lost_capacity() {
    let index = index(&ExpectedRequests { requests: vec![expected(20)], counted: 1000 });
    let names = ["n0", "n1", "n2"];
    let report = |name: &str, utilization| {
        let mut report = node(name, 1);
        status(&mut report).cards[0].utilization = Some(utilization);
        status(&mut report).shares = vec![share(&report, "held", 0, 10, 30)];
        index.apply_gpu_node(name, &report);
    };
    let order = || in_order(ranked(&index, &pod("a", 1, 5, 0)));
    names.iter().zip([100, 30, 60]).for_each(|(name, utilization)| report(name, utilization));
    assert_eq!(order(), [1, 2, 0], "30 of them are reserved");
    names.iter().zip([20, 90, 0]).for_each(|(name, utilization)| report(name, utilization));
    assert_eq!(order(), [0, 2, 1], "what is reserved and isn't used is nobody's gain");
}

#[test]
fn busy_gpu_that_the_pod_would_not_take_costs_nothing() {
    let index = index(&ExpectedRequests { requests: vec![expected(20)], counted: 1000 });
    for (name, loads) in [("n0", [100, 100]), ("n1", [100, 0])] {
        let mut report = node(name, 2);
        status(&mut report).cards.iter_mut().zip(loads).for_each(|(card, load)| card.utilization = Some(load));
        status(&mut report).shares = vec![share(&report, "tightest", 0, 10, 0), share(&report, "other", 1, 5, 0)];
        index.apply_gpu_node(name, &report);
    }
    assert_eq!(in_order(ranked(&index, &pod("a", 1, 5, 0))), [1, 0]);
    assert_eq!(in_order(ranked(&index, &pod("b", 2, 5, 0))), [0, 1], "it takes both, so the nodes are equal");
}

#[test]
fn node_with_own_reservation_is_scored_without_it() {
    let index = index(&ExpectedRequests { requests: vec![expected(20)], counted: 1000 });
    for name in ["n0", "n1"] {
        index.apply_node(name, NodeObject { allocatable: Some(Resources::of_cpu(8000)), ..NodeObject::default() });
        index.apply_gpu_node(name, &node(name, 1));
    }
    let asked = PodView { requests: Resources::of_cpu(4000), ..pod("a", 1, 30, 0) };
    let before = ranked(&index, &asked);
    let demand = Demand::read(&asked, index.config()).expect("a request").expect("cards");
    index.reserve(&Arc::new(demand), "n0", Instant::now()).expect("room");
    assert_eq!(ranked(&index, &asked), before);
}

#[test]
fn query_scores_a_limited_number_of_new_nodes() {
    /// Every other node is scored by the first query, all by the second.
    const LAST: usize = MOST_NEW_AT_FIRST + 1;
    let index = index(&ExpectedRequests { requests: vec![expected(20)], counted: 1000 });
    let names: Vec<String> = (0..=LAST).map(|number| format!("n{number}")).collect();
    let full = |name: &str| {
        let mut report = node(name, 1);
        status(&mut report).shares = vec![share(&report, "held", 0, 35, 0)];
        report
    };
    let (best, others) = names.split_last().expect("many");
    for name in others {
        index.apply_gpu_node(name, &node(name, 1));
    }
    index.apply_gpu_node(best, &full(best));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answer = |gib, names: &[&str]| {
        let demand = Demand::read(&pod("a", 1, gib, 0), index.config()).expect("a request").expect("cards");
        let ranking = index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), names, false);
        let best = ranking.fitting.into_iter().min_by_key(|(asked, score)| (Reverse(*score), asked.place()));
        best.map(|(asked, _)| asked.name)
    };
    assert_ne!(answer(5, &names), Some(LAST), "it would be best, and its turn comes with the next query");
    assert_eq!(answer(5, &names), Some(LAST));
    answer(4, &names[..1]);
    index.snapshot().score_in_advance();
    assert_eq!(answer(4, &names), Some(LAST), "another kind of pod, seen once");
    index.apply_gpu_node("n0", &full("n0"));
    assert_eq!(answer(4, &names), Some(0), "as good, and known first; what has changed is asked again");
}

/// A node whose cards are each of a kind of their own, from this one on.
fn of_many_kinds(name: &str, first: usize, kinds: usize) -> GpuNode {
    let mut node = node(name, kinds);
    for (number, card) in status(&mut node).cards.iter_mut().enumerate() {
        card.memory = Memory::mib((40 << 10) + (first + number) as u64);
    }
    node
}

/// What `filter` and what runs beside it make of nodes, with requests that are expected.
fn rank_all(index: &Index, names: &[&str]) -> usize {
    let demand = Demand::read(&pod("p", 1, 8, 0), index.config()).expect("a request").expect("cards");
    let fitting = index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), names, true).fitting.len();
    index.snapshot().score_in_advance();
    index.soft_taints_due(true);
    fitting
}

#[test]
fn node_of_too_many_kinds_of_cards_is_unusable_alone() {
    let (index, now) = (Index::new(SchedulingConfig::default()), Instant::now());
    index.apply_pod(&pod("expected", 1, 8, 0), now);
    index.apply_gpu_node("honest", &node("honest", 8));
    index.apply_gpu_node("widest", &of_many_kinds("widest", 1, 64));
    index.apply_gpu_node("lying", &of_many_kinds("lying", 0, 1024));
    assert_eq!(rank_all(&index, &["honest", "widest", "lying"]), 2);
    let closed = index.snapshot().node("lying").and_then(|node| node.closed.clone()).expect("a reason");
    assert!(closed.starts_with("GpuNode lists 1024 kinds of GPUs, by model, memory and MIG profile"), "{closed}");
    assert_eq!(index.snapshot().view.hardware().len(), 1 + 64, "nothing of it is kept");
}

#[test]
fn kinds_of_cards_beyond_those_that_are_forecast_are_ranked() {
    let (index, now) = (Index::new(SchedulingConfig::default()), Instant::now());
    index.apply_pod(&pod("expected", 1, 8, 0), now);
    let names: Vec<String> = (0..18).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (number, name) in names.iter().enumerate() {
        index.apply_gpu_node(name, &of_many_kinds(name, 60 * number, 60));
        assert_eq!(rank_all(&index, &names[..=number]), number + 1, "{} kinds", 60 * (number + 1));
    }
    assert_eq!(index.snapshot().view.hardware().len(), 1024, "of 1 080");
    for name in &names {
        index.apply_gpu_node(name, &node(name, 2));
    }
    assert_eq!(rank_all(&index, &names), names.len(), "and go again");
}
