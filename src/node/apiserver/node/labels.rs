//! Labels of the Node under the names of NVIDIA's GPU feature discovery, for clusters that don't run it.

use std::collections::BTreeMap;

use divvy_api::Card;
use divvy_node_core::inventory::Inventory;

/// Labels that describe the GPUs and their driver. A label that would be true of some GPUs only is left out.
pub(in crate::apiserver) fn labels(inventory: &Inventory) -> BTreeMap<String, String> {
    let cards: Vec<&Card> = inventory.cards().iter().filter(|card| !card.model.is_empty()).collect();
    let common = |of: &dyn Fn(&Card) -> String| {
        let first = of(cards.first()?);
        cards.iter().all(|card| of(card) == first).then_some(first)
    };
    let driver = inventory.driver.as_ref();
    let cuda = driver.and_then(|driver| driver.cuda.clone());
    let part = |version: &Option<String>, nth: usize| version.as_ref()?.split('.').nth(nth).map(str::to_owned);
    let version = driver.map(|driver| driver.version.clone());
    let labels = [
        ("gpu.count", (!cards.is_empty()).then(|| cards.len().to_string())),
        ("gpu.product", common(&|card| value(&card.model))),
        ("gpu.memory", common(&|card| card.memory.as_mib().to_string())),
        ("gpu.clique", inventory.clique().map(str::to_owned)),
        ("gpu.replicas", common(&|card| card.slots.to_string())),
        ("cuda.driver-version.full", version.clone()),
        ("cuda.driver-version.major", part(&version, 0)),
        ("cuda.driver-version.minor", part(&version, 1)),
        ("cuda.driver-version.revision", part(&version, 2)),
        ("cuda.runtime-version.full", cuda.clone()),
        ("cuda.runtime-version.major", part(&cuda, 0)),
        ("cuda.runtime-version.minor", part(&cuda, 1)),
    ];
    labels.into_iter().filter_map(|(name, value)| Some((format!("nvidia.com/{name}"), value?))).collect()
}

/// `text` as a label value: at most 63 letters, digits, '-', '_' and '.', the ends letters or digits.
fn value(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let text: String = text.chars().map(legal).take(63).collect();
    text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}
