//! The scheduler's own scores. All arithmetic is in whole numbers where the scheduler's is.

use std::sync::Arc;

use divvy_simulate::cluster::Host;
use divvy_simulate::workload::{Kind, Machine, Workload};

/// `NodeResourcesFit` with `LeastAllocated`, and `NodeResourcesBalancedAllocation`: over CPU and host memory, of equal
/// weight.
#[derive(Clone, Debug)]
pub(super) struct InTree {
    machines: Arc<[Machine]>,
}

/// `MaxNodeScore`.
const BEST: i64 = 100;

// === impl InTree ===

impl InTree {
    /// On these machines.
    pub(super) fn new(workload: &Workload) -> Self {
        Self { machines: workload.machines.as_slice().into() }
    }

    /// Both scores together.
    pub(super) fn of(&self, host: &Host, kind: &Kind) -> i64 {
        let machine = &self.machines[host.machine];
        let with_pod = (host.cpu.saturating_sub(kind.cpu), host.memory.saturating_sub(kind.memory));
        let without = (host.cpu, host.memory);
        // Of a pod without any request the scheduler takes no look at the balance, and assumes a small one for the other.
        let is_best_effort = kind.cpu == 0 && kind.memory == 0;
        let balance = || BEST / 2 + (BEST / 2 + balanced(with_pod, machine) - balanced(without, machine)) / 2;
        least_allocated(with_pod, machine) + if is_best_effort { 0 } else { balance() }
    }
}

/// The mean of what is left of CPU and memory, each in whole percents.
fn least_allocated((cpu, memory): (u32, u32), machine: &Machine) -> i64 {
    let percent = |free: u32, of: u32| (BEST * i64::from(free)).checked_div(i64::from(of)).unwrap_or(0);
    i64::midpoint(percent(cpu, machine.cpu), percent(memory, machine.memory))
}

/// 100 where CPU and memory are requested to the same part, 50 where one is free and the other isn't.
fn balanced((cpu, memory): (u32, u32), machine: &Machine) -> i64 {
    let requested = |free: u32, of: u32| f64::from(of.saturating_sub(free)) / f64::from(of.max(1));
    // The standard deviation of two numbers is half of what is between them.
    let deviation = (requested(cpu, machine.cpu) - requested(memory, machine.memory)).abs() / 2.0;
    ((1.0 - deviation) * BEST as f64) as i64
}

/// Scores by taints that aren't tolerated: none 100, as many as on the worst of these nodes 0
/// (`DefaultNormalizeScore`).
pub(super) fn normalized_taints(taints: Vec<u32>) -> impl Iterator<Item = i64> {
    let most = i64::from(taints.iter().copied().max().unwrap_or(0));
    taints.into_iter().map(move |count| BEST - (BEST * i64::from(count)).checked_div(most).unwrap_or(0))
}
