//! The short way against the long one.

use divvy_api::Memory;
use divvy_api::pod::ContainerKind::App;
use proptest::prelude::*;

use super::*;
use crate::tests::build::{cards, change, container, node, pod_request};
use crate::tests::properties::{Scene, policies, scene};
use crate::{NoPlan, Taken, matchings, plan, score, taken, verify};

/// The scene with amounts of memory as real cards have them, in which compute isn't all that counts.
fn large(mut scene: Scene) -> Scene {
    let times = |memory: Memory| Memory::mib(memory.as_mib() << 10);
    let amount = |amount| match amount {
        MemoryAmount::Absolute(memory) => MemoryAmount::Absolute(times(memory)),
        percent @ MemoryAmount::Percent(_) => percent,
    };
    for held in &mut scene.state.held {
        (held.memory, held.host) = (times(held.memory), times(held.host));
    }
    scene.state.host_elsewhere = times(scene.state.host_elsewhere);
    let NodeCards { cards, oversubscription, .. } = change(&mut scene.state);
    for card in cards {
        card.memory = times(card.memory);
    }
    if let Some(of) = oversubscription {
        of.host_memory = times(of.host_memory);
    }
    for request in scene.containers.iter_mut().filter_map(|container| container.request.as_mut()) {
        request.memory = amount(request.memory);
    }
    scene
}

/// The scene with all requests but one left out, and that one for a single card.
fn alone(mut scene: Scene, which: usize) -> Scene {
    (scene.allocated, scene.shares) = (Vec::new(), Vec::new());
    let which = which % scene.containers.len();
    for (at, container) in scene.containers.iter_mut().enumerate() {
        container.request = container.request.filter(|_| at == which).map(|request| GpuRequest { cards: 1, ..request });
    }
    scene
}

fn table(scene: &Scene) -> CardTable {
    CardTable::new(&scene.state)
}

/// The short way.
fn best(scene: &Scene, nodes: &Policy, least: Option<&NodeScore>) -> Option<(usize, NodeScore)> {
    let (pod, table) = (scene.pod(), table(scene));
    let single = OneCard::from_pod(&pod, scene.policy, *nodes).expect("one request, one card");
    table.at(0).expect("one node").best(|| &scene.state.node, &single, least)
}

/// The long way.
fn planned(scene: &Scene, nodes: &Policy) -> Option<(usize, NodeScore)> {
    let plan = scene.plan().ok()?;
    let card = plan.containers.iter().find_map(|container| container.chosen.first().copied());
    Some((card.expect("one request, one card"), score(&scene.state, &scene.pod(), &plan, nodes)))
}

#[test]
fn model_is_matched_once_however_many_cards_are_of_it() {
    let mut cards = cards(8);
    cards[7].model = "NVIDIA T400 4GB".into();
    let state = node(cards);
    let (table, one, two) = (CardTable::new(&state), [container(App, 1, 1024, 0)], [container(App, 2, 1024, 0)]);
    let wishes = Preferences { models: vec!["H100".into(); 64], ..Preferences::default() };
    let (policy, at) = (Policy::default(), || table.at(0).expect("one node"));
    let matched = |query: &dyn Fn()| {
        let before = matchings();
        (0..100).for_each(|_node| query());
        matchings() - before
    };
    let single = OneCard::from_pod(&pod_request(&one, &[], &wishes), policy, policy).expect("one card");
    assert_eq!(matched(&|| assert!(at().best(|| &state.node, &single, None).is_none())), 128);
    assert_eq!(matched(&|| assert!(at().tightest(|| &state.node, single.request()).is_none())), 0, "all are known");
    let several = AnyPod::new(pod_request(&two, &[], &wishes), policy);
    assert_eq!(matched(&|| assert!(at().at_best(|| &state.node, &several).is_none())), 128);
    let planned = || assert!(plan(&state, &pod_request(&two, &[], &wishes), &policy).is_err());
    assert_eq!(matched(&planned), 12_800, "each plan knows one node");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lacking_agrees_with_the_reasons_of_each_card(scene in scene(), which in 0usize..5) {
        let scene = alone(large(scene), which);
        prop_assume!(claiming(&scene.pod()).next().is_some());
        let (pod, table) = (scene.pod(), table(&scene));
        let single = OneCard::from_pod(&pod, scene.policy, scene.policy).expect("one request, one card");
        if let Some(lacking) = table.at(0).expect("one node").lacking(&single) {
            let Err(NoPlan::Nothing { reasons, .. }) = scene.plan() else { panic!("there is a plan") };
            prop_assert_eq!(lacking, Lacking::from_reasons(&reasons));
        }
    }

    #[test]
    fn one_card_answer_equals_plan_and_score(scene in scene(), which in 0usize..5, nodes in policies(), agree in any::<bool>()) {
        let scene = alone(large(scene), which);
        let nodes = Policy { name: if agree { scene.policy.name } else { nodes.name }, ..scene.policy };
        prop_assume!(claiming(&scene.pod()).next().is_some());
        prop_assert_eq!(best(&scene, &nodes, None), planned(&scene, &nodes));
    }

    #[test]
    fn best_card_at_least_as_good_as_a_bound_is_found(scene in scene(), which in 0usize..5, other in scene()) {
        let (scene, mut other) = (alone(large(scene), which), large(other));
        (other.containers, other.policy) = (scene.containers.clone(), scene.policy);
        (other.allocated, other.shares) = (Vec::new(), Vec::new());
        prop_assume!(claiming(&scene.pod()).next().is_some());
        let Some((_, least)) = planned(&other, &scene.policy) else { return Ok(()) };
        let found = best(&scene, &scene.policy, Some(&least));
        let wanted = planned(&scene, &scene.policy).filter(|(_, score)| *score > least || score.is_as_good_as(&least));
        prop_assert!(wanted.is_none() || found == wanted, "{found:?}, not {wanted:?}");
    }

    #[test]
    fn nodes_of_one_table_are_independent(puts in prop::collection::vec((0usize..4, scene()), 1..8)) {
        let (mut together, mut alone) = (CardTable::default(), std::collections::BTreeMap::new());
        for (at, scene) in puts {
            together.put(at, table(&scene));
            alone.insert(at, table(&scene));
        }
        for (at, alone) in alone {
            let (one, other) = (together.at(at).expect("a node"), alone.at(0).expect("a node"));
            prop_assert_eq!(format!("{:?}{:?}", one.free, one.traits), format!("{:?}{:?}", other.free, other.traits));
            prop_assert_eq!(one.totals.load, other.totals.load);
        }
    }

    #[test]
    fn no_score_exceeds_the_bound(mut scene in scene()) {
        (scene.allocated, scene.shares) = (Vec::new(), Vec::new());
        let scene = large(scene);
        let pod = scene.pod();
        let planned = scene.plan().ok();
        let worth = planned.map(|plan| score(&scene.state, &pod, &plan, &scene.policy));
        let bound = table(&scene).at(0).expect("one node").at_best(|| &scene.state.node, &AnyPod::new(pod, scene.policy));
        prop_assert!(worth <= bound, "{worth:?}");
    }

    #[test]
    fn plan_within_the_free_amounts_verifies(mut scene in scene()) {
        (scene.allocated, scene.shares) = (Vec::new(), Vec::new());
        let Ok(plan) = scene.plan() else { return Ok(()) };
        let all_taken = taken(&scene.state.node, &scene.pod(), &plan).expect("it is a plan");
        let state = &mut scene.state;
        let held = state.held.iter().map(|held| held.host).chain([state.host_elsewhere]);
        let host_memory = held.chain(all_taken.iter().map(|taken| taken.share.host)).sum();
        if let Some(of) = &mut change(state).oversubscription {
            of.host_memory = host_memory;
        }
        for Taken { card, share, slots } in all_taken {
            let (held, card) = (&mut state.held[card], &state.node.cards[card]);
            held.memory = card.memory_capacity().saturating_sub(share.on_card());
            held.cores = card.cores_capacity().saturating_sub(share.cores);
            held.slots = card.slots - slots;
        }
        prop_assert_eq!(verify(&scene.state, &scene.pod(), &plan), Ok(()));
    }
}
