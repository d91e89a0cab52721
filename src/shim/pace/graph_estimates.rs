//! Estimates of executable graphs, by their handles.
//!
//! A hash table of fixed size with four ways: programs capture some thousand graphs, one for each layer and size of a batch.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use divvy_region::Estimate;

const ENTRIES: usize = 4096;
const WAYS: usize = 4;
/// How long a graph's estimate is good for, ns: then a launch of it is measured apart from others.
const LASTS_NS: u64 = 100_000_000;

/// All zeros at first, which takes no space in the file, and no memory until it is used.
static TABLE: [Entry; ENTRIES] = [const { Entry::new() }; ENTRIES];
/// The way that is replaced next where all are taken.
static NEXT_WAY: AtomicUsize = AtomicUsize::new(0);

/// Several threads may write the same entry: what is then mixed up is an estimate, which the next measurement corrects.
struct Entry {
    /// The handle; 0: none.
    graph: AtomicUsize,
    /// [`Estimate::kept`].
    kept: AtomicU64,
    measured_ns: AtomicU64,
}

// === impl Entry ===

impl Entry {
    const fn new() -> Self {
        Self { graph: AtomicUsize::new(0), kept: AtomicU64::new(0), measured_ns: AtomicU64::new(0) }
    }
}

/// The entries that a graph may have.
fn ways(graph: usize) -> &'static [Entry] {
    let sets = ENTRIES / WAYS;
    // The last bits of a product depend on those of the handle alone, which are alike in all addresses.
    let mixed = (graph as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - sets.ilog2());
    TABLE.chunks_exact(WAYS).nth(mixed as usize).unwrap_or_default()
}

fn find(graph: usize) -> Option<&'static Entry> {
    ways(graph).iter().find(|entry| entry.graph.load(Ordering::Relaxed) == graph)
}

/// What a launch of a graph is estimated to take.
pub(super) fn estimate(graph: usize) -> Estimate {
    find(graph).map_or(Estimate::UNKNOWN, |entry| Estimate::from_kept(entry.kept.load(Ordering::Relaxed)))
}

/// Whether a launch of a graph is to be measured apart from others.
pub(super) fn is_due(graph: usize, now_ns: u64) -> bool {
    find(graph).is_none_or(|entry| now_ns.saturating_sub(entry.measured_ns.load(Ordering::Relaxed)) > LASTS_NS)
}

/// Takes into account what launches of a graph have cost.
pub(super) fn observe(graph: usize, cost_ns: u64, launches: u64, now_ns: u64) {
    let mut known = estimate(graph);
    known.observe(cost_ns, launches);
    let replaced = || ways(graph).get(NEXT_WAY.fetch_add(1, Ordering::Relaxed) % WAYS);
    let Some(entry) = find(graph).or_else(|| find_free(graph)).or_else(replaced) else { return };
    entry.graph.store(graph, Ordering::Relaxed);
    entry.kept.store(known.kept(), Ordering::Relaxed);
    entry.measured_ns.store(now_ns, Ordering::Relaxed);
}

fn find_free(graph: usize) -> Option<&'static Entry> {
    ways(graph).iter().find(|entry| entry.graph.load(Ordering::Relaxed) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percent of so many graphs, their handles this far apart, that are known once all were launched twice.
    fn known(graphs: usize, distance: usize) -> usize {
        let first = 0x7f00_0000_0000 + distance * 0x10_0000;
        let all = || (0..graphs).map(|number| first + number * distance);
        all().chain(all()).for_each(|graph| observe(graph, 1_000_000, 1, 1));
        all().filter(|graph| !estimate(*graph).is_unknown()).count() * 100 / graphs
    }

    #[test]
    fn thousands_of_graphs_are_known_at_once() {
        // One after the other: they share the table.
        for distance in [0x40, 0x3a0, 0x1000, 0x1_0000] {
            let (few, many) = (known(81, distance), known(2000, distance));
            assert!(few == 100 && many > 90, "{distance:#x} apart: {few} % of 81, {many} % of 2000");
        }
        let graph = 0x7fff_0000_0000;
        assert!(is_due(graph, 5) && estimate(graph) == Estimate::UNKNOWN);
        observe(graph, 1_000_000, 1, 5);
        assert!(!is_due(graph, 5) && is_due(graph, 6 + LASTS_NS));
        assert_eq!(estimate(graph).ns(), 1_000_000);
    }
}
