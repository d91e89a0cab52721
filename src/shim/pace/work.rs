//! Launched work, and its estimated duration.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use divvy_region::{Account, Estimate, coupling};

/// Kinds of work, each with an estimate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Kernel,
    /// An executable graph, by its handle.
    Graph(usize),
}

/// Launches that are done together, as far as can be seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    /// What is left in flight of the estimate, ns.
    remaining_ns: u64,
    /// What it has cost so far, ns.
    cost_ns: u64,
    kernels: Launches,
    graphs: Launches,
    /// The executable graph that was launched, by its handle; 0: none.
    graph: usize,
    /// Whether one of them is the probe: the first launch of its kind.
    has_probe: bool,
}

/// Launches of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Launches {
    launches: u64,
    estimate_ns: u64,
}

/// Estimates of graphs that were launched of late. Two with the same entry replace each other, and begin anew each time.
static GRAPHS: [GraphEstimate; 256] =
    [const { GraphEstimate { graph: AtomicUsize::new(0), kept: AtomicU64::new(0) } }; 256];

struct GraphEstimate {
    graph: AtomicUsize,
    /// [`Estimate::kept`].
    kept: AtomicU64,
}

// === impl Work ===

impl Work {
    /// What a launch of it is estimated to take, if it takes a kernel so long.
    #[inline]
    pub(super) fn estimate(self, kernel: Estimate) -> Estimate {
        match self {
            Self::Kernel => kernel,
            Self::Graph(graph) => GraphEstimate::of(graph)
                .filter(|known| known.graph.load(Ordering::Relaxed) == graph)
                .map_or(Estimate::UNKNOWN, |known| Estimate::of(known.kept.load(Ordering::Relaxed))),
        }
    }
}

// === impl GraphEstimate ===

impl GraphEstimate {
    fn of(graph: usize) -> Option<&'static Self> {
        // Handles are addresses, whose last bits are all alike.
        GRAPHS.get((graph >> 4).wrapping_mul(0x9e37_79b9) >> 8 & 255)
    }
}

// === impl Batch ===

impl Batch {
    pub(super) const fn new() -> Self {
        let tally = Launches { launches: 0, estimate_ns: 0 };
        Self { remaining_ns: 0, cost_ns: 0, kernels: tally, graphs: tally, graph: 0, has_probe: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kernels.launches == 0 && self.graphs.launches == 0
    }

    /// What it is estimated to take yet, ns.
    pub(super) fn remaining_ns(&self) -> u64 {
        self.remaining_ns
    }

    /// What it has cost so far, ns.
    pub(super) fn cost_ns(&self) -> u64 {
        self.cost_ns
    }

    /// Whether it has cost much more than estimated: it may wait for something.
    pub(super) fn has_overrun(&self) -> bool {
        coupling::has_overrun(self.cost_ns, self.kernels.estimate_ns.saturating_add(self.graphs.estimate_ns))
    }

    /// Whether its cost would still tell what each kind takes.
    pub(super) fn accepts(&self, work: Work) -> bool {
        match work {
            Work::Kernel => true,
            Work::Graph(graph) => self.graph == 0 || self.graph == graph,
        }
    }

    /// Whether measuring it tells what a launch takes whose like was never measured.
    pub(super) fn has_probe(&self) -> bool {
        self.has_probe
    }

    pub(super) fn add(&mut self, work: Work, estimate: Estimate) {
        let estimate_ns = estimate.ns();
        self.has_probe |= estimate.is_unknown();
        self.remaining_ns = self.remaining_ns.saturating_add(estimate_ns);
        let tally = match work {
            Work::Kernel => &mut self.kernels,
            Work::Graph(graph) => {
                self.graph = graph;
                &mut self.graphs
            }
        };
        tally.launches += 1;
        tally.estimate_ns = tally.estimate_ns.saturating_add(estimate_ns);
    }

    /// The launches of `other` came after these.
    pub(super) fn merge(&mut self, other: Self) {
        self.remaining_ns = self.remaining_ns.saturating_add(other.remaining_ns);
        self.cost_ns = self.cost_ns.saturating_add(other.cost_ns);
        for (tally, more) in [(&mut self.kernels, other.kernels), (&mut self.graphs, other.graphs)] {
            tally.launches += more.launches;
            tally.estimate_ns = tally.estimate_ns.saturating_add(more.estimate_ns);
        }
        self.graph = if other.graph == 0 { self.graph } else { other.graph };
        self.has_probe |= other.has_probe;
    }

    /// Charges so much more. While it isn't done, something stays in flight: that is how others see that this process is busy.
    pub(super) fn charge(&mut self, account: Account<'_>, cost_ns: u64) {
        self.cost_ns = self.cost_ns.saturating_add(cost_ns);
        let charged = cost_ns.min(self.remaining_ns.saturating_sub(1));
        self.remaining_ns -= charged;
        account.completed(charged, cost_ns);
    }

    /// Completes the batch: what it was estimated to take is in flight no more.
    pub(super) fn complete(&mut self, account: Account<'_>) {
        account.completed(self.remaining_ns, 0);
        self.remaining_ns = 0;
    }

    /// What each kind of it took, as far as that can be told: their parts are as the estimates were.
    pub(super) fn observe(&self, kernel: &mut Estimate) {
        let all = u128::from(self.kernels.estimate_ns) + u128::from(self.graphs.estimate_ns);
        let part = |tally: Launches| {
            let part = (u128::from(self.cost_ns) * u128::from(tally.estimate_ns)).checked_div(all).unwrap_or_default();
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        kernel.observe(part(self.kernels), self.kernels.launches);
        if let Some(known) = GraphEstimate::of(self.graph).filter(|_| self.graph != 0) {
            let mut estimate = Work::Graph(self.graph).estimate(*kernel);
            estimate.observe(part(self.graphs), self.graphs.launches);
            known.graph.store(self.graph, Ordering::Relaxed);
            known.kept.store(estimate.kept(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_time_is_divided_among_kernels_and_graphs() {
        let graph = Work::Graph(0x7f00_1230);
        let mut kernel = Estimate::UNKNOWN;
        let unknown = kernel.ns();
        for _ in 0..60 {
            let mut batch = Batch::default();
            // 10 kernels of 20 µs and a graph of 2 ms, alone every other time.
            (0..10).for_each(|_| batch.add(Work::Kernel, Work::Kernel.estimate(kernel)));
            batch.cost_ns = 200_000;
            batch.observe(&mut kernel);
            let mut batch = Batch::default();
            batch.add(graph, graph.estimate(kernel));
            batch.cost_ns = 2_000_000;
            batch.observe(&mut kernel);
        }
        assert_ne!(kernel.ns(), unknown);
        let mut both = Batch::default();
        (0..10).for_each(|_| both.add(Work::Kernel, Work::Kernel.estimate(kernel)));
        both.add(graph, graph.estimate(kernel));
        both.cost_ns = 2_200_000;
        both.observe(&mut kernel);
        assert!(kernel.ns().abs_diff(20_000) < 100, "{} ns", kernel.ns());
        assert!(graph.estimate(kernel).ns().abs_diff(2_000_000) < 1000, "{} ns", graph.estimate(kernel).ns());
        assert!(!both.accepts(Work::Graph(1)) && both.accepts(graph) && both.accepts(Work::Kernel));
    }

    #[test]
    fn replaced_graph_is_measured_anew() {
        let first = 0x7f11_0000_usize;
        let place = |graph| GraphEstimate::of(graph).map(core::ptr::from_ref);
        let other = (1..100_000).map(|by| first + 16 * by).find(|other| place(*other) == place(first));
        let mut kernel = Estimate::UNKNOWN;
        for graph in [first, other.expect("256 places")] {
            let work = Work::Graph(graph);
            assert_eq!(work.estimate(kernel), Estimate::UNKNOWN);
            let mut batch = Batch::default();
            batch.add(work, Estimate::UNKNOWN);
            batch.observe(&mut kernel);
            assert_eq!(work.estimate(kernel).ns(), 500_000);
        }
        assert_eq!(Work::Graph(first).estimate(kernel), Estimate::UNKNOWN);
    }
}
