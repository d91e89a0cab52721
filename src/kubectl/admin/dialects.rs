//! Dialects of the webhook's configuration: how they are written, and whether their units are those of their nodes.

use divvy_api::quantity::parse_count;
use divvy_systems::{Dialect, UnitSetting};
use kube::ResourceExt as _;
use serde::{Deserialize as _, Serialize};
use serde_json::{Map, Value};
use serde_saphyr::{FlowMap, FlowSeq};

use crate::text::listed;
use crate::view::inspect::NodeView;

/// One in the configuration: its name, with the settings that aren't the defaults.
#[derive(Serialize)]
#[serde(untagged)]
enum DialectEntry {
    Name(&'static str),
    Map(FlowMap<Settings>),
}

#[derive(Serialize)]
struct Settings {
    name: &'static str,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A unit of memory that a dialect should have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrongUnit {
    /// What shows it, in words.
    pub(crate) found: String,
    /// Name of the system.
    pub(crate) system: &'static str,
    /// Setting of the dialect.
    pub(crate) key: &'static str,
    /// `Gi` or `Mi`.
    pub(crate) right: &'static str,
}

/// Most GiB of a GPU, and fewer than it has MiB. `kubectl inspect gpushare` of gpushare itself takes more than 100 for MiB, but
/// there are GPUs of 141 GiB and more.
const MOST_GIB: u64 = 1000;
/// Most nodes that are named.
const MOST: usize = 3;

/// The list in YAML, on one line, as `dialects` of the configuration and `--dialects` take it.
pub(crate) fn written(dialects: &[&Dialect]) -> String {
    let list: Vec<DialectEntry> = dialects.iter().copied().map(shortest).collect();
    let text = serde_saphyr::to_string(&FlowSeq(list)).expect("texts, numbers and truth values are YAML");
    text.trim_end().to_owned()
}

fn shortest(dialect: &Dialect) -> DialectEntry {
    let name = dialect.name();
    let Ok(Value::Object(mut others)) = serde_json::to_value(dialect) else { return DialectEntry::Name(name) };
    let keys: Vec<String> = others.keys().filter(|key| *key != "name").cloned().collect();
    for key in keys {
        let mut without = others.clone();
        without.remove(&key);
        if Dialect::deserialize(Value::Object(without.clone())).is_ok_and(|read| read == *dialect) {
            others = without;
        }
    }
    others.remove("name");
    if others.is_empty() { DialectEntry::Name(name) } else { DialectEntry::Map(FlowMap(Settings { name, others })) }
}

/// Dialects whose systems' nodes count memory in another unit.
pub(crate) fn wrong_units(dialects: &[Dialect], nodes: &[NodeView]) -> Vec<WrongUnit> {
    dialects.iter().filter_map(|dialect| wrong_unit(dialect, nodes)).collect()
}

fn wrong_unit(dialect: &Dialect, nodes: &[NodeView]) -> Option<WrongUnit> {
    let system = dialect.name();
    let UnitSetting { key, memory, gpus } = dialect.system().unit?;
    let unit = dialect.setting(key).as_str()?;
    let right = if unit == "Gi" { "Mi" } else { "Gi" };
    let of_each_gpu = |node: &NodeView| Some(amount(node, memory)? / amount(node, gpus)?);
    let others: Vec<(String, u64)> = nodes
        .iter()
        .filter_map(|node| Some((node.name_any(), of_each_gpu(node)?)))
        .filter(|(_, units)| (*units > MOST_GIB) == (right == "Mi"))
        .collect();
    let (_, units) = others.first()?;
    let names: Vec<&str> = others.iter().map(|(name, _)| &**name).collect();
    let found = format!(
        "a unit of {memory} is 1{right} on {} ({units} on a GPU), and 1{unit} in the dialect {system}",
        listed(&names, MOST)
    );
    Some(WrongUnit { found, system, key, right })
}

/// Amount of a resource of a node; `None` where its device plugin serves none.
fn amount(node: &NodeView, resource: &str) -> Option<u64> {
    parse_count(node.capacity(resource)?).ok().filter(|amount| *amount > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<Dialect> {
        serde_saphyr::from_str(text).expect(text)
    }

    /// What is written for what is read, once it has been read again as the same.
    fn rewritten(text: &str) -> String {
        let dialects = read(text);
        let written = written(&dialects.iter().collect::<Vec<_>>());
        assert_eq!(read(&written), dialects);
        written
    }

    #[test]
    fn dialects_are_written_as_short_as_they_are_read() {
        for list in [
            "[]",
            "[hami, kai]",
            "[{name: gpushare, unit: Mi}]",
            "[{name: gpushare, outputs: true}, nano-gpu]",
            "[{name: time-slicing, replicas: 4}]",
            "[{name: time-slicing, replicas: 2, resource: nvidia.com/gpu, sharing: mps}]",
            "[{name: hami, coresAlone: same-as-cores, countAlone: 25%, limitVariables: false}]",
            "[{name: nano-gpu, memoryUnit: 256Mi}, {name: elastic-gpu, floor: true}, {name: volcano, memoryFactor: 10}]",
        ] {
            assert_eq!(rewritten(list), list);
        }
        let long =
            "[{name: gpushare, unit: Gi, outputs: false}, {name: time-slicing, replicas: 4, sharing: time-slicing}]";
        assert_eq!(rewritten(long), "[gpushare, {name: time-slicing, replicas: 4}]");
    }

    #[test]
    fn unit_of_gpushare_is_that_of_its_nodes() {
        let node = |name: &str, memory: &str, gpus: &str| -> NodeView {
            let capacity = json!({ "aliyun.com/gpu-mem": memory, "aliyun.com/gpu-count": gpus });
            serde_json::from_value(json!({ "metadata": { "name": name }, "status": { "capacity": capacity } }))
                .expect("a Node")
        };
        let wrong = |dialects: &str, nodes: &[NodeView]| wrong_units(&read(dialects), nodes).pop();
        let (gib, mib) = ([node("a", "282", "2")], [node("a", "0", "2"), node("b", "30218", "2"), node("c", "x", "1")]);
        let [default, other] = ["[gpushare]", "[hami, {name: gpushare, unit: Mi}]"];
        assert_eq!((wrong(default, &gib), wrong(other, &mib), wrong("[hami]", &mib)), (None, None, None));
        let WrongUnit { found, right, .. } = wrong(default, &mib).expect("another unit");
        assert_eq!(right, "Mi");
        assert_eq!(found, "a unit of aliyun.com/gpu-mem is 1Mi on b (15109 on a GPU), and 1Gi in the dialect gpushare");
        assert_eq!(wrong(other, &gib).expect("another unit").right, "Gi");
    }
}
