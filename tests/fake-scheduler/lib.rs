//! Two small schedulers. Here, the nodes' own placement code over what is seen of the nodes, now and then of a while ago:
//! it knows more than any scheduler in a cluster. In [`live`], what kube-scheduler does with an extender.

use std::collections::VecDeque;

use divvy_api::annotation::{Planned, PlannedCards, Preferences};
use divvy_api::pod::peak;
use divvy_api::{ContainerRequest, Share};
use divvy_placement::{ContainerPlan, NodeScore, NodeState, Plan, PodRequest, Policy, Taken, plan, score};

mod amounts;
pub mod extender;
mod known;
pub mod live;
mod queue;
mod selection;

/// How many pods ago a stale view was taken.
const STALE: usize = 20;

/// A node as the scheduler knows it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Name of the node.
    pub name: String,
    /// Cards of the node with what is held of them.
    pub state: NodeState,
}

/// A node for a pod.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Position of the node.
    pub node: usize,
    /// Cards of every container, as the extender's Binding would name them.
    pub planned: Planned,
    plan: Plan,
}

/// What was seen of all nodes, the latest last.
#[derive(Debug, Default)]
pub struct Past {
    views: VecDeque<Vec<Scene>>,
}

/// The best node for a pod; or why the first of them can't take it.
pub fn choose(
    scenes: &[Scene],
    requests: &[ContainerRequest],
    preferences: &Preferences,
    seed: u64,
) -> Result<Choice, String> {
    let pod = PodRequest { containers: requests, allocated: &[], shares: &[], preferences };
    let policy = |name: Option<_>| Policy { name: name.unwrap_or_default(), seed };
    let (cards, nodes) = (policy(preferences.card_policy), policy(preferences.node_policy));
    let mut best: Option<(NodeScore, usize, Plan)> = None;
    let mut refusal = None;
    for (node, scene) in scenes.iter().enumerate() {
        match plan(&scene.state, &pod, &cards) {
            Ok(plan) => {
                let score = score(&scene.state, &pod, &plan, &nodes);
                if best.as_ref().is_none_or(|(better, ..)| score > *better) {
                    best = Some((score, node, plan));
                }
            }
            Err(reason) => {
                refusal.get_or_insert_with(|| format!("{}: {reason}", scene.name));
            }
        }
    }
    let nowhere = || format!("0 of {} nodes fit, {}", scenes.len(), refusal.unwrap_or_default());
    let (_, node, plan) = best.ok_or_else(nowhere)?;
    Ok(Choice { node, planned: written_out(&scenes[node], requests, &plan), plan })
}

fn written_out(scene: &Scene, requests: &[ContainerRequest], plan: &Plan) -> Planned {
    let ids = |positions: &[usize]| positions.iter().map(|at| scene.state.cards()[*at].id.clone()).collect();
    let cards = |plan: &ContainerPlan| PlannedCards { chosen: ids(&plan.chosen), reused: ids(&plan.reused) };
    let containers = requests.iter().zip(&plan.containers).filter(|(container, _)| container.request.is_some());
    let containers = containers.map(|(container, plan)| (container.name.clone(), cards(plan))).collect();
    Planned { node: scene.name.clone(), containers, ..Planned::default() }
}

// === impl Choice ===

impl Choice {
    /// Books the plan in the view that it was made from, so that the next pod is chosen beside it.
    pub fn reserve(&self, scenes: &mut [Scene], requests: &[ContainerRequest]) {
        let state = &mut scenes[self.node].state;
        for card in 0..state.cards().len() {
            let memory = state.cards()[card].memory;
            let containers = requests.iter().zip(&self.plan.containers).map(|(container, plan)| {
                let holds = plan.chosen.contains(&card) || plan.reused.contains(&card);
                let share = container.request.filter(|_| holds).map(|request| request.share_on(memory));
                (container.kind, share.unwrap_or_default())
            });
            let share = peak(containers);
            if share != Share::default() {
                state.hold([Taken { card, share, slots: 1 }]);
            }
        }
    }
}

// === impl Past ===

impl Past {
    /// Remembers a view.
    pub fn remember(&mut self, scenes: &[Scene]) {
        self.views.push_back(scenes.to_vec());
        if self.views.len() > STALE {
            self.views.pop_front();
        }
    }

    /// The oldest view remembered.
    pub fn stale(&self) -> Option<&Vec<Scene>> {
        self.views.front()
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::{Card, ContainerKind, Cores, GpuRequest, Memory, MemoryAmount, NodeCards};

    use super::*;

    fn scene(name: &str) -> Scene {
        let card = |number: u32| {
            let id = format!("GPU-{name}-{number}").parse().expect("a UUID");
            Card { model: "H100".into(), slots: 32, ..Card::healthy(id, Memory::mib(80 << 10)) }
        };
        let node = NodeCards { cards: vec![card(0), card(1)], ..NodeCards::default() };
        Scene { name: name.to_owned(), state: NodeState::empty(node.into()) }
    }

    fn requests(cards: u32, cores: u32) -> Vec<ContainerRequest> {
        let request = GpuRequest { cards, memory: MemoryAmount::Percent(cores), cores: Cores::new(cores) };
        vec![ContainerRequest {
            name: "main".into(),
            kind: ContainerKind::App,
            request: Some(request),
            profile: None,
            counted: request.totals(),
        }]
    }

    #[test]
    fn reserved_plans_push_the_next_pod_aside_until_nothing_fits() {
        let mut scenes = vec![scene("a"), scene("b")];
        let mut nodes = Vec::new();
        let refusal = loop {
            match choose(&scenes, &requests(2, 60), &Preferences::default(), 1) {
                Ok(choice) => {
                    choice.reserve(&mut scenes, &requests(2, 60));
                    assert_eq!(choice.planned.node, scenes[choice.node].name);
                    assert_eq!(choice.planned.containers["main"].chosen.len(), 2);
                    nodes.push(choice.node);
                }
                Err(refusal) => break refusal,
            }
        };
        nodes.sort_unstable();
        assert_eq!(nodes, [0, 1]);
        assert!(refusal.starts_with("0 of 2 nodes fit, a: container \"main\" requests 2 GPUs"), "{refusal}");
    }

    #[test]
    fn a_stale_view_is_an_old_one() {
        let mut memory = Past::default();
        assert!(memory.stale().is_none());
        for number in 0..50 {
            memory.remember(&[scene(&format!("n{number}"))]);
        }
        assert_eq!(memory.stale().expect("remembered")[0].name, "n30");
    }
}
