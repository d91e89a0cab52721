//! What either scheduler left.

use divvy_simulate::cluster::{Cluster, Host, Place};
use divvy_simulate::workload::Workload;

/// What is compared, with how much is no difference whatever the simulated runs say.
const FIGURES: [(&str, f64); 7] = [
    ("GPUs unallocated at 50 % of demand, %", EIGHT_GPUS),
    ("GPUs unallocated at 75 % of demand, %", EIGHT_GPUS),
    ("GPUs unallocated at 100 % of demand, %", EIGHT_GPUS),
    ("pods with GPUs dropped", 2.0),
    ("pods without GPUs dropped", 2.0),
    ("CPU of nodes with GPUs that pods without GPUs take, %", 1.0),
    ("GPUs that nobody uses", 4.0),
];
/// Those of the largest pod, in percent of all.
const EIGHT_GPUS: f64 = 2.0;
/// In percent of all GPUs.
const LOADS: [f64; 3] = [50.0, 75.0, 100.0];

/// One run so far.
pub(super) struct Tally<'a> {
    workload: &'a Workload,
    cluster: Cluster,
    /// Thousandths of GPUs that pods have asked for.
    demand: f64,
    /// At each load that has been reached.
    unallocated: Vec<f64>,
    dropped_with_gpus: u32,
    dropped_without: u32,
    /// Thousandths of a core, of pods without GPUs on nodes with GPUs.
    beside_gpus: u32,
}

// === impl Tally ===

impl<'a> Tally<'a> {
    /// Nobody has come yet.
    pub(super) fn new(workload: &'a Workload) -> Self {
        let cluster = Cluster::in_order(workload, 0..workload.machines.len());
        let (demand, unallocated) = (0.0, Vec::new());
        Self { workload, cluster, demand, unallocated, dropped_with_gpus: 0, dropped_without: 0, beside_gpus: 0 }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A pod has come, and has been placed or dropped.
    pub(super) fn note(&mut self, kind: usize, place: Option<Place>) {
        let kind = &self.workload.kinds[kind];
        match place {
            Some(place) => {
                self.cluster.place(kind, place);
                let host = &self.cluster.hosts()[place.host];
                self.beside_gpus += if kind.cards == 0 && !host.cards.is_empty() { kind.cpu } else { 0 };
            }
            None if kind.cards > 0 => self.dropped_with_gpus += 1,
            None => self.dropped_without += 1,
        }
        self.demand += kind.demand();
        if LOADS.get(self.unallocated.len()).is_some_and(|load| self.cluster.percent(self.demand) >= *load) {
            self.unallocated.push(100.0 - self.cluster.allocated());
        }
    }

    /// In the order of [`FIGURES`].
    pub(super) fn figures(&self) -> Figures {
        let at = |load: usize| self.unallocated.get(load).copied().unwrap_or(100.0);
        let with_gpus = self.workload.machines.iter().filter(|machine| machine.cards > 0);
        let cpu: u32 = with_gpus.map(|machine| machine.cpu).sum();
        let whole: usize = self.cluster.hosts().iter().map(Host::whole_cards).sum();
        [
            at(0),
            at(1),
            at(2),
            self.dropped_with_gpus.into(),
            self.dropped_without.into(),
            100.0 * f64::from(self.beside_gpus) / f64::from(cpu),
            u32::try_from(whole).unwrap_or(u32::MAX).into(),
        ]
    }
}

/// Figures of one run, in the order of [`FIGURES`].
pub(super) type Figures = [f64; FIGURES.len()];

/// Standard deviations that are no difference.
const DEVIATIONS: f64 = 3.0;

/// Prints a table of both, and returns the figures in which a real run isn't as the simulated ones.
pub(super) fn compare(real: &[Figures], simulated: &[Figures]) -> Vec<String> {
    println!("    {:<54} {:<15} {:<16} real", "", "simulated", "range");
    let mut wrong = Vec::new();
    for (at, (name, slack)) in FIGURES.into_iter().enumerate() {
        let values = || simulated.iter().map(|run| run[at]);
        let (mean, deviation) = mean_and_deviation(values());
        let (least, most) = values().fold((f64::MAX, f64::MIN), |(least, most), one| (least.min(one), most.max(one)));
        let (said, range) = (format!("{mean:.2} ± {deviation:.2}"), format!("{least:.2} to {most:.2}"));
        let each: Vec<String> = real.iter().map(|run| format!("{:.2}", run[at])).collect();
        println!("    {name:<54} {said:<15} {range:<16} {}", each.join(", "));
        let is_off = |run: &&Figures| (run[at] - mean).abs() > DEVIATIONS * deviation + slack;
        wrong.extend(real.iter().filter(is_off).map(|run| format!("{name}: {:.2} instead of {said}", run[at])));
    }
    wrong
}

fn mean_and_deviation(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count: f64 = values.clone().map(|_| 1.0).sum();
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0)).sqrt())
}
