//! Whether a container fits on the cards of the slots that the kubelet chose.
//!
//! Placement takes the cards that a container holds for a fact and judges what comes on top. Slots that weren't
//! proposed, or that another pod holds, are no fact yet: the container is placed on them alone, beside everything that
//! runs at the same time.

use std::slice;

use divvy_api::annotation::Preferences;
use divvy_api::{ContainerKind, ContainerRequest};
use divvy_placement::{Card, ContainerPlan, Held, Misfit, Plan, PodRequest, takes_whole, verify};

/// A pod and the cards of its containers, by position; of those that it doesn't hold yet, none.
#[derive(Clone, Copy)]
pub(super) struct Holder<'a> {
    pub(super) requests: &'a [ContainerRequest],
    pub(super) held: &'a [Vec<usize>],
    pub(super) preferences: &'a Preferences,
}

// === impl Holder ===

impl Holder<'_> {
    /// Whether `container` fits on the cards that `held` gives it, beside the other containers and the other pods.
    pub(super) fn fits(&self, container: usize, cards: &[Card]) -> Result<(), Misfit> {
        self.phases().filter(|phase| phase.contains(&container)).try_for_each(|phase| {
            let beside = phase.into_iter().filter(|other| *other != container);
            self.fits_on(container, &self.with(cards, beside))
        })
    }

    fn fits_on(&self, container: usize, cards: &[Card]) -> Result<(), Misfit> {
        let request = ContainerRequest { kind: ContainerKind::App, ..self.requests[container].clone() };
        let request =
            PodRequest { containers: slice::from_ref(&request), allocated: &[], preferences: self.preferences };
        let chosen = ContainerPlan { chosen: self.held[container].clone(), ..ContainerPlan::default() };
        verify(cards, &request, &Plan { containers: vec![chosen] })
    }

    /// Containers that run at the same time: each init container with the sidecars before it, then all others.
    fn phases(&self) -> impl Iterator<Item = Vec<usize>> {
        let kind = |at: usize| self.requests[at].kind;
        let init = (0..self.requests.len()).filter(move |at| kind(*at) == ContainerKind::Init);
        let with_sidecars = move |at: usize| {
            let sidecars = (0..at).filter(|earlier| kind(*earlier) == ContainerKind::Sidecar);
            sidecars.chain([at]).collect()
        };
        let rest = (0..self.requests.len()).filter(move |at| kind(*at) != ContainerKind::Init).collect();
        init.map(with_sidecars).chain([rest])
    }

    /// The cards as they are with these containers of the pod on them.
    fn with(&self, cards: &[Card], containers: impl Iterator<Item = usize>) -> Vec<Card> {
        let (mut cards, whole) = (cards.to_vec(), takes_whole(cards, self.preferences));
        for container in containers {
            let (request, held) = (self.requests[container].request, self.held.get(container).into_iter().flatten());
            for (request, position) in
                request.into_iter().flat_map(|request| held.clone().map(move |at| (request, *at)))
            {
                let Card { memory, held, .. } = &mut cards[position];
                let share = request.share_of(*memory, whole);
                *held = Held {
                    memory: held.memory.saturating_add(share.memory),
                    cores: held.cores.saturating_add(share.cores),
                    exclusive: held.exclusive || share.exclusive,
                    pods: held.pods.saturating_add(1),
                };
            }
        }
        cards
    }
}
