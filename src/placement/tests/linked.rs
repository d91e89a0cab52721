//! How well the cards of a request are linked, against all sets that it could have.

use std::collections::BTreeSet;

use divvy_api::annotation::PolicyName;
use divvy_api::pod::ContainerKind::App;
use divvy_api::{ContainerRequest, GpuRequest, Link, Links};
use proptest::prelude::*;
use proptest::sample::select;

use super::build::{cards, container, held, linked, no_wishes, node, pod_request};
use super::oracle::subsets;
use crate::{ContainerPlan, NodeScore, NodeState, Plan, Policy, plan, score};

fn by(name: PolicyName) -> Policy {
    Policy { name, ..Policy::default() }
}

/// A node, and how many of its cards a pod wants alone.
#[derive(Clone, Debug)]
struct Scene {
    state: NodeState,
    wanted: u32,
}

impl Scene {
    fn new(links: Links, free: &[bool], wanted: u32) -> Self {
        let mut state = linked(node(cards(free.len())), links);
        for (of_card, _) in state.held.iter_mut().zip(free).filter(|(_, free)| !**free) {
            *of_card = held(1, 1);
        }
        Self { state, wanted }
    }

    /// The worst link of a set.
    fn bottleneck(&self, set: &[usize]) -> Option<Link> {
        self.state.node.links.bottleneck(set)
    }

    fn pod(&self) -> [ContainerRequest; 1] {
        [ContainerRequest { request: Some(GpuRequest::whole(self.wanted)), ..container(App, 1, 1, 0) }]
    }

    fn chosen(&self, policy: &Policy) -> Option<Vec<usize>> {
        let pod = self.pod();
        let plan = plan(&self.state, &pod_request(&pod, &[], no_wishes()), policy).ok()?;
        plan.containers.into_iter().map(|container| container.chosen).next()
    }

    /// All sets that would do.
    fn sets(&self) -> impl Iterator<Item = Vec<usize>> {
        let free: BTreeSet<usize> = (0..self.state.held.len()).filter(|at| self.state.held[*at].pods == 0).collect();
        subsets(&free, self.wanted as usize).into_iter().map(|set| set.into_iter().collect())
    }

    fn worth(&self, set: Vec<usize>, policy: &Policy) -> NodeScore {
        let plan = Plan { containers: vec![ContainerPlan { chosen: set, ..ContainerPlan::default() }] };
        score(&self.state, &pod_request(&self.pod(), &[], no_wishes()), &plan, policy)
    }
}

fn known() -> Vec<Links> {
    vec![
        Links::nvswitch(8, 18),
        Links::dgx1(),
        Links::quads(8, 4),
        Links::pcie(8),
        Links::quads(16, 2),
        Links::pcie(16),
    ]
}

fn random() -> impl Strategy<Value = Links> {
    (2usize..=9, prop::collection::vec(0u32..6, 36)).prop_map(|(cards, classes)| {
        let mut classes = classes.into_iter();
        let class = |class| match class {
            0 => Link::System,
            1 => Link::HostBridge,
            2 => Link::SingleSwitch,
            links => Link::NvLink(links),
        };
        Links::new(cards, |_, _| classes.next().map_or(Link::System, class))
    })
}

fn scenes() -> impl Strategy<Value = Scene> {
    let links = prop_oneof![random(), select(known())];
    (links, prop::collection::vec(any::<bool>(), 16), select(vec![2, 3, 4, 8]))
        .prop_map(|(links, free, wanted)| Scene::new(links.clone(), &free[..links.cards()], wanted))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chosen_set_has_the_best_worst_link(scene in scenes()) {
        for policy in [PolicyName::Topology, PolicyName::LeastFragmentation, PolicyName::Binpack].map(by) {
            let best = scene.sets().map(|set| scene.bottleneck(&set)).max();
            prop_assert_eq!(scene.chosen(&policy).map(|set| scene.bottleneck(&set)), best, "{:?}", policy);
        }
    }
}

#[test]
fn chosen_set_of_eight_linked_cards_is_the_best() {
    for links in known().into_iter().filter(|links| links.cards() == 8) {
        for (free, wanted) in (0..256).flat_map(|free: u32| [1, 2, 3, 4, 8].map(|wanted| (free, wanted))) {
            let free: Vec<bool> = (0..8).map(|card| free >> card & 1 == 1).collect();
            let scene = Scene::new(links.clone(), &free, wanted);
            let topology = by(PolicyName::Topology);
            let best = scene.sets().map(|set| scene.worth(set, &topology)).max();
            assert_eq!(scene.chosen(&topology).map(|set| scene.worth(set, &topology)), best, "{scene:?}");
        }
    }
}

#[test]
fn containers_don_t_count_on_the_same_cards() {
    let free: Vec<bool> = (0..16).map(|card| card != 13).collect();
    let scene = Scene::new(Links::quads(16, 2), &free, 2);
    let [pair] = scene.pod();
    let pods = [pair.clone(), pair.clone(), pair];
    let plan = plan(&scene.state, &pod_request(&pods, &[], no_wishes()), &by(PolicyName::Topology)).unwrap();
    let mut links = plan.containers.iter().map(|container| scene.bottleneck(&container.chosen));
    assert!(links.all(|link| link == Some(Link::NvLink(2))), "{plan:?}");
}

#[test]
fn a_set_of_many_is_compact_where_its_worst_link_is_bad_anyway() {
    let free = [true, true, true, false, true, true, false, false];
    let scene = Scene::new(Links::quads(8, 4), &free, 4);
    let chosen = scene.chosen(&by(PolicyName::Topology)).unwrap();
    assert!(chosen.starts_with(&[0, 1, 2]), "{chosen:?}: three on one quad rather than two on each");
}

#[test]
fn one_card_is_that_with_the_least_to_lose() {
    let but_the_first: Vec<bool> = (0..8).map(|card| card != 0).collect();
    for policy in [PolicyName::Topology, PolicyName::LeastFragmentation].map(by) {
        let chosen = Scene::new(Links::dgx1(), &but_the_first, 1).chosen(&policy).unwrap();
        assert!(chosen[0] < 4, "{chosen:?}: their quad is broken already");
        let mut full = Scene::new(Links::pcie(8), &but_the_first, 1);
        full.state.held[0] = held(80 << 10, 100);
        let share = [container(App, 1, 1 << 10, 10)];
        let plan = plan(&full.state, &pod_request(&share, &[], no_wishes()), &policy).unwrap();
        assert_eq!(plan.containers[0].chosen, [1], "a share opens the mate of the card that is full");
    }
}
