//! Workloads of other pods than those of a trace, on which nothing was tuned.

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use divvy_simulate::Rng;
use divvy_simulate::workload::{Kind, Machine, Workload};

/// Change of the pods that come.
#[derive(Clone, Copy, Debug)]
pub enum Variant {
    /// Those that ask for no cards come twice.
    TwiceWithoutCards,
    /// A third of those that ask for cards accept one model only, drawn in proportion to the cards of the machines where
    /// they fit.
    ThirdNamesModel,
}

/// Seed of all draws, so that the workload is always the same.
const SEED: u64 = 7001;

// === impl Variant ===

impl Variant {
    /// Workload with the change.
    pub fn of_workload(self, workload: &Workload) -> Workload {
        let mut workload = workload.clone();
        match self {
            Self::TwiceWithoutCards => repeat_without_cards(&mut workload),
            Self::ThirdNamesModel => name_models(&mut workload),
        }
        workload
    }

    /// Words for the change, after the name of the trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TwiceWithoutCards => "twice the pods without GPUs",
            Self::ThirdNamesModel => "a third names one model",
        }
    }
}

fn repeat_without_cards(workload: &mut Workload) {
    let Workload { kinds, pods, .. } = workload;
    let without: Vec<usize> = pods.iter().copied().filter(|kind| kinds[*kind].cards == 0).collect();
    pods.extend(without);
}

fn name_models(workload: &mut Workload) {
    let Workload { machines, kinds, pods, .. } = workload;
    let mut rng = Rng::seed_from_u64(SEED);
    for pod in pods {
        let kind = kinds[*pod];
        if kind.cards == 0 || rng.random_range(0..3) > 0 {
            continue;
        }
        let fitting: Vec<&Machine> = machines.iter().filter(|machine| machine.fits(&kind)).collect();
        // A pod that fits nowhere stays as it is.
        let Ok(machine) = fitting.choose_weighted(&mut rng, |machine| machine.cards) else { continue };
        let picky = Kind { models: [machine.model].into_iter().collect(), ..kind };
        *pod = kinds.iter().position(|known| *known == picky).unwrap_or_else(|| {
            kinds.push(picky);
            kinds.len() - 1
        });
    }
}
