//! How predictions came out.

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The node gave the cards that were reserved.
    Kept,
    /// The node gave others: it knew better.
    Moved,
    /// The pod was over before its node told of it: refused, deleted, or done sooner than that.
    Ended,
    /// Nothing was heard in time.
    Expired,
}

/// Reservations by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    counts: [u64; 4],
}

// === impl Outcome ===

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kept, Self::Moved, Self::Ended, Self::Expired];

    /// The label of `divvy_prediction_total`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Moved => "moved",
            Self::Ended => "ended",
            Self::Expired => "expired",
        }
    }
}

// === impl Outcomes ===

impl Outcomes {
    /// How many reservations came out like this.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize]
    }

    pub(crate) fn count(&mut self, outcome: Outcome) {
        self.counts[outcome as usize] += 1;
    }
}
