//! Nodes and pods of the comparison, the same for both schedulers.

use std::sync::Arc;

use divvy_simulate::Rng;
use divvy_simulate::fill;
use divvy_simulate::workload::{Kind, Machine, Models, Part, Taints, Workload};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;

/// How many nodes there are of a size: with so many GPUs, CPU cores and GiB of memory, and GPUs of this model. Those of the
/// second and the third size have little CPU for each GPU.
const SIZES: [(usize, u32, u32, u32, usize); 6] = [
    (10, 8, 96, 768, 0),
    (8, 8, 56, 512, 0),
    (26, 4, 28, 256, 1),
    (46, 2, 40, 192, 2),
    (70, 1, 24, 96, 1),
    (16, 0, 32, 128, 0),
];
const MODELS: [&str; 3] = ["A100", "L4", "T4"];

/// How often pods of a kind come, their CPU cores and GiB of memory, their GPUs, percents of compute and memory of each, and
/// the models that will do, or none if all will.
type Row = (usize, [u32; 2], u32, [u32; 2], &'static [usize]);
const KINDS: [Row; 17] = [
    (6, [2, 8], 1, [10, 10], &[]),
    (6, [4, 16], 1, [20, 30], &[]),
    (6, [4, 16], 1, [30, 25], &[]),
    (7, [6, 16], 1, [50, 50], &[]),
    (5, [4, 32], 1, [35, 60], &[]),
    (4, [8, 32], 1, [70, 65], &[]),
    (3, [6, 24], 1, [90, 80], &[]),
    (4, [4, 16], 1, [50, 40], &[1]),
    (3, [6, 16], 1, [25, 25], &[0, 2]),
    (14, [8, 32], 1, [100, 100], &[]),
    (4, [8, 32], 1, [100, 100], &[0]),
    (6, [16, 64], 2, [100, 100], &[]),
    (4, [24, 128], 4, [100, 100], &[]),
    (3, [48, 256], 8, [100, 100], &[]),
    (8, [16, 32], 0, [0, 0], &[]),
    (6, [8, 48], 0, [0, 0], &[]),
    (4, [30, 64], 0, [0, 0], &[]),
];
/// What pods ask for in the end, in percent of all GPUs.
const UNTIL: u32 = 108;
/// Of the order of nodes and pods.
const SEED: u64 = 36;

/// The nodes, with pods of those kinds that are wanted.
pub(super) fn workload(is_wanted: impl Fn(&Kind) -> bool) -> Arc<Workload> {
    let machine = |cards, cpu: u32, memory: u32, model| Machine {
        cpu: cpu * 1000,
        memory: memory << 10,
        cards,
        model,
        taints: Taints::default(),
    };
    let sizes = SIZES.into_iter();
    let mut machines: Vec<Machine> =
        sizes.flat_map(|(nodes, cards, cpu, memory, model)| vec![machine(cards, cpu, memory, model); nodes]).collect();
    machines.shuffle(&mut Rng::seed_from_u64(SEED));
    let wanted = KINDS.iter().map(|row| (row.0, kind(row))).filter(|(_, kind)| is_wanted(kind));
    let (often, kinds): (Vec<usize>, Vec<Kind>) = wanted.unzip();
    let pods = often.into_iter().enumerate().flat_map(|(kind, often)| vec![kind; often]).collect();
    Arc::new(Workload { machines, models: MODELS.map(str::to_owned).into(), kinds, pods })
}

/// Pods of a workload in their order, as numbers of their kinds.
pub(super) fn pods(workload: &Workload) -> Vec<usize> {
    fill::arrivals(workload, UNTIL, &mut Rng::seed_from_u64(SEED))
}

fn kind(&(_, [cpu, memory], cards, [cores, card_memory], models): &Row) -> Kind {
    let part = Part { cores: cores * 10, memory: card_memory * 10 };
    let models = if models.is_empty() { Models::ANY } else { models.iter().copied().collect() };
    Kind { cpu: cpu * 1000, memory: memory << 10, cards, part, models, tolerates: Taints::default() }
}
