//! Allocation of slots to a container: judged, recorded, prepared.

use std::collections::BTreeSet;

use divvy_api::request::Sharing;
use divvy_api::{CardId, GpuRequest, Memory, NodeCards, Share, SlotId, Tier};
use divvy_systems::{AllocatedShare, Allocation};
use tracing::info;

use super::admission::{Admission, Allocated};
use super::fits::Holder;
use super::{Allocator, Refusal, refusal};
use crate::ledger::{Holding, Nonce, Origin, Part};
use crate::ports::{AllocatedContainer, ContainerResponse};

/// Slots for a container of the pod under admission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant<'a> {
    /// Position of the container in the pod.
    pub(super) container: usize,
    pub(super) slots: &'a [SlotId],
    /// The container was served before, and the kubelet has lost its record of it.
    pub(super) again: bool,
    /// A plan that still holds chose these very slots.
    pub(super) planned: bool,
}

/// A share beside what its card has; `None` if the node doesn't have the card any more.
pub fn allocated_share(node: &NodeCards, part: &Part) -> Option<AllocatedShare> {
    let index = node.position(&part.card)?;
    Some(AllocatedShare { index, memory: node.cards[index].memory, share: part.share })
}

// === impl Allocator ===

impl Allocator {
    /// Records the slots in the ledger, prepares the container and answers what the runtime adds to it.
    pub(super) fn grant(&mut self, grant: &Grant<'_>) -> Result<ContainerResponse, Refusal> {
        let Some(admission) = &self.admission else { return Err(Refusal::Stale) };
        let Admission { pod, requests, preferences, .. } = admission;
        let Some(request) = requests[grant.container].request else { return Err(Refusal::Stale) };
        let sharing = self.sharing(preferences);
        let name = &requests[grant.container].name;
        let held = self.ledger.allocations().pod(&pod.uid).and_then(|entry| entry.holding(name));
        let parts = self.parts(request, sharing, grant.slots, held)?;
        if !grant.planned {
            self.judge(admission, grant, &parts)?;
        }
        let shares: Vec<_> = parts.iter().map(|part| (part.card.clone(), part.share)).collect();
        let tier = if self.is_only_accounted(admission) { Tier::Accounting } else { self.tier_on(&shares) };
        let terms = preferences.terms(tier);
        let holding = Holding { nonce: Nonce::random(), parts, origin: Origin::Allocated, terms };
        let offered = holding.terms_under(self.tier()).tier;
        if let Some(wanted) = preferences.tier.filter(|wanted| *wanted > offered) {
            return Err(Refusal::Tier { wanted, offered });
        }
        if offered != Tier::Shim && holding.parts.iter().any(|part| !part.share.host.is_zero()) {
            return Err(Refusal::Oversubscribe { tier: offered });
        }
        let replaced = self.ledger.allocations().pod(&pod.uid).and_then(|entry| Some(entry.holding(name)?.nonce));
        let mut answer = self.containers.prepare(&AllocatedContainer::new(pod, name, &holding, self.tier()))?;
        if let Some(record) = &admission.dialect {
            let shares = holding.parts.iter().filter_map(|part| allocated_share(&self.inventory.node, part));
            let shares: Vec<AllocatedShare> = shares.collect();
            let allocation = Allocation { record, container: name, shares: &shares, tier: offered };
            answer.envs.extend(divvy_systems::variables(&allocation));
        }
        let nonce = holding.nonce;
        if let Err(error) = self.ledger.allocate(pod, requests, name, holding) {
            // Nobody will ever mount it.
            self.ended.push(nonce);
            return Err(error.into());
        }
        info!(%pod, container = %name, slots = %refusal::list(grant.slots), %request, "allocated");
        self.history.served(&pod.uid, name);
        self.ended.extend(replaced);
        Ok(answer)
    }

    /// Tier of a container with these shares: of cards of several tiers the strongest, as one limits file is for all of them.
    fn tier_on(&self, shares: &[(CardId, Share)]) -> Tier {
        let tier = self.containers.tier_on(shares);
        let of_card = |(id, _): &(CardId, Share)| self.inventory.node.card(id).map_or(tier, |card| card.tier.min(tier));
        shares.iter().map(of_card).max().unwrap_or(tier)
    }

    /// Whether the pod's shares are recorded and not enforced, as it asks and its namespace is allowed. Not where the MPS
    /// service has the GPUs for itself: there a program that is no client of it gets no context.
    fn is_only_accounted(&self, admission: &Admission) -> bool {
        self.tier() != Tier::Mps
            && admission.preferences.tier == Some(Tier::Accounting)
            && self.settings.accounting_namespaces.contains(&admission.pod.namespace)
    }

    /// The container's share of each slot's card, which stays what it is where the container holds one already: its processes
    /// may use it. The cards have to be known and distinct.
    fn parts(
        &self,
        request: GpuRequest,
        sharing: Sharing,
        slots: &[SlotId],
        held: Option<&Holding>,
    ) -> Result<Vec<Part>, Refusal> {
        let memory = |slot: &SlotId| -> Option<Memory> {
            self.inventory.node.card(&slot.card).filter(|card| slot.number < card.slots).map(|card| card.memory)
        };
        let mut parts: Vec<Part> = Vec::with_capacity(slots.len());
        for slot in slots {
            let memory = memory(slot).ok_or_else(|| Refusal::UnknownSlot { slot: slot.to_string() })?;
            if parts.iter().any(|part| part.card == slot.card) {
                return Err(Refusal::SameCard { card: slot.card.clone() });
            }
            let share = request.share_of(memory, sharing);
            let host = held.and_then(|held| held.host_of(&slot.card, &share)).unwrap_or(share.host);
            let share = Share { host, ..share };
            parts.push(Part { card: slot.card.clone(), slot: Some(slot.number), lost: None, share });
        }
        Ok(parts)
    }

    /// Whether the container fits on these slots' cards, and the rest of its pod beside it.
    fn judge(&self, admission: &Admission, grant: &Grant<'_>, parts: &[Part]) -> Result<(), Refusal> {
        let Grant { container, slots, again, .. } = *grant;
        let Admission { pod, requests, preferences, .. } = admission;
        let allocations = self.ledger.allocations();
        let state = self.state(&pod.uid, |card| {
            let mut held: BTreeSet<u32> = allocations.slots_held(&card.id, Some(&pod.uid));
            held.retain(|number| !slots.iter().any(|slot| slot.card == card.id && slot.number == *number));
            (card.slots as usize).saturating_sub(held.len())
        });
        let mut shares = self.allocated(&pod.uid, if again { requests.len() } else { container + 1 }).shares;
        shares[container] =
            parts.iter().filter_map(|part| Some((state.node.position(&part.card)?, part.share))).collect();
        let allocated = Allocated::new(shares);
        Holder { requests, held: &allocated, preferences }.fits(container, &state)?;
        admission.plan(&state, &allocated, &self.settings)?;
        Ok(())
    }
}
