//! Share violations: computed from the processes that the driver reports and from who holds shares.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use divvy_api::usage::{ContainerRef, Finding, FindingKind};
use divvy_api::{CardId, Memory, Share};

use super::{GpuProcess, Holder, ProcessOwner};

#[cfg(test)]
mod tests;

/// What must be seen for so long before it is a finding. A process that has just started is on its card before its pod's
/// cgroup has been looked through again, and one that ends is there for a moment without its slot.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tracks since when each violation has been observed.
#[derive(Debug, Default)]
pub(super) struct ViolationTracker(BTreeMap<Key, Instant>);

type Key = (FindingKind, CardId, Option<ContainerRef>);

/// Observation of one violation at one moment.
#[derive(Debug, Default)]
struct Observed {
    pids: Vec<u32>,
    bytes: u64,
    share: Option<Share>,
    /// What of the bytes no allocation asked for.
    overhead: u64,
}

// === impl Judge ===

impl ViolationTracker {
    /// Returns the active violations. `cards` are those whose processes are known.
    pub(super) fn update(
        &mut self,
        holders: &[Holder],
        cards: &BTreeMap<CardId, Vec<GpuProcess>>,
        now: Instant,
    ) -> Vec<Finding> {
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
            see(FindingKind::WithoutLibrary, holder, None);
        }
        match holder.and_then(|holder| holder.parts.iter().find(|(held, _)| held == card)) {
            None => see(FindingKind::Foreign, holder, None),
            Some((_, share)) if !share.exclusive => see(FindingKind::AboveShare, holder, Some(*share)),
            Some(_) => {}
        }
    }
    seen.retain(|_, sight| {
        sight.share.is_none_or(|share| is_above(sight.bytes, share) || sight.leaves_nothing_of(share))
    });
    seen
}

/// By more than 5 %: what contexts take is counted late, and the driver rounds up.
fn is_above(bytes: u64, share: Share) -> bool {
    u128::from(bytes) * 100 > u128::from(share.memory.as_mib()) * (105 << 20)
}

// === impl Sight ===

impl Observed {
    fn add(&mut self, process: &GpuProcess) {
        self.pids.push(process.pid);
        self.bytes = self.bytes.saturating_add(process.bytes.unwrap_or(0));
    }

    /// Not a byte can be allocated.
    fn leaves_nothing_of(&self, share: Share) -> bool {
        u128::from(self.overhead) >= u128::from(share.memory.as_mib()) << 20
    }

    fn finding(self, (kind, card, of): Key, lasted: Duration) -> Finding {
        let (used, who) = (Memory::from_bytes_floor(self.bytes), processes(&self.pids));
        let owner_of = of.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = match (kind, &of) {
            (FindingKind::AboveShare, _) => {
                let share = self.share.unwrap_or_default();
                let nothing_left = if self.leaves_nothing_of(share) {
                    let overhead = Memory::from_bytes_floor(self.overhead);
                    format!(": contexts and modules take {overhead}, so it can't allocate memory")
                } else {
                    String::new()
                };
                let share = share.memory;
                format!(
                    "{owner_of} uses {used} of GPU {card} according to the driver; its share is {share} ({who}){nothing_left}"
                )
            }
            (FindingKind::WithoutLibrary, _) => {
                format!("{owner_of} uses GPU {card} without libdivvy, so its share is not enforced: {who}, {used}")
            }
            (FindingKind::Foreign, Some(_)) => {
                format!("{owner_of} uses GPU {card} without a share of it: {who}, {used}")
            }
            (FindingKind::Foreign, None) => {
                format!("GPU {card} is used by a process without a share: {who}, {used}")
            }
        };
        Finding { kind, card, of, pids: self.pids, bytes: self.bytes, seconds: lasted.as_secs(), message }
    }
}

/// The first few of them, for people.
fn processes(pids: &[u32]) -> String {
    let named: Vec<String> = pids.iter().take(5).map(ToString::to_string).collect();
    let more = if pids.len() > named.len() { format!(" and {} more", pids.len() - named.len()) } else { String::new() };
    let noun = if pids.len() == 1 { "process" } else { "processes" };
    format!("{noun} {}{more} of the host", named.join(", "))
}
