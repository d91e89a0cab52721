//! What was launched, and what it is estimated to take.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use divvy_region::{Account, Estimate};

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
    left_ns: u64,
    /// What it has cost so far, ns.
    cost_ns: u64,
    kernels: Tally,
    graphs: Tally,
    /// Whose the graphs are; 0: there are none.
    graph: usize,
    /// The launch whose like was never measured is one of them.
    has_first: bool,
}

/// Launches of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    launches: u64,
    estimate_ns: u64,
}

/// Estimates of graphs that were launched of late. Two that fall on one place take turns there, and begin anew each time.
static GRAPHS: [Known; 256] = [const { Known { graph: AtomicUsize::new(0), kept: AtomicU64::new(0) } }; 256];

struct Known {
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
            Self::Graph(graph) => Known::of(graph)
                .filter(|known| known.graph.load(Ordering::Relaxed) == graph)
                .map_or(Estimate::UNKNOWN, |known| Estimate::of(known.kept.load(Ordering::Relaxed))),
        }
    }
}

// === impl Known ===

impl Known {
    fn of(graph: usize) -> Option<&'static Self> {
        // Handles are addresses, whose last bits are all alike.
        GRAPHS.get((graph >> 4).wrapping_mul(0x9e37_79b9) >> 8 & 255)
    }
}

// === impl Batch ===

impl Batch {
    pub(super) const fn new() -> Self {
        let tally = Tally { launches: 0, estimate_ns: 0 };
        Self { left_ns: 0, cost_ns: 0, kernels: tally, graphs: tally, graph: 0, has_first: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kernels.launches == 0 && self.graphs.launches == 0
    }

    /// What it is estimated to take yet, ns.
    pub(super) fn left_ns(&self) -> u64 {
        self.left_ns
    }

    /// What it has cost so far, ns.
    pub(super) fn cost_ns(&self) -> u64 {
        self.cost_ns
    }

    /// Whether its cost would still tell what each kind takes.
    pub(super) fn suits(&self, work: Work) -> bool {
        match work {
            Work::Kernel => true,
            Work::Graph(graph) => self.graph == 0 || self.graph == graph,
        }
    }

    /// Whether measuring it tells what a launch takes whose like was never measured.
    pub(super) fn has_first(&self) -> bool {
        self.has_first
    }

    pub(super) fn add(&mut self, work: Work, estimate: Estimate) {
        let estimate_ns = estimate.ns();
        self.has_first |= estimate.is_unknown();
        self.left_ns = self.left_ns.saturating_add(estimate_ns);
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
    pub(super) fn join(&mut self, other: Self) {
        self.left_ns = self.left_ns.saturating_add(other.left_ns);
        self.cost_ns = self.cost_ns.saturating_add(other.cost_ns);
        for (tally, more) in [(&mut self.kernels, other.kernels), (&mut self.graphs, other.graphs)] {
            tally.launches += more.launches;
            tally.estimate_ns = tally.estimate_ns.saturating_add(more.estimate_ns);
        }
        self.graph = if other.graph == 0 { self.graph } else { other.graph };
        self.has_first |= other.has_first;
    }

    /// It has cost so much more. While it isn't done, something stays in flight: that is how others see that we are busy.
    pub(super) fn cost(&mut self, account: Account<'_>, cost_ns: u64) {
        self.cost_ns = self.cost_ns.saturating_add(cost_ns);
        let paid = cost_ns.min(self.left_ns.saturating_sub(1));
        self.left_ns -= paid;
        account.settled(paid, cost_ns);
    }

    /// It is done. What it was estimated to take is in flight no more.
    pub(super) fn settle(&mut self, account: Account<'_>) {
        account.settled(self.left_ns, 0);
        self.left_ns = 0;
    }

    /// What each kind of it took, as far as that can be told: their parts are as the estimates were.
    pub(super) fn observe(&self, kernel: &mut Estimate) {
        let all = u128::from(self.kernels.estimate_ns) + u128::from(self.graphs.estimate_ns);
        let part = |tally: Tally| {
            let part = (u128::from(self.cost_ns) * u128::from(tally.estimate_ns)).checked_div(all).unwrap_or_default();
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        kernel.observe(part(self.kernels), self.kernels.launches);
        if let Some(known) = Known::of(self.graph).filter(|_| self.graph != 0) {
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
    fn kernels_and_graphs_learn_from_one_batch_by_their_parts() {
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
        assert!(!both.suits(Work::Graph(1)) && both.suits(graph) && both.suits(Work::Kernel));
    }

    #[test]
    fn a_graph_that_takes_anothers_place_begins_anew() {
        let first = 0x7f11_0000_usize;
        let place = |graph| Known::of(graph).map(core::ptr::from_ref);
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
