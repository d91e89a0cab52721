//! What the driver shows on the cards, and whose it is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::CardId;

use super::processes::{self, Identity, PodProcesses};
use super::{Holder, OnCard, Seats, Whose};
use divvy_node_core::inventory::Inventory;

#[cfg(test)]
mod tests;

/// Pods' processes are looked up anew after this long, or when NVML shows something new.
const STALE: Duration = Duration::from_secs(5);

/// Remembers whose processes are whose while nothing has changed.
#[derive(Debug, Default)]
pub(super) struct Driver {
    /// What NVML showed when the pods were looked through.
    inventory: Option<(Arc<Inventory>, Instant)>,
    /// By pod UID.
    pods: HashMap<String, PodProcesses>,
}

/// What the driver shows at one moment.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Cards whose processes are known.
    pub(super) cards: BTreeMap<CardId, Vec<OnCard>>,
    /// Why there are none, or why not all that is wrong can be found.
    pub(super) problem: Option<String>,
}

// === impl Driver ===

impl Driver {
    /// What NVML shows of healthy cards: what it showed of a sick one may be long ago. Says of each holder whether all
    /// processes of its pod are seen. `supervisor`: of the multi-process service, while that is up.
    pub(super) fn measure(
        &mut self,
        inventory: &Arc<Inventory>,
        supervisor: Option<u32>,
        holders: &mut [Holder],
        seats: &[Option<Seats>],
        cgroups: &Path,
        now: Instant,
    ) -> Measured {
        let known = inventory.cards.iter().filter(|card| card.health.is_healthy());
        let known: Vec<_> = known.filter_map(|card| Some((&card.id, card.processes.as_ref()?))).collect();
        let asked =
            holders.iter().any(|holder| holder.parts.iter().any(|(card, _)| known.iter().any(|(id, _)| *id == card)));
        if asked || known.iter().any(|(_, processes)| !processes.is_empty()) {
            self.follow(inventory, holders, cgroups, now);
        }
        for holder in holders.iter_mut() {
            holder.is_visible = self.pods.get(&holder.of.pod_uid).is_some_and(|pod| pod.is_whole);
        }
        // A pod that has no cgroup yet has no processes, if that of any other is seen.
        let is_unseen = |pod: &PodProcesses| pod.is_there && !pod.is_whole;
        let is_blind =
            self.pods.values().any(is_unseen) || (!self.pods.is_empty() && self.pods.values().all(|pod| !pod.is_there));
        let crowd = Crowd { holders, seats, pods: &self.pods, supervisor, is_blind };
        let identity = |pid| processes::identity(pid).ok().flatten();
        let on_card = |card: &CardId, process: &divvy_node_core::inventory::CardProcess| OnCard {
            pid: process.pid,
            bytes: process.bytes,
            whose: crowd.whose(card, process.pid, identity),
        };
        let cards = known.iter().map(|(card, processes)| {
            ((*card).clone(), processes.iter().map(|process| on_card(card, process)).collect())
        });
        let cards: BTreeMap<CardId, Vec<OnCard>> = cards.collect();
        let is_unknown = cards.is_empty() && !inventory.cards.is_empty();
        let problem = if is_unknown {
            Some("NVML doesn't tell the processes of any card")
        } else if self.pods.values().any(|pod| pod.has_strangers) {
            Some("processes of pods have no number in the daemon's PID namespace, which needs hostPID")
        } else {
            None
        };
        Measured { cards, problem: problem.map(str::to_owned) }
    }

    fn follow(&mut self, inventory: &Arc<Inventory>, holders: &[Holder], cgroups: &Path, now: Instant) {
        let uids: HashSet<&str> = holders.iter().map(|holder| holder.of.pod_uid.as_str()).collect();
        let is_fresh = self
            .inventory
            .as_ref()
            .is_some_and(|(seen, then)| Arc::ptr_eq(seen, inventory) && now.saturating_duration_since(*then) < STALE);
        if is_fresh && uids.len() == self.pods.len() && uids.iter().all(|uid| self.pods.contains_key(*uid)) {
            return;
        }
        self.inventory = Some((Arc::clone(inventory), now));
        self.pods = uids.into_iter().map(|uid| (uid.to_owned(), PodProcesses::of(cgroups, uid))).collect();
    }
}

/// All who could have a process.
struct Crowd<'a> {
    holders: &'a [Holder],
    seats: &'a [Option<Seats>],
    pods: &'a HashMap<String, PodProcesses>,
    supervisor: Option<u32>,
    /// Not all of their processes are seen.
    is_blind: bool,
}

// === impl Crowd ===

impl Crowd<'_> {
    /// Whose a process on a card is: by the lock that it holds, else by its pod's cgroup. Which container of the pod is told
    /// by its slot, by a neighbour in its cgroup that has one, or by there being no other.
    fn whose(&self, card: &CardId, pid: u32, identity: impl Fn(u32) -> Option<Identity>) -> Whose {
        let seats = |at: usize| self.seats.get(at).and_then(Option::as_ref);
        let all = 0..self.holders.len();
        if let Some(at) = all.clone().find(|at| seats(*at).is_some_and(|seats| seats.pids.contains(&pid))) {
            return Whose::Holder { at, is_seated: true };
        }
        let Some((uid, pod)) = self.pods.iter().find(|(_, pod)| pod.pids.contains_key(&pid)) else {
            return match self.supervisor {
                Some(supervisor) if processes::descends(pid, supervisor) => Whose::Service,
                _ if self.is_blind => Whose::Unknown,
                _ => Whose::Nobody,
            };
        };
        let own: Vec<usize> = all.filter(|at| self.holders[*at].of.pod_uid == *uid).collect();
        let of_identity = identity(pid).and_then(|identity| {
            own.iter().find(|at| seats(**at).is_some_and(|seats| seats.owners.contains(&identity)))
        });
        if let Some(at) = of_identity {
            return Whose::Holder { at: *at, is_seated: true };
        }
        let is_near = |other: &u32| pod.pids.get(other) == pod.pids.get(&pid);
        let neighbour = own.iter().find(|at| seats(**at).is_some_and(|seats| seats.pids.iter().any(is_near)));
        let holds = |at: &usize| self.holders[*at].parts.iter().any(|(held, _)| held == card);
        let with_card: Vec<usize> = own.iter().copied().filter(holds).collect();
        let at = match (neighbour, &*own, &*with_card) {
            (Some(at), ..) | (None, [at], _) | (None, _, [at]) => Some(*at),
            _ => None,
        };
        at.map_or_else(|| Whose::Pod(uid.clone()), |at| Whose::Holder { at, is_seated: false })
    }
}

// === impl Measured ===

impl Measured {
    /// What the holder at this position uses of a card, if all of it is known.
    pub(super) fn bytes(&self, at: usize, holder: &Holder, card: &CardId) -> Option<u64> {
        let processes = self.cards.get(card).filter(|_| holder.is_visible)?;
        let is_doubtful = |process: &OnCard| matches!(&process.whose, Whose::Pod(uid) if *uid == holder.of.pod_uid);
        if processes.iter().any(is_doubtful) {
            return None;
        }
        let own =
            processes.iter().filter(|process| matches!(process.whose, Whose::Holder { at: found, .. } if found == at));
        own.map(|process| process.bytes).try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
    }
}
