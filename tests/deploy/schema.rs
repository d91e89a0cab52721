//! `values.schema.json` knows the keys of the programs, and their ranges.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::Tier;
use divvy_runtime::settings::KeySet;
use serde_json::{Map, Value};

use crate::{configuration, objects};

/// The chart's own: names of objects, and addresses and files that its objects name.
const OF_THE_CHART: [&str; 9] = [
    "certificateDir",
    "kubeconfig",
    "listenAddress",
    "metricsAddress",
    "namespace",
    "nodeIp",
    "nodeName",
    "podIp",
    "podName",
];
/// Of the file alone, and no key with a value.
const OF_THE_FILE: [&str; 3] = ["extender", "overrides", "selector"];

fn schema() -> Value {
    serde_json::from_str(&objects::text("deploy/helm/divvy/values.schema.json")).unwrap()
}

/// The keys of `path` in the schema, with what their references lead to.
fn keys(path: &str) -> BTreeMap<String, Map<String, Value>> {
    let schema = schema();
    let resolve = |value: &Value| match value["$ref"].as_str() {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap().as_object().unwrap().clone(),
        None => value.as_object().unwrap().clone(),
    };
    let properties = schema.pointer(path).unwrap()["properties"].as_object().unwrap();
    let values = properties.iter().filter(|(key, _)| !OF_THE_FILE.contains(&key.as_str()));
    values.map(|(key, value)| (key.clone(), resolve(value))).collect()
}

/// `slotsPerCard` is the variable `SLOTS_PER_CARD`.
fn variable(key: &str) -> String {
    key.chars()
        .flat_map(|letter| letter.is_uppercase().then_some('_').into_iter().chain(letter.to_uppercase()))
        .collect()
}

/// What a program says against a value.
fn refusal<K: KeySet>(key: &str, text: &str) -> Option<String> {
    let name = variable(key);
    K::from_env(|asked| (asked == name).then(|| text.into())).err().map(|refused| refused.to_string())
}

/// The words that a program would take, where it lists them: "unknown variant `a`, expected one of `b`, `c`".
fn offered(refusal: &str) -> Option<BTreeSet<&str>> {
    let (_, listed) = refusal.split_once("unknown variant ")?;
    Some(listed.split('`').skip(3).step_by(2).collect())
}

/// Compares the schema with a program: which keys, which numbers, which words.
fn compare<K: KeySet>(path: &str, wanted: &BTreeSet<String>) {
    let keys = keys(path);
    assert_eq!(keys.keys().cloned().collect::<BTreeSet<_>>(), *wanted);
    for (key, rule) in &keys {
        for (bound, beyond) in [("minimum", -1), ("maximum", 1)] {
            let Some(bound) = rule.get(bound).and_then(Value::as_i64) else { continue };
            assert_eq!(refusal::<K>(key, &bound.to_string()), None, "{key}");
            assert!(refusal::<K>(key, &(bound + beyond).to_string()).is_some(), "{key}: {}", bound + beyond);
        }
        let Some(words) = rule.get("enum").and_then(Value::as_array) else { continue };
        let words: BTreeSet<_> = words.iter().map(|word| word.as_str().unwrap()).collect();
        for word in &words {
            assert_eq!(refusal::<K>(key, word), None, "{key}");
        }
        let refused = refusal::<K>(key, "nonsense").expect("a refusal");
        assert!(offered(&refused).is_none_or(|offered| offered == words), "{refused}");
    }
}

#[test]
fn tiers_of_the_chart_are_those_of_the_daemon() {
    let schema = schema();
    let words = |path: &str| {
        let words = schema.pointer(path).and_then(Value::as_array).expect(path);
        words.iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let tiers =
        |is_listed: fn(Tier) -> bool| Tier::ALL.iter().filter(move |tier| is_listed(**tier)).map(Tier::to_string);
    let node = "/definitions/node/properties";
    let all: Vec<_> = ["auto".to_owned()].into_iter().chain(tiers(|_| true)).collect();
    assert_eq!(words(&format!("{node}/tier/enum")), all);
    let of_gpus: Vec<_> = tiers(Tier::is_per_gpu).collect();
    assert_eq!(words(&format!("{node}/cardOverrides/items/properties/tier/enum")), of_gpus);
}

#[test]
fn values_of_the_chart_are_the_keys_of_the_programs() {
    let own = |config: &Map<String, Value>| {
        config.keys().filter(|key| !OF_THE_CHART.contains(&key.as_str())).cloned().collect::<BTreeSet<_>>()
    };
    let node = own(&configuration::fields(&configuration::node()));
    let webhook = own(&configuration::fields(&configuration::webhook()));
    let mut cluster: BTreeSet<_> =
        configuration::fields(&configuration::cluster()).into_iter().map(|(key, _)| key).collect();
    cluster.remove("version");
    cluster.insert("nodePolicy".to_owned()); // left out where it follows cardPolicy
    compare::<divvy_node::config::Keys>("/definitions/node", &node);
    compare::<divvy_webhook::config::Keys>("/properties/webhook", &webhook.difference(&cluster).cloned().collect());
    compare::<divvy_webhook::config::Keys>("/properties/cluster", &cluster);
}
