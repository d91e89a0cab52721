//! A `GpuNode` read field by field: one of a newer or older divvy-node shows what can be read, and what can't is said.

use divvy_api::gpunode::{Oversubscription, Scales};
use divvy_api::{CardId, ContainerKind, Cores, Memory, Share as Part, Tier};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a `GpuNode` says. Enumerations are texts: a word that is unknown here is shown all the same.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) cordoned: Vec<String>,
    pub(super) cards: Vec<Card>,
    pub(super) shares: Vec<Share>,
    pub(super) tier: Option<String>,
    pub(super) scales: Scales,
    pub(super) slots_per_card: Option<u32>,
    pub(super) clique: Option<String>,
    pub(super) oversubscription: Option<Oversubscription>,
    pub(super) ledger_revision: Option<u64>,
    pub(super) conditions: Vec<Condition>,
    /// Whether it has a status at all.
    pub(super) reported: bool,
    /// What couldn't be read, and why.
    pub(super) unread: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Card {
    pub(super) uuid: String,
    pub(super) model: Option<String>,
    pub(super) memory: Memory,
    pub(super) health: String,
    pub(super) reason: Option<String>,
    pub(super) numa: Option<u32>,
    pub(super) topology: String,
    pub(super) mig: Option<String>,
    pub(super) tier: Option<String>,
    pub(super) scales: Option<Scales>,
    pub(super) slots: Option<u32>,
    pub(super) utilization: Option<u32>,
}

/// What one container holds of one card.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub pod_uid: String,
    /// Name of the container.
    pub container: String,
    /// `init`, `sidecar` or `app`.
    pub kind: ContainerKind,
    #[serde(skip)]
    pub(super) card: String,
    /// `memoryMi`, `hostMemoryMi` where a part is in host memory, `cores`, and `exclusive` where it is true.
    #[serde(flatten)]
    pub part: Part,
    /// The hardware keeps the container to it, whatever the node's tier, as it is all of a MIG instance.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_hardware: bool,
    /// Another device plugin has allocated it, or the pod's requests can't be read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

/// One object on the way to its fields.
struct Fields<'a> {
    object: &'a Value,
    /// With a dot at its end, for messages.
    path: String,
    unread: &'a mut Vec<String>,
}

// === impl Said ===

impl Said {
    /// Reads the data of a `GpuNode`: its `spec` and its `status`.
    pub(super) fn of(gpu_node: &Value) -> Self {
        let mut unread = Vec::new();
        let mut spec = Fields { object: &gpu_node["spec"], path: "spec.".to_owned(), unread: &mut unread };
        let cordoned = spec.optional("unschedulableCards").unwrap_or_default();
        let object = &gpu_node["status"];
        let mut status = Fields { object, path: "status.".to_owned(), unread: &mut unread };
        let said = Self {
            cordoned,
            cards: status.each("cards", Card::of),
            shares: status.each("shares", Share::of),
            tier: status.optional("tier"),
            scales: status.optional("scales").unwrap_or_default(),
            slots_per_card: status.optional("slotsPerCard"),
            clique: status.optional("clique"),
            oversubscription: status.optional("oversubscription"),
            ledger_revision: status.optional("ledgerRevision"),
            conditions: status.optional("conditions").unwrap_or_default(),
            reported: object.is_object(),
            unread: Vec::new(),
        };
        Self { unread, ..said }
    }
}

/// Health of a card that isn't in the report.
pub(super) const MISSING: &str = "Missing";

// === impl Card ===

impl Card {
    /// A card that pods hold, and of which nothing else is reported.
    pub(super) fn missing(uuid: &str) -> Self {
        Self {
            uuid: uuid.to_owned(),
            model: None,
            memory: Memory::ZERO,
            health: MISSING.to_owned(),
            reason: Some("pods hold shares of it, but divvy-node doesn't list it".to_owned()),
            numa: None,
            topology: String::new(),
            mig: None,
            tier: None,
            scales: None,
            slots: None,
            utilization: None,
        }
    }

    pub(super) fn is_missing(&self) -> bool {
        self.health == MISSING
    }

    fn of(mut fields: Fields<'_>) -> Self {
        Self {
            uuid: fields.required("uuid"),
            model: fields.optional("model"),
            memory: fields.required("memoryMi"),
            health: fields.required("health"),
            reason: fields.optional("reason"),
            numa: fields.optional("numa"),
            topology: fields.optional("topology").unwrap_or_default(),
            mig: fields.optional("mig"),
            tier: fields.optional("tier"),
            scales: fields.optional("scales"),
            slots: fields.optional("slots"),
            utilization: fields.optional("utilization"),
        }
    }
}

// === impl Share ===

impl Share {
    fn of(mut fields: Fields<'_>) -> Self {
        let card: String = fields.required("card");
        let part = Part {
            memory: fields.required("memoryMi"),
            host: fields.optional("hostMemoryMi").unwrap_or_default(),
            cores: fields.required::<Cores>("cores"),
            exclusive: fields.optional("exclusive").unwrap_or_default(),
        };
        let tier = |card: CardId| part.tier_on(&card, Tier::default());
        Self {
            pod_uid: fields.required("podUid"),
            namespace: fields.required("namespace"),
            pod: fields.required("pod"),
            container: fields.required("container"),
            kind: fields.optional("kind").unwrap_or_default(),
            adopted: fields.optional("adopted").unwrap_or_default(),
            by_hardware: card.parse().is_ok_and(|card| tier(card) == Tier::Mig),
            card,
            part,
        }
    }
}

// === impl Fields ===

impl Fields<'_> {
    /// The field; `None` where there is none or where it can't be read.
    fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.object.get(name).filter(|value| !value.is_null())?;
        let read = T::deserialize(value);
        read.map_err(|error| self.unread.push(format!("{}{name}: {error}", self.path))).ok()
    }

    /// A field that every version writes.
    fn required<T: DeserializeOwned + Default>(&mut self, name: &str) -> T {
        if self.object.get(name).is_none_or(Value::is_null) {
            self.unread.push(format!("{}{name} is missing", self.path));
        }
        self.optional(name).unwrap_or_default()
    }

    /// All items of a list of objects.
    fn each<T>(&mut self, name: &str, of: impl Fn(Fields<'_>) -> T) -> Vec<T> {
        let items: Vec<Value> = self.optional(name).unwrap_or_default();
        let numbered = items.iter().enumerate();
        numbered
            .map(|(at, object)| of(Fields { object, path: format!("{}{name}[{at}].", self.path), unread: self.unread }))
            .collect()
    }
}
