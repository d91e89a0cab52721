//! Launched work, and its estimated duration.

use divvy_region::{Account, Estimate, coupling};

use super::graph_estimates;

/// Kinds of work, each with an estimate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Kernel,
    /// An executable graph, by its handle.
    Graph(usize),
    /// So many MiB of the card's memory are read or written.
    Move(u64),
}

/// Estimates of a card, but for graphs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimates {
    pub(super) kernel: Estimate,
    /// What a MiB takes that is read or written.
    pub(super) moved: Estimate,
}

/// Launches that are done together, as far as can be seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    /// What is left in flight of the estimate, ns.
    remaining_ns: u64,
    /// What is in flight beyond that, as it takes longer, ns.
    beyond_ns: u64,
    /// What it has cost so far, ns.
    cost_ns: u64,
    /// When its first launch and its last one began, ns; 0: there is none.
    first_ns: u64,
    last_ns: u64,
    count: u64,
    kernels: Launches,
    graphs: Launches,
    moves: Launches,
    /// The first executable graph that was launched, by its handle; 0: none.
    graph: usize,
    /// Whether others were launched too.
    has_other_graphs: bool,
    /// Whether one of them is the probe: the first launch of its kind.
    has_probe: bool,
}

/// Launches of one kind, or MiB.
#[derive(Clone, Copy, Debug, Default)]
struct Launches {
    launches: u64,
    estimate_ns: u64,
}

// === impl Work ===

impl Work {
    /// So many bytes are read or written.
    pub(super) fn moved(bytes: u64) -> Self {
        Self::Move(bytes.div_ceil(1 << 20).max(1))
    }

    /// What a launch of it is estimated to take.
    #[inline]
    pub(super) fn estimate(self, known: Estimates) -> Estimate {
        match self {
            Self::Kernel => known.kernel,
            Self::Graph(graph) => graph_estimates::estimate(graph),
            Self::Move(mib) => known.moved.times(mib),
        }
    }
}

// === impl Batch ===

impl Batch {
    pub(super) const fn new() -> Self {
        let tally = Launches { launches: 0, estimate_ns: 0 };
        Self {
            remaining_ns: 0,
            beyond_ns: 0,
            cost_ns: 0,
            first_ns: 0,
            last_ns: 0,
            count: 0,
            kernels: tally,
            graphs: tally,
            moves: tally,
            graph: 0,
            has_other_graphs: false,
            has_probe: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.launches() == 0
    }

    /// How many launches it has.
    pub(super) fn launches(&self) -> u64 {
        self.count
    }

    /// When its first launch began: nothing of it was at work before.
    pub(super) fn first_ns(&self) -> u64 {
        self.first_ns
    }

    /// When its last launch began: until then there may be gaps between its launches, afterwards not.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// What it is estimated to take yet, ns.
    pub(super) fn remaining_ns(&self) -> u64 {
        self.remaining_ns
    }

    /// What it has cost so far, ns.
    pub(super) fn cost_ns(&self) -> u64 {
        self.cost_ns
    }

    /// What it was estimated to take, ns.
    fn estimate_ns(&self) -> u64 {
        let of_launches = self.kernels.estimate_ns.saturating_add(self.graphs.estimate_ns);
        of_launches.saturating_add(self.moves.estimate_ns)
    }

    /// Whether it has cost much more than estimated: it may wait for something.
    pub(super) fn has_overrun(&self) -> bool {
        coupling::has_overrun(self.cost_ns, self.estimate_ns())
    }

    /// Whether it has cost much more than estimated even if so many streams run side by side: then each one's work takes as many
    /// times its estimate.
    pub(super) fn is_unforeseen(&self, streams: u32) -> bool {
        coupling::has_overrun(self.cost_ns, self.estimate_ns().saturating_mul(streams.max(1).into()))
    }

    /// Whether a launch may be added: if not, it or the batch is to be measured apart.
    pub(super) fn accepts(&self, work: Work, now_ns: u64) -> bool {
        match work {
            Work::Kernel | Work::Move(_) => true,
            Work::Graph(graph) if self.graph == 0 || self.graph == graph => true,
            Work::Graph(graph) => {
                let is_due = |graph| graph_estimates::is_due(graph, now_ns);
                !is_due(graph) && (self.has_other_graphs || !is_due(self.graph))
            }
        }
    }

    /// Whether measuring it tells what a launch takes whose like was never measured.
    pub(super) fn has_probe(&self) -> bool {
        self.has_probe
    }

    /// Adds a launch that began at this moment.
    pub(super) fn add(&mut self, work: Work, estimate: Estimate, began_ns: u64) {
        let estimate_ns = estimate.ns();
        self.first_ns = if self.is_empty() { began_ns } else { self.first_ns };
        self.last_ns = began_ns;
        self.count += 1;
        self.has_probe |= estimate.is_unknown();
        self.remaining_ns = self.remaining_ns.saturating_add(estimate_ns);
        let (tally, launches) = match work {
            Work::Kernel => (&mut self.kernels, 1),
            Work::Graph(graph) => {
                self.add_graph(graph);
                (&mut self.graphs, 1)
            }
            Work::Move(mib) => (&mut self.moves, mib),
        };
        tally.launches = tally.launches.saturating_add(launches);
        tally.estimate_ns = tally.estimate_ns.saturating_add(estimate_ns);
    }

    fn add_graph(&mut self, graph: usize) {
        self.has_other_graphs |= ![0, graph].contains(&self.graph);
        self.graph = if self.graph == 0 { graph } else { self.graph };
    }

    /// The launches of `other` came after these.
    pub(super) fn merge(&mut self, other: Self) {
        self.remaining_ns = self.remaining_ns.saturating_add(other.remaining_ns);
        self.beyond_ns = self.beyond_ns.saturating_add(other.beyond_ns);
        self.cost_ns = self.cost_ns.saturating_add(other.cost_ns);
        self.first_ns = if self.is_empty() { other.first_ns } else { self.first_ns };
        self.last_ns = other.last_ns.max(self.last_ns);
        self.count += other.count;
        let tallies = [&mut self.kernels, &mut self.graphs, &mut self.moves];
        for (tally, more) in tallies.into_iter().zip([other.kernels, other.graphs, other.moves]) {
            tally.launches = tally.launches.saturating_add(more.launches);
            tally.estimate_ns = tally.estimate_ns.saturating_add(more.estimate_ns);
        }
        if other.graph != 0 {
            self.add_graph(other.graph);
        }
        self.has_other_graphs |= other.has_other_graphs;
        self.has_probe |= other.has_probe;
    }

    /// Charges so much more. While it isn't done, something stays in flight: that is how others see that this process is busy.
    pub(super) fn charge(&mut self, account: Account<'_>, cost_ns: u64) {
        self.cost_ns = self.cost_ns.saturating_add(cost_ns);
        let charged = cost_ns.min(self.remaining_ns.saturating_sub(1));
        self.remaining_ns -= charged;
        account.completed(charged, cost_ns);
    }

    /// Estimates that it takes at least so much more.
    pub(super) fn expect(&mut self, account: Account<'_>, more_ns: u64) {
        let missing_ns = more_ns.saturating_sub(self.remaining_ns.saturating_add(self.beyond_ns));
        account.launched(missing_ns);
        self.beyond_ns = self.beyond_ns.saturating_add(missing_ns);
    }

    /// Estimates that it takes hardly anything yet: something stays in flight.
    pub(super) fn expect_no_more(&mut self, account: Account<'_>) {
        account.completed(self.remaining_ns.saturating_sub(1).saturating_add(self.beyond_ns), 0);
        (self.remaining_ns, self.beyond_ns) = (self.remaining_ns.min(1), 0);
    }

    /// Completes the batch: what it was estimated to take is in flight no more.
    pub(super) fn complete(&mut self, account: Account<'_>) {
        account.completed(self.remaining_ns.saturating_add(self.beyond_ns), 0);
        (self.remaining_ns, self.beyond_ns) = (0, 0);
    }

    /// What each kind of it took, as far as that can be told: their parts are as the estimates were. That of one graph among
    /// others isn't told.
    pub(super) fn observe(&self, known: &mut Estimates, now_ns: u64) {
        let all = u128::from(self.estimate_ns());
        let part = |tally: Launches| {
            let part = (u128::from(self.cost_ns) * u128::from(tally.estimate_ns)).checked_div(all).unwrap_or_default();
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        known.kernel.observe(part(self.kernels), self.kernels.launches);
        known.moved.observe(part(self.moves), self.moves.launches);
        if self.graph != 0 && !self.has_other_graphs {
            graph_estimates::observe(self.graph, part(self.graphs), self.graphs.launches, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_time_is_divided_among_kernels_and_graphs() {
        let graph = Work::Graph(0x7f00_1230);
        let mut known = Estimates { kernel: Estimate::UNKNOWN, moved: Estimate::UNKNOWN };
        let unknown = known.kernel.ns();
        for _ in 0..60 {
            let mut batch = Batch::default();
            // 10 kernels of 20 µs and a graph of 2 ms, alone every other time.
            (0..10).for_each(|_| batch.add(Work::Kernel, Work::Kernel.estimate(known), 1));
            batch.cost_ns = 200_000;
            batch.observe(&mut known, 1);
            let mut batch = Batch::default();
            batch.add(graph, graph.estimate(known), 1);
            batch.cost_ns = 2_000_000;
            batch.observe(&mut known, 1);
        }
        assert_ne!(known.kernel.ns(), unknown);
        let mut both = Batch::default();
        (0..10).for_each(|_| both.add(Work::Kernel, Work::Kernel.estimate(known), 1));
        both.add(graph, graph.estimate(known), 1);
        both.cost_ns = 2_200_000;
        both.observe(&mut known, 1);
        assert!(known.kernel.ns().abs_diff(20_000) < 100, "{} ns", known.kernel.ns());
        assert!(graph.estimate(known).ns().abs_diff(2_000_000) < 1000, "{} ns", graph.estimate(known).ns());
        // A graph that was never measured is measured apart; one that was is not.
        assert!(!both.accepts(Work::Graph(1), 1) && both.accepts(graph, 1) && both.accepts(Work::Kernel, 1));
        let mut moves = Batch::default();
        moves.add(Work::moved(3 << 20), Work::moved(3 << 20).estimate(known), 1);
        moves.cost_ns = 3_000_000;
        moves.observe(&mut known, 1);
        assert_eq!([1, 5 << 20, u64::MAX].map(|bytes| Work::moved(bytes).estimate(known).ns() >> 20), [0, 4, 1 << 30]);
        let mut other = Batch::default();
        other.add(Work::Graph(0x7f00_4560), Estimate::UNKNOWN, 1);
        other.cost_ns = 1_000_000;
        other.observe(&mut known, 1);
        assert!(both.accepts(Work::Graph(0x7f00_4560), 1));
        both.add(Work::Graph(0x7f00_4560), Work::Graph(0x7f00_4560).estimate(known), 1);
        let before = graph.estimate(known);
        both.observe(&mut known, 1);
        assert_eq!(graph.estimate(known), before, "of one among others nothing is told");
    }
}
