//! Allocatable memory and compute of a node's GPUs, which scheduler and kubelet count.

use divvy_api::ResourceNames;
use divvy_api::gpunode::Oversubscription;
use divvy_api::pod::{PodSum as _, peak};
use divvy_api::request::Totals;
use divvy_api::{Card, Memory, NodeCards};

use crate::ledger::Allocations;

/// Allocatable amounts of all GPUs of the node, by resource: the sum of what is allocated in each form and what is free on
/// healthy GPUs. Less is offered where that sum would let a pod pass that needs what one of `refused` needs.
///
/// A share in one form reduces what is free, and so what is allocatable in the other forms: they can't add up to more
/// than the GPU. Of a GPU with oversubscribed memory as much is free as such pods can still request. Allocated amounts are
/// always included, also those of unhealthy GPUs: a kubelet that restarts admits its running pods against these amounts
/// again.
pub fn allocatable<'n>(
    allocations: &Allocations,
    node: &NodeCards,
    refused: &[Totals],
    names: &'n ResourceNames,
) -> [(&'n str, u64); 3] {
    let held = allocations.pods().map(|entry| {
        peak(entry.containers.iter().map(|container| (container.request.kind, container.request.counted)))
    });
    let healthy = node.cards.iter().filter(|card| card.is_healthy());
    let mut oversubscribed = node.oversubscription.map(|of| Oversubscribed::new(allocations, of));
    let free = healthy.map(|card| match &mut oversubscribed {
        Some(oversubscribed) if !allocations.held(&card.id, None).host.is_zero() => {
            oversubscribed.free(allocations, card)
        }
        _ => free(allocations, card),
    });
    let offered = offered(&free.collect::<Vec<_>>(), refused);
    let amounts = held.fold(offered, Totals::plus);
    [
        (names.memory.as_str(), amounts.memory),
        (names.memory_percentage.as_str(), amounts.percent),
        (names.cores.as_str(), amounts.cores),
    ]
}

/// Amounts still free on a GPU, rounded down in each form.
pub fn free(allocations: &Allocations, card: &Card) -> Totals {
    let held = allocations.held(&card.id, None);
    if held.exclusive {
        return Totals::default();
    }
    let memory = card.memory_capacity().saturating_sub(held.memory);
    let cores = card.cores_capacity().saturating_sub(held.cores);
    let percent = percent_of(memory, card.memory);
    Totals { memory: memory.as_mib(), percent, cores: cores.units().into(), count: 0 }
}

/// Forms of an amount; of several that do as well the last one is reduced.
const FORMS: [fn(&mut Totals) -> &mut u64; 3] =
    [|totals| &mut totals.memory, |totals| &mut totals.cores, |totals| &mut totals.percent];

/// The sum of what is `free` of each GPU, with as little taken off as keeps pods with the amounts of `refused` away, for which no
/// GPU has room: a scheduler that counts sums would bind each pod that a controller creates in place of a refused one.
///
/// Less is offered only in a form in which such a pod requests more than any GPU has free, so whatever fits on one GPU passes on;
/// without such a form nothing is taken off. A pod with several GPUs may fit and be kept away.
fn offered(free: &[Totals], refused: &[Totals]) -> Totals {
    let most = free.iter().copied().fold(Totals::default(), Totals::max);
    let mut offered = free.iter().copied().fold(Totals::default(), Totals::plus);
    for wanted in refused.iter().copied() {
        if FORMS.iter().any(|form| *form(&mut { wanted }) > *form(&mut { offered })) {
            continue;
        }
        let lacking = FORMS.into_iter().filter(|form| *form(&mut { wanted }) > *form(&mut { most }));
        let kept = |form: &fn(&mut Totals) -> &mut u64| {
            u128::from(*form(&mut { wanted })) * 1000 / u128::from(*form(&mut { offered }))
        };
        if let Some(form) = lacking.max_by_key(kept) {
            *form(&mut offered) = *form(&mut { wanted }) - 1;
        }
    }
    offered
}

/// Memory that pods can still be allocated beyond what is free of the GPUs.
struct Oversubscribed {
    /// In percent.
    memory_scale: u32,
    host_memory_left: Memory,
}

// === impl Oversubscribed ===

impl Oversubscribed {
    fn new(allocations: &Allocations, oversubscription: Oversubscription) -> Self {
        let Oversubscription { memory_scale, host_memory } = oversubscription;
        Self { memory_scale, host_memory_left: host_memory.saturating_sub(allocations.host_memory(|_| true)) }
    }

    /// Amounts of a GPU with oversubscribed memory; the host memory for that is left to no other.
    fn free(&mut self, allocations: &Allocations, card: &Card) -> Totals {
        let free = free(allocations, card);
        let memory = Memory::mib(free.memory);
        let beyond = memory.percent(self.memory_scale).saturating_sub(memory).min(self.host_memory_left);
        self.host_memory_left = self.host_memory_left.saturating_sub(beyond);
        let memory = memory.saturating_add(beyond);
        Totals { memory: memory.as_mib(), percent: percent_of(memory, card.memory), ..free }
    }
}

/// The largest percentage of `whole` that `part` can give.
fn percent_of(part: Memory, whole: Memory) -> u64 {
    part.as_mib().saturating_mul(100).checked_div(whole.as_mib()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn totals((memory, percent, cores): (u64, u64, u64)) -> Totals {
        Totals { count: 1, memory, percent, cores }
    }

    fn is_within(wanted: Totals, limit: Totals) -> bool {
        let Totals { memory, percent, cores, .. } = limit;
        wanted.memory <= memory && wanted.percent <= percent && wanted.cores <= cores
    }

    #[test]
    fn refused_pod_is_kept_away_by_what_every_gpu_lacks() {
        let free = [totals((10_000, 25, 70)); 8];
        let shown = |refused: &[(u64, u64, u64)]| {
            let Totals { memory, percent, cores, .. } =
                offered(&free, &refused.iter().copied().map(totals).collect::<Vec<_>>());
            (memory, percent, cores)
        };
        assert_eq!(shown(&[]), (80_000, 200, 560));
        assert_eq!(shown(&[(30_000, 0, 0)]), (29_999, 200, 560));
        assert_eq!(shown(&[(0, 100, 100)]), (80_000, 99, 560), "a whole GPU");
        assert_eq!(shown(&[(0, 200, 200)]), (80_000, 199, 560), "two whole GPUs");
        assert_eq!(shown(&[(8_000, 0, 80)]), (80_000, 200, 79), "there is memory for it");
        assert_eq!(shown(&[(30_000, 0, 80)]), (29_999, 200, 560), "more of the memory stays than of the compute");
        assert_eq!(shown(&[(30_000, 0, 0), (40_000, 0, 0), (0, 50, 50)]), (29_999, 49, 560));
        assert_eq!(shown(&[(90_000, 0, 0)]), (80_000, 200, 560), "kept away as it is");
        assert_eq!(shown(&[(0, 20, 0)]), (80_000, 200, 560), "of two GPUs, where a pod of one may request as much");
        assert_eq!(shown(&[(0, 0, 0)]), (80_000, 200, 560), "no amounts, as without the webhook");
    }

    proptest! {
        /// A refused pod that lacks something on every GPU never passes the sums, and what fits on one GPU always does.
        #[test]
        fn refused_pods_are_kept_away_and_others_are_not(
            free in prop::collection::vec((0..50_000u64, 0..=100u64, 0..=100u64).prop_map(totals), 1..6),
            refused in prop::collection::vec((0..50_000u64, 0..=100u64, 0..=100u64).prop_map(totals), 0..5),
            (gpu, part) in (any::<prop::sample::Index>(), 0..=100u64),
        ) {
            let refused: Vec<Totals> = refused.into_iter().filter(|pod| !free.iter().any(|gpu| is_within(*pod, *gpu))).collect();
            let offered = offered(&free, &refused);
            let most = free.iter().copied().fold(Totals::default(), Totals::max);
            let mut lacking = refused.iter().filter(|pod| !is_within(**pod, most));
            prop_assert!(lacking.all(|pod| !is_within(*pod, offered)), "{offered:?}");
            let gpu = free[gpu.index(free.len())];
            let fits = totals((gpu.memory * part / 100, gpu.percent * part / 100, gpu.cores * part / 100));
            prop_assert!(is_within(fits, offered), "{fits:?} in {offered:?}");
        }
    }
}
