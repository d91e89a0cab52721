//! Share violations: computed from the processes that the driver reports and from the shares in the ledger.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use divvy_api::usage::{ContainerRef, ShareViolation, ViolationKind};
use divvy_api::{CardId, Memory, Share};

use super::{GpuProcess, Holder, ProcessOwner};

#[cfg(test)]
mod tests;

/// Time for which a violation must be observed before it is active. A process that has just started is on its card before its pod's
/// cgroup has been looked through again, and one that ends is there for a moment without its slot.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tracks since when each violation has been observed.
#[derive(Debug, Default)]
pub(super) struct ViolationTracker(BTreeMap<Key, Instant>);

type Key = (ViolationKind, CardId, Option<ContainerRef>);

/// Observation of one violation at one moment.
#[derive(Debug, Default)]
struct Observed {
    pids: Vec<u32>,
    bytes: u64,
    share: Option<Share>,
    /// Bytes of overhead, which no allocation requested.
    overhead: u64,
    /// Lookups of driver functions that the library doesn't know.
    unhooked: u64,
}

// === impl ViolationTracker ===

impl ViolationTracker {
    /// Returns the active violations. `cards` are those whose processes are known.
    pub(super) fn update(
        &mut self,
        holders: &[Holder],
        cards: &BTreeMap<CardId, Vec<GpuProcess>>,
        now: Instant,
    ) -> Vec<ShareViolation> {
        let seen = observe(holders, cards);
        self.0.retain(|key, _| seen.contains_key(key));
        let mut findings = Vec::new();
        for (key, sight) in seen {
            let lasted = now.saturating_duration_since(*self.0.entry(key.clone()).or_insert(now));
            if lasted >= PATIENCE {
                findings.push(sight.finding(key, lasted));
            }
        }
        findings
    }
}

fn observe(holders: &[Holder], cards: &BTreeMap<CardId, Vec<GpuProcess>>) -> BTreeMap<Key, Observed> {
    let mut seen: BTreeMap<Key, Observed> = BTreeMap::new();
    for (card, process) in cards.iter().flat_map(|(card, all)| all.iter().map(move |process| (card, process))) {
        let mut see = |kind, of: Option<&Holder>, share| {
            let sight = seen.entry((kind, card.clone(), of.map(|holder| holder.of.clone()))).or_default();
            (sight.share, sight.overhead) = (share, of.map_or(0, |holder| holder.overhead(card)));
            sight.add(process);
        };
        let (holder, has_slot) = match process.owner {
            ProcessOwner::Holder { at, has_slot } => (holders.get(at), has_slot),
            ProcessOwner::Pod(_) | ProcessOwner::Service | ProcessOwner::Unknown => continue,
            ProcessOwner::Nobody => (None, false),
        };
        if holder.is_some_and(|holder| holder.has_library && !has_slot) {
            see(ViolationKind::WithoutLibrary, holder, None);
        }
        match holder.and_then(|holder| holder.parts.iter().find(|(held, _)| held == card)) {
            None => see(ViolationKind::Foreign, holder, None),
            Some((_, share)) if !share.exclusive => see(ViolationKind::AboveShare, holder, Some(*share)),
            Some(_) => {}
        }
    }
    for holder in holders.iter().filter(|holder| holder.unhooked > 0) {
        let first = holder
            .parts
            .first()
            .map(|(card, _)| (ViolationKind::UnhookedFunction, card.clone(), Some(holder.of.clone())));
        seen.extend(first.map(|key| (key, Observed { unhooked: holder.unhooked, ..Observed::default() })));
    }
    seen.retain(|_, sight| {
        sight.share.is_none_or(|share| is_above(sight.bytes, share) || sight.leaves_nothing_of(share))
    });
    seen
}

/// Whether the use exceeds the share by more than 5 %: memory of contexts is counted late, and the driver rounds up. Managed
/// memory, which alone may be in host memory, isn't in the driver's figure.
fn is_above(bytes: u64, share: Share) -> bool {
    u128::from(bytes) * 100 > u128::from(share.on_card().as_mib()) * (105 << 20)
}

// === impl Observed ===

impl Observed {
    fn add(&mut self, process: &GpuProcess) {
        self.pids.push(process.pid);
        self.bytes = self.bytes.saturating_add(process.bytes.unwrap_or(0));
    }

    /// Whether the overhead uses up the share, so that no memory can be allocated.
    fn leaves_nothing_of(&self, share: Share) -> bool {
        u128::from(self.overhead) >= u128::from(share.memory.as_mib()) << 20
    }

    fn finding(self, (kind, card, of): Key, lasted: Duration) -> ShareViolation {
        let used = Memory::from_bytes_floor(self.bytes);
        let who = processes(&self.pids);
        let owner_of = of.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = match (kind, &of) {
            (ViolationKind::AboveShare, _) => {
                let share = self.share.unwrap_or_default();
                let nothing_left = if self.leaves_nothing_of(share) {
                    let overhead = Memory::from_bytes_floor(self.overhead);
                    format!(": contexts and modules take {overhead}, so it can't allocate memory")
                } else {
                    String::new()
                };
                let share = share.on_card();
                format!(
                    "{owner_of} uses {used} of {card} according to the driver; its share is {share} ({who}){nothing_left}"
                )
            }
            (ViolationKind::WithoutLibrary, _) => {
                format!("{owner_of} uses {card} without libdivvy, so its share is not enforced: {who}, {used}")
            }
            (ViolationKind::UnhookedFunction, _) => {
                let times = self.unhooked;
                format!(
                    "{owner_of} looked up driver functions that libdivvy doesn't know ({times} times), so its share may not be enforced"
                )
            }
            (ViolationKind::Foreign, Some(_)) => {
                format!("{owner_of} uses {card} without a share of it: {who}, {used}")
            }
            (ViolationKind::Foreign, None) => {
                format!("{card} is used by a process without a share: {who}, {used}")
            }
        };
        ShareViolation { kind, card, of, pids: self.pids, bytes: self.bytes, seconds: lasted.as_secs(), message }
    }
}

/// Text that names the first few of them.
fn processes(pids: &[u32]) -> String {
    let named: Vec<String> = pids.iter().take(5).map(ToString::to_string).collect();
    let more = if pids.len() > named.len() { format!(" and {} more", pids.len() - named.len()) } else { String::new() };
    let noun = if pids.len() == 1 { "process" } else { "processes" };
    format!("{noun} {}{more} of the host", named.join(", "))
}
