//! How nodes compare, in the few steps that the scheduler can tell apart.

use divvy_placement::NodeScore;

/// `MaxExtenderPriority`.
const BEST: usize = 10;

/// Nodes with their rank, from 0 for the best, and their score: 10 for the best, less with each rank that is worse, never
/// 0, which is for nodes where the pod doesn't fit. The best come first.
pub fn ranked<T>(fitting: &mut [(T, NodeScore)]) -> impl Iterator<Item = (&T, usize, i64)> {
    fitting.sort_unstable_by(|(_, one), (_, other)| other.cmp(one));
    let steps = fitting.chunk_by(|(_, one), (_, other)| one == other);
    let distinct = steps.clone().count();
    steps.enumerate().flat_map(move |(rank, equals)| {
        let score = i64::try_from(BEST - BEST * rank / distinct).unwrap_or(0);
        equals.iter().map(move |(node, _)| (node, rank, score))
    })
}
