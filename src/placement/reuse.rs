//! The kubelet's reuse of init containers' slots, as far as it can be known before admission.
//!
//! The kubelet keeps the slots of finished init containers for the pod and feeds every later container from them first:
//! at random if there are more than it wants, and then without asking; all of them, and the rest as proposed, if there
//! are fewer. Slots that a sidecar or an app container got are not lent on. Each resource has a pool of its own. How many
//! slots are in a pool is certain at each step; which of them are left isn't. (`devicesToReuse` in `pkg/kubelet/cm/devicemanager/manager.go`.)

use std::collections::BTreeSet;

use divvy_api::pod::ContainerKind;
use divvy_api::{ContainerRequest, GpuRequest, MigProfile};

use crate::pod::PodRequest;

/// A pod's containers from here on.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    /// Containers with a request that hold no cards yet, in order.
    pub(crate) steps: Vec<Step>,
    /// For each pool the cards whose slots init containers with an allocation have left in it.
    pub(crate) lent: Vec<BTreeSet<usize>>,
}

/// Slots of one resource that finished init containers have left.
struct Pool<'a> {
    profile: Option<&'a MigProfile>,
    lent: BTreeSet<usize>,
    size: usize,
    pooled_from: usize,
    pooled_allocated: bool,
}

/// How the kubelet will serve one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Position in the request.
    pub(crate) container: usize,
    pub(crate) kind: ContainerKind,
    pub(crate) request: GpuRequest,
    /// Which pool it is fed from.
    pub(crate) pool: usize,
    /// Cards that we choose.
    pub(crate) chosen: usize,
    /// Cards that come from the pool.
    pub(crate) drawn: usize,
    /// Nothing stays behind in the pool.
    pub(crate) drains: bool,
    /// The first step whose lent slots may be in the pool now.
    pub(crate) pooled_from: usize,
    /// Whether slots of containers with an allocation may be in the pool now.
    pub(crate) pooled_allocated: bool,
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new(pod: &PodRequest<'_>) -> Self {
        let mut pools = pools(pod);
        let mut steps = Vec::new();
        for (container, ContainerRequest { kind, profile, request, .. }) in
            pod.containers.iter().enumerate().skip(pod.allocated.len())
        {
            let Some(request) = request.filter(|request| request.cards > 0) else { continue };
            let wanted = request.cards as usize;
            let at = pool_of(&mut pools, profile.as_ref());
            let pool = &mut pools[at];
            let drawn = wanted.min(pool.size);
            let drains = drawn == pool.size;
            steps.push(Step {
                container,
                kind: *kind,
                request,
                pool: at,
                chosen: wanted - drawn,
                drawn,
                drains,
                pooled_from: pool.pooled_from,
                pooled_allocated: pool.pooled_allocated,
            });
            if *kind == ContainerKind::Init {
                pool.size = pool.size.max(wanted);
            } else {
                pool.size -= drawn;
                if drains {
                    (pool.pooled_from, pool.pooled_allocated) = (steps.len(), false);
                }
            }
        }
        Self { steps, lent: pools.into_iter().map(|pool| pool.lent).collect() }
    }
}

/// Positions of containers that hold cards already, with their requests and cards.
pub(crate) fn allocated<'a>(
    pod: &PodRequest<'a>,
) -> impl Iterator<Item = (usize, GpuRequest, BTreeSet<usize>)> + use<'a> {
    let containers = pod.containers.iter().zip(pod.allocated).enumerate();
    containers.filter_map(|(at, (container, cards))| Some((at, container.request?, cards.iter().copied().collect())))
}

/// Pools as the containers with an allocation have left them.
fn pools<'a>(pod: &PodRequest<'a>) -> Vec<Pool<'a>> {
    let mut pools = Vec::new();
    for (at, _, cards) in allocated(pod) {
        let container = &pod.containers[at];
        let at = pool_of(&mut pools, container.profile.as_ref());
        let lent = &mut pools[at].lent;
        if container.kind == ContainerKind::Init {
            lent.extend(cards);
        } else {
            lent.retain(|card| !cards.contains(card));
        }
        pools[at].size = pools[at].lent.len();
    }
    pools
}

fn pool_of<'a>(pools: &mut Vec<Pool<'a>>, profile: Option<&'a MigProfile>) -> usize {
    pools.iter().position(|pool| pool.profile == profile).unwrap_or_else(|| {
        pools.push(Pool { profile, lent: BTreeSet::new(), size: 0, pooled_from: 0, pooled_allocated: true });
        pools.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use divvy_api::pod::ContainerKind::{App, Init, Sidecar};

    use super::*;
    use crate::tests::build::{container, no_wishes, pod_request};

    fn steps(allocated: &[Vec<usize>], kinds: &[(ContainerKind, u32)]) -> Vec<(usize, usize, bool)> {
        let containers: Vec<_> = kinds.iter().map(|(kind, cards)| container(*kind, *cards, 1024, 0)).collect();
        let admission = Admission::new(&pod_request(&containers, allocated, no_wishes()));
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

    #[test]
    fn slots_of_one_resource_feed_no_other() {
        let of = |profile: Option<&str>, kind| ContainerRequest {
            profile: profile.map(|profile| profile.parse().expect("a profile")),
            ..container(kind, 1, 1024, 0)
        };
        let containers = [of(None, Init), of(Some("1g.10gb"), App), of(None, App)];
        let admission = Admission::new(&pod_request(&containers, &[], no_wishes()));
        let steps: Vec<_> = admission.steps.iter().map(|step| (step.chosen, step.drawn)).collect();
        assert_eq!(steps, [(1, 0), (1, 0), (0, 1)]);
    }
}
