//! Workloads in which memory and compute of cards differ, from a trace that has one number for both.

use clap::ValueEnum;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

use crate::Rng;
use crate::workload::{Kind, Part};

/// Change of the shares that pods ask for. Whole cards stay whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// No change.
    #[default]
    AsGiven,
    /// Half as much compute as memory.
    MemoryBound,
    /// Half as much memory as compute.
    CoreBound,
    /// A third of the kinds of pods each way, by a draw that depends on nothing but the kind.
    Mixed,
}

// === impl Shares ===

impl Shares {
    /// What pods of this kind ask for then.
    #[must_use]
    pub fn of(self, kind: Kind) -> Kind {
        let Part { cores, memory } = kind.part;
        let part = match self {
            _ if !kind.is_share() => kind.part,
            Self::AsGiven => kind.part,
            Self::MemoryBound => Part { cores: half(memory), memory },
            Self::CoreBound => Part { cores, memory: half(cores) },
            Self::Mixed => return drawn(&kind).of(kind),
        };
        Kind { part, ..kind }
    }

    /// As it is asked for.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AsGiven => "as-given",
            Self::MemoryBound => "memory-bound",
            Self::CoreBound => "core-bound",
            Self::Mixed => "mixed",
        }
    }
}

/// Half of so many thousandths, up to the next whole percent: users ask for no less, so no policy is to lose by it.
fn half(thousandths: u32) -> u32 {
    (thousandths.div_ceil(20) * 10).min(thousandths)
}

fn drawn(kind: &Kind) -> Shares {
    let Kind { cpu, memory, part, .. } = *kind;
    let numbers = [memory, part.cores, part.memory].into_iter();
    // Odd and far from a power of two, so that kinds which differ in one number alone have other seeds.
    let seed = numbers.fold(u64::from(cpu), |seed, number| seed.wrapping_mul(1_000_003) ^ u64::from(number));
    [Shares::AsGiven, Shares::MemoryBound, Shares::CoreBound][Rng::seed_from_u64(seed).random_range(0..3)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Models;

    fn kind(cards: u32, cpu: u32, cores: u32, memory: u32) -> Kind {
        Kind { cpu, memory: 1024, cards, part: Part { cores, memory }, models: Models::ANY }
    }

    #[test]
    fn shares_halve_one_amount_in_whole_percents() {
        let part = |shares: Shares, cores, memory| {
            let Part { cores, memory } = shares.of(kind(1, 1000, cores, memory)).part;
            (cores, memory)
        };
        assert_eq!(part(Shares::AsGiven, 460, 300), (460, 300));
        assert_eq!(part(Shares::MemoryBound, 460, 460), (230, 460));
        assert_eq!(part(Shares::CoreBound, 810, 810), (810, 410));
        assert_eq!(part(Shares::CoreBound, 1, 1), (1, 1), "half of next to nothing is no more");
        assert_eq!(part(Shares::MemoryBound, 500, 1000), (500, 1000));
    }

    #[test]
    fn whole_cards_and_pods_without_cards_stay_as_they_are() {
        for shares in [Shares::MemoryBound, Shares::CoreBound, Shares::Mixed] {
            for kind in [kind(8, 1000, 1000, 1000), kind(1, 1000, 1000, 1000), kind(0, 1000, 0, 0)] {
                assert_eq!(shares.of(kind), kind);
            }
        }
    }

    #[test]
    fn mixed_shares_change_a_fixed_third_each_way() {
        let mixed = |cpu| Shares::Mixed.of(kind(1, cpu, 500, 500)).part;
        let mut counts = [0; 3];
        for part in (0..3000).map(mixed) {
            counts[usize::from(part.cores < part.memory) + 2 * usize::from(part.cores > part.memory)] += 1;
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        let first: Vec<u32> = (0..6).map(|cpu| mixed(cpu).cores).collect();
        assert_eq!(first, [500, 500, 500, 250, 250, 250], "drawn as ever");
    }
}
