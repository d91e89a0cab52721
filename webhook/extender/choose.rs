//! `filter` and `prioritize`: the nodes as good as the best, and how they compare.

use std::sync::Arc;

use super::Extender;
use super::wire::Reasons;
use divvy_index::demand::Demand;
use divvy_index::pod::PodView;
use divvy_index::{BEST_SCORE, Query, Ranking, Refusal, Snapshot, ranked, shortlist};

/// Result of `filter`.
#[derive(Debug, Default)]
pub(super) struct Choice<'n> {
    /// Positions of the names that are returned, the best node first.
    pub(super) kept: Vec<usize>,
    /// Reasons of nodes where evicting pods of lower priority would help (`FailedNodes`).
    pub(super) by_eviction: Reasons<'n>,
    /// Reasons of nodes where evicting pods wouldn't help (`FailedAndUnresolvableNodes`).
    pub(super) for_good: Reasons<'n>,
}

/// Reason of a node that the index doesn't know.
const UNKNOWN: &str = "node(s) had no GpuNode: divvy-node isn't running there or hasn't reported yet";

// === impl Extender ===

impl Extender {
    /// Chooses the nodes as good as the best. Reasons are given only where no node is left, which is when somebody reads them:
    /// their length is what a call costs. The error is that not all could be looked at.
    pub(super) fn choose<'n>(&self, pod: &PodView, names: &[&'n str]) -> Result<Choice<'n>, Arc<str>> {
        let nowhere = |reason: &str| Choice { for_good: alike(names.to_vec(), reason), ..Choice::default() };
        let demand = match Demand::read(pod, self.index.config()) {
            Ok(Some(demand)) => demand,
            Ok(None) => return Ok(Choice { kept: (0..names.len()).collect(), ..Choice::default() }),
            Err(bad) => return Ok(nowhere(&bad.to_string())),
        };
        let snapshot = self.index.snapshot_for(&demand);
        let allowed = demand.avoiding(snapshot.exceeded());
        let mut ranking = snapshot.rank(&Query::new(&allowed, self.index.config()), names, self.shortlist == 0);
        if ranking.fitting.is_empty() {
            if ranking.unrated > 0 {
                return Err(format!("{} nodes were not looked at in time: try again", ranking.unrated).into());
            }
            return Ok(reasons(&snapshot, &Query::new(&demand, self.index.config()), names, &ranking));
        }
        if self.shortlist > 0 {
            shortlist(&mut ranking.fitting, self.shortlist);
        }
        Ok(Choice { kept: ranking.fitting.iter().map(|(asked, _)| asked.name).collect(), ..Choice::default() })
    }

    /// Scores of the nodes, in the order of their names.
    pub(super) fn scores(&self, pod: &PodView, names: &[&str]) -> Vec<i64> {
        let mut scores = vec![0; names.len()];
        let demand = match Demand::read(pod, self.index.config()) {
            Ok(Some(demand)) => demand,
            Ok(None) => return self.scores_without_cards(pod, names),
            Err(_) => return scores,
        };
        let snapshot = self.index.snapshot_for(&demand);
        let allowed = demand.avoiding(snapshot.exceeded());
        let mut fitting = snapshot.rank(&Query::new(&allowed, self.index.config()), names, true).fitting;
        for (asked, _, score) in ranked(&mut fitting) {
            scores[asked.name] = score;
        }
        scores
    }

    /// Scores for a pod without cards, which takes CPU that cards may need: nodes without cards are best, then those that lose
    /// least. A scheduler asks about such pods if the extender's configuration names no managed resources.
    fn scores_without_cards(&self, pod: &PodView, names: &[&str]) -> Vec<i64> {
        let mut scores = vec![BEST_SCORE; names.len()];
        let demand = Demand::without_cards(pod);
        let query = Query::new(&demand, self.index.config());
        let mut fitting = self.index.snapshot_for(&demand).rank(&query, names, true).fitting;
        for (asked, _, score) in ranked(&mut fitting) {
            scores[asked.name] = score.min(BEST_SCORE - 1);
        }
        scores
    }
}

fn reasons<'n>(snapshot: &Snapshot, question: &Query<'_>, names: &[&'n str], ranking: &Ranking) -> Choice<'n> {
    let mut choice = Choice::default();
    for Refusal { name, reason, by_eviction } in snapshot.refusals(question, &ranking.failing) {
        let reasons = if by_eviction { &mut choice.by_eviction } else { &mut choice.for_good };
        reasons.0.push((names[name], reason));
    }
    let unknown = ranking.unknown.iter().map(|name| names[*name]).collect();
    choice.for_good.0.extend(alike(unknown, UNKNOWN).0);
    choice
}

/// One reason for all of these names; names may repeat.
fn alike<'n>(mut names: Vec<&'n str>, reason: &str) -> Reasons<'n> {
    let reason: Arc<str> = reason.into();
    names.sort_unstable();
    names.dedup();
    Reasons(names.into_iter().map(|name| (name, Arc::clone(&reason))).collect())
}
