//! Random clusters and bodies.

use divvy_placement::{NodeScore, plan, score};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use divvy_index::demand::Demand;

/// The best that plans find on each node, asked one by one.
fn by_hand(extender: &Extender, pod: &PodView) -> Vec<(String, NodeScore)> {
    let demand = Demand::of(pod, extender.index.reading()).expect("a claim").expect("cards");
    let policy = demand.policies(&extender.index.reading().policy).cards;
    let rate = |node: Arc<divvy_index::Node>| {
        let plan = plan(&node.cards, &node.links, &demand.request(), &policy).ok()?;
        let score = score(&node.cards, &node.links, &demand.request(), &plan, &policy);
        Some((node.name.to_string(), score))
    };
    extender.index.nodes().into_iter().filter_map(rate).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Report { node: usize, shares: Vec<(usize, u64, u32)> },
    Ask { cards: u32, gib: u64, cores: u32 },
    Delete(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let share = (0..3usize, 1u64..20, 0u32..50);
    // Few, so that they come again after nodes have changed.
    let ask = (1u32..3, select(vec![4u64, 30]), select(vec![0u32, 40]));
    let ask = ask.prop_map(|(cards, gib, cores)| Step::Ask { cards, gib, cores });
    prop_oneof![
        3 => (0..6usize, prop::collection::vec(share, 0..4)).prop_map(|(node, shares)| Step::Report { node, shares }),
        3 => ask,
        1 => (0..6usize).prop_map(Step::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_shortlist_holds_the_nodes_that_plans_find_best(steps in prop::collection::vec(steps(), 1..40)) {
        let extender = extender(&[], 16);
        let names = ["n0", "n1", "n2", "n3", "n4", "n5"];
        for step in steps {
            match step {
                Step::Report { node: at, shares } => {
                    let mut report = node(names[at], 3);
                    let shares = shares.iter().enumerate().map(|(number, (card, gib, cores))| {
                        share(&report, &format!("held-{number}"), *card, *gib, *cores)
                    });
                    let shares = shares.collect();
                    status(&mut report).shares = shares;
                    extender.index.apply_node(names[at], &report);
                }
                Step::Delete(at) => extender.index.delete_node(names[at]),
                Step::Ask { cards, gib, cores } => {
                    let pod = pod("a", cards, gib, cores);
                    let rated = by_hand(&extender, &pod);
                    let best = rated.iter().map(|(_, score)| *score).max();
                    let as_good = rated.iter().filter(|(_, score)| best.is_some_and(|best| score.is_as_good_as(&best)));
                    let mut expected: Vec<&str> = as_good.map(|(name, _)| name.as_str()).collect();
                    let answer = filter(&extender, &named(&pod, &names));
                    let mut found: Vec<&str> = answer["NodeNames"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
                    expected.sort_unstable();
                    found.sort_unstable();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }

    #[test]
    fn nonsense_is_answered_or_refused(body in any::<Vec<u8>>(), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
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
