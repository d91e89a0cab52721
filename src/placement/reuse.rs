//! What the kubelet will do for a pod's containers, as far as it can be known before.
//!
//! The kubelet keeps the slots of finished init containers for the pod and feeds every later container from them first:
//! at random if there are more than it wants, and then without asking; all of them, and the rest as proposed, if there
//! are fewer. Slots that a sidecar or an app container got are not lent on. How many slots are in this pool is certain
//! at each step; which of them are left isn't. (`devicesToReuse` in `pkg/kubelet/cm/devicemanager/manager.go`.)

use std::collections::BTreeSet;

use divvy_contract::pod::ContainerKind;
use divvy_contract::{Claim, ContainerClaim};

use crate::plan::PodRequest;

/// A pod's containers from here on.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    /// Containers with a claim that aren't settled, in order.
    pub(crate) steps: Vec<Step>,
    /// Cards whose slots settled init containers have left in the pool.
    pub(crate) lent: BTreeSet<usize>,
}

/// How the kubelet will serve one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Position in the request.
    pub(crate) container: usize,
    pub(crate) kind: ContainerKind,
    pub(crate) claim: Claim,
    /// Cards that we choose.
    pub(crate) chosen: usize,
    /// Cards that come from the pool.
    pub(crate) drawn: usize,
    /// Nothing stays behind in the pool.
    pub(crate) drains: bool,
    /// What may be in the pool now: slots that steps from this one on have lent, …
    pub(crate) pooled_from: usize,
    /// … and those of settled containers.
    pub(crate) pooled_settled: bool,
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new(pod: &PodRequest<'_>) -> Self {
        let lent = lent(pod);
        let mut pool = lent.len();
        let (mut pooled_from, mut pooled_settled) = (0, true);
        let mut steps = Vec::new();
        for (container, ContainerClaim { kind, claim, .. }) in pod.containers.iter().enumerate().skip(pod.settled.len())
        {
            let Some(claim) = claim.filter(|claim| claim.cards > 0) else { continue };
            let wanted = claim.cards as usize;
            let drawn = wanted.min(pool);
            let drains = drawn == pool;
            steps.push(Step {
                container,
                kind: *kind,
                claim,
                chosen: wanted - drawn,
                drawn,
                drains,
                pooled_from,
                pooled_settled,
            });
            if *kind == ContainerKind::Init {
                pool = pool.max(wanted);
            } else {
                pool -= drawn;
                if drains {
                    (pooled_from, pooled_settled) = (steps.len(), false);
                }
            }
        }
        Self { steps, lent }
    }
}

/// Claims and cards of the settled containers.
pub(crate) fn settled<'a>(
    pod: &PodRequest<'a>,
) -> impl Iterator<Item = (ContainerKind, Claim, BTreeSet<usize>)> + use<'a> {
    let containers = pod.containers.iter().zip(pod.settled);
    containers
        .filter_map(|(container, cards)| Some((container.kind, container.claim?, cards.iter().copied().collect())))
}

fn lent(pod: &PodRequest<'_>) -> BTreeSet<usize> {
    let mut lent = BTreeSet::new();
    for (kind, _, cards) in settled(pod) {
        if kind == ContainerKind::Init {
            lent.extend(cards);
        } else {
            lent.retain(|card| !cards.contains(card));
        }
    }
    lent
}

#[cfg(test)]
mod tests {
    use divvy_contract::pod::ContainerKind::{App, Init, Sidecar};

    use super::*;
    use crate::tests::build::{container, no_wishes, request};

    fn steps(settled: &[Vec<usize>], kinds: &[(ContainerKind, u32)]) -> Vec<(usize, usize, bool)> {
        let containers: Vec<_> = kinds.iter().map(|(kind, cards)| container(*kind, *cards, 1024, 0)).collect();
        let admission = Admission::new(&request(&containers, settled, no_wishes()));
        admission.steps.iter().map(|step| (step.chosen, step.drawn, step.drains)).collect()
    }

    #[test]
    fn later_containers_are_fed_from_init_containers_slots() {
        assert_eq!(
            steps(&[], &[(Init, 2), (Init, 1), (App, 1), (App, 3)]),
            [(2, 0, true), (0, 1, false), (0, 1, false), (2, 1, true)]
        );
        assert_eq!(
            steps(&[], &[(Init, 1), (Init, 3), (Sidecar, 2), (App, 1), (App, 1)]),
            [(1, 0, true), (2, 1, true), (0, 2, false), (0, 1, true), (1, 0, true)]
        );
        assert_eq!(steps(&[], &[(Sidecar, 2), (App, 1)]), [(2, 0, true), (1, 0, true)], "sidecars don't lend");
        assert_eq!(steps(&[vec![0, 1], vec![1]], &[(Init, 2), (App, 1), (App, 1)]), [(0, 1, true)]);
    }
}
