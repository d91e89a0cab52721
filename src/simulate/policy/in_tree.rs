//! kube-scheduler's own scores.

use std::sync::Arc;

use super::Score;
use crate::cluster::{Cards, Host};
use crate::workload::{Kind, Machine, Workload};

/// `NodeResourcesFit` with `LeastAllocated`, and `NodeResourcesBalancedAllocation`, over CPU and host memory; each in
/// whole percents and of equal weight, as they come by default.
#[derive(Clone, Debug)]
pub struct InTree {
    machines: Arc<[Machine]>,
}

// === impl InTree ===

impl InTree {
    /// On these machines.
    pub fn new(workload: &Workload) -> Self {
        Self { machines: workload.machines.as_slice().into() }
    }
}

impl Score for InTree {
    fn rate(&self, host: &Host, kind: &Kind) -> (i64, Cards) {
        let machine = &self.machines[host.machine];
        let free = |left: u32, of: u32| f64::from(left) / f64::from(of);
        let (cpu, memory) = (free(host.cpu - kind.cpu, machine.cpu), free(host.memory - kind.memory, machine.memory));
        let percent = |part: f64| (100.0 * part).floor() as i64;
        let least = i64::midpoint(percent(cpu), percent(memory));
        // The standard deviation of two numbers is half of what is between them.
        (least + percent(1.0 - (cpu - memory).abs() / 2.0), host.tightest(kind))
    }
}
