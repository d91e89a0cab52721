//! What no promise allows: pure, from what the driver shows on the cards and who holds shares of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use divvy_api::usage::{ContainerRef, Finding, FindingKind};
use divvy_api::{CardId, Memory, Share};

use super::{Holder, OnCard, Whose};

#[cfg(test)]
mod tests;

/// What must be seen for so long before it is a finding. A process that has just started is on its card before its pod's
/// cgroup has been looked through again, and one that ends is there for a moment without its slot.
const PATIENCE: Duration = Duration::from_secs(10);

/// Remembers since when what is seen has been seen.
#[derive(Debug, Default)]
pub(super) struct Judge(BTreeMap<Key, Instant>);

type Key = (FindingKind, CardId, Option<ContainerRef>);

/// What is seen at one moment.
#[derive(Debug, Default)]
struct Sight {
    pids: Vec<u32>,
    bytes: u64,
    share: Option<Share>,
    /// What of the bytes no allocation asked for.
    overhead: u64,
}

// === impl Judge ===

impl Judge {
    /// What stands now. `cards` are those whose processes are known.
    pub(super) fn judge(
        &mut self,
        holders: &[Holder],
        cards: &BTreeMap<CardId, Vec<OnCard>>,
        now: Instant,
    ) -> Vec<Finding> {
        let seen = sights(holders, cards);
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

fn sights(holders: &[Holder], cards: &BTreeMap<CardId, Vec<OnCard>>) -> BTreeMap<Key, Sight> {
    let mut seen: BTreeMap<Key, Sight> = BTreeMap::new();
    for (card, process) in cards.iter().flat_map(|(card, all)| all.iter().map(move |process| (card, process))) {
        let mut see = |kind, of: Option<&Holder>, share| {
            let sight = seen.entry((kind, card.clone(), of.map(|holder| holder.of.clone()))).or_default();
            (sight.share, sight.overhead) = (share, of.map_or(0, |holder| holder.overhead(card)));
            sight.add(process);
        };
        let (holder, is_seated) = match process.whose {
            Whose::Holder { at, is_seated } => (holders.get(at), is_seated),
            Whose::Pod(_) | Whose::Service | Whose::Unknown => continue,
            Whose::Nobody => (None, false),
        };
        if holder.is_some_and(|holder| holder.has_library && !is_seated) {
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

impl Sight {
    fn add(&mut self, process: &OnCard) {
        self.pids.push(process.pid);
        self.bytes = self.bytes.saturating_add(process.bytes.unwrap_or(0));
    }

    /// Not a byte can be allocated.
    fn leaves_nothing_of(&self, share: Share) -> bool {
        u128::from(self.overhead) >= u128::from(share.memory.as_mib()) << 20
    }

    fn finding(self, (kind, card, of): Key, lasted: Duration) -> Finding {
        let (used, who) = (Memory::from_bytes_floor(self.bytes), processes(&self.pids));
        let whose = of.as_ref().map(ToString::to_string).unwrap_or_default();
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
                    "{whose} uses {used} of GPU {card} according to the driver; its share is {share} ({who}){nothing_left}"
                )
            }
            (FindingKind::WithoutLibrary, _) => {
                format!("{whose} uses GPU {card} without libdivvy, so its share is not enforced: {who}, {used}")
            }
            (FindingKind::Foreign, Some(_)) => {
                format!("{whose} uses GPU {card} without a share of it: {who}, {used}")
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
