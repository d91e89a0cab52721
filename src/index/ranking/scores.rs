//! Scores for the scheduler, which has only a few steps.

use std::cmp::Reverse;

use divvy_placement::NodeScore;

use crate::nodes::NodeRef;

/// `MaxExtenderPriority`.
pub const BEST_SCORE: i64 = 10;

/// Nodes with their rank, from 0 for the best, and their score: 10 for the best, less with each rank that is worse, never
/// 0, which is for nodes where the pod doesn't fit. The best come first.
pub fn ranked<T>(fitting: &mut [(T, NodeScore)]) -> impl Iterator<Item = (&T, usize, i64)> {
    fitting.sort_unstable_by(|(_, one), (_, other)| other.cmp(one));
    let steps = fitting.chunk_by(|(_, one), (_, other)| one == other);
    let distinct = i64::try_from(steps.clone().count()).unwrap_or(i64::MAX);
    steps.enumerate().flat_map(move |(rank, equals)| {
        let score = BEST_SCORE - BEST_SCORE * i64::try_from(rank).unwrap_or(0) / distinct;
        equals.iter().map(move |(node, _)| (node, rank, score))
    })
}

/// Keeps the nodes with a plan as good as the best, at most so many: the best first, equals in one order for all pods, so
/// that pods don't spread over equal nodes.
pub fn shortlist(fitting: &mut Vec<(NodeRef, NodeScore)>, most: usize) {
    let Some(best) = fitting.iter().map(|(_, score)| *score).max() else { return };
    fitting.retain(|(_, score)| score.is_as_good_as(&best));
    let order = |(asked, score): &(NodeRef, NodeScore)| (Reverse(*score), asked.place());
    if fitting.len() > most {
        fitting.select_nth_unstable_by_key(most, order);
        fitting.truncate(most);
    }
    fitting.sort_unstable_by_key(order);
}
