//! Annotations of a pod: those that users write, and those that the parts of Divvy write for one another.
//!
//! Outputs are JSON with a `version`; everything read back is validated like user input. Fields that a build doesn't know are
//! passed over, as programs of different builds live together for hours: what an older one may not miss needs another `version`.

use std::collections::BTreeMap;
use std::fmt::Display;

use divvy_region::{Compute, ComputeLimit, Priority, Terms, Tier};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::card_id::CardId;
use crate::names::annotation as key;
use crate::request::{GpuRequest, Sharing};
use crate::share::Share;

/// The version that this build writes and reads.
pub const VERSION: &str = "v1";
/// Most items of a list that users write. Each is compared with the GPUs of all nodes, while the API server or the scheduler
/// waits.
pub const MOST_ITEMS: usize = 64;
/// Longest list that users write, in bytes.
pub const LONGEST_LIST: usize = 4096;

/// `divvy.dev/request`: the normalised request of every container that has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestAnnotation {
    /// By container name.
    pub containers: BTreeMap<String, GpuRequest>,
}

/// `divvy.dev/dialect`: what a pod's author wrote in the words of another system, which the webhook has translated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialectAnnotation {
    /// The system, by its name in `dialects` of the webhook's configuration.
    pub name: String,
    /// Limits as written, by container name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, BTreeMap<String, String>>,
    /// Annotations as written, without those that Divvy reads itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What the node tells the pod's programs beside what it tells all: names that the system's record has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
}

/// `divvy.dev/node-fit`: which nodes could take the pod when it was created, by what the webhook knew then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFit {
    /// The best few, best first.
    pub nodes: Vec<String>,
    /// Why there are none, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `divvy.dev/planned`: the extender's cards for every container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// The node the plan was made for; on any other it means nothing.
    pub node: String,
    /// By container name.
    pub containers: BTreeMap<String, PlannedCards>,
    /// Models of the node that count for a quota of the pod's namespace, and of which the plan has no GPUs, as in
    /// `divvy.dev/avoid-card-model`: a node that has to plan anew chooses none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid_models: Vec<String>,
}

/// Cards of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCards {
    /// Cards whose slots the node proposes to the kubelet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<CardId>,
    /// Cards of earlier init containers; the kubelet draws the container's remaining slots from these, in random order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reused: Vec<CardId>,
}

/// `divvy.dev/cards`: what each container got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cards {
    /// The ledger's revision that this was written from.
    pub ledger_revision: u64,
    /// How the shares are enforced.
    pub tier: Tier,
    /// By container name.
    pub containers: BTreeMap<String, Vec<CardShare>>,
}

/// One card of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardShare {
    /// The card.
    pub uuid: CardId,
    /// The part of it.
    #[serde(flatten)]
    pub share: Share,
}

/// What a pod's author may ask for beside amounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Preferences {
    /// Models that will do; empty: any.
    pub models: Vec<String>,
    /// Models that won't do.
    pub avoid_models: Vec<String>,
    /// Cards that will do; empty: any.
    pub cards: Vec<CardId>,
    /// Cards that won't do.
    pub avoid_cards: Vec<CardId>,
    /// Policy for the choice of the node; `None`: as configured.
    pub node_policy: Option<PolicyName>,
    /// Policy for the choice of cards; `None`: as configured.
    pub card_policy: Option<PolicyName>,
    /// Whether the cards of one container must, or should, stand on one NUMA node.
    pub numa: Option<Numa>,
    /// At least this tier.
    pub tier: Option<Tier>,
    /// What happens with idle compute.
    pub compute: Option<Compute>,
    /// How much of a GPU's compute it may have, with what is idle; implies `burst`.
    pub compute_limit: Option<ComputeLimit>,
    /// Order on a shared card.
    pub priority: Option<Priority>,
    /// Whether a part of its memory may be host memory.
    pub oversubscribe: bool,
    /// Whether the requests of all its containers are of one card.
    pub same_card: bool,
}

/// Placement policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Fullest cards first.
    Binpack,
    /// Emptiest cards first.
    Spread,
    /// Any card, from a seed.
    Random,
    /// What leaves most for the requests to come.
    #[default]
    LeastFragmentation,
    /// Best links first, and best links left.
    Topology,
}

/// NUMA wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Numa {
    /// One NUMA node or nothing.
    Strict,
    /// One NUMA node where possible.
    Prefer,
}

/// An annotation that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// Not one of the allowed words.
    #[error("annotation {key}: \"{value}\" is not allowed: expected {allowed}")]
    Value {
        /// The annotation.
        key: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        allowed: String,
    },
    /// More than is compared with the cards of every node.
    #[error(
        "annotation {key}: {items} items in {bytes} bytes are not allowed: expected at most {MOST_ITEMS} items, separated \
         by commas, in {LONGEST_LIST} bytes"
    )]
    List {
        /// The annotation.
        key: &'static str,
        /// Items that it names.
        items: usize,
        /// Length in bytes.
        bytes: usize,
    },
    /// Not the JSON it should be.
    #[error("annotation {key}: {problem}")]
    Json {
        /// The annotation.
        key: &'static str,
        /// What the decoder says, with line and column.
        problem: String,
    },
    /// Written by another version.
    #[error("annotation {key}: version \"{version}\" is unknown: this build reads {VERSION}")]
    Version {
        /// The annotation.
        key: &'static str,
        /// Version that it names.
        version: String,
    },
}

/// A value that stands in an annotation as versioned JSON.
pub trait Document: Serialize + DeserializeOwned {
    /// The annotation's key.
    const KEY: &'static str;

    /// Refuses values that the types allow but that mean nothing.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The document as the annotation's text.
pub fn encode<D: Document>(document: &D) -> String {
    let versioned = Versioned { version: VERSION.to_owned(), document };
    serde_json::to_string(&versioned).expect("maps with string keys and plain values always serialise")
}

/// The document of an annotation's text.
pub fn decode<D: Document>(text: &str) -> Result<D, AnnotationError> {
    let json = |problem: String| AnnotationError::Json { key: D::KEY, problem: start(&problem) };
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|error| json(error.to_string()))?;
    match fields.remove("version") {
        Some(serde_json::Value::String(version)) if version == VERSION => {}
        Some(serde_json::Value::String(version)) => {
            return Err(AnnotationError::Version { key: D::KEY, version: start(&version) });
        }
        _ => return Err(json("field \"version\" is missing".to_owned())),
    }
    let document: D = serde_json::from_value(fields.into()).map_err(|error| json(error.to_string()))?;
    document.check().map_err(json)?;
    Ok(document)
}

/// The start of a text that may be long: an answer to the scheduler has the refusal once for each of thousands of nodes.
fn start(text: &str) -> String {
    text.chars().take(200).collect()
}

#[derive(Serialize)]
struct Versioned<'a, D> {
    version: String,
    #[serde(flatten)]
    document: &'a D,
}

// === impl Document ===

impl Document for RequestAnnotation {
    const KEY: &'static str = key::REQUEST;

    fn check(&self) -> Result<(), String> {
        for (container, request) in &self.containers {
            request.check().map_err(|why| format!("container \"{container}\": {why}"))?;
        }
        Ok(())
    }
}

impl Document for DialectAnnotation {
    const KEY: &'static str = key::DIALECT;
}

impl Document for NodeFit {
    const KEY: &'static str = key::NODE_FIT;
}

impl Document for Planned {
    const KEY: &'static str = key::PLANNED;
}

impl Document for Cards {
    const KEY: &'static str = key::CARDS;
}

// === impl AnnotationError ===

impl AnnotationError {
    fn value(key: &'static str, value: &str, allowed: impl Display) -> Self {
        Self::Value { key, value: start(value), allowed: allowed.to_string() }
    }
}

// === impl Preferences ===

impl Preferences {
    /// Reads the input annotations; absent ones are absent wishes.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, AnnotationError> {
        let input = Input(annotations);
        let compute = input.word(key::COMPUTE, Compute::WORDS)?;
        Ok(Self {
            models: input.list(key::CARD_MODEL)?,
            avoid_models: input.list(key::AVOID_CARD_MODEL)?,
            cards: input.cards(key::CARD_UUID)?,
            avoid_cards: input.cards(key::AVOID_CARD_UUID)?,
            node_policy: input.word(key::NODE_POLICY, POLICIES)?,
            card_policy: input.word(key::CARD_POLICY, POLICIES)?,
            numa: input.word(key::NUMA, "strict or prefer")?,
            tier: input.word(key::TIER, Tier::WORDS)?,
            compute,
            compute_limit: input.compute_limit(compute)?,
            priority: input.word(key::PRIORITY, Priority::WORDS)?,
            oversubscribe: input.word(key::OVERSUBSCRIBE, "true or false")?.unwrap_or(false),
            same_card: input.word(key::SAME_CARD, "true or false")?.unwrap_or(false),
        })
    }

    /// The terms of the pod's containers in this tier. A limit of compute above the share is one of idle compute's use.
    pub fn terms(&self, tier: Tier) -> Terms {
        let Self { compute, compute_limit, priority, .. } = *self;
        let unsaid = if compute_limit.is_some() { Compute::Burst } else { Compute::default() };
        Terms { tier, compute: compute.unwrap_or(unsaid), compute_limit, priority }
    }

    /// Whether the hardware must hold the pod to its shares: then each of its cards is a MIG instance that it has to itself.
    pub fn wants_instances(&self) -> bool {
        self.tier == Some(Tier::Mig)
    }

    /// How the pod's requests become shares, where all is given whole if `gives_whole`, and memory is oversubscribed to this
    /// scale in percent for those that ask for it.
    #[inline]
    pub fn sharing(&self, gives_whole: bool, memory_scale: Option<u32>) -> Sharing {
        match memory_scale.filter(|_| self.oversubscribe) {
            _ if gives_whole || self.wants_instances() => Sharing::Whole,
            Some(scale) => Sharing::Oversubscribed(scale),
            None => Sharing::Part,
        }
    }
}

const POLICIES: &str = "binpack, spread, random, least-fragmentation or topology";

struct Input<'a>(&'a BTreeMap<String, String>);

impl Input<'_> {
    fn list(&self, key: &'static str) -> Result<Vec<String>, AnnotationError> {
        let text = self.0.get(key).map_or("", String::as_str);
        let items = || text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let count = items().count();
        let bytes = text.len();
        if count > MOST_ITEMS || bytes > LONGEST_LIST {
            return Err(AnnotationError::List { key, items: count, bytes });
        }
        Ok(items().map(str::to_owned).collect())
    }

    fn cards(&self, key: &'static str) -> Result<Vec<CardId>, AnnotationError> {
        let allowed = "GPU UUIDs such as GPU-8f6d…, separated by commas";
        let parse = |item: String| item.parse().map_err(|_uuid| AnnotationError::value(key, &item, allowed));
        self.list(key)?.into_iter().map(parse).collect()
    }

    fn compute_limit(&self, compute: Option<Compute>) -> Result<Option<ComputeLimit>, AnnotationError> {
        let key = key::COMPUTE_LIMIT;
        let Some(text) = self.0.get(key) else { return Ok(None) };
        let refused = |allowed| AnnotationError::value(key, text, allowed);
        let limit = text.parse().ok().and_then(ComputeLimit::new);
        let limit = limit.ok_or_else(|| refused("1 to 100, in percent of a GPU"))?;
        if compute == Some(Compute::Cap) {
            return Err(refused("divvy.dev/compute: burst beside it, as cap uses no idle compute"));
        }
        Ok(Some(limit))
    }

    /// One of an enum's serde names.
    fn word<T: DeserializeOwned>(
        &self,
        key: &'static str,
        allowed: impl Display,
    ) -> Result<Option<T>, AnnotationError> {
        let Some(text) = self.0.get(key) else { return Ok(None) };
        let word = match text.as_str() {
            "true" => true.into(),
            "false" => false.into(),
            text => serde_json::Value::from(text),
        };
        serde_json::from_value(word).map(Some).map_err(|_serde| AnnotationError::value(key, text, allowed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quantity::{Cores, Memory};

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn documents_are_versioned_json() {
        let request = GpuRequest { cards: 2, memory: "8Gi".parse().expect("amount"), cores: Cores::new(30) };
        let request = RequestAnnotation { containers: [("main".to_owned(), request)].into() };
        let text = encode(&request);
        insta::assert_snapshot!(text, @r#"{"version":"v1","containers":{"main":{"cards":2,"memory":"8Gi","cores":30}}}"#);
        assert_eq!(decode(&text), Ok(request));

        let share = Share { memory: Memory::mib(8192), cores: Cores::new(30), ..Share::default() };
        let uuid: CardId = "GPU-a".parse().expect("uuid");
        let containers = [("main".to_owned(), vec![CardShare { uuid: uuid.clone(), share }])].into();
        let cards = Cards { ledger_revision: 7, tier: Tier::Accounting, containers };
        let text = encode(&cards);
        insta::assert_snapshot!(text, @r#"{"version":"v1","ledgerRevision":7,"tier":"accounting","containers":{"main":[{"uuid":"GPU-a","memoryMi":8192,"cores":30}]}}"#);
        assert_eq!(decode(&text), Ok(cards));

        let cards = PlannedCards { chosen: vec![uuid], reused: vec![] };
        let planned =
            Planned { node: "n1".into(), containers: [("main".to_owned(), cards)].into(), ..Planned::default() };
        let text = encode(&planned);
        insta::assert_snapshot!(text, @r#"{"version":"v1","node":"n1","containers":{"main":{"chosen":["GPU-a"]}}}"#);
        assert_eq!(decode(&text), Ok(planned));
    }

    #[test]
    fn foreign_documents_are_refused_with_the_reason() {
        let refused = |text: &str| decode::<RequestAnnotation>(text).expect_err("refused").to_string();
        assert!(refused("{").starts_with("annotation divvy.dev/request: EOF while parsing"));
        assert_eq!(
            refused(r#"{"version":"v9","containers":{}}"#),
            "annotation divvy.dev/request: version \"v9\" is unknown: this build reads v1"
        );
        assert!(refused(r#"{"containers":{}}"#).ends_with("field \"version\" is missing"));
        let zero = r#"{"version":"v1","containers":{"a":{"cards":0,"memory":"1Gi","cores":0}}}"#;
        assert!(refused(zero).ends_with("container \"a\": 0 GPUs, allowed are 1 to 1024"));
        let percent = r#"{"version":"v1","containers":{"a":{"cards":1,"memory":"101%","cores":0}}}"#;
        assert!(refused(percent).contains("\"101%\" is not an amount of memory"));
    }

    #[test]
    fn documents_of_a_newer_build_are_read() {
        let same = |newer: &str, own: &str| {
            let newer = newer.replace("NEW", r#""later":{"x":[1]}"#);
            macro_rules! read {
                ($($kind:ty),*) => {
                    [$(decode::<$kind>(&newer).ok().map(|document| (decode(own) == Ok(document), <$kind>::KEY))),*]
                };
            }
            read!(RequestAnnotation, DialectAnnotation, NodeFit, Planned, Cards)
        };
        for (key, newer, own) in [
            (
                key::REQUEST,
                r#"{"version":"v1",NEW,"containers":{"main":{"cards":2,"memory":"8Gi","cores":30,NEW}}}"#,
                r#"{"version":"v1","containers":{"main":{"cards":2,"memory":"8Gi","cores":30}}}"#,
            ),
            (key::DIALECT, r#"{"version":"v1",NEW,"name":"hami"}"#, r#"{"version":"v1","name":"hami"}"#),
            (key::NODE_FIT, r#"{"version":"v1",NEW,"nodes":["n1"]}"#, r#"{"version":"v1","nodes":["n1"]}"#),
            (
                key::PLANNED,
                r#"{"version":"v1",NEW,"node":"n1","containers":{"main":{"chosen":["GPU-a"],NEW}}}"#,
                r#"{"version":"v1","node":"n1","containers":{"main":{"chosen":["GPU-a"]}}}"#,
            ),
            (
                key::CARDS,
                r#"{"version":"v1",NEW,"ledgerRevision":7,"tier":"shim","containers":{"main":[{"uuid":"GPU-a","memoryMi":8,"cores":3,NEW}]}}"#,
                r#"{"version":"v1","ledgerRevision":7,"tier":"shim","containers":{"main":[{"uuid":"GPU-a","memoryMi":8,"cores":3}]}}"#,
            ),
        ] {
            assert!(same(newer, own).contains(&Some((true, key))), "{key}");
        }
    }

    #[test]
    fn preferences_are_read_or_refused_by_name() {
        let read = Preferences::from_annotations(&annotations(&[
            (key::CARD_MODEL, "A100, H100 ,"),
            (key::AVOID_CARD_UUID, "GPU-1"),
            (key::CARD_POLICY, "least-fragmentation"),
            (key::NUMA, "strict"),
            (key::OVERSUBSCRIBE, "true"),
            ("other.io/x", "whatever"),
        ]))
        .expect("valid");
        assert_eq!(read.models, ["A100", "H100"]);
        assert_eq!((read.card_policy, read.numa), (Some(PolicyName::LeastFragmentation), Some(Numa::Strict)));
        assert!(read.oversubscribe);
        let refused =
            |key, value| Preferences::from_annotations(&annotations(&[(key, value)])).expect_err("refused").to_string();
        assert_eq!(
            refused(key::CARD_POLICY, "tight"),
            "annotation divvy.dev/card-policy: \"tight\" is not allowed: expected binpack, spread, random, least-fragmentation or topology"
        );
        assert!(refused(key::CARD_UUID, "0").contains("expected GPU UUIDs"));
        assert!(refused(key::OVERSUBSCRIBE, "yes").contains("expected true or false"));
        assert!(refused(key::NUMA, "true").contains("expected strict or prefer"));
        for limit in ["0", "101", "", "-1", "50%", "5e1"] {
            assert!(refused(key::COMPUTE_LIMIT, limit).contains("expected 1 to 100"), "{limit}");
        }
    }

    #[test]
    fn list_beyond_the_limits_is_refused_with_both() {
        let lists = [key::CARD_MODEL, key::AVOID_CARD_MODEL, key::CARD_UUID, key::AVOID_CARD_UUID];
        let read = |key, value: &str| Preferences::from_annotations(&annotations(&[(key, value)]));
        for key in lists {
            assert!(read(key, &"GPU-a,".repeat(MOST_ITEMS)).is_ok(), "{key}");
            let longest = format!("GPU-{}", "a".repeat(LONGEST_LIST - 4));
            assert!(!matches!(read(key, &longest), Err(AnnotationError::List { .. })), "{key}");
            let bytes = LONGEST_LIST + 1;
            assert_eq!(read(key, &(longest + "a")), Err(AnnotationError::List { key, items: 1, bytes }));
        }
        assert_eq!(
            read(key::CARD_MODEL, &"a,".repeat(120_000)).expect_err("refused").to_string(),
            "annotation divvy.dev/card-model: 120000 items in 240000 bytes are not allowed: expected at most 64 items, \
             separated by commas, in 4096 bytes"
        );
    }

    #[test]
    fn refusal_shows_the_start_of_a_long_value() {
        let long = "x".repeat(200_000);
        for key in [key::NUMA, key::COMPUTE_LIMIT, key::TIER] {
            let refused =
                Preferences::from_annotations(&annotations(&[(key, &long)])).expect_err("refused").to_string();
            assert!(refused.len() < 300 && refused.contains(&format!("{key}: \"xxx")), "{refused}");
        }
        let request = format!(r#"{{"version":"v1","containers":"{long}"}}"#);
        assert!(decode::<RequestAnnotation>(&request).expect_err("refused").to_string().len() < 300);
        let request = format!(r#"{{"version":"{long}"}}"#);
        assert!(decode::<RequestAnnotation>(&request).expect_err("refused").to_string().len() < 300);
    }

    #[test]
    fn limit_of_idle_compute_implies_its_use() {
        let read = |pairs| Preferences::from_annotations(&annotations(pairs));
        let limited = read(&[(key::COMPUTE_LIMIT, "60")]).expect("valid");
        assert_eq!(
            limited.terms(Tier::Shim),
            Terms { tier: Tier::Shim, compute: Compute::Burst, compute_limit: ComputeLimit::new(60), priority: None }
        );
        assert_eq!(read(&[]).expect("valid").terms(Tier::default()), Terms::default());
        let contradiction = read(&[(key::COMPUTE_LIMIT, "60"), (key::COMPUTE, "cap")]).expect_err("refused");
        assert!(
            contradiction.to_string().contains("\"60\" is not allowed: expected divvy.dev/compute: burst beside it")
        );
    }

    proptest! {
        #[test]
        fn decoding_any_text_is_refused_without_panic(text in "\\PC{0,80}") {
            let read = (decode::<RequestAnnotation>(&text).is_ok(), decode::<Planned>(&text).is_ok(), decode::<Cards>(&text).is_ok());
            prop_assert_eq!(read, (false, false, false));
        }
    }
}
