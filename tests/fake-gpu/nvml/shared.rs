//! Cards that programs use through fake-cuda: who is on them, with how much memory, and how busy they keep them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::{env, iter};

use fake_card::{Card, Usage, clock};

use crate::scenario::{CardScenario, Process};

/// As often as NVML takes a sample, in nanoseconds.
const SAMPLE: u64 = 1_000_000_000 / 6;

/// `FAKE_CUDA_STATE`; without it no card is used.
static STATE: LazyLock<Option<PathBuf>> = LazyLock::new(|| env::var_os("FAKE_CUDA_STATE").map(PathBuf::from));

/// The last sample of each card, by UUID.
static SAMPLES: Mutex<BTreeMap<String, Sample>> = Mutex::new(BTreeMap::new());

/// How much time a card has given to each process.
struct Sample {
    card: Card,
    at: u64,
    busy: BTreeMap<u32, u64>,
    /// Percent of the time between this sample and the one before.
    percent: BTreeMap<u32, u32>,
}

/// A card at this moment.
pub(crate) struct Seen {
    /// Bytes.
    pub(crate) memory_used: u64,
    /// Percent of time in which a kernel ran.
    pub(crate) utilization: u32,
    /// Those of the scenario and of fake-cuda.
    pub(crate) processes: Vec<Process>,
    /// Those that are clients of the multi-process service, which aren't among the others.
    pub(crate) clients: Vec<Process>,
    /// Microseconds: when the processes' percents were measured.
    pub(crate) sampled_at: u64,
}

/// Where the cards' compute modes are kept: with their state, or with the scenario.
pub(crate) fn modes() -> Option<PathBuf> {
    STATE.clone().or_else(|| Some(crate::driver::scenario_path()?.parent()?.to_owned()))
}

/// A card as its scenario says, with what goes on there.
pub(crate) fn look(card: &CardScenario) -> Seen {
    let mut samples = SAMPLES.lock().unwrap_or_else(PoisonError::into_inner);
    let scenario = Seen {
        memory_used: card.memory_used,
        utilization: card.utilization,
        processes: card.processes.clone(),
        clients: card.clients.clone(),
        sampled_at: clock() / 1000,
    };
    if !samples.contains_key(&card.uuid) {
        let opened = STATE.as_ref().and_then(|state| Card::open(state, &card.uuid).ok());
        let Some(opened) = opened else { return scenario };
        let sample = Sample { card: opened, at: clock(), busy: busy(&opened.usage()), percent: BTreeMap::new() };
        samples.insert(card.uuid.clone(), sample);
    }
    let Some(sample) = samples.get_mut(&card.uuid) else { return scenario };
    let usage = sample.card.usage();
    sample.renew(&usage);
    let present = |usage: &&Usage| usage.alive && (usage.memory > 0 || usage.launches > 0);
    let process = |usage: &Usage| Process {
        pid: usage.pid,
        memory_used: usage.memory.saturating_sub(usage.managed), // managed memory is no process's
        utilization: sample.percent.get(&usage.pid).copied().unwrap_or(0),
    };
    let of_kind =
        |client: bool| usage.iter().filter(move |usage| usage.is_client == client).filter(present).map(process);
    Seen {
        memory_used: usage.iter().fold(card.memory_used, |sum, usage| sum.saturating_add(usage.memory)),
        utilization: iter::once(&card.utilization).chain(sample.percent.values()).sum::<u32>().min(100),
        processes: scenario.processes.into_iter().chain(of_kind(false)).collect(),
        clients: scenario.clients.into_iter().chain(of_kind(true)).collect(),
        sampled_at: sample.at / 1000,
    }
}

fn busy(usage: &[Usage]) -> BTreeMap<u32, u64> {
    usage.iter().map(|usage| (usage.pid, usage.busy)).collect()
}

// === impl Sample ===

impl Sample {
    /// Takes another sample, if it is time.
    fn renew(&mut self, usage: &[Usage]) {
        let passed = clock().saturating_sub(self.at);
        if passed < SAMPLE {
            return;
        }
        let now = busy(usage);
        let percent = |(pid, busy): (&u32, &u64)| {
            let worked = busy.saturating_sub(self.busy.get(pid).copied().unwrap_or(0));
            (*pid, u32::try_from(worked.saturating_mul(100) / passed).unwrap_or(100).min(100))
        };
        self.percent = now.iter().map(percent).collect();
        (self.at, self.busy) = (self.at + passed, now);
    }
}
