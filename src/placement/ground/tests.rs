//! The short way against the long one.

use proptest::prelude::*;

use super::*;
use crate::tests::properties::{Scene, scene};
use crate::{Taken, plan, score, taken, verify};

/// The scene with all claims but one left out, and that one for a single card.
fn alone(mut scene: Scene, which: usize) -> Scene {
    scene.settled.clear();
    let which = which % scene.containers.len();
    for (at, container) in scene.containers.iter_mut().enumerate() {
        container.claim = container.claim.filter(|_| at == which).map(|claim| Claim { cards: 1, ..claim });
    }
    scene
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_card_is_found_and_rated_as_a_plan_is(scene in scene(), which in 0usize..5) {
        let scene = alone(scene, which);
        let pod = scene.pod();
        let Some(single) = Single::of(&pod, &scene.policy) else { return Ok(()) };
        let found = Ground::new(&scene.cards, &scene.links, &scene.policy.mix).best(&scene.cards, &single);
        let planned = plan(&scene.cards, &scene.links, &pod, &scene.policy).ok();
        let planned = planned.map(|plan| {
            let card = plan.containers.iter().find_map(|container| container.chosen.first().copied());
            (card.expect("one claim, one card"), score(&scene.cards, &scene.links, &pod, &plan, &scene.policy))
        });
        prop_assert_eq!(found, planned);
    }

    #[test]
    fn no_plan_is_worth_more_than_the_bound(mut scene in scene()) {
        scene.settled.clear();
        let pod = scene.pod();
        let ground = Ground::new(&scene.cards, &scene.links, &scene.policy.mix);
        let planned = scene.plan().ok();
        let worth = planned.map(|plan| score(&scene.cards, &scene.links, &pod, &plan, &scene.policy));
        prop_assert!(worth <= ground.at_best(&scene.cards, &pod, &scene.policy), "{worth:?}");
    }

    #[test]
    fn where_a_plan_takes_no_more_than_is_free_it_fits(mut scene in scene()) {
        scene.settled.clear();
        let Ok(plan) = scene.plan() else { return Ok(()) };
        for Taken { card, share, slots } in taken(&scene.cards, &scene.pod(), &plan).expect("it is a plan") {
            let card = &mut scene.cards[card];
            card.held.memory = card.memory_capacity.saturating_sub(share.memory);
            card.held.cores = card.cores_capacity.saturating_sub(share.cores);
            card.free_slots = slots;
        }
        prop_assert_eq!(verify(&scene.cards, &scene.pod(), &plan), Ok(()));
    }
}
