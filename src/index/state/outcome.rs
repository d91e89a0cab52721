//! Outcomes of reservations.

/// How a reservation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The node allocated the GPUs that were reserved.
    Kept,
    /// The node allocated others: it knew better.
    Moved,
    /// The pod ended before its node reported it: refused, deleted, or finished.
    Ended,
    /// The pod is bound, and no report came in time: its node gives it GPUs later, or is away.
    Expired,
    /// The pod wasn't seen bound in time.
    Unbound,
    /// A scheduler has bound the pod to another node than the one that was nominated.
    Elsewhere,
}

/// Numbers of ended reservations by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    counts: [u64; 6],
}

// === impl Outcome ===

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 6] = [Self::Kept, Self::Moved, Self::Ended, Self::Expired, Self::Unbound, Self::Elsewhere];

    /// The label of `divvy_reservation_outcomes_total`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Moved => "moved",
            Self::Ended => "ended",
            Self::Expired => "expired",
            Self::Unbound => "unbound",
            Self::Elsewhere => "elsewhere",
        }
    }
}

// === impl Outcomes ===

impl Outcomes {
    /// Number of reservations with this outcome.
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize]
    }

    pub(crate) fn count(&mut self, outcome: Outcome) {
        self.counts[outcome as usize] += 1;
    }
}
