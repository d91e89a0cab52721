//! Processes that the driver reports on the GPUs, and their owners.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::CardId;

use super::processes::{self, Identity, PodProcesses};
use super::{GpuProcess, Holder, ProcessOwner, Slots};
use divvy_node_core::inventory::Inventory;

#[cfg(test)]
mod tests;

/// Time after which pods' processes are looked up again, unless NVML reports something new before.
const STALE: Duration = Duration::from_secs(5);

/// Processes of the pods, cached while nothing has changed.
#[derive(Debug, Default)]
pub(super) struct DriverProcesses {
    /// Inventory at the time when the processes were looked up.
    inventory: Option<(Arc<Inventory>, Instant)>,
    /// Processes by pod UID.
    pods: HashMap<String, PodProcesses>,
}

/// Processes on the GPUs at one moment.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Processes by card, for cards whose processes are known.
    pub(super) cards: BTreeMap<CardId, Vec<GpuProcess>>,
    /// Why there are none, or why violations may be missed.
    pub(super) problem: Option<String>,
}

// === impl DriverProcesses ===

impl DriverProcesses {
    /// Determines the processes on healthy GPUs (data of unhealthy ones may be old) and their owners, and sets for each holder
    /// whether all processes of its pod are visible. `supervisor`: PID of the MPS supervisor, while it is up.
    pub(super) fn measure(
        &mut self,
        inventory: &Arc<Inventory>,
        supervisor: Option<u32>,
        holders: &mut [Holder],
        slots: &[Option<Slots>],
        cgroups: &Path,
        now: Instant,
    ) -> Measured {
        let known = inventory.each().filter(|(card, _)| card.is_healthy());
        let known: Vec<_> = known.filter_map(|(card, device)| Some((&card.id, device.processes.as_ref()?))).collect();
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
        let is_incomplete =
            self.pods.values().any(is_unseen) || (!self.pods.is_empty() && self.pods.values().all(|pod| !pod.is_there));
        let owners = ProcessOwners { holders, slots, pods: &self.pods, supervisor, is_incomplete };
        let identity = |pid| processes::identity(pid).ok().flatten();
        let on_card = |card: &CardId, process: &divvy_node_core::inventory::CardProcess| GpuProcess {
            pid: process.pid,
            bytes: process.bytes,
            owner: owners.owner_of(card, process.pid, identity),
        };
        let cards = known.iter().map(|(card, processes)| {
            ((*card).clone(), processes.iter().map(|process| on_card(card, process)).collect())
        });
        let cards: BTreeMap<CardId, Vec<GpuProcess>> = cards.collect();
        let is_unknown = cards.is_empty() && !inventory.cards().is_empty();
        let problem = if is_unknown {
            Some("NVML doesn't report the processes of any GPU")
        } else if self.pods.values().any(|pod| pod.has_hidden_processes) {
            Some("processes of pods are outside the daemon's PID namespace; set hostPID")
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
        self.pods = uids.into_iter().map(|uid| (uid.to_owned(), PodProcesses::find(cgroups, uid))).collect();
    }
}

/// Possible owners of a process.
struct ProcessOwners<'a> {
    holders: &'a [Holder],
    slots: &'a [Option<Slots>],
    pods: &'a HashMap<String, PodProcesses>,
    supervisor: Option<u32>,
    /// Whether some of their processes are not visible.
    is_incomplete: bool,
}

// === impl ProcessOwners ===

impl ProcessOwners<'_> {
    /// Owner of a process on a card: by the lock that it holds, else by its pod's cgroup. The container in the pod follows from
    /// the process's slot, from the slot of another process in the same cgroup, or from being the only one.
    fn owner_of(&self, card: &CardId, pid: u32, identity: impl Fn(u32) -> Option<Identity>) -> ProcessOwner {
        let slots = |at: usize| self.slots.get(at).and_then(Option::as_ref);
        let all = 0..self.holders.len();
        if let Some(at) = all.clone().find(|at| slots(*at).is_some_and(|slots| slots.pids.contains(&pid))) {
            return ProcessOwner::Holder { at, has_slot: true };
        }
        let Some((uid, pod)) = self.pods.iter().find(|(_, pod)| pod.pids.contains_key(&pid)) else {
            return match self.supervisor {
                Some(supervisor) if processes::descends(pid, supervisor) => ProcessOwner::Service,
                _ if self.is_incomplete => ProcessOwner::Unknown,
                _ => ProcessOwner::Nobody,
            };
        };
        let own: Vec<usize> = all.filter(|at| self.holders[*at].of.pod_uid == *uid).collect();
        let of_identity = identity(pid).and_then(|identity| {
            own.iter().find(|at| slots(**at).is_some_and(|slots| slots.owners.contains(&identity)))
        });
        if let Some(at) = of_identity {
            return ProcessOwner::Holder { at: *at, has_slot: true };
        }
        let is_near = |other: &u32| pod.pids.get(other) == pod.pids.get(&pid);
        let neighbour = own.iter().find(|at| slots(**at).is_some_and(|slots| slots.pids.iter().any(is_near)));
        let holds = |at: &usize| self.holders[*at].parts.iter().any(|(held, _)| held == card);
        let with_card: Vec<usize> = own.iter().copied().filter(holds).collect();
        let at = match (neighbour, &*own, &*with_card) {
            (Some(at), ..) | (None, [at], _) | (None, _, [at]) => Some(*at),
            _ => None,
        };
        at.map_or_else(|| ProcessOwner::Pod(uid.clone()), |at| ProcessOwner::Holder { at, has_slot: false })
    }
}

// === impl Measured ===

impl Measured {
    /// PIDs of the processes of the holder at this position, on all cards.
    pub(super) fn pids(&self, at: usize) -> HashSet<u32> {
        let own = self.cards.values().flatten();
        own.filter(|process| process.is_of(at)).map(|process| process.pid).collect()
    }

    /// Bytes that the holder at this position uses on a card, if all of its processes are known.
    pub(super) fn bytes(&self, at: usize, holder: &Holder, card: &CardId) -> Option<u64> {
        let processes = self.cards.get(card).filter(|_| holder.is_visible)?;
        let is_doubtful =
            |process: &GpuProcess| matches!(&process.owner, ProcessOwner::Pod(uid) if *uid == holder.of.pod_uid);
        if processes.iter().any(is_doubtful) {
            return None;
        }
        let own = processes.iter().filter(|process| process.is_of(at));
        own.map(|process| process.bytes).try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
    }
}
