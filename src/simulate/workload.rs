//! A trace in numbers: machines, and pods by their kind, of which there are few.

use std::collections::{BTreeSet, HashMap};
use std::ops::{AddAssign, SubAssign};
use std::path::Path;

use crate::trace::{self, TraceError, TraceNode, TracePod};

/// What one pod asks for. Pods of one kind are interchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Thousandths of a CPU core.
    pub cpu: u32,
    /// Host memory in MiB.
    pub memory: u32,
    /// Number of cards; 0 for a pod that asks for none.
    pub cards: u32,
    /// Part of each card; all of it where there are several.
    pub part: Part,
    /// Models that will do.
    pub models: Models,
    /// Taints that don't keep it off.
    pub tolerates: Taints,
}

/// Part of one card, or what is free of it, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    /// Part of its compute.
    pub cores: u32,
    /// Part of its memory.
    pub memory: u32,
}

/// A pod that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Unique serial number.
    pub serial: u64,
    /// Number of its kind.
    pub kind: usize,
}

/// A set of models, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Models(u64);

/// A set of taints of effect `NoSchedule` or `NoExecute`, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Taints(u64);

/// A node with nobody on it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Thousandths of a CPU core.
    pub cpu: u32,
    /// Host memory in MiB.
    pub memory: u32,
    /// Number of cards.
    pub cards: u32,
    /// Model of its cards, by number.
    pub model: usize,
    /// Taints that keep off pods which don't tolerate them.
    pub taints: Taints,
}

/// Machines, and pods that may come.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The machines, in the order of the file.
    pub machines: Vec<Machine>,
    /// Names of models, by number.
    pub models: Vec<String>,
    /// Every kind of pod that there is.
    pub kinds: Vec<Kind>,
    /// The pods in the order of the file, each the number of its kind.
    pub pods: Vec<usize>,
}

/// What can't be simulated.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A file.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Sets of models are numbers of 64 bits.
    #[error("the nodes have GPUs of {0} models: expected at most 64")]
    Models(usize),
    /// Shares of nothing.
    #[error("no node has a GPU: expected at least one with gpu above 0")]
    NoCards,
    /// The load is counted in cards.
    #[error("no pod asks for a GPU: expected at least one with num_gpu above 0")]
    NoDemand,
}

// === impl Models ===

impl Models {
    /// Whatever there is.
    pub const ANY: Self = Self(u64::MAX);

    /// Whether this model is one of them.
    pub fn contain(self, model: usize) -> bool {
        self.0 >> model & 1 == 1
    }
}

impl FromIterator<usize> for Models {
    fn from_iter<I: IntoIterator<Item = usize>>(models: I) -> Self {
        Self(models.into_iter().fold(0, |set, model| set | 1 << model))
    }
}

// === impl Taints ===

impl Taints {
    /// Most taints that are told apart.
    pub const MOST: usize = u64::BITS as usize;

    /// Whether all of the others are among these.
    pub fn include(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }
}

impl FromIterator<usize> for Taints {
    /// Makes a set of their numbers, which are below [`MOST`](Self::MOST).
    fn from_iter<I: IntoIterator<Item = usize>>(taints: I) -> Self {
        Self(taints.into_iter().fold(0, |set, taint| set | 1 << taint))
    }
}

// === impl Machine ===

impl Machine {
    /// Whether a pod fits while nobody is there.
    pub fn fits(&self, kind: &Kind) -> bool {
        self.cpu >= kind.cpu
            && self.memory >= kind.memory
            && self.cards >= kind.cards
            && (kind.cards == 0 || kind.models.contain(self.model))
            && kind.tolerates.include(self.taints)
    }
}

// === impl Kind ===

impl Kind {
    /// Thousandths of cards, all together: the mean of compute and memory. A half is exact.
    pub fn demand(&self) -> f64 {
        f64::from(self.cards) * f64::from(self.part.sum()) / 2.0
    }

    /// Whether it leaves some of its card's compute to others.
    pub fn is_share(&self) -> bool {
        self.cards == 1 && self.part.cores < Part::WHOLE.cores
    }
}

// === impl Part ===

impl Part {
    /// A card that nobody uses.
    pub const WHOLE: Self = Self { cores: 1000, memory: 1000 };

    /// Whether there is as much of both.
    pub fn covers(self, other: Self) -> bool {
        self.cores >= other.cores && self.memory >= other.memory
    }

    /// Both together: 2000 of a whole card.
    pub fn sum(self) -> u32 {
        self.cores + self.memory
    }
}

impl AddAssign for Part {
    fn add_assign(&mut self, other: Self) {
        *self = Self { cores: self.cores + other.cores, memory: self.memory + other.memory };
    }
}

impl SubAssign for Part {
    fn sub_assign(&mut self, other: Self) {
        *self = Self { cores: self.cores - other.cores, memory: self.memory - other.memory };
    }
}

// === impl Workload ===

impl Workload {
    /// Reads both files.
    pub fn read(nodes: &Path, pods: &Path) -> Result<Self, WorkloadError> {
        let nodes = trace::nodes(nodes)?;
        let models = nodes.iter().filter(|node| node.cards > 0).map(|node| &*node.model).collect();
        let pods = trace::pods(pods, Some(&models))?;
        Self::new(&nodes, &pods)
    }

    /// Workload of these rows.
    pub fn new(nodes: &[TraceNode], pods: &[TracePod]) -> Result<Self, WorkloadError> {
        let models: BTreeSet<&str> = nodes.iter().filter(|node| node.cards > 0).map(|node| &*node.model).collect();
        let models: Vec<String> = models.into_iter().map(str::to_owned).collect();
        let machine = |node: &TraceNode| {
            let TraceNode { cpu, memory, cards, model, .. } = node;
            let model = number(&models, model).unwrap_or_default();
            Machine { cpu: *cpu, memory: *memory, cards: *cards, model, taints: Taints::default() }
        };
        let machines: Vec<Machine> = nodes.iter().map(machine).collect();
        let names = models.clone();
        Self::from_machines(machines, models, pods.iter().map(|pod| kind(pod, &names)))
    }

    /// Workload of these machines, with models of these names, and of these pods, which are made only if a set holds so many
    /// models.
    pub fn from_machines(
        machines: Vec<Machine>,
        models: Vec<String>,
        pods: impl IntoIterator<Item = Kind>,
    ) -> Result<Self, WorkloadError> {
        if models.len() > 64 {
            return Err(WorkloadError::Models(models.len()));
        }
        let (kinds, pods) = numbered(pods);
        let workload = Self { machines, models, kinds, pods };
        match (workload.capacity(), workload.mean_demand()) {
            (0, _) => Err(WorkloadError::NoCards),
            (_, mean) if mean <= 0.0 => Err(WorkloadError::NoDemand),
            _ => Ok(workload),
        }
    }

    /// Thousandths of all cards.
    pub fn capacity(&self) -> u64 {
        self.machines.iter().map(|machine| u64::from(machine.cards) * 1000).sum()
    }

    /// Thousandths of cards that a pod asks for on average.
    pub fn mean_demand(&self) -> f64 {
        let sum: f64 = self.pods.iter().map(|kind| self.kinds[*kind].demand()).sum();
        sum / self.pods.len() as f64
    }
}

fn number(models: &[String], name: &str) -> Option<usize> {
    models.iter().position(|model| model == name)
}

fn kind(pod: &TracePod, models: &[String]) -> Kind {
    let any = pod.models.is_empty().then_some(Models::ANY);
    let wanted = any.unwrap_or_else(|| pod.models.iter().filter_map(|model| number(models, model)).collect());
    let TracePod { cpu, memory, cards, milli, card_memory, .. } = *pod;
    let part = Part { cores: milli, memory: card_memory.unwrap_or(milli) };
    Kind { cpu, memory, cards, part, models: wanted, tolerates: Taints::default() }
}

/// The kinds of these pods, and each pod by the number of its kind.
fn numbered(pods: impl IntoIterator<Item = Kind>) -> (Vec<Kind>, Vec<usize>) {
    let mut kinds = Vec::new();
    let mut known = HashMap::new();
    let mut numbers = Vec::new();
    for kind in pods {
        let number = *known.entry(kind).or_insert(kinds.len());
        if number == kinds.len() {
            kinds.push(kind);
        }
        numbers.push(number);
    }
    (kinds, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_models_than_a_set_holds_are_refused() {
        let node =
            |number| TraceNode { cpu: 1, memory: 1, cards: 1, model: format!("M{number:02}"), ..TraceNode::default() };
        let pod = TracePod { cards: 1, milli: 1000, models: vec!["M64".to_owned()], ..TracePod::default() };
        let nodes: Vec<TraceNode> = (0..65).map(node).collect();
        let refused = Workload::new(&nodes, &[pod]).expect_err("too many");
        assert_eq!(refused.to_string(), "the nodes have GPUs of 65 models: expected at most 64");
    }
}
