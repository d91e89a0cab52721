//! Random clusters and bodies.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::Tier;
use divvy_api::annotation::PolicyName;
use divvy_api::names::annotation::{
    AVOID_CARD_MODEL, AVOID_CARD_UUID, CARD_MODEL, CARD_POLICY, CARD_UUID, NODE_POLICY, NUMA, TIER,
};
use divvy_index::demand::{Demand, Policies};
use divvy_index::fixture::{AGES, cut};
use divvy_index::{Node, NodeObject, Unschedulable};
use divvy_placement::{ExpectedRequests, NodeScore, plan, score};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// The best that plans find on each node, asked one by one.
fn by_hand(extender: &Extender, demand: &Demand) -> Vec<(String, NodeScore)> {
    let Policies { cards, nodes } = demand.policies(extender.index.config());
    let rate = |node: &Arc<Node>| {
        let plan = plan(&node.state, &demand.request(), &cards).ok()?;
        let score = score(&node.state, &demand.request(), &plan, &nodes);
        (node.refusal(demand).is_none()).then(|| (node.name.to_string(), score))
    };
    extender.index.snapshot().nodes().filter_map(rate).collect()
}

const NAMES: [&str; 7] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6"];
const CARDS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Report { node: usize, shares: Vec<(usize, u64, u32)>, is_ready: bool },
    Delete(usize),
    Machine(usize, Option<Unschedulable>),
    Machines(BTreeSet<usize>),
    Bind { pod: String, gib: u64, node: usize },
    Ask { cards: u32, gib: u64, cores: u32, wish: Option<(&'static str, &'static str)> },
}

/// What the API server has said of Nodes.
#[derive(Default)]
struct Machines {
    bars: BTreeMap<usize, Option<Unschedulable>>,
    listed: bool,
}

fn steps() -> impl Strategy<Value = Step> {
    let share = (0..CARDS, 1u64..20, 0u32..50);
    let shares = prop::collection::vec(share, 0..4);
    let report = (0..6usize, shares, prop::bool::weighted(0.9));
    let report = report.prop_map(|(node, shares, is_ready)| Step::Report { node, shares, is_ready });
    let wishes = [
        (CARD_POLICY, "binpack"),
        (CARD_POLICY, "spread"),
        (NODE_POLICY, "random"),
        (NODE_POLICY, "topology"),
        (CARD_MODEL, "A100"),
        (AVOID_CARD_MODEL, "A100"),
        (CARD_UUID, "GPU-n2-1"),
        (AVOID_CARD_UUID, "GPU-n1-0,GPU-n1-1"),
        (TIER, "shim"),
        (TIER, "mig"),
        (NUMA, "prefer"),
    ];
    // Few, so that they come again after nodes have changed.
    let wish = prop::option::weighted(0.4, select(wishes.to_vec()));
    let ask = (select(vec![1u32, 1, 2]), select(vec![4u64, 30]), select(vec![0u32, 40, 100]), wish);
    let bar = select(vec![None, Some(Unschedulable::Cordoned), Some(Unschedulable::NotReady)]);
    prop_oneof![
        4 => report,
        1 => (0..6usize).prop_map(Step::Delete),
        2 => (0..6usize, bar).prop_map(|(node, bar)| Step::Machine(node, bar)),
        1 => prop::collection::btree_set(0..6usize, 4..=6).prop_map(Step::Machines),
        2 => ("[b-e]", 1u64..30, 0..6usize).prop_map(|(pod, gib, node)| Step::Bind { pod, gib, node }),
        4 => ask.prop_map(|(cards, gib, cores, wish)| Step::Ask { cards, gib, cores, wish }),
    ]
}

fn policies() -> impl Strategy<Value = PolicyName> {
    select(vec![
        PolicyName::LeastFragmentation,
        PolicyName::LeastFragmentation,
        PolicyName::Binpack,
        PolicyName::Spread,
        PolicyName::Random,
        PolicyName::Topology,
    ])
}

// === impl Machines ===

impl Machines {
    fn bar(&self, name: &str) -> Option<Unschedulable> {
        let known = self.bars.iter().find(|(at, _)| NAMES[**at] == name);
        known.map_or_else(|| self.listed.then_some(Unschedulable::Gone), |(_, bar)| *bar)
    }
}

/// What is said of a pod must be what plans say.
fn ask(extender: &Extender, pod: &PodView, machines: &Machines) -> Result<(), TestCaseError> {
    let demand = Demand::read(pod, extender.index.config()).expect("a request").expect("cards");
    let rated = by_hand(extender, &demand);
    let best = rated.iter().map(|(_, score)| *score).max();
    let as_good = rated.iter().filter(|(_, score)| best.is_some_and(|best| score.is_as_good_as(&best)));
    let expected: BTreeSet<&str> = as_good.map(|(name, _)| name.as_str()).collect();
    let args = named(pod, &[&NAMES[..], &NAMES[2..4]].concat());
    let answer = filter(extender, &args);
    let found: Vec<&str> = answer["NodeNames"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    prop_assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), expected);
    if let (Some(first), Some(best)) = (found.first(), best) {
        prop_assert!(rated.contains(&((*first).to_owned(), best)), "the best comes first");
    }

    let mut distinct: Vec<NodeScore> = rated.iter().map(|(_, score)| *score).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let rank = |name: &str| rated.iter().find(|(rated, _)| rated == name).map(|(_, score)| *score);
    let expected = NAMES.map(|name| {
        let worse = rank(name).and_then(|score| distinct.binary_search(&score).ok());
        worse.map_or(0, |worse| 10 - 10 * (distinct.len() - 1 - worse) / distinct.len())
    });
    let answer = extender.prioritize(named(pod, &NAMES).to_string().as_bytes()).expect("arguments");
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    let found: Vec<u64> = answer.as_array().expect("scores").iter().filter_map(|host| host["Score"].as_u64()).collect();
    prop_assert_eq!(found, expected.map(|score| score as u64));

    let outlook = extender.index.snapshot_for(&demand).feasibility(&demand, AGES);
    let open = rated.iter().filter(|(name, _)| machines.bar(name).is_none());
    let mut scores: Vec<NodeScore> = open.map(|(_, score)| *score).collect();
    scores.sort_unstable_by(|one, other| other.cmp(one));
    let is_slow = demand.containers[0].request.is_some_and(|request| request.cards > 1);
    let hinted: Vec<NodeScore> = outlook.best.iter().filter_map(|name| rank(name)).collect();
    // Where it takes a search, nodes that can't be as good as the best aren't searched.
    let certain = if is_slow { 1 } else { 5 };
    let certain_of = |scores: &[NodeScore]| scores.iter().take(certain).copied().collect::<Vec<_>>();
    prop_assert_eq!(certain_of(&hinted), certain_of(&scores));
    prop_assert_eq!(outlook.now, Some(!scores.is_empty()));
    if scores.is_empty() {
        for bar in [Unschedulable::Cordoned, Unschedulable::NotReady, Unschedulable::Gone] {
            let counted = outlook.reasons.iter().find(|(reason, _)| **reason == *bar.reason());
            let counted = counted.map_or(0, |(_, nodes)| *nodes);
            let expected = rated.iter().filter(|(name, _)| machines.bar(name) == Some(bar)).count();
            prop_assert_eq!(counted, expected);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_agree_with_placement(card_policy in policies(), nodes in policies(), agree in any::<bool>(), steps in prop::collection::vec(steps(), 1..40)) {
        let node_policy = if agree { card_policy } else { nodes };
        let index = Index::new(SchedulingConfig { card_policy, node_policy, ..SchedulingConfig::default() });
        let (extender, mut machines) = (Extender::new(Arc::new(index), 16), Machines::default());
        for step in steps {
            match step {
                Step::Report { node: at, shares, is_ready } => {
                    let mut report = node(NAMES[at], CARDS);
                    if at >= 4 {
                        cut(&mut report, &[5, 40, 10]);
                        status(&mut report).tier = if at == 5 { Tier::Mig } else { Tier::Shim };
                    }
                    let shares = shares.iter().enumerate().map(|(number, (card, gib, cores))| {
                        share(&report, &format!("held-{number}"), *card, *gib, *cores)
                    });
                    let shares = shares.collect();
                    status(&mut report).shares = shares;
                    status(&mut report).conditions[0].status = if is_ready { "True" } else { "False" }.into();
                    extender.index.apply_gpu_node(NAMES[at], &report);
                }
                Step::Delete(at) => extender.index.delete_gpu_node(NAMES[at]),
                Step::Machine(at, bar) => {
                    extender.index.apply_node(NAMES[at], NodeObject { unschedulable: bar, ..NodeObject::default() });
                    machines.bars.insert(at, bar);
                }
                Step::Machines(these) => {
                    extender.index.keep_nodes(&these.iter().map(|at| NAMES[*at].to_owned()).collect());
                    machines.bars.retain(|at, _| these.contains(at));
                    machines.listed = true;
                }
                Step::Bind { pod: name, gib, node } => {
                    extender.index.apply_pod(&pod(&name, 1, gib, 0), Instant::now());
                    // What is expected then ranks nodes by more than their plans, as the index's own tests say.
                    extender.index.expect(ExpectedRequests::default());
                    let call = json!({"PodName": name, "PodNamespace": "default", "PodUID": name, "Node": NAMES[node]});
                    extender.bind(call.to_string().as_bytes(), Instant::now()).expect("arguments");
                }
                Step::Ask { cards, gib, cores, wish } => {
                    let mut pod = pod("a", cards, gib, cores);
                    pod.annotations.extend(wish.map(|(key, value)| (key.to_owned(), value.to_owned())));
                    ask(&extender, &pod, &machines)?;
                }
            }
        }
    }

    #[test]
    fn arbitrary_calls_are_answered_or_refused(body in any::<Vec<u8>>(), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let extender = extender(&four(), 16);
        let whole = json!({
            "Pod": json_of(&pod("a", 1, 8, 0)), "NodeNames": ["n1"], "Nodes": {"items": [{"metadata": {"name": "n2"}}]},
            "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": "x"}}], "NumPDBViolations": 1}},
            "PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": "n1",
        });
        let mut twisted = whole.to_string().into_bytes();
        let at = at.index(twisted.len());
        twisted[at] = to;
        let truncated = twisted[..cut.index(twisted.len())].to_vec();
        for body in [body, twisted, truncated] {
            let answered = [
                extender.filter(&body).is_ok(),
                extender.prioritize(&body).is_ok(),
                extender.bind(&body, Instant::now()).is_ok(),
                extender.preempt(&body).is_ok(),
            ];
            prop_assert!(answered.len() == 4);
        }
    }
}
