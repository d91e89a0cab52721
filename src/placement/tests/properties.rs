//! Random nodes and pods, against the kubelet played out literally.

use std::collections::BTreeSet;
use std::sync::Arc;

use divvy_api::annotation::{Numa, PolicyName, Preferences};
use divvy_api::card::ComputeMode;
use divvy_api::gpunode::{Oversubscription, Scales};
use divvy_api::pod::ContainerKind;
use divvy_api::request::Sharing;
use divvy_api::{
    Card, ContainerRequest, Cores, GpuRequest, Health, Link, Links, Memory, MemoryAmount, MigInstance, MigProfile,
    NodeCards, Share, Tier, Totals,
};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::oracle::{Play, plays, some_plan_survives, survives};
use crate::{ContainerPlan, Held, NoPlan, NodeState, Plan, PodRequest, Policy, plan, score, verify};

#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) state: NodeState,
    pub(crate) containers: Vec<ContainerRequest>,
    pub(crate) allocated: Vec<Vec<usize>>,
    /// Of another scale than the cards'; none: of that one.
    pub(crate) shares: Vec<Vec<(usize, Share)>>,
    preferences: Preferences,
    pub(crate) policy: Policy,
}

impl Scene {
    pub(crate) fn pod(&self) -> PodRequest<'_> {
        PodRequest {
            containers: &self.containers,
            allocated: &self.allocated,
            shares: &self.shares,
            preferences: &self.preferences,
        }
    }

    pub(crate) fn plan(&self) -> Result<Plan, NoPlan> {
        plan(&self.state, &self.pod(), &self.policy)
    }

    /// The plan's drawn cards are those of the draws.
    fn check_draws(&self, plan: &Plan) -> Result<(), TestCaseError> {
        let plays = plays(&self.pod(), &chosen(plan)).expect("as many cards as asked for");
        for (at, ContainerPlan { chosen, reused, drawn }) in
            plan.containers.iter().enumerate().skip(self.allocated.len())
        {
            let foreign =
                |play: &Play| play.got[at].iter().map(|slot| slot.0).filter(|card| !chosen.contains(card)).collect();
            let foreign: Vec<BTreeSet<usize>> = plays.iter().map(foreign).collect();
            prop_assert!(foreign.iter().all(|cards| cards.len() == *drawn));
            prop_assert_eq!(
                foreign.into_iter().flatten().collect::<BTreeSet<_>>(),
                reused.iter().copied().collect::<BTreeSet<_>>()
            );
        }
        Ok(())
    }
}

fn chosen(plan: &Plan) -> Vec<Vec<usize>> {
    plan.containers.iter().map(|container| container.chosen.clone()).collect()
}

/// What other pods hold of a card, and how many slots of it are free.
fn held() -> impl Strategy<Value = (Held, u32)> + Clone {
    let amounts = (select(vec![0, 0, 8, 16]), select(vec![0, 0, 40, 100]), 1u32..3, select(vec![0u64, 0, 4, 9]));
    let busy = select(vec![0u8, 0, 24, 25, 100]);
    (amounts, 0..3u32, 0..5u32, busy).prop_map(|((mib, cores, pods, host), slots, free_slots, busy)| {
        let held = Held {
            memory: Memory::mib(mib),
            host: Memory::mib(if mib > 0 && cores < 100 { host } else { 0 }),
            cores: Cores::new(cores),
            exclusive: cores == 100,
            pods: if mib + u64::from(cores) > 0 { pods } else { 0 },
            slots,
            busy,
        };
        (held, free_slots)
    })
}

fn card() -> impl Strategy<Value = (Card, Held)> + Clone {
    let numa = prop::option::weighted(0.8, 0..2u32);
    let facts = (select(vec![16u64, 24, 24, 40]), 0..8u32, numa, held(), profile());
    facts.prop_map(|(mib, luck, numa, (held, free_slots), profile)| {
        let card = Card {
            mig: profile.map(|profile| MigInstance { profile, by_profile: true }),
            health: if luck > 0 { Health::Healthy } else { Health::unhealthy("fell off the bus") },
            scales: Scales { memory: if luck == 2 { 200 } else { 100 }, cores: if luck == 1 { 200 } else { 100 } },
            compute_mode: if luck == 3 { ComputeMode::ExclusiveProcess } else { ComputeMode::Default },
            numa,
            slots: held.slots + free_slots,
            ..super::build::card(0, mib)
        };
        (card, held)
    })
}

fn cards() -> impl Strategy<Value = Vec<(Card, Held)>> {
    let different = prop::collection::vec(card(), 0..=5);
    let few_kinds = (prop::collection::vec(card(), 2), prop::collection::vec(0..3usize, 2..=5))
        .prop_map(|(kinds, cards)| cards.into_iter().map(|kind| kinds[kind / 2].clone()).collect());
    let tier = select(vec![Tier::Shim, Tier::Shim, Tier::Shim, Tier::Accounting, Tier::Mps]);
    let are_instances = prop::collection::vec((prop::bool::weighted(0.4), tier), 5);
    (prop_oneof![different, few_kinds], are_instances).prop_map(|(mut cards, are_instances): (Vec<(Card, Held)>, _)| {
        for (number, ((card, _), (is_instance, tier))) in cards.iter_mut().zip(are_instances).enumerate() {
            let kind = if is_instance { "MIG" } else { "GPU" };
            card.id = format!("{kind}-{number}").parse().expect("a card's name");
            card.tier = tier;
        }
        cards
    })
}

fn state() -> impl Strategy<Value = NodeState> {
    let undivided = prop::bool::weighted(0.15);
    let oversubscription = (select(vec![101u32, 150, 200, 330]), prop_oneof![0u64..12, 0u64..60])
        .prop_map(|(memory_scale, mib)| Oversubscription { memory_scale, host_memory: Memory::mib(mib) });
    let oversubscription = prop::option::of(oversubscription);
    let host_elsewhere = select(vec![0u64, 0, 0, 5]);
    (cards(), links(), undivided, oversubscription, host_elsewhere).prop_map(
        |(cards, links, undivided, oversubscription, host_elsewhere)| {
            let (cards, held): (_, Vec<Held>) = cards.into_iter().unzip();
            let node = NodeCards { cards, links: Arc::new(links), undivided, oversubscription };
            NodeState { node: Arc::new(node), held: held.into(), host_elsewhere: Memory::mib(host_elsewhere) }
        },
    )
}

fn profile() -> impl Strategy<Value = Option<MigProfile>> + Clone {
    prop::option::weighted(0.3, Just("1g.10gb".parse().expect("a profile")))
}

pub(crate) fn request() -> impl Strategy<Value = GpuRequest> {
    let memory = prop_oneof![
        (1u64..24).prop_map(|mib| MemoryAmount::Absolute(Memory::mib(mib))),
        (10u32..100).prop_map(MemoryAmount::Percent),
    ];
    (1u32..=3, memory, select(vec![0, 0, 30, 60, 100])).prop_map(|(cards, memory, cores)| GpuRequest {
        cards,
        memory,
        cores: Cores::new(cores),
    })
}

fn containers() -> impl Strategy<Value = Vec<ContainerRequest>> {
    let kind = select(vec![
        ContainerKind::Init,
        ContainerKind::Init,
        ContainerKind::Sidecar,
        ContainerKind::App,
        ContainerKind::App,
    ]);
    let requests = prop_oneof![
        prop::collection::vec(prop::option::weighted(0.9, request()), 1..=4),
        (request(), request(), prop::collection::vec(0..3u32, 1..=5)).prop_map(|(one, two, which)| which
            .into_iter()
            .map(|which| Some(if which > 0 { one } else { two }))
            .collect()),
    ];
    let profiles = prop::collection::vec(profile(), 5);
    (requests, prop::collection::vec(kind, 5), profiles).prop_map(|(requests, mut kinds, profiles)| {
        kinds.truncate(requests.len());
        kinds.sort_by_key(|kind| *kind == ContainerKind::App);
        let containers = kinds.into_iter().zip(requests).zip(profiles).enumerate();
        containers
            .map(|(at, ((kind, request), profile))| ContainerRequest {
                name: format!("c{at}"),
                kind,
                profile,
                request,
                counted: Totals::default(),
            })
            .collect()
    })
}

fn links() -> impl Strategy<Value = Links> {
    prop_oneof![
        Just(Links::default()),
        Just(Links::nvswitch(5, 18)),
        Just(Links::quads(5, 2)),
        Just(Links::dgx1()),
        prop::collection::vec(0u32..3, 10)
            .prop_map(|classes| Links::new(5, |a, b| Link::NvLink(classes[(a * 3 + b) % 10]))),
    ]
}

pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    let names = vec![
        PolicyName::Binpack,
        PolicyName::Spread,
        PolicyName::Random,
        PolicyName::LeastFragmentation,
        PolicyName::Topology,
    ];
    (select(names), any::<u64>()).prop_map(|(name, seed)| Policy { name, seed })
}

fn preferences() -> impl Strategy<Value = Preferences> {
    let numa = prop::option::weighted(0.4, select(vec![Numa::Strict, Numa::Prefer]));
    let tier = prop::option::weighted(
        0.3,
        select(vec![Tier::Accounting, Tier::Shim, Tier::Shim, Tier::Mps, Tier::Mig, Tier::Mig]),
    );
    let names = |card: usize| ["GPU", "MIG"].map(|kind| format!("{kind}-{card}").parse().expect("a card's name"));
    let avoid = subsequence((0..5).collect::<Vec<_>>(), 0..2);
    let same_card = prop::bool::weighted(0.2);
    (numa, tier, avoid, any::<bool>(), same_card).prop_map(move |(numa, tier, avoid, oversubscribe, same_card)| {
        Preferences {
            numa,
            tier,
            oversubscribe,
            same_card,
            avoid_cards: avoid.into_iter().flat_map(names).collect(),
            ..Preferences::default()
        }
    })
}

/// Facts that a kubelet could have made, and some that it couldn't.
fn allocated() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop_oneof![
        1 => Just(Vec::new()),
        1 => prop::collection::vec(subsequence((0..6).collect::<Vec<_>>(), 0..=3), 0..=3),
    ]
}

pub(crate) fn scene() -> impl Strategy<Value = Scene> {
    let before = prop::option::weighted(0.3, select(vec![110u32, 400]));
    (state(), containers(), allocated(), preferences(), policies(), before).prop_map(
        |(state, containers, mut allocated, preferences, policy, before)| {
            let cards = state.cards();
            allocated.truncate(containers.len());
            for (held, container) in allocated.iter_mut().zip(&containers) {
                held.retain(|card| {
                    cards.get(*card).is_none_or(|card| card.requested_profile() == container.profile.as_ref())
                });
            }
            let share = |container: &ContainerRequest, card: &usize| {
                let memory = cards.get(*card).map_or(Memory::mib(16), |card| card.memory);
                let sharing = Sharing::Oversubscribed(before?);
                Some((*card, container.request?.share_of(memory, sharing)))
            };
            let shares = allocated
                .iter()
                .zip(&containers)
                .map(|(held, container)| held.iter().filter_map(|card| share(container, card)).collect());
            let shares = if before.is_some() { shares.collect() } else { Vec::new() };
            Scene { state, containers, allocated, shares, preferences, policy }
        },
    )
}

proptest! {
    // Without a file of failures: it would stand in src/, where every folder is a crate.
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plan_survives_every_draw_and_is_found_if_possible(scene in scene()) {
        match scene.plan() {
            Ok(plan) => {
                prop_assert!(survives(&scene.state, &scene.pod(), &chosen(&plan)), "{plan:?}");
                prop_assert_eq!(verify(&scene.state, &scene.pod(), &plan), Ok(()));
                prop_assert_eq!(scene.plan(), Ok(plan), "the same question has the same answer");
            }
            Err(NoPlan::Nothing { reasons, .. }) => {
                prop_assert_eq!(reasons.len(), scene.state.cards().len());
                prop_assert!(!some_plan_survives(&scene.state, &scene.pod()));
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn utilization_never_makes_a_pod_unschedulable(scene in scene()) {
        let cards_as_busy = |percent| {
            let held = scene.state.held.iter().map(|held| Held { busy: percent, ..*held }).collect();
            Scene { state: NodeState { held, ..scene.state.clone() }, ..scene.clone() }
        };
        prop_assert_eq!(scene.plan().is_ok(), cards_as_busy(0).plan().is_ok());
        prop_assert_eq!(cards_as_busy(24).plan(), cards_as_busy(0).plan(), "below the first step nothing changes");
    }

    #[test]
    fn plan_names_every_card_the_kubelet_may_draw(scene in scene()) {
        if let Ok(plan) = scene.plan() {
            scene.check_draws(&plan)?;
        }
    }

    #[test]
    fn any_plan_verifies_exactly_if_it_survives(scene in scene(), at in any::<Index>(), to in 0usize..7, twist in 0..4) {
        let mut plan = scene.plan().unwrap_or_else(|_| Plan { containers: vec![ContainerPlan::default(); scene.containers.len()] });
        let at = at.index(plan.containers.len());
        let cards = &mut plan.containers[at].chosen;
        match twist {
            0 => cards.push(to),
            1 => drop(cards.pop()),
            _ => cards.iter_mut().take(1).for_each(|card| *card = to),
        }
        let verified = verify(&scene.state, &scene.pod(), &plan);
        prop_assert_eq!(verified.is_ok(), survives(&scene.state, &scene.pod(), &chosen(&plan)), "{:?}", verified);
    }

    #[test]
    fn rest_of_a_plan_stays_valid_after_any_draw(scene in scene(), play in any::<Index>(), upto in any::<Index>()) {
        let Ok(plan) = scene.plan() else { return Ok(()) };
        let plays = plays(&scene.pod(), &chosen(&plan)).expect("as many cards as asked for");
        let facts = plays[play.index(plays.len())].got.iter().map(|slots| slots.iter().map(|slot| slot.0).collect());
        let from = scene.allocated.len();
        let allocated: Vec<Vec<usize>> = facts.take(from + upto.index(scene.containers.len() - from + 1)).collect();
        let later = Scene { allocated, ..scene.clone() };
        prop_assert_eq!(verify(&later.state, &later.pod(), &plan), Ok(()));
        let plan = later.plan().expect("the rest of the first plan is one");
        later.check_draws(&plan)?;
    }

    #[test]
    fn out_of_range_positions_never_panic(
        scene in scene(),
        allocated in prop::collection::vec(prop::collection::vec(prop_oneof![0usize..8, Just(usize::MAX)], 0..5), 0..8),
        planned in prop::collection::vec(prop::collection::vec(prop_oneof![0usize..8, Just(usize::MAX)], 0..5), 0..8),
        huge in any::<bool>(),
    ) {
        let mut scene = Scene { allocated, ..scene };
        if huge {
            let all = GpuRequest { cards: u32::MAX, memory: MemoryAmount::Absolute(Memory::mib(u64::MAX)), cores: Cores::new(u32::MAX) };
            scene.containers.iter_mut().for_each(|container| container.request = Some(all));
        }
        scene.containers.reverse();
        let containers = planned.into_iter().map(|chosen| ContainerPlan { reused: chosen.clone(), chosen, drawn: 9 }).collect();
        let plan = Plan { containers };
        let answers = (scene.plan().is_ok(), verify(&scene.state, &scene.pod(), &plan).is_ok());
        let _ = (answers, score(&scene.state, &scene.pod(), &plan, &scene.policy));
    }
}
