//! Whether a container fits on the cards of the slots that the kubelet chose.
//!
//! Placement takes the cards that a container holds for a fact and judges what comes on top. Slots that weren't
//! proposed, or that another pod holds, are no fact yet: the container is placed on them alone, beside everything that
//! runs at the same time.

use std::slice;

use divvy_api::annotation::Preferences;
use divvy_api::pod::peak;
use divvy_api::{ContainerKind, ContainerRequest, Memory, Share};
use divvy_placement::{Card, ContainerPlan, Misfit, Plan, PodRequest, Reason, host_memory_left, sharing, verify};

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
        })?;
        self.has_host_memory(container, cards)
    }

    /// Whether the node has the host memory that is booked for the pod: containers that run one after another share what is
    /// booked on one card, not on two.
    fn has_host_memory(&self, container: usize, cards: &[Card]) -> Result<(), Misfit> {
        let sharing = sharing(cards, self.preferences);
        let share_of = |at: usize, card: usize| {
            let request =
                self.requests[at].request.filter(|_| self.held.get(at).is_some_and(|held| held.contains(&card)));
            request.map_or_else(Share::default, |request| request.share_of(cards[card].memory, sharing))
        };
        let containers = || self.requests.iter().map(|request| request.kind).enumerate();
        let peak_on = |card| peak(containers().map(|(at, kind)| (kind, share_of(at, card)))).host;
        let wanted: Memory = (0..cards.len()).map(peak_on).sum();
        let free = host_memory_left(cards);
        let needs_some = self.held[container].iter().any(|card| !share_of(container, *card).host.is_zero());
        if needs_some && wanted > free {
            return Err(Misfit::Node { reason: Reason::HostMemory { wanted, free } });
        }
        Ok(())
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
        let (mut cards, sharing) = (cards.to_vec(), sharing(cards, self.preferences));
        for container in containers {
            let (request, held) = (self.requests[container].request, self.held.get(container).into_iter().flatten());
            for (request, position) in
                request.into_iter().flat_map(|request| held.clone().map(move |at| (request, *at)))
            {
                let Card { memory, held, .. } = &mut cards[position];
                *held = held.with(&request.share_of(*memory, sharing));
            }
        }
        cards
    }
}
