//! The scheduler extender's messages (`kube-scheduler/extender/v1`). Go's structs have no JSON tags: their fields are
//! PascalCase, are read in any letter case, and are null where Go has nil.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use divvy_index::pod::PodView;

/// A body that isn't the message that the verb takes.
#[derive(Debug, thiserror::Error)]
#[error("invalid arguments of {verb}: {source}")]
pub struct Malformed {
    pub(super) verb: &'static str,
    pub(super) source: serde_json::Error,
}

/// Arguments of `filter` and `prioritize`.
#[derive(Debug, Default)]
pub(super) struct ExtenderArgs<'a> {
    pub(super) pod: Option<PodView>,
    nodes: Option<NodeList<'a>>,
    node_names: Option<Vec<Name<'a>>>,
}

/// Arguments of `bind`.
#[derive(Debug, Default)]
pub(super) struct BindingArgs {
    pub(super) pod_name: String,
    pub(super) pod_namespace: String,
    pub(super) pod_uid: String,
    pub(super) node: String,
}

/// Arguments of `preempt`.
#[derive(Debug, Default)]
pub(super) struct PreemptionArgs {
    pub(super) pod: Option<PodView>,
    /// By name of the node.
    pub(super) victims: BTreeMap<String, Victims>,
}

/// Pods to evict from one node; UIDs.
#[derive(Debug, Default)]
pub(super) struct Victims {
    pub(super) uids: Vec<String>,
    pub(super) pdb_violations: i64,
}

/// Nodes whole, as they came.
#[derive(Debug, Default, Deserialize)]
struct NodeList<'a> {
    #[serde(borrow, default)]
    items: Option<Vec<NodeItem<'a>>>,
}

#[derive(Debug)]
struct NodeItem<'a> {
    name: Cow<'a, str>,
    raw: &'a RawValue,
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Texts by name of a node, each name once.
#[derive(Debug, Default)]
pub(super) struct Reasons<'a>(pub(super) Vec<(&'a str, Arc<str>)>);

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FilterResult<'a> {
    nodes: Option<KeptNodes<'a>>,
    node_names: Option<Vec<&'a str>>,
    failed_nodes: Option<Reasons<'a>>,
    failed_and_unresolvable_nodes: Option<Reasons<'a>>,
    error: &'a str,
}

#[derive(Debug, Serialize)]
struct KeptNodes<'a> {
    metadata: Empty,
    items: Vec<&'a RawValue>,
}

#[derive(Debug, Serialize)]
struct Empty {}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HostPriority<'a> {
    pub(super) host: &'a str,
    pub(super) score: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BindingResult<'a> {
    pub(super) error: &'a str,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PreemptionResult<'a> {
    pub(super) node_name_to_meta_victims: BTreeMap<&'a str, MetaVictims<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct MetaVictims<'a> {
    #[serde(rename = "Pods")]
    pub(super) pods: Vec<MetaPod<'a>>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) pdb_violations: i64,
}

#[derive(Debug, Serialize)]
pub(super) struct MetaPod<'a> {
    #[serde(rename = "UID")]
    pub(super) uid: &'a str,
}

/// The arguments of a verb.
pub(super) fn decode<'a, T: GoStruct<'a>>(verb: &'static str, body: &'a [u8]) -> Result<T, Malformed> {
    let mut source = serde_json::Deserializer::from_slice(body);
    let read = fields(&mut source).and_then(|read| source.end().map(|()| read));
    read.map_err(|source| Malformed { verb, source })
}

/// An answer as it goes out.
pub(super) fn encode<T: Serialize>(answer: &T) -> Vec<u8> {
    serde_json::to_vec(answer).expect("maps with string keys and plain values always serialise")
}

// === impl ExtenderArgs ===

impl ExtenderArgs<'_> {
    /// The nodes in question, in whichever form they came.
    pub(super) fn names(&self) -> Vec<&str> {
        match (&self.node_names, &self.nodes) {
            (Some(names), _) => names.iter().map(|name| &*name.0).collect(),
            (None, Some(nodes)) => nodes.items.iter().flatten().map(|node| &*node.name).collect(),
            (None, None) => Vec::new(),
        }
    }

    /// The answer in the form of the question. `kept` are positions among the names.
    pub(super) fn answer<'s>(
        &'s self,
        names: &[&'s str],
        kept: &[usize],
        by_eviction: Reasons<'s>,
        for_good: Reasons<'s>,
    ) -> FilterResult<'s> {
        let some = |reasons: Reasons<'s>| (!reasons.0.is_empty()).then_some(reasons);
        let items = self.nodes.as_ref().filter(|_| self.node_names.is_none()).and_then(|nodes| nodes.items.as_ref());
        let items =
            items.map(|items| KeptNodes { metadata: Empty {}, items: kept.iter().map(|at| items[*at].raw).collect() });
        FilterResult {
            node_names: items.is_none().then(|| kept.iter().map(|at| names[*at]).collect()),
            nodes: items,
            failed_nodes: some(by_eviction),
            failed_and_unresolvable_nodes: some(for_good),
            error: "",
        }
    }
}

impl<'a> FilterResult<'a> {
    pub(super) fn error(error: &'a str) -> Self {
        Self { error, ..Self::default() }
    }
}

// === impl Reasons ===

impl Serialize for Reasons<'_> {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.collect_map(self.0.iter().map(|(name, reason)| (name, &**reason)))
    }
}

// === impl NodeItem ===

impl<'de: 'a, 'a> Deserialize<'de> for NodeItem<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Node<'n> {
            #[serde(borrow)]
            metadata: Metadata<'n>,
        }

        #[derive(Deserialize)]
        struct Metadata<'n> {
            #[serde(borrow)]
            name: Cow<'n, str>,
        }

        let raw = <&'a RawValue>::deserialize(source)?;
        let node: Node<'a> = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        Ok(Self { name: node.metadata.name, raw })
    }
}

// === impl Deserialize ===

/// A struct of Go's, whose fields are known by their names in lower case.
pub(super) trait GoStruct<'de>: Default {
    /// Reads the value of a field, or passes over it.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

impl<'de: 'a, 'a> GoStruct<'de> for ExtenderArgs<'a> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "pod" => self.pod = map.next_value()?,
            "nodes" => self.nodes = map.next_value()?,
            "nodenames" => self.node_names = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> GoStruct<'de> for BindingArgs {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "podname" => self.pod_name = map.next_value()?,
            "podnamespace" => self.pod_namespace = map.next_value()?,
            "poduid" => self.pod_uid = map.next_value()?,
            "node" => self.node = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> GoStruct<'de> for PreemptionArgs {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "pod" => self.pod = map.next_value()?,
            "nodenametovictims" | "nodenametometavictims" => {
                let victims: Option<BTreeMap<String, Option<Victims>>> = map.next_value()?;
                let victims = victims.unwrap_or_default().into_iter();
                self.victims.extend(victims.map(|(node, victims)| (node, victims.unwrap_or_default())));
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> GoStruct<'de> for Victims {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "pods" => {
                let pods: Option<Vec<Victim>> = map.next_value()?;
                self.uids = pods.unwrap_or_default().into_iter().map(|pod| pod.0).collect();
            }
            "numpdbviolations" => self.pdb_violations = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// A pod's UID, from a whole pod or from its short form.
struct Victim(String);

impl<'de> Deserialize<'de> for Victim {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        #[derive(Default)]
        struct Either {
            uid: Option<String>,
            whole: PodUid,
        }

        #[derive(Default, Deserialize)]
        struct PodUid {
            #[serde(default)]
            uid: String,
        }

        impl<'de> GoStruct<'de> for Either {
            fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
                match name {
                    "uid" => self.uid = map.next_value()?,
                    "metadata" => self.whole = map.next_value()?,
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
                Ok(())
            }
        }

        let Either { uid, whole } = fields(source)?;
        Ok(Self(uid.unwrap_or(whole.uid)))
    }
}

fn fields<'de, T: GoStruct<'de>, D: Deserializer<'de>>(source: D) -> Result<T, D::Error> {
    struct Fields<T>(PhantomData<T>);

    impl<'de, T: GoStruct<'de>> Visitor<'de> for Fields<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let mut read = T::default();
            while let Some(Name(name)) = map.next_key()? {
                read.field(&name.to_ascii_lowercase(), &mut map)?;
            }
            Ok(read)
        }
    }

    source.deserialize_map(Fields(PhantomData))
}

impl<'de> Deserialize<'de> for Victims {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        fields(source)
    }
}
