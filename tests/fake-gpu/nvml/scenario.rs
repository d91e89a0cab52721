//! What the library answers, as a file says it. Sizes are bytes, as NVML gives them.

mod call;
mod mig;
mod presets;
mod returns;
mod sensors;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io, process};

use serde::{Deserialize, Serialize};

pub use call::Call;
pub use mig::{InstanceScenario, MigScenario};
pub use returns::NvmlReturn;
pub use sensors::{RemappedRows, SensorScenario};

/// A machine as NVML sees it, and what goes wrong on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// `nvmlSystemGetDriverVersion`.
    pub driver_version: String,
    /// `nvmlSystemGetCudaDriverVersion_v2`: 1000 × major + 10 × minor.
    pub cuda_version: i32,
    /// Without a driver nothing but `nvmlErrorString` answers.
    pub driver_loaded: bool,
    /// Another value stands for another load of the driver: whoever initialised under the earlier one is told
    /// `NVML_ERROR_UNINITIALIZED` until it shuts down and initialises again.
    pub driver_load: u64,
    /// In the order of their indices.
    pub cards: Vec<CardScenario>,
    /// Pairs of cards; those not listed meet across sockets and have no NVLink.
    pub links: Vec<LinkScenario>,
    /// NVLinks from each card to the NVSwitches; 0: no NVSwitch.
    pub nvswitch_links: u32,
    /// Delivered once to each event set that was created before the event was written.
    pub events: Vec<XidEvent>,
    /// Calls that fail, and what they answer.
    pub errors: BTreeMap<Call, NvmlReturn>,
    /// Calls that block for this many milliseconds, or until they are no longer listed.
    pub hangs: BTreeMap<Call, u64>,
}

/// One card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardScenario {
    /// `GPU-…`.
    pub uuid: String,
    /// `nvmlDeviceGetName`.
    pub model: String,
    /// Bytes.
    pub memory_total: u64,
    /// Bytes that the driver keeps for itself, part of `memory_total`.
    #[serde(default)]
    pub memory_reserved: u64,
    /// Bytes.
    #[serde(default)]
    pub memory_used: u64,
    /// Whether it has no memory but the machine's, of which NVML tells nothing: as on GB10.
    #[serde(default)]
    pub unified_memory: bool,
    /// `domain:bus:device.function` in NVML's form: `00000000:17:00.0`.
    pub pci_bus_id: String,
    /// The number in `/dev/nvidia<minor>`.
    pub minor: u32,
    /// NUMA node, which NVML doesn't tell: for [`Scenario::write_sysfs`].
    #[serde(default)]
    pub numa: Option<u32>,
    /// Major and minor.
    #[serde(default = "hopper")]
    pub compute_capability: (i32, i32),
    /// Percent of time in which a kernel ran.
    #[serde(default)]
    pub utilization: u32,
    /// Uncorrected memory errors since the driver was loaded; `None`: ECC is off.
    #[serde(default)]
    pub ecc_uncorrected: Option<u64>,
    /// Corrected memory errors since the driver was loaded, counted where ECC is on.
    #[serde(default)]
    pub ecc_corrected: u64,
    /// Sensors and counters.
    #[serde(default)]
    pub sensors: SensorScenario,
    /// NVLink fabric that reaches beyond the machine; `None`: none.
    #[serde(default)]
    pub fabric: Option<FabricScenario>,
    /// `None`: the card can't be cut.
    #[serde(default)]
    pub mig: Option<MigScenario>,
    /// Compute processes.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// Those that are clients of the multi-process service.
    #[serde(default)]
    pub clients: Vec<Process>,
    /// Whether it is there.
    #[serde(default)]
    pub state: CardState,
}

/// `nvmlGpuFabricInfo_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricScenario {
    /// Bytes of the UUID of the NVLink domain; 0 on machines whose NVLinks end within them.
    pub cluster: [u8; 16],
    /// Part of the domain.
    pub clique: u32,
    /// Whether the fabric manager has registered the card (`NVML_GPU_FABRIC_STATE_COMPLETED`).
    #[serde(default = "yes")]
    pub registered: bool,
}

/// Whether a card is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CardState {
    /// Answers.
    #[default]
    Present,
    /// Still counted; every call about it answers `NVML_ERROR_GPU_IS_LOST`.
    Lost,
    /// Neither counted nor found.
    Gone,
}

/// A process that has a context on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Host process ID.
    pub pid: u32,
    /// Bytes.
    pub memory_used: u64,
    /// Percent of time in which a kernel of it ran.
    #[serde(default)]
    pub utilization: u32,
}

/// How two cards are linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkScenario {
    /// UUIDs of the cards.
    pub cards: (String, String),
    /// The nearest common ancestor on the PCI tree.
    #[serde(default)]
    pub pci: PciLevel,
    /// Direct NVLinks.
    #[serde(default)]
    pub nvlinks: u32,
}

/// NVML's topology levels, worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PciLevel {
    /// Across sockets.
    #[default]
    System,
    /// Same NUMA node.
    Node,
    /// Same host bridge.
    HostBridge,
    /// Several PCIe switches.
    Multiple,
    /// One PCIe switch.
    Single,
    /// Two cards on one board.
    Internal,
}

/// A critical XID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XidEvent {
    /// Increases from event to event.
    pub seq: u64,
    /// The card's UUID. `None`: the event names no card. A UUID of none of the cards: a handle that nothing knows. Events
    /// of both kinds reach every set.
    pub card: Option<String>,
    /// The XID.
    pub xid: u64,
    /// ID of the GPU instance that it is about; `None`: the whole card.
    #[serde(default)]
    pub gi: Option<u32>,
    /// ID of the compute instance that it is about.
    #[serde(default)]
    pub ci: Option<u32>,
}

/// A scenario that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file can't be read.
    #[error("can't read the scenario: {0}")]
    Read(#[from] io::Error),
    /// Not a scenario; says line and column.
    #[error("not a scenario: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Two cards, or instances, with one UUID.
    #[error("two cards are called {0:?}")]
    DuplicateCard(String),
    /// A link to nowhere.
    #[error("a link names {0:?}, which is none of the cards")]
    UnknownCard(String),
    /// Not `domain:bus:device.function`.
    #[error("{0:?} is not a PCI bus ID: expected a form like \"00000000:17:00.0\"")]
    PciBusId(String),
}

/// Domain, bus and device numbers.
pub(crate) type PciAddress = (u32, u32, u32);

fn yes() -> bool {
    true
}

fn hopper() -> (i32, i32) {
    (9, 0)
}

// === impl Scenario ===

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver_version: "580.95.05".to_owned(),
            cuda_version: 13_000,
            driver_loaded: true,
            driver_load: 0,
            cards: Vec::new(),
            links: Vec::new(),
            nvswitch_links: 0,
            events: Vec::new(),
            errors: BTreeMap::new(),
            hangs: BTreeMap::new(),
        }
    }
}

impl Scenario {
    /// Reads a scenario and checks that it is one.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let scenario: Self = serde_json::from_str(&fs::read_to_string(path)?)?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Writes the file and then renames it into place, so that a running library reads the old one or the new one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = path.with_file_name(format!(".{name}.{}", process::id()));
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
        fs::rename(unfinished, path)
    }

    /// Writes the part of sysfs that tells a card's NUMA node: `bus/pci/devices/<bus ID>/numa_node` below `root`.
    pub fn write_sysfs(&self, root: &Path) -> io::Result<()> {
        for card in &self.cards {
            // The kernel writes four digits of the domain where NVML writes eight, and lower case.
            let name = card.pci_bus_id.get(4..).unwrap_or_default().to_ascii_lowercase();
            let device = root.join("bus/pci/devices").join(name);
            fs::create_dir_all(&device)?;
            let node = card.numa.map_or_else(|| "-1".to_owned(), |node| node.to_string());
            fs::write(device.join("numa_node"), format!("{node}\n"))?;
        }
        Ok(())
    }

    /// The card with this UUID, also one that is gone.
    pub fn card_mut(&mut self, uuid: &str) -> Option<&mut CardScenario> {
        self.cards.iter_mut().find(|card| card.uuid == uuid)
    }

    /// Adds an event about a card, after all others.
    pub fn push_xid(&mut self, card: Option<&str>, xid: u64) {
        let seq = self.last_event() + 1;
        self.events.push(XidEvent { seq, card: card.map(str::to_owned), xid, gi: None, ci: None });
    }

    /// A fault about the compute instance of a card, or, without one, about all in a GPU instance.
    pub fn push_instance_xid(&mut self, card: &str, gi: u32, ci: Option<u32>, xid: u64) {
        let seq = self.last_event() + 1;
        self.events.push(XidEvent { seq, card: Some(card.to_owned()), xid, gi: Some(gi), ci });
    }

    /// The largest `seq` so far.
    pub(crate) fn last_event(&self) -> u64 {
        self.events.iter().map(|event| event.seq).max().unwrap_or(0)
    }

    /// The cards that NVML counts, in the order of their indices.
    pub(crate) fn enumerated(&self) -> impl Iterator<Item = &CardScenario> {
        self.cards.iter().filter(|card| card.state != CardState::Gone)
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let mut known = BTreeSet::new();
        for card in &self.cards {
            card.pci_address().ok_or_else(|| ScenarioError::PciBusId(card.pci_bus_id.clone()))?;
            let instances = card.instances().iter().map(|instance| instance.uuid_on(card));
            for uuid in instances.chain([card.uuid.clone()]) {
                if !known.insert(uuid.clone()) {
                    return Err(ScenarioError::DuplicateCard(uuid));
                }
            }
        }
        let ends = self.links.iter().flat_map(|link| [&link.cards.0, &link.cards.1]);
        match ends.into_iter().find(|end| !known.contains(*end)) {
            Some(unknown) => Err(ScenarioError::UnknownCard(unknown.clone())),
            None => Ok(()),
        }
    }
}

// === impl CardScenario ===

impl CardScenario {
    pub(crate) fn pci_address(&self) -> Option<PciAddress> {
        parse_pci_bus_id(&self.pci_bus_id).filter(|_| self.pci_bus_id.len() == "00000000:17:00.0".len())
    }
}

/// Reads a PCI bus ID with a domain of any length.
pub(crate) fn parse_pci_bus_id(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, _function) = rest.split_once('.')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    Some((number(domain)?, number(bus)?, number(device)?))
}
