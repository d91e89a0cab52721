//! What the driver takes of a GPU for a context, by model and driver version: shipped for common models, and learned from the
//! processes of this node. Containers are charged with it when they make a context.
//!
//! A process that has launched nothing shows the driver's figure and what it has allocated: the difference is its context.
//! After the first launch it is that and whatever was loaded, so that a context takes no more.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use divvy_api::CardId;
use divvy_region::clock::DriverMemory;
use divvy_runtime::files;
use divvy_runtime::logging::WarnOnce;

use divvy_node_core::inventory::Inventory;

#[cfg(test)]
mod tests;

const MIB: u64 = 1 << 20;

/// The file in `stateDir`: lines of `<bytes> <exact|most> <driver version> <model>`.
pub(crate) const FILE: &str = "driver-memory";

/// The most that is believed of a model that isn't known, in bytes.
const MOST_UNKNOWN: u64 = 1 << 30;

/// Smallest change, in bytes, that is learned.
const STEP: u64 = MIB;

/// MiB of a context by a part of the model's name, until they are learned on the node. Measured per process with
/// `nvidia-smi`: B200 (unslothai/unsloth#8669), RTX PRO 6000 Blackwell and RTX 4060 Ti (ggml-org/llama.cpp#23604), RTX 6000 Ada
/// (unslothai/unsloth-zoo#1053), RTX 3090 (invoke-ai/InvokeAI#9413). These are 3 MiB for each multiprocessor, and 4 of a
/// B200; the others here are not measured but that many.
const SHIPPED: &[(&str, u64)] = &[
    ("B200", 612),
    ("H200", 528),
    ("H100", 528),
    ("A100", 432),
    ("V100", 320),
    ("RTX PRO 6000 Blackwell", 555),
    ("RTX 6000 Ada", 426),
    ("L40", 426),
    ("L40S", 426),
    ("RTX 3090", 256),
    ("A10", 216),
    ("L4", 174),
    ("T4", 120),
    ("RTX 4060 Ti", 107),
];

/// Bytes of each node of an executable graph with drivers older than [`MEASURED_DRIVER`]: 500, 1000 and 2000 empty kernels take
/// 362, 395 and 458 MB (forums.developer.nvidia.com, 244901, driver 470).
const OLD_GRAPH_NODE: u64 = 64 << 10;
/// Bytes of each node with later ones: 50 graphs of 100 and of 1000 kernels take 3.2 and 2.4 KiB for each kernel on an H100 with
/// driver 580.159.04, of which 112 KiB a graph are charged beside its nodes.
const GRAPH_NODE: u64 = 3 << 10;
/// Major version of the driver from which on that is taken to hold.
const MEASURED_DRIVER: u32 = 580;

/// Figures of this node.
#[derive(Debug)]
pub struct DriverMemoryTable {
    path: PathBuf,
    learned: BTreeMap<Key, Learned>,
    revision: u64,
    warning: WarnOnce,
}

/// Model and driver version.
type Key = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Learned {
    context: u64,
    /// Whether nothing else was in it.
    is_exact: bool,
}

// === impl DriverMemoryTable ===

impl DriverMemoryTable {
    /// Goes on with what was learned before.
    pub fn open(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE);
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self { path, learned: text.lines().filter_map(read).collect(), revision: 0, warning: WarnOnce::default() }
    }

    /// The figures of every card of a known model. MIG instances have none until they are learned.
    pub fn of_cards(&self, inventory: &Inventory) -> HashMap<CardId, DriverMemory> {
        let driver = inventory.driver.as_ref().map_or("", |driver| &*driver.version);
        let cards = inventory.cards().iter().filter(|card| !card.model.is_empty());
        cards.map(|card| (card.id.clone(), self.figures(&card.model, driver))).collect()
    }

    /// The figures of a model with this driver version.
    pub(super) fn figures(&self, model: &str, driver: &str) -> DriverMemory {
        DriverMemory { context_bytes: self.context(model, driver), graph_node_bytes: graph_node(driver) }
    }

    /// The figures of a model with this driver version, of which nothing was learned.
    pub fn shipped(model: &str, driver: &str) -> DriverMemory {
        DriverMemory { context_bytes: shipped(model), graph_node_bytes: graph_node(driver) }
    }

    /// A number that changes with the figures.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Bytes of a context; 0: not known.
    fn context(&self, model: &str, driver: &str) -> u64 {
        let learned = self.learned.get(&(model.to_owned(), driver.to_owned()));
        learned.map_or_else(|| shipped(model), |learned| learned.context)
    }

    /// Learns from a process: what the driver has taken for it beyond its allocations.
    pub(super) fn learn(&mut self, model: &str, driver: &str, beyond: u64, has_launched: bool) {
        let shipped = shipped(model);
        // Half of it comes from what the tenant writes: one figure that is far off would hold for all containers.
        let plausible = if shipped == 0 { MIB..=MOST_UNKNOWN } else { shipped / 2..=shipped * 2 };
        if !plausible.contains(&beyond) || model.is_empty() || driver.is_empty() {
            return;
        }
        let key = (model.to_owned(), driver.to_owned());
        let known = self.context(model, driver);
        let is_exact = self.learned.get(&key).is_some_and(|learned| learned.is_exact);
        let is_known = if has_launched {
            known != 0 && beyond > known.saturating_sub(STEP)
        } else {
            is_exact && beyond > known.saturating_sub(STEP)
        };
        if is_known {
            return;
        }
        self.revision += 1;
        self.learned.insert(key, Learned { context: beyond, is_exact: !has_launched });
        match files::replace(&self.path, self.text()) {
            Ok(()) => self.warning.clear(),
            Err(error) => {
                self.warning.warn(format!("writing what contexts take failed: {}: {error}", self.path.display()));
            }
        }
    }

    fn text(&self) -> String {
        self.learned.iter().fold(String::new(), |mut text, ((model, driver), Learned { context, is_exact })| {
            let kind = if *is_exact { "exact" } else { "most" };
            let _always_fits = writeln!(text, "{context} {kind} {driver} {model}");
            text
        })
    }
}

/// Bytes of a node of a graph; of a driver whose version can't be read, those of an old one.
fn graph_node(driver: &str) -> u64 {
    let major = driver.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major >= MEASURED_DRIVER) { GRAPH_NODE } else { OLD_GRAPH_NODE }
}

fn read(line: &str) -> Option<(Key, Learned)> {
    let mut words = line.splitn(4, ' ');
    let context = words.next()?.parse().ok()?;
    let is_exact = match words.next()? {
        "exact" => true,
        "most" => false,
        _ => return None,
    };
    let driver = words.next()?.to_owned();
    let model = words.next()?.to_owned();
    Some(((model, driver), Learned { context, is_exact }))
}

fn shipped(model: &str) -> u64 {
    let is_instance = model.contains(" MIG ");
    let shipped = SHIPPED.iter().find(|(name, _)| has_name(model, name));
    shipped.filter(|_| !is_instance).map_or(0, |(_, mib)| mib * MIB)
}

/// Whether a model has this name. `L4` is no `L40`: names end where a word does, or go on with a form such as `-SXM4-80GB`.
fn has_name(model: &str, name: &str) -> bool {
    let ends = |next: Option<char>| next.is_none_or(|next| !next.is_ascii_alphanumeric());
    model
        .match_indices(name)
        .any(|(at, _)| ends(model[..at].chars().next_back()) && ends(model[at + name.len()..].chars().next()))
}
