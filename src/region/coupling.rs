//! Gates of cards whose work waits for one another.
//!
//! Kernels that exchange data wait for their like on other cards while they have their own. A rank that is held back makes
//! the others spin; they are charged for that, and held back next, for longer: below half of a card the gates of two ranks
//! that know nothing of one another soon let nothing through.
//!
//! So when work on one card takes much longer than estimated while a launch on another is held back, the container's cards
//! are coupled for some time, which is longer if it was soon needed again:
//!
//! - They begin together: a gate doesn't open while another card that has nothing to do waits for its own to open.
//! - They end together: while another card has work, one that has none may launch a single kernel on debt.
//!
//! Every card is charged for all that it does, so its share holds, but for `MAX_DEBT_NS` once.

use crate::bucket::{Gate, Share};
use crate::layout::Region;
use crate::sync::Ordering;

#[cfg(test)]
mod tests;

/// Debt of a card to which single kernels are launched while others of the container have work.
const MAX_DEBT_NS: i64 = 50_000_000;
/// Shortest time for which cards stay coupled, and the longest.
const MIN_COUPLED_NS: u64 = 1_000_000_000;
const MAX_COUPLED_NS: u64 = 30_000_000_000;
/// Cards that are coupled again so soon stay so for twice as long.
const SOON_NS: u64 = 2_000_000_000;

/// What work costs at least beyond its estimate that has overrun, ns: as coarse are the dates of its beginning.
const OVERRUN_NS: u64 = 500_000;

/// Whether work in flight has cost much more than estimated: it may wait for something.
pub const fn has_overrun(cost_ns: u64, estimate_ns: u64) -> bool {
    cost_ns > estimate_ns.saturating_add(estimate_ns / 2) && cost_ns > estimate_ns.saturating_add(OVERRUN_NS)
}

/// How the other cards of a container stand.
struct Others {
    /// Whether any of them has work in flight.
    is_busy: bool,
    /// The least balance of those that have nothing in flight and hold a launch back, ns.
    least_held_ns: i64,
}

// === impl Region ===

impl Region<'_> {
    /// Whether the cards are coupled at this moment.
    pub fn is_coupled(&self, now_ns: u64) -> bool {
        self.cards() > 1 && self.left_coupled_ns(now_ns) > 0
    }

    /// Notes that work in flight on a card [has overrun](has_overrun): it may wait for a launch that is held back on another.
    pub fn overran(&self, card: usize, now_ns: u64) {
        let mut elsewhere = (0..self.cards()).filter(|other| *other != card);
        if self.cards() < 2 || !elsewhere.any(|other| self.is_held(other, now_ns)) {
            return;
        }
        let header = self.header;
        let lasts_ns = header.coupled_ns.load(Ordering::Relaxed).clamp(MIN_COUPLED_NS, MAX_COUPLED_NS);
        let lasts_ns = match self.left_coupled_ns(now_ns) {
            0 => {
                let uncoupled_ns = now_ns.saturating_sub(header.coupled_until_ns.load(Ordering::Relaxed));
                if uncoupled_ns < SOON_NS { (2 * lasts_ns).min(MAX_COUPLED_NS) } else { MIN_COUPLED_NS }
            }
            _ => lasts_ns,
        };
        header.coupled_ns.store(lasts_ns, Ordering::Relaxed);
        header.coupled_until_ns.store(now_ns.saturating_add(lasts_ns), Ordering::Relaxed);
    }

    /// What a coupled card may do with a launch that its own gate answers with `alone`. `before` is what this process was
    /// told last.
    pub fn coupled_gate(&self, card: usize, alone: Gate, before: Gate, share: Share, now_ns: u64) -> Gate {
        let others = self.others(card, now_ns);
        if others.is_busy {
            let is_idle = self.accounts(card).is_some_and(|accounts| accounts.in_flight_ns() == 0);
            let balance_ns = self.card(card).map_or(i64::MIN, crate::layout::Card::balance_ns);
            return match alone {
                Gate::Shut if is_idle && balance_ns > -MAX_DEBT_NS => Gate::Single,
                alone => alone,
            };
        }
        let wanted_ns = if before == Gate::Open { 0 } else { share.reopen_ns() };
        if others.least_held_ns < wanted_ns { Gate::Shut } else { alone }
    }

    /// Nanoseconds for which the cards stay coupled.
    fn left_coupled_ns(&self, now_ns: u64) -> u64 {
        let left_ns = self.header.coupled_until_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        // No process writes a later moment.
        if left_ns > MAX_COUPLED_NS { 0 } else { left_ns }
    }

    fn others(&self, card: usize, now_ns: u64) -> Others {
        let mut others = Others { is_busy: false, least_held_ns: i64::MAX };
        for other in (0..self.cards()).filter(|other| *other != card) {
            let (Some(accounts), Some(bucket)) = (self.accounts(other), self.card(other)) else { continue };
            if accounts.in_flight_ns() > 0 {
                others.is_busy = true;
            } else if self.is_held(other, now_ns) {
                others.least_held_ns = others.least_held_ns.min(bucket.balance_ns());
            }
        }
        others
    }

    fn is_held(&self, card: usize, now_ns: u64) -> bool {
        self.accounts(card).is_some_and(|accounts| accounts.is_held(now_ns))
    }
}
