//! The cards that the library shows, and what goes wrong, as a file says it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io, process};

use serde::{Deserialize, Serialize};

use crate::codes::Code;

/// A machine as CUDA sees it. What is common with fake-nvml's scenario has the same names there, and names that aren't
/// known are left alone: one file can serve both libraries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// `cuDriverGetVersion`: 1000 × major + 10 × minor. Newer functions can't be looked up by `cuGetProcAddress`.
    pub cuda_version: i32,
    /// In the order of their ordinals, as far as `CUDA_VISIBLE_DEVICES` doesn't change it.
    pub cards: Vec<CardDescription>,
    /// Microseconds for which a process has a card when others have work too.
    pub slice_us: u64,
    /// Calls that fail.
    pub faults: BTreeMap<String, Fault>,
    /// Microseconds that calls take longer.
    pub delays_us: BTreeMap<String, u64>,
    /// Functions that an older driver lacks. `cuGetProcAddress` doesn't find them, and [`crate::install()`] hides them from
    /// `dlsym`.
    pub lacks: BTreeSet<String>,
    /// Functions that a newer driver has besides, for `cuGetProcAddress` alone, by their exported name.
    pub gains: BTreeMap<String, Gain>,
    /// Whether `cuGetProcAddress` answers with addresses of which none is that of an exported symbol.
    pub inner_addresses: bool,
    /// Bytes of a page: `cuMemAlloc` and its like take whole ones of the card, and up to half of one together with others. Those
    /// of a driver are taken to be 2 MiB. 1: what is asked for.
    pub rounding: u64,
    /// Bytes of a card's memory that are read or written in a microsecond: what memsets and copies within a card take.
    pub bytes_per_us: u64,
    /// The granularity of `cuMemCreate`, pools, and the least and only granularity of virtual memory.
    pub granularity: u64,
}

/// One card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardDescription {
    /// `GPU-…` with 32 hexadecimal digits, or any text, from which such are made.
    pub uuid: String,
    /// `cuDeviceGetName`.
    pub model: String,
    /// Bytes.
    pub memory_total: u64,
    /// Bytes that others hold than the processes with this library.
    #[serde(default)]
    pub memory_used: u64,
    /// `domain:bus:device.function`.
    #[serde(default = "pci_bus_id")]
    pub pci_bus_id: String,
    /// Major and minor.
    #[serde(default = "hopper")]
    pub compute_capability: (i32, i32),
    /// Streaming multiprocessors.
    #[serde(default = "multiprocessors")]
    pub multiprocessors: i32,
    /// Bytes that each context costs.
    #[serde(default)]
    pub context_bytes: u64,
    /// Bytes that each executable graph costs beside its nodes.
    #[serde(default)]
    pub graph_bytes: u64,
    /// Bytes that each node of an executable graph costs.
    #[serde(default)]
    pub graph_node_bytes: u64,
    /// Bytes that each module costs, once a function of it was launched.
    #[serde(default)]
    pub module_bytes: u64,
    /// Whether managed memory moves by pages, as on all but old cards.
    #[serde(default = "concurrent_managed_access")]
    pub concurrent_managed_access: bool,
}

/// When a call fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// `CUDA_ERROR_…`.
    pub code: String,
    /// Which call of the process, from 1 on. `None`: each.
    #[serde(default)]
    pub nth: Option<u64>,
}

/// A function of a newer driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// The function that does its work. Its address is another.
    pub like: String,
    /// The CUDA version that it came with, which can't be newer than the driver's.
    pub since: i32,
}

/// A machine that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The file can't be read.
    #[error("can't read the machine: {0}")]
    Read(#[from] io::Error),
    /// Not a machine; says line and column.
    #[error("not a machine: {0}")]
    Malformed(#[from] serde_json::Error),
    /// No such function.
    #[error("{0:?} is no function of this library")]
    Function(String),
    /// No such code.
    #[error("{0:?} is no result that this library knows: expected a name like \"CUDA_ERROR_OUT_OF_MEMORY\"")]
    Code(String),
}

fn hopper() -> (i32, i32) {
    (9, 0)
}

fn concurrent_managed_access() -> bool {
    true
}

fn multiprocessors() -> i32 {
    132
}

fn pci_bus_id() -> String {
    "00000000:17:00.0".to_owned()
}

// === impl Machine ===

impl Default for Machine {
    fn default() -> Self {
        Self {
            cuda_version: 13_000,
            cards: Vec::new(),
            slice_us: 2000,
            faults: BTreeMap::new(),
            delays_us: BTreeMap::new(),
            lacks: BTreeSet::new(),
            gains: BTreeMap::new(),
            inner_addresses: false,
            rounding: 2 << 20,
            bytes_per_us: 2_000_000,
            granularity: 2 << 20,
        }
    }
}

impl Machine {
    /// `count` cards of `memory_total` bytes each. Card `n` is called [`Machine::uuid`]`(n)`.
    pub fn uniform(count: u32, memory_total: u64) -> Self {
        let card = |number| CardDescription {
            uuid: Self::uuid(number),
            model: "NVIDIA H200".to_owned(),
            memory_total,
            memory_used: 0,
            pci_bus_id: format!("00000000:{:02X}:00.0", 0x17 + 8 * number),
            compute_capability: hopper(),
            multiprocessors: multiprocessors(),
            context_bytes: 0,
            graph_bytes: 0,
            graph_node_bytes: 0,
            module_bytes: 0,
            concurrent_managed_access: true,
        };
        Self { cards: (0..count).map(card).collect(), ..Self::default() }
    }

    /// The UUID of card `number` of [`Machine::uniform`]; fake-nvml's presets have the same.
    pub fn uuid(number: u32) -> String {
        format!("GPU-{number:08x}-fa4e-4a11-8000-{number:012x}")
    }

    /// Reads a machine and checks it; functions that are named must be known.
    pub fn read(path: &Path, is_known: impl Fn(&str) -> bool) -> Result<Self, MachineError> {
        let machine: Self = serde_json::from_str(&fs::read_to_string(path)?)?;
        let called = machine.faults.keys().chain(machine.delays_us.keys()).chain(&machine.lacks);
        for name in called.chain(machine.gains.values().map(|gain| &gain.like)) {
            if !is_known(name) {
                return Err(MachineError::Function(name.clone()));
            }
        }
        for fault in machine.faults.values() {
            Code::named(&fault.code).ok_or_else(|| MachineError::Code(fault.code.clone()))?;
        }
        Ok(machine)
    }

    /// Writes the file and then renames it into place.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension(format!("{}.tmp", process::id()));
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
        fs::rename(unfinished, path)
    }
}

// === impl CardDescription ===

impl CardDescription {
    /// The 16 bytes of the UUID.
    pub(crate) fn uuid_bytes(&self) -> [u8; 16] {
        let digits: Vec<u32> = self.uuid.trim_start_matches("GPU-").chars().filter_map(|c| c.to_digit(16)).collect();
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::try_from(pair[0] << 4 | pair[1]).unwrap_or_default();
        }
        bytes
    }
}
