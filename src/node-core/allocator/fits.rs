//! Whether a container fits on the cards of the slots that the kubelet chose.
//!
//! Placement takes the cards that a container holds for a fact and judges what comes on top. Slots that weren't
//! proposed, or that another pod holds, are no fact yet: the container is placed on them alone, beside everything that
//! runs at the same time.

use std::slice;

use divvy_api::annotation::Preferences;
use divvy_api::pod::peak;
use divvy_api::{ContainerKind, ContainerRequest, Memory, Share};
use divvy_placement::{ContainerPlan, Misfit, NodeState, Plan, PodRequest, Reason, verify};

use super::admission::Allocated;

/// A pod and what its containers hold; those that have yet to come hold nothing.
#[derive(Clone, Copy)]
pub(super) struct Holder<'a> {
    pub(super) requests: &'a [ContainerRequest],
    pub(super) held: &'a Allocated,
    pub(super) preferences: &'a Preferences,
}

// === impl Holder ===

impl Holder<'_> {
    /// Whether `container` fits on the cards that `held` gives it, beside the other containers and the other pods.
    pub(super) fn fits(&self, container: usize, state: &NodeState) -> Result<(), Misfit> {
        self.phases().filter(|phase| phase.contains(&container)).try_for_each(|phase| {
            let beside = phase.into_iter().filter(|other| *other != container);
            self.fits_on(container, &self.with(state, beside))
        })?;
        self.has_host_memory(container, state)
    }

    /// Whether the node has the host memory that is booked for the pod: containers that run one after another share what is
    /// booked on one card, not on two.
    fn has_host_memory(&self, container: usize, state: &NodeState) -> Result<(), Misfit> {
        if self.shares(container).all(|(_, share)| share.host.is_zero()) {
            return Ok(());
        }
        let steps =
            |card| self.requests.iter().enumerate().map(move |(at, request)| (request.kind, self.share(at, card)));
        let wanted: Memory = (0..state.held.len()).map(|card| peak(steps(card)).host).sum();
        let free = state.host_memory_left();
        if wanted > free { Err(Misfit::Node { reason: Reason::HostMemory { wanted, free } }) } else { Ok(()) }
    }

    /// Share that a container holds of a card; nothing if it holds none.
    fn share(&self, container: usize, card: usize) -> Share {
        self.shares(container).find(|(held, _)| *held == card).map(|(_, share)| share).unwrap_or_default()
    }

    fn shares(&self, container: usize) -> impl Iterator<Item = (usize, Share)> {
        self.held.shares.get(container).into_iter().flatten().copied()
    }

    fn fits_on(&self, container: usize, state: &NodeState) -> Result<(), Misfit> {
        let request = ContainerRequest { kind: ContainerKind::App, ..self.requests[container].clone() };
        let containers = slice::from_ref(&request);
        let shares = slice::from_ref(&self.held.shares[container]);
        let request = PodRequest { containers, allocated: &[], shares, preferences: self.preferences };
        let chosen = ContainerPlan { chosen: self.held.cards[container].clone(), ..ContainerPlan::default() };
        verify(state, &request, &Plan { containers: vec![chosen] })
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

    /// The state with these containers of the pod on the cards.
    fn with(&self, state: &NodeState, containers: impl Iterator<Item = usize>) -> NodeState {
        let mut state = state.clone();
        for (position, share) in containers.flat_map(|container| self.shares(container)) {
            let held = &mut state.held[position];
            *held = held.with(&share);
        }
        state
    }
}
