//! Pods that the hardware must hold to their shares, and nodes that serve nothing else.

use divvy_api::annotation::{PolicyName, Preferences};
use divvy_api::pod::ContainerKind::{App, Init};
use divvy_api::{Card, ContainerRequest, Cores, GpuRequest, Health, Memory, MemoryAmount, Share, Tier};
use proptest::prelude::*;

use super::build::{by_hardware, card, container, held, instances, no_wishes, node, pod_request, undivided};
use super::properties::policies;
use crate::{ContainerPlan, Held, NodeState, Plan, Policy, Reason, Taken, plan, taken, verify};

fn app(cards: u32, gib: u64) -> ContainerRequest {
    container(App, cards, gib << 10, 0)
}

/// Cards of each container, or why there are none.
fn chosen(state: &NodeState, containers: &[ContainerRequest], wishes: &Preferences) -> Result<Vec<Vec<usize>>, String> {
    let plan = plan(state, &pod_request(containers, &[], wishes), &Policy::default());
    plan.map(|plan| plan.containers.into_iter().map(|container| container.chosen).collect())
        .map_err(|none| none.to_string())
}

#[test]
fn request_takes_the_smallest_instance_that_holds_it_whole() {
    let node = node(instances(&[40, 5, 20, 10, 20]));
    let containers = [app(1, 8), app(2, 12)];
    let wishes = by_hardware();
    assert_eq!(chosen(&node, &containers, &wishes), Ok(vec![vec![3], vec![2, 4]]));
    assert_eq!(chosen(&undivided(node.clone()), &containers, no_wishes()), Ok(vec![vec![3], vec![2, 4]]));

    let pod = pod_request(&containers[..1], &[], &wishes);
    let planned = plan(&node, &pod, &Policy::default()).expect("fits");
    let all = Share { memory: Memory::mib(10 << 10), cores: Cores::FULL, exclusive: true, ..Share::default() };
    assert_eq!(taken(&node.node, &pod, &planned), Some(vec![Taken { card: 3, share: all, slots: 1 }]));
}

#[test]
fn percentage_request_fits_any_instance() {
    let node = node(instances(&[40, 5, 20]));
    let half = GpuRequest { cards: 1, memory: MemoryAmount::Percent(50), cores: Cores::new(50) };
    for request in [half, GpuRequest::whole(1)] {
        let containers = [ContainerRequest { request: Some(request), ..app(1, 1) }];
        assert_eq!(chosen(&node, &containers, &by_hardware()), Ok(vec![vec![1]]));
    }
}

#[test]
fn instance_is_shared_unless_tier_is_mig() {
    let mut node = node(instances(&[10, 10]));
    node.held[1] = held(2 << 10, 20);
    assert_eq!(chosen(&node, &[app(1, 8)], no_wishes()), Ok(vec![vec![1]]));
    let shim = Preferences { tier: Some(Tier::Shim), ..Preferences::default() };
    assert_eq!(chosen(&node, &[app(1, 8)], &shim), Ok(vec![vec![1]]));
    assert_eq!(chosen(&node, &[app(1, 8)], &by_hardware()), Ok(vec![vec![0]]));
}

#[test]
fn missing_instance_is_explained_card_by_card() {
    let mut node = node([instances(&[5, 10, 20]), vec![card(3, 80 << 10)]].concat());
    node.held[1] = held(2 << 10, 20);
    node.held[2] = Held { exclusive: true, ..held(20 << 10, 100) };
    assert_eq!(
        chosen(&node, &[app(1, 8)], &by_hardware()).expect_err("no instance"),
        "container \"main\" requests 1 GPU with 8Gi memory and 0 cores each (whole MIG instances): Insufficient GPUs (1 too \
         small, largest 5Gi; 1 in use by other pods; 1 held exclusively by another pod; 1 not a MIG instance)"
    );
}

#[test]
fn instance_holds_no_more_than_its_physical_memory() {
    let mut cards = instances(&[5]);
    cards[0].scales.memory = 200;
    let node = node(cards);
    assert_eq!(chosen(&node, &[app(1, 8)], no_wishes()), Ok(vec![vec![0]]), "promised twice");
    let refused = chosen(&node, &[app(1, 8)], &by_hardware()).expect_err("too small");
    assert!(refused.ends_with("(1 too small, largest 5Gi)"), "{refused}");
    let plan = Plan { containers: vec![ContainerPlan { chosen: vec![0], ..ContainerPlan::default() }] };
    assert!(verify(&node, &pod_request(&[app(1, 8)], &[], &by_hardware()), &plan).is_err());
}

#[test]
fn init_container_takes_an_instance_that_suits_its_successors() {
    let containers = [container(Init, 1, 4 << 10, 0), app(1, 15)];
    assert_eq!(chosen(&node(instances(&[20, 5])), &containers, &by_hardware()), Ok(vec![vec![0], vec![]]));
    assert!(chosen(&node(instances(&[5, 10])), &containers, &by_hardware()).is_err());
}

#[test]
fn plan_with_a_gpu_among_instances_is_refused() {
    let node = node([instances(&[10]), vec![card(1, 10 << 10)]].concat());
    let verified = |at: usize| {
        let plan = Plan { containers: vec![ContainerPlan { chosen: vec![at], ..ContainerPlan::default() }] };
        verify(&node, &pod_request(&[app(1, 8)], &[], &by_hardware()), &plan)
    };
    assert_eq!(verified(0), Ok(()));
    assert_eq!(verified(1).map_err(|misfit| misfit.to_string()), Err(format!("GPU-1: {}", Reason::NoInstance)));
}

/// Of the instances that nobody holds, the smallest so many that hold the request; `None`: there are too few.
fn least(state: &NodeState, wanted: usize, asked: Memory) -> Option<u64> {
    let would_do = |(card, held): &(&Card, &Held)| card.id.is_instance() && held.pods == 0 && card.memory >= asked;
    let mut sizes: Vec<u64> = state.each().filter(would_do).map(|(card, _)| card.memory.as_mib()).collect();
    sizes.sort_unstable();
    (sizes.len() >= wanted).then(|| sizes[..wanted].iter().sum())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_takes_the_smallest_instance(
        facts in prop::collection::vec((prop::sample::select(vec![5u64, 10, 20, 40]), 0..3u32, prop::bool::weighted(0.8)), 0..8),
        wanted in 1u32..4,
        gib in 1u64..45,
        policy in policies(),
        is_wish in any::<bool>(),
    ) {
        let mut cards = instances(&facts.iter().map(|(gib, ..)| *gib).collect::<Vec<_>>());
        for (number, (old, (gib, _, is_instance))) in cards.iter_mut().zip(&facts).enumerate() {
            if !is_instance {
                // Without the wish a GPU isn't offered.
                let health = if is_wish { Health::Healthy } else { Health::unhealthy("") };
                *old = Card { health, ..card(number, gib << 10) };
            }
        }
        let held_by = |held_by: u32| if held_by == 0 { held(1, 1) } else { Held::default() };
        let held = facts.iter().map(|(_, by, _)| held_by(*by)).collect();
        let state = NodeState { held, ..node(cards) };
        let state = if is_wish { state } else { undivided(state) };
        let (none, wish) = (Preferences::default(), by_hardware());
        let containers = [app(wanted, gib)];
        let pod = pod_request(&containers, &[], if is_wish { &wish } else { &none });
        let planned = plan(&state, &pod, &policy).ok();
        let sizes = planned.map(|plan| plan.containers[0].chosen.iter().map(|at| state.cards()[*at].memory.as_mib()).sum::<u64>());
        prop_assert_eq!(sizes, least(&state, wanted as usize, Memory::mib(gib << 10)));
    }

    #[test]
    fn containers_of_one_pod_never_share_an_instance(
        sizes in prop::collection::vec(prop::sample::select(vec![5u64, 10, 20]), 1..6),
        asked in prop::collection::vec((1u32..3, 1u64..20), 1..4),
    ) {
        let node = node(instances(&sizes));
        let containers: Vec<ContainerRequest> = asked.iter().map(|(cards, gib)| app(*cards, *gib)).collect();
        let (wishes, policy) = (by_hardware(), Policy { name: PolicyName::Binpack, ..Policy::default() });
        let pod = pod_request(&containers, &[], &wishes);
        let Ok(planned) = plan(&node, &pod, &policy) else { return Ok(()) };
        let mut all: Vec<usize> = planned.containers.iter().flat_map(|container| container.chosen.clone()).collect();
        let holdings = all.len();
        all.sort_unstable();
        all.dedup();
        prop_assert_eq!(all.len(), holdings);
        for Taken { card, share, .. } in taken(&node.node, &pod, &planned).expect("a plan") {
            prop_assert_eq!(share, Share { memory: node.cards()[card].memory, cores: Cores::FULL, exclusive: true, ..Share::default() });
        }
    }
}
