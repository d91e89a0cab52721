//! `cardOverrides`: keys for some GPUs of the node, by model, UUID or index.

use std::fmt;
use std::sync::Arc;

use divvy_api::gpunode::Scales;
use divvy_api::{Card, CardId, Health, Memory, NodeCards, Tier};
use divvy_node_core::inventory::{DeviceInfo, Inventory};
use divvy_placement::{is_model_pattern, matches_model};
use divvy_region::terms::Words;
use divvy_runtime::settings::Within;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Config, ConfigError, MemoryAmount, Scale, TierChoice};

/// Keys of some GPUs: a list in the file, and the same in one line wherever there is only text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CardOverrides(Vec<CardOverride>);

/// Keys of the GPUs that it selects. Of several that select a GPU the last one with a key counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Entry", into = "Entry")]
struct CardOverride {
    gpus: Gpus,
    settings: CardSettings,
}

/// What an entry says of its GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CardSettings {
    slots: Option<u32>,
    tier: Option<Tier>,
    /// More than none; of a GPU of which NVML reports a figure, that one counts.
    memory: Option<Memory>,
    /// In percent, 100 at most.
    memory_scale: Option<u32>,
    /// In percent.
    cores_scale: Option<u32>,
}

/// Which GPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gpus {
    /// A pattern of product names, as in `divvy.dev/card-model`.
    Model(String),
    /// A GPU with its MIG instances, or an instance.
    Uuid(CardId),
    /// A GPU with its MIG instances, as `nvidia-smi` numbers it.
    Index(u32),
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<CardId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<Within<0, 127>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slots_per_card: Option<Within<1, 256>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<TierChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryAmount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_scale: Option<Scale>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores_scale: Option<Scale>,
}

// === impl CardOverrides ===

impl CardOverrides {
    /// What is configured for a card: of several entries that select it, the last one with a key counts.
    fn settings(&self, card: &Card, device: &DeviceInfo) -> CardSettings {
        let entries = self.0.iter().filter(|entry| entry.gpus.has(card, device)).map(|entry| entry.settings);
        entries.fold(CardSettings::default(), |earlier, later| CardSettings {
            slots: later.slots.or(earlier.slots),
            tier: later.tier.or(earlier.tier),
            memory: later.memory.or(earlier.memory),
            memory_scale: later.memory_scale.or(earlier.memory_scale),
            cores_scale: later.cores_scale.or(earlier.cores_scale),
        })
    }

    /// What selects none of the node's GPUs, if these are all of them.
    pub(crate) fn unmatched(&self, inventory: &Inventory) -> Option<String> {
        let is_whole = inventory.problem.is_none() && inventory.cards().iter().all(|card| !card.model.is_empty());
        let unmatched = |entry: &&CardOverride| !inventory.each().any(|(card, device)| entry.gpus.has(card, device));
        let unmatched: Vec<_> = self.0.iter().filter(unmatched).map(|entry| entry.gpus.to_string()).collect();
        (is_whole && !unmatched.is_empty()).then(|| unmatched.join(", nor with "))
    }

    /// The strongest tier that an entry has.
    pub(crate) fn tier(&self) -> Option<Tier> {
        self.0.iter().filter_map(|entry| entry.settings.tier).max()
    }

    fn check(self) -> Result<Self, String> {
        for (at, entry) in self.0.iter().enumerate() {
            if self.0[..at].iter().any(|earlier| earlier.gpus == entry.gpus) {
                return Err(format!("{} has two entries: write its keys into one", entry.gpus));
            }
        }
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for CardOverrides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Entries)
    }
}

/// Why a GPU takes no pods where the hardware must enforce every share.
const NO_INSTANCE: &str = "not a MIG instance, which tier mig requires: partition the GPU, or set tier to auto";

/// Why a GPU that uses the processor's memory takes no pods.
fn no_memory(model: &str) -> String {
    format!(
        "NVML reports no memory for this GPU: set memory for model \"{model}\" in cardOverrides of the daemon's configuration"
    )
}

const A_LIST: &str = "a list such as [{index: 0, slotsPerCard: 4}]";

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = CardOverrides;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(A_LIST)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CardOverrides, E> {
        if !text.trim_start().starts_with('[') {
            return Err(E::custom(format!("\"{text}\" is not {A_LIST}")));
        }
        let refused = |error: serde_saphyr::Error| E::custom(error.without_snippet());
        serde_saphyr::from_str(text).map(CardOverrides).map_err(refused)?.check().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<CardOverrides, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = items.next_element()? {
            entries.push(entry);
        }
        CardOverrides(entries).check().map_err(A::Error::custom)
    }
}

// === impl Gpus ===

impl Gpus {
    fn has(&self, card: &Card, device: &DeviceInfo) -> bool {
        match self {
            Self::Model(pattern) => matches_model(pattern, &card.model),
            Self::Uuid(uuid) => device.is_or_is_of(card, uuid.as_str()),
            Self::Index(index) => device.index == Some(*index),
        }
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(pattern) => write!(f, "model {pattern}"),
            Self::Uuid(uuid) => write!(f, "uuid {uuid}"),
            Self::Index(index) => write!(f, "index {index}"),
        }
    }
}

// === impl CardOverride ===

impl TryFrom<Entry> for CardOverride {
    type Error = String;

    fn try_from(entry: Entry) -> Result<Self, String> {
        let gpus = match (entry.model, entry.uuid, entry.index) {
            (Some(model), None, None) if is_model_pattern(&model) => Gpus::Model(model),
            (Some(model), None, None) => {
                return Err(format!("model \"{model}\" matches no GPU: write it as nvidia-smi -L does"));
            }
            (None, Some(uuid), None) => Gpus::Uuid(uuid),
            (None, None, Some(index)) => Gpus::Index(index.get()),
            (None, None, None) => return Err("an entry names no GPUs: give it one of model, uuid and index".to_owned()),
            (model, uuid, index) => {
                let named = [model.map(|_| "model"), uuid.map(|_| "uuid"), index.map(|_| "index")];
                let named: Vec<_> = named.into_iter().flatten().collect();
                return Err(format!("an entry has {}: expected one of them", named.join(" and ")));
            }
        };
        let tier = entry.tier.and_then(TierChoice::named).filter(|tier| tier.is_per_gpu());
        if entry.tier.is_some() && tier.is_none() {
            let tiers: Vec<_> = Tier::ALL.iter().filter(|tier| tier.is_per_gpu()).collect();
            return Err(format!("{gpus}: tier can be {} here: the others are for all GPUs of a node", Words(&tiers)));
        }
        let settings = CardSettings {
            slots: entry.slots_per_card.map(Within::get),
            tier,
            memory: entry.memory.map(MemoryAmount::get),
            memory_scale: entry.memory_scale.map(Scale::percent),
            cores_scale: entry.cores_scale.map(Scale::percent),
        };
        if settings == CardSettings::default() {
            return Err(format!("{gpus} has no keys: expected slotsPerCard, tier, memory, memoryScale or coresScale"));
        }
        if settings.memory == Some(Memory::ZERO) {
            return Err(format!("{gpus}: memory 0: expected an amount such as 110Gi"));
        }
        if settings.memory_scale.is_some_and(|percent| percent > Scale::ONE.percent()) {
            return Err(format!("{gpus}: memoryScale above 1 is for all GPUs of a node: set it beside cardOverrides"));
        }
        Ok(Self { gpus, settings })
    }
}

impl From<CardOverride> for Entry {
    fn from(CardOverride { gpus, settings }: CardOverride) -> Self {
        let keys = Self {
            slots_per_card: settings.slots.map(Within::new),
            tier: settings.tier.map(|tier| TierChoice(Some(tier))),
            memory: settings.memory.map(MemoryAmount),
            memory_scale: settings.memory_scale.map(Scale::of_percent),
            cores_scale: settings.cores_scale.map(Scale::of_percent),
            ..Self::default()
        };
        match gpus {
            Gpus::Model(model) => Self { model: Some(model), ..keys },
            Gpus::Uuid(uuid) => Self { uuid: Some(uuid), ..keys },
            Gpus::Index(index) => Self { index: Some(Within::new(index)), ..keys },
        }
    }
}

// === impl Config ===

impl Config {
    /// The cards that NVML found with what is configured for them, on a node that serves `tier` and no stronger one.
    pub(crate) fn effective(&self, found: &Inventory, tier: Tier) -> Inventory {
        let node = NodeCards {
            cards: found.each().map(|(card, device)| self.effective_card(card, device, tier)).collect(),
            links: Arc::clone(&found.node.links),
            undivided: tier == Tier::Mig,
            oversubscription: self.oversubscription(),
        };
        Inventory { node: Arc::new(node), ..found.clone() }
    }

    fn effective_card(&self, card: &Card, device: &DeviceInfo, tier: Tier) -> Card {
        // The daemon serves the strongest tier that any card has.
        let of_others = if self.tier.named() == Some(Tier::Accounting) { Tier::Accounting } else { tier };
        let settings = self.card_overrides.settings(card, device);
        let scales = self.scales();
        let memory = if card.memory.is_zero() { settings.memory.unwrap_or(Memory::ZERO) } else { card.memory };
        let health = match &card.health {
            Health::Healthy if memory.is_zero() => Health::unhealthy(no_memory(&card.model)),
            Health::Healthy if tier == Tier::Mig && card.mig.is_none() => Health::unhealthy(NO_INSTANCE),
            found => found.clone(),
        };
        Card {
            memory,
            slots: settings.slots.unwrap_or(self.slots_per_card.get()),
            tier: settings.tier.unwrap_or(of_others).min(tier),
            scales: Scales {
                memory: settings.memory_scale.unwrap_or(scales.memory),
                cores: settings.cores_scale.unwrap_or(scales.cores),
            },
            health,
            ..card.clone()
        }
    }

    /// Refuses keys of some GPUs that a node of this tier can't have.
    pub(crate) fn check_card_overrides(&self, served: Tier) -> Result<(), ConfigError> {
        let is_scaled = |entry: &CardOverride| {
            served == Tier::Mig && (entry.settings.memory_scale.is_some() || entry.settings.cores_scale.is_some())
        };
        let is_ruled_out =
            |entry: &&CardOverride| is_scaled(entry) || (entry.settings.tier.is_some() && !served.is_per_gpu());
        let Some(CardOverride { gpus, .. }) = self.card_overrides.0.iter().find(is_ruled_out) else { return Ok(()) };
        let keys = if served == Tier::Mig { "tier, memoryScale and coresScale" } else { "tier" };
        Err(ConfigError::Disagreement(format!(
            "cardOverrides, {gpus}: on a node of tier {served} all GPUs have the same {keys}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::{Links, Memory, MigInstance};
    use divvy_node_core::inventory::MigPlace;
    use divvy_runtime::settings::{KeySet as _, from_text};

    use super::*;
    use crate::config::Keys;

    fn inventory() -> Inventory {
        let card = |(index, (id, model)): (u32, &(&str, &str))| {
            let card = Card { model: (*model).into(), ..Card::healthy(id.parse().expect("a UUID"), Memory::mib(1024)) };
            (card, DeviceInfo { index: Some(index), ..DeviceInfo::default() })
        };
        let mut cards: Vec<_> =
            (0..).zip(&[("GPU-a", "NVIDIA L4"), ("GPU-b", "NVIDIA H100 80GB HBM3")]).map(card).collect();
        let (instance, device) = card((2, &("MIG-d", "NVIDIA H100 80GB HBM3 MIG 1g.10gb")));
        let mig = MigInstance { profile: "1g.10gb".parse().expect("a profile"), by_profile: false };
        let place = MigPlace { gpu: "GPU-c".parse().expect("a UUID"), gi: 1, ci: 0 };
        cards.push((Card { mig: Some(mig), ..instance }, DeviceInfo { place: Some(place), ..device }));
        Inventory::new(cards, Links::default())
    }

    fn config() -> Config {
        let env = |name: &str| (name == "NODE_NAME").then(|| "n1".into());
        Keys::from_env(env).and_then(Keys::into_config).expect("valid")
    }

    /// What differs on each card from a node of tier `shim` without overrides.
    fn applied(text: &str, tier: TierChoice) -> [String; 3] {
        let config = Config { card_overrides: from_text(text).expect(text), tier, ..config() };
        let inventory = config.effective(&inventory(), Tier::Shim);
        let said = |card: &Card| {
            let slots = (card.slots != 32).then(|| format!("{} slots", card.slots));
            let tier = (card.tier != Tier::Shim).then(|| card.tier.to_string());
            let memory = (card.scales.memory != 100).then(|| format!("memory {}%", card.scales.memory));
            let cores = (card.scales.cores != 100).then(|| format!("cores {}%", card.scales.cores));
            [slots, tier, memory, cores].into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        [0, 1, 2].map(|at| said(&inventory.cards()[at]))
    }

    #[test]
    fn gpus_are_selected_by_model_uuid_and_index() {
        let by = |gpus: &str| applied(&format!("[{{{gpus}, slotsPerCard: 4}}]"), TierChoice::default());
        assert_eq!(by("model: L4"), ["4 slots", "", ""]);
        assert_eq!(by("model: H100"), ["", "4 slots", "4 slots"], "and its instances");
        assert_eq!(by("model: '=NVIDIA H100 80GB HBM3'"), ["", "4 slots", ""]);
        assert_eq!(by("uuid: GPU-a"), ["4 slots", "", ""]);
        assert_eq!([by("uuid: GPU-c"), by("uuid: MIG-d"), by("index: 2")], [["", "", "4 slots"]; 3]);
    }

    #[test]
    fn memory_is_of_gpus_of_which_nvml_reports_none() {
        let mut found = inventory();
        let memories = |text: &str, found: &Inventory| {
            let config = Config { card_overrides: from_text(text).expect(text), ..config() };
            let inventory = config.effective(found, Tier::Shim);
            inventory.cards().iter().map(|card| (card.memory.as_mib(), card.health.to_string())).collect::<Vec<_>>()
        };
        let healthy = "healthy".to_owned();
        let known = [(1024, healthy.clone()), (1024, healthy.clone()), (1024, healthy.clone())];
        let text = "[{model: L4, memory: 8Gi}, {uuid: GPU-a, memory: 64000}]";
        assert_eq!(memories(text, &found), known, "NVML's figure counts where there is one");
        Arc::make_mut(&mut found.node).cards[0].memory = Memory::ZERO;
        assert_eq!(memories(text, &found)[0], (64_000, healthy));
        let (memory, health) = memories("[{model: L40, memory: 8Gi}]", &found).swap_remove(0);
        assert_eq!(memory, 0);
        insta::assert_snapshot!(health, @r#"unhealthy: NVML reports no memory for this GPU: set memory for model "NVIDIA L4" in cardOverrides of the daemon's configuration"#);
        Arc::make_mut(&mut found.node).cards[0].health = Health::unhealthy("GPU fell off the bus");
        let (_, health) = memories("[{slotsPerCard: 1, index: 0}]", &found).swap_remove(0);
        assert_eq!(health, "unhealthy: GPU fell off the bus", "what ails it besides is said first");
    }

    #[test]
    fn last_entry_with_a_key_counts() {
        let text = "[{model: NVIDIA, slotsPerCard: 8, coresScale: 1.5}, {index: 1, slotsPerCard: 2, memoryScale: 0.9}]";
        assert_eq!(
            applied(text, TierChoice::default()),
            ["8 slots cores 150%", "2 slots memory 90% cores 150%", "8 slots cores 150%"]
        );
    }

    #[test]
    fn others_keep_the_tier_of_the_node() {
        let text = "[{uuid: GPU-a, tier: shim}]";
        assert_eq!(applied(text, TierChoice(Some(Tier::Accounting))), ["", "accounting", "accounting"]);
        assert_eq!(applied(text, TierChoice(Some(Tier::Shim))), ["", "", ""]);
        assert_eq!(applied("[{uuid: GPU-a, tier: accounting}]", TierChoice::default()), ["accounting", "", ""]);
    }

    #[test]
    fn tier_mig_marks_whole_gpus_unhealthy() {
        let health = |found: &Inventory| {
            let inventory = config().effective(found, Tier::Mig);
            inventory.cards().iter().map(|card| card.health.to_string()).collect::<Vec<_>>()
        };
        let demanded = "unhealthy: not a MIG instance, which tier mig requires: partition the GPU, or set tier to auto";
        let mut inventory = inventory();
        assert_eq!(health(&inventory), [demanded, demanded, "healthy"]);
        Arc::make_mut(&mut inventory.node).cards[1].health = Health::unhealthy("GPU fell off the bus");
        let ailment = "unhealthy: GPU fell off the bus";
        assert_eq!(health(&inventory), [demanded, ailment, "healthy"], "what ails it besides is said first");
    }

    #[test]
    fn entries_without_a_gpu_are_named() {
        let overrides: CardOverrides =
            from_text("[{uuid: GPU-x, slotsPerCard: 1}, {index: 0, slotsPerCard: 1}, {model: A100, slotsPerCard: 1}]")
                .expect("valid");
        assert_eq!(overrides.unmatched(&inventory()).as_deref(), Some("uuid GPU-x, nor with model A100"));
        let problem = Some("NVML hangs".to_owned());
        let inventory = Inventory { problem, ..inventory() };
        assert_eq!(overrides.unmatched(&inventory), None, "there may be more");
    }

    #[test]
    fn contradictory_entries_are_refused_by_key_and_value() {
        let refused = |text: &str| from_text::<CardOverrides>(text).expect_err(text).to_string();
        insta::assert_snapshot!(refused("[{slotsPerCard: 4}]"), @r#"an entry names no GPUs: give it one of model, uuid and index at line 1, column 2"#);
        insta::assert_snapshot!(refused("[{model: L4, index: 0, slotsPerCard: 4}]"), @r#"an entry has model and index: expected one of them at line 1, column 2"#);
        insta::assert_snapshot!(refused("[{index: 0}]"), @r#"index 0 has no keys: expected slotsPerCard, tier, memory, memoryScale or coresScale at line 1, column 2"#);
        insta::assert_snapshot!(refused("[{index: 0, slotsPerCard: 4}, {index: 1, tier: shim}, {index: 0, coresScale: 2}]"), @"index 0 has two entries: write its keys into one");
        insta::assert_snapshot!(refused("[{index: 0, slotsPerCard: 0}]"), @r#""0" is not a whole number from 1 to 256 at line 1, column 27"#);
        insta::assert_snapshot!(refused("[{index: 0, memoryScale: 1.5}]"), @r#"index 0: memoryScale above 1 is for all GPUs of a node: set it beside cardOverrides at line 1, column 2"#);
        insta::assert_snapshot!(refused("[{model: GB10, memory: 0}]"), @"model GB10: memory 0: expected an amount such as 110Gi at line 1, column 2");
        insta::assert_snapshot!(refused("[{model: GB10, memory: 110G}]"), @r#""110G" is ambiguous: did you mean "110Gi"?: expected an amount of memory such as 64Gi, or 0 at line 1, column 24"#);
        insta::assert_snapshot!(refused("[{index: 0, tier: mps}]"), @r#"index 0: tier can be accounting or shim here: the others are for all GPUs of a node at line 1, column 2"#);
        insta::assert_snapshot!(refused("[{uuid: 5f3a, slotsPerCard: 4}]"), @r#""5f3a" is not a GPU UUID: expected "GPU-" or "MIG-" followed by letters, digits, '-' or '/' at line 1, column 9"#);
        insta::assert_snapshot!(refused("[{index: -1, slotsPerCard: 4}]"), @r#""-1" is not a whole number from 0 to 127 at line 1, column 10"#);
        insta::assert_snapshot!(refused("[{model: ' ', slotsPerCard: 4}]"), @r#"model " " matches no GPU: write it as nvidia-smi -L does at line 1, column 2"#);
        insta::assert_snapshot!(refused("[{index: 0, slots: 4}]"), @r#"unknown field `slots`, expected one of model, uuid, index, slotsPerCard, tier, memory, memoryScale, coresScale at line 1, column 13"#);
        insta::assert_snapshot!(refused("index=0"), @r#""index=0" is not a list such as [{index: 0, slotsPerCard: 4}]"#);
    }
}
