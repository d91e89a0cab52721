//! Smaller requests that fit now: less memory, fewer cores or fewer GPUs; a part of each where one alone isn't enough.

use std::ops::Range;

use divvy_api::{Cores, GpuRequest, Memory, MemoryAmount};

use super::{Change, ChangedRequest, MOST, Search, Suggestion};
use crate::demand::Demand;

/// Less than this part of a request is nothing that a user of it could want. In percent.
const LEAST: u64 = 10;

impl Search<'_> {
    /// Smaller requests, the one that gives up least first.
    pub(super) fn by_smaller_request(&self) -> Vec<Suggestion> {
        let asking = |at: &usize| self.demand.containers[*at].request.is_some();
        let containers: Vec<usize> = (0..self.demand.containers.len()).filter(asking).collect();
        let mut found: Vec<Vec<(usize, GpuRequest)>> = Vec::new();
        for at in &containers {
            found.extend(self.smaller(*at).into_iter().map(|to| vec![(*at, to)]));
        }
        if found.is_empty() && containers.len() > 1 {
            found.extend(self.all_smaller(&containers));
        }
        found.sort_by_cached_key(|changes| changes.iter().map(|(at, to)| self.given_up(*at, to)).max());
        found.iter().take(MOST).filter_map(|changes| self.with_smaller(changes)).collect()
    }

    /// The largest requests of one container that fit: each has less of one amount, or there is one with less of both.
    fn smaller(&self, at: usize) -> Vec<GpuRequest> {
        let Some(from) = self.demand.containers[at].request else { return Vec::new() };
        let fits = |to: GpuRequest| self.fits(&[(at, to)]);
        let with_count = |cards| GpuRequest { cards: narrow(cards), ..from };
        let cards = u64::from(from.cards);
        let count = largest(part(cards, LEAST)..cards, |cards| fits(with_count(cards))).map(with_count);
        if !self.is_divisible(at) {
            return count.into_iter().collect();
        }
        let memory = most_memory(from, LEAST, fits).filter(|to| *to != from);
        let cores = most_cores(from, LEAST, fits).filter(|to| *to != from);
        let mut all: Vec<GpuRequest> = count.into_iter().chain(memory).chain(cores).collect();
        if all.is_empty() {
            let percent = largest(LEAST..100, |percent| fits(part_of(from, percent)));
            all.extend(percent.map(|percent| {
                // One of the two may have been cut for the other's sake.
                let part = part_of(from, percent);
                let memory = |to: GpuRequest| GpuRequest { memory: to.memory, ..part };
                let more = most_memory(from, percent, |to| fits(memory(to))).map_or(part, memory);
                let cores = |to: GpuRequest| GpuRequest { cores: to.cores, ..more };
                most_cores(from, percent, |to| fits(cores(to))).map_or(more, cores)
            }));
        }
        all
    }

    /// The largest part of all containers' requests that fits, the same of each.
    fn all_smaller(&self, containers: &[usize]) -> Option<Vec<(usize, GpuRequest)>> {
        let part = |percent: u64| -> Vec<(usize, GpuRequest)> {
            let requests = containers.iter().filter_map(|at| Some((*at, self.demand.containers[*at].request?)));
            requests.map(|(at, from)| (at, if self.is_divisible(at) { part_of(from, percent) } else { from })).collect()
        };
        largest(LEAST..100, |percent| self.fits(&part(percent))).map(part)
    }

    /// Whether a container can be given a part of a GPU: MIG instances are given whole.
    fn is_divisible(&self, at: usize) -> bool {
        self.demand.containers[at].profile.is_none() && !self.demand.preferences.wants_instances()
    }

    fn fits(&self, changes: &[(usize, GpuRequest)]) -> bool {
        self.first_fit(&self.changed(changes)).is_some()
    }

    fn changed(&self, changes: &[(usize, GpuRequest)]) -> Demand {
        let mut demand = self.demand.clone();
        for (at, to) in changes {
            demand.containers[*at].request = Some(*to);
        }
        demand
    }

    /// The largest part of one amount that a changed request lacks, in percent.
    fn given_up(&self, at: usize, to: &GpuRequest) -> u64 {
        let Some(from) = self.demand.containers[at].request else { return 0 };
        let lost = |from: u64, to: u64| from.saturating_sub(to).saturating_mul(100) / from.max(1);
        let amount = |memory: MemoryAmount| match memory {
            MemoryAmount::Absolute(memory) => memory.as_mib(),
            MemoryAmount::Percent(percent) => percent.into(),
        };
        let cores = lost(from.cores.units().into(), to.cores.units().into());
        lost(from.cards.into(), to.cards.into()).max(lost(amount(from.memory), amount(to.memory))).max(cores)
    }

    fn with_smaller(&self, changes: &[(usize, GpuRequest)]) -> Option<Suggestion> {
        let smaller = self.changed(changes);
        let node = self.first_fit(&smaller)?;
        let of_container = |(at, to): &(usize, GpuRequest)| {
            let container = &self.demand.containers[*at];
            Some(ChangedRequest { container: container.name.clone(), from: container.request?, to: *to })
        };
        let containers = changes.iter().filter_map(of_container).collect();
        let state = node.state_without(|holder| self.is_own(holder));
        Some(self.found(Change::SmallerRequest { containers }, node, &state, &smaller))
    }
}

/// The request with the most memory that fits, not below this percentage of what it has.
fn most_memory(from: GpuRequest, least: u64, fits: impl Fn(GpuRequest) -> bool) -> Option<GpuRequest> {
    let (most, of): (u64, fn(u64) -> MemoryAmount) = match from.memory {
        MemoryAmount::Absolute(memory) => (memory.as_mib(), |mib| MemoryAmount::Absolute(Memory::mib(mib))),
        MemoryAmount::Percent(percent) => (percent.into(), |percent| MemoryAmount::Percent(narrow(percent))),
    };
    let with = |amount| GpuRequest { memory: of(amount), ..from };
    largest(part(most, least)..most + 1, |amount| fits(with(amount))).map(with)
}

/// The request with the most cores that fits, likewise; it stays one for a part of a GPU.
fn most_cores(from: GpuRequest, least: u64, fits: impl Fn(GpuRequest) -> bool) -> Option<GpuRequest> {
    let most = u64::from(from.cores.units());
    let of = |cores| GpuRequest { cores: Cores::new(narrow(cores)), ..from };
    let end = if from.is_exclusive() { most } else { most + 1 };
    largest((most * least).div_ceil(100)..end, |cores| fits(of(cores))).map(of)
}

/// So many percent of a request's memory and cores.
fn part_of(from: GpuRequest, percent: u64) -> GpuRequest {
    let percent = narrow(percent);
    let memory = match from.memory {
        MemoryAmount::Absolute(memory) => MemoryAmount::Absolute(memory.percent(percent).max(Memory::mib(1))),
        MemoryAmount::Percent(whole) => MemoryAmount::Percent((whole * percent / 100).max(1)),
    };
    GpuRequest { memory, cores: Cores::new(from.cores.units() * percent / 100), ..from }
}

/// The largest of these numbers that fits, if one does: what fits, fits with less too.
fn largest(Range { start: mut fitting, end: mut beyond }: Range<u64>, fits: impl Fn(u64) -> bool) -> Option<u64> {
    if fitting >= beyond || !fits(fitting) {
        return None;
    }
    while beyond - fitting > 1 {
        let middle = u64::midpoint(fitting, beyond);
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    Some(fitting)
}

/// So many percent of an amount, and something of it.
fn part(amount: u64, percent: u64) -> u64 {
    (amount * percent).div_ceil(100).max(1)
}

/// A number of a range between two that are as narrow.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
