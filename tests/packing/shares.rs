//! Workloads in which memory and compute of cards differ, from a trace that has one number for both.

use rand::{RngExt as _, SeedableRng as _};

use divvy_simulate::Rng;
use divvy_simulate::workload::{Kind, Part, Workload};

/// Change of the shares that pods ask for. Whole cards stay whole.
#[derive(Clone, Copy, Debug)]
pub enum Shares {
    /// No change.
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
    /// Workload of the same pods, asking for these shares.
    pub fn of_workload(self, workload: &Workload) -> Workload {
        let mut workload = workload.clone();
        workload.kinds.iter_mut().for_each(|kind| *kind = self.of(*kind));
        workload
    }

    /// What pods of this kind ask for then.
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

    /// Adjective of the workload.
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
