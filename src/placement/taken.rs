//! Amounts that a plan takes of each card.

use divvy_api::gpunode::Oversubscription;
use divvy_api::{Cores, Memory, Share};

use crate::card::{Card, Held};
use crate::pod::{Plan, PodRequest};
use crate::problem::Problem;

/// What a pod takes of one card at its peak, however the kubelet draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Position of the card.
    pub card: usize,
    /// The most that it holds at once.
    pub share: Share,
    /// Slots of the card that it may have.
    pub slots: u32,
}

/// What a pod with this plan takes of each card that it may touch; `None` if its containers get in each other's way, or are to
/// have cards whole that are too small for them.
///
/// Whether other pods leave so much isn't checked: a share counts in full even where the card is overfilled.
pub fn taken(cards: &[Card], pod: &PodRequest<'_>, plan: &Plan) -> Option<Vec<Taken>> {
    let boundless: Vec<Card> = cards.iter().map(without_bounds).collect();
    let problem = Problem::new(&boundless, pod);
    let chosen_by = problem.chosen_by(plan);
    let mut taken = Vec::new();
    for (card, by) in chosen_by.iter().enumerate() {
        let load = problem.load(card, by).ok()?;
        if !load.is_fresh() {
            taken.push(Taken { card, share: load.peak, slots: load.slots });
        }
    }
    Some(taken)
}

fn without_bounds(card: &Card) -> Card {
    Card {
        memory_capacity: Memory::mib(u64::MAX),
        cores_capacity: Cores::new(u32::MAX),
        free_slots: u32::MAX,
        held: Held::default(),
        oversubscription: card.oversubscription.map(|of| Oversubscription { host_memory: Memory::mib(u64::MAX), ..of }),
        ..card.clone()
    }
}
