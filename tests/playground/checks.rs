//! The invariants, checked on what can be seen from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use divvy_api::request::Sharing;
use divvy_api::{CardId, Cores, GpuRequest, Share};
use serde::Serialize;

use divvy_testkit::outside::{CardView, ContainerView, Given, NodeView, PodView};

/// What must always hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Invariant {
    /// Shares of a card fit on it, and an exclusive one is alone.
    I1,
    /// Cards in a container's environment, behind its slots, in its limits file and in the daemon's books are the same,
    /// as many as it requests, with the amounts that it requests; so are those of `GpuNode` and annotation, once they carry
    /// the ledger's revision.
    I2,
    /// An ID that was ever listed stays listed.
    I4,
    /// Cards reserved for bound pods suffice, in whatever order the pods arrive.
    I5,
    /// An undisturbed node gives pods the cards reserved for them.
    Reservation,
    /// A pod that contradicts itself is refused: at admission where there is a webhook, else by its node. One that is too
    /// large for every node never gets one.
    Refusal,
    /// What was killed comes back.
    Recovery,
}

/// An invariant that was found broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// Which one.
    pub invariant: Invariant,
    /// Where.
    pub node: String,
    /// What is seen.
    pub detail: String,
}

/// How often each invariant was checked, and what was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Checks so far.
    pub checked: BTreeMap<Invariant, u64>,
    /// What was broken, each once.
    pub broken: Vec<Broken>,
}

/// One node's checks.
struct Check<'a> {
    node: &'a NodeView,
    tally: &'a mut Tally,
}

// === impl Tally ===

impl Tally {
    /// Checks everything that a look at the node shows.
    pub fn check(&mut self, node: &NodeView) {
        let mut check = Check { node, tally: self };
        node.cards.iter().for_each(|card| check.card(card));
        for pod in &node.pods {
            pod.containers.iter().for_each(|container| check.container(pod, container));
        }
        check.listed();
    }

    /// Counts one check and notes what it found.
    pub fn note(&mut self, invariant: Invariant, node: &str, found: Result<(), String>) {
        *self.checked.entry(invariant).or_default() += 1;
        if let Err(detail) = found {
            let broken = Broken { invariant, node: node.to_owned(), detail };
            if !self.broken.contains(&broken) {
                self.broken.push(broken);
            }
        }
    }
}

// === impl Check ===

impl Check<'_> {
    fn note(&mut self, invariant: Invariant, found: Result<(), String>) {
        self.tally.note(invariant, &self.node.name, found);
    }

    fn card(&mut self, card: &CardView) {
        let held = self.node.held(card);
        let holders = || {
            let holders = self.node.holders(card).map(|(pod, share)| format!("{} {share}", pod.name));
            holders.collect::<Vec<_>>().join("; ")
        };
        let found = if held.memory > card.memory {
            Err(format!("card {}: {} of {} memory held: {}", card.id, held.memory, card.memory, holders()))
        } else if held.cores > Cores::FULL {
            Err(format!("card {}: {} of 100 cores held: {}", card.id, held.cores, holders()))
        } else if held.exclusive && held.pods > 1 {
            Err(format!("card {}: held exclusively and by others: {}", card.id, holders()))
        } else {
            Ok(())
        };
        self.note(Invariant::I1, found);
    }

    fn container(&mut self, pod: &PodView, container: &ContainerView) {
        let problem = |found: String| format!("{} container {}: {found}", pod.name, container.name);
        let found = match (&container.request, &container.given) {
            // Until a plugin registers, a kubelet without its checkpoint doesn't know the resource and asks nobody.
            (Some(_), Some(given)) if self.node.forgot && given.is_nothing() => Ok(()),
            // A kubelet without its checkpoint asks again for containers that have ended, and doesn't start them again.
            (Some(request), Some(given)) if container.running || !self.node.forgot => {
                as_requested(pod.sharing, container, request, given, &self.node.cards)
            }
            (Some(request), _) => count(request, &container.slot_cards()),
            (None, Some(given)) if !given.named.is_empty() => Err(format!("given {:?} without a request", given.named)),
            (None, _) => Ok(()),
        };
        self.note(Invariant::I2, found.map_err(problem));
    }

    fn listed(&mut self) {
        let Some(listed) = &self.node.listed else { return };
        let missing: Vec<&str> = self.node.once_listed.difference(listed).map(String::as_str).collect();
        let found = if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{} IDs have vanished from the list, among them {}", missing.len(), missing[0]))
        };
        self.note(Invariant::I4, found);
    }
}

fn as_requested(
    sharing: Sharing,
    container: &ContainerView,
    request: &GpuRequest,
    given: &Given,
    cards: &[CardView],
) -> Result<(), String> {
    let Some((place, named)) = given.named.first_key_value() else { return Err("was started without a card".into()) };
    let named: BTreeSet<&str> = named.iter().map(String::as_str).collect();
    count(request, &named).map_err(|problem| format!("{place}: {problem}"))?;
    let agree = |other: &str, found: &BTreeSet<&str>| {
        let problem = || format!("cards differ: {place} {}, {other} {}", list(&named), list(found));
        if *found == named { Ok(()) } else { Err(problem()) }
    };
    for (other, found) in &given.named {
        agree(other, &found.iter().map(String::as_str).collect())?;
    }
    if !container.slots.is_empty() {
        agree("slots", &container.slot_cards())?;
    }
    let limits = given.limits.as_ref().ok_or("no limits directory is mounted")?.as_ref().map_err(String::clone)?;
    agree("limits file", &limits.cards.iter().map(|(card, _)| card.as_str()).collect())?;
    limits.cards.iter().try_for_each(|(card, share)| amounts((request, sharing), card, *share, cards))
}

fn count(request: &GpuRequest, cards: &BTreeSet<&str>) -> Result<(), String> {
    // Before its Allocate, and after the kubelet lost its records, nothing is set aside.
    if cards.is_empty() || cards.len() == request.cards as usize {
        return Ok(());
    }
    Err(format!("{} requested, {} distinct: {}", request, cards.len(), list(cards)))
}

fn amounts(
    (request, sharing): (&GpuRequest, Sharing),
    card: &CardId,
    share: Share,
    cards: &[CardView],
) -> Result<(), String> {
    let known =
        cards.iter().find(|known| known.id == *card).ok_or_else(|| format!("card {card} isn't on this node"))?;
    let requested = request.share_of(known.memory, sharing);
    if share == requested {
        return Ok(());
    }
    Err(format!("limits file: {share} of card {card}, requested {requested}"))
}

fn list(cards: &BTreeSet<&str>) -> String {
    cards.iter().copied().collect::<Vec<_>>().join(",")
}

// === impl Invariant ===

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken on {}: {}", self.invariant, self.node, self.detail)
    }
}

#[cfg(test)]
mod tests;
