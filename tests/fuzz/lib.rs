//! Fuzz targets' bodies: whatever a user, tenant, kubelet or disk sends, a decoder answers without a panic, and what it
//! accepts it writes back as it was.
//!
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz <target> tests/fuzz/corpus/<target> tests/fuzz/seeds/<target>`
//! searches, and keeps what it finds in the first of the two folders. `cargo test` here runs each body over cuts and
//! flips of the seeds, so that a broken target is noticed without a fuzzer.

mod cluster;
mod region;

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use divvy_api::annotation::{self, Cards, Document, Planned, Preferences, RequestAnnotation};
use divvy_api::limits::pod_requests;
use divvy_api::names::{ResourceName, annotation as key};
use divvy_api::request::Defaults;
use divvy_api::{
    CardId, ContainerKind, ContainerSpec, Cores, Memory, MemoryAmount, ResourceNames, SlotId, Tier, quantity,
};
use divvy_node::config::Keys;
use divvy_node::container;
use divvy_node::pod_list;
use divvy_node_core::ledger::{Nonce, Part, journal};
use divvy_node_core::pod::ContainerState;
use divvy_region::limits::Limits;
use divvy_simulate::trace;
use fake_nvml::Scenario;

pub use cluster::{bind, explain, filter, gpu_node, pod, preempt, reviews};
pub use region::region;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// What is read is written as something that reads the same.
fn round_trips<T: FromStr<Err: Debug> + Display + Debug + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse::<T>().expect("own spelling"), value);
    }
}

/// The ledger's journal, as found, and as if every line's checksum were right: no fuzzer would guess one.
pub fn journal(bytes: &[u8]) {
    books(bytes);
    let signed = |line: &[u8]| {
        let json = line.get(9..).unwrap_or_default();
        [format!("{:08x} ", crc32fast::hash(json)).as_bytes(), json, b"\n"].concat()
    };
    books(&bytes.split(|byte| *byte == b'\n').flat_map(signed).collect::<Vec<u8>>());
}

fn books(bytes: &[u8]) {
    let Ok(replay) = journal::replay(bytes) else { return };
    let pods: Vec<_> = replay.allocations.pods().collect();
    let holdings = pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.holding);
    for part in holdings.flat_map(|holding| &holding.parts) {
        let held = replay.allocations.held(&part.card, None);
        assert!(held.pods > 0 && held.pods as usize <= pods.len());
    }
    let mut holders: BTreeMap<SlotId, &str> = BTreeMap::new();
    for pod in &pods {
        let parts = pod.holdings().flat_map(|(_, holding)| &holding.parts);
        for slot in parts.filter_map(Part::slot_id) {
            let holder = *holders.entry(slot).or_insert(&pod.pod.uid);
            assert_eq!(holder, pod.pod.uid, "a slot has one holder, whatever was written");
        }
    }
}

/// Cards, slots, nonces and the other names that come back from files and calls.
pub fn ids(bytes: &[u8]) {
    let text = text(bytes);
    round_trips::<CardId>(text);
    round_trips::<SlotId>(text);
    round_trips::<Nonce>(text);
    round_trips::<ResourceName>(text);
    round_trips::<Tier>(text);
    if let Ok(slot) = text.parse::<SlotId>() {
        assert_eq!(slot.to_string(), text, "one slot has one name");
    }
}

/// Amounts as users and the API server write them.
pub fn quantities(bytes: &[u8]) {
    let text = text(bytes);
    round_trips::<MemoryAmount>(text);
    if let Ok(memory) = quantity::parse_memory(text) {
        assert_eq!(quantity::parse_memory_total(text), Ok(memory));
    }
    let _refused_or_not = quantity::parse_count(text);
}

/// Every annotation that is read: documents by their decoders, each line `key value` as an input annotation.
pub fn annotations(bytes: &[u8]) {
    document::<RequestAnnotation>(bytes);
    document::<Planned>(bytes);
    document::<Cards>(bytes);
    let _refused_or_not = Preferences::from_annotations(&pairs(text(bytes), key::CARD_MODEL));
}

fn document<D: Document + Debug + PartialEq>(bytes: &[u8]) {
    if let Ok(document) = annotation::decode::<D>(text(bytes)) {
        assert_eq!(annotation::decode::<D>(&annotation::encode(&document)), Ok(document));
    }
}

/// Limits, each line `name value`; the rest after an empty line is the webhook's annotation.
pub fn requests(bytes: &[u8]) {
    let (limits, request) = text(bytes).split_once("\n\n").unwrap_or((text(bytes), ""));
    let request = annotation::decode::<RequestAnnotation>(request).ok();
    let limits = pairs(limits, "nvidia.com/gpu");
    let container = ContainerSpec { name: "main".to_owned(), kind: ContainerKind::App, index: 0, limits };
    let names = ResourceNames::default();
    let Ok(requests) = pod_requests(&names, Defaults::default(), request.as_ref(), &[container]) else { return };
    for request in requests.into_iter().filter_map(|container| container.request) {
        assert!((1..=1024).contains(&request.cards) && request.cores <= Cores::FULL, "{request:?}");
        let share = request.share_on(Memory::mib(81_920));
        assert!(share.memory > Memory::ZERO, "{request:?}");
        assert_eq!(share.exclusive, request.is_exclusive());
    }
}

/// Lines of a name and a value; a line without a name stands for `default`'s value.
fn pairs(text: &str, default: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap_or((default, line));
        (name.to_owned(), value.to_owned())
    };
    text.lines().map(pair).collect()
}

/// The kubelet's `/pods`, alone and after another list, whose pods it may repeat, in pieces.
pub fn pod_list(bytes: &[u8]) {
    let decoded = pod_list::decode(bytes).map_err(|refused| refused.to_string());
    for pod in decoded.iter().flatten() {
        assert!(!pod.uid.is_empty());
        assert!(!(pod.has_ended() && pod.states.values().any(|state| *state == ContainerState::Running)));
    }
    let read = |known: &Arc<pod_list::Known>, bytes: &[u8], piece| {
        let mut reader = Arc::clone(known).reader();
        bytes.chunks(piece).try_for_each(|piece| reader.push(piece))?;
        reader.finish()
    };
    let (_, known) = read(&Arc::default(), include_bytes!("seeds/pod_list/two-pods"), 64).expect("a list");
    let mut known = Arc::new(known);
    for piece in [1, 100, 4096] {
        let pods = read(&known, bytes, piece).map(|(pods, now)| {
            known = Arc::new(now);
            pods
        });
        assert_eq!(pods.map_err(|refused: pod_list::DecodeError| refused.to_string()), decoded);
    }
}

/// A container's limits file: but for comments there is one way to write each.
pub fn limits(bytes: &[u8]) {
    let plain =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let text = text(bytes);
    let Ok(limits) = Limits::read(text) else {
        assert!(container::limits::read(text).is_err());
        return;
    };
    let mut written = String::new();
    limits.write(&mut written).expect("a string takes any text");
    let (read, written): (String, String) = (plain(text), plain(&written));
    assert_eq!(read, written);
}

/// The configuration file: what it makes, printed, is a file that says the same.
pub fn config(bytes: &[u8]) {
    in_file(bytes, |path| {
        let Ok(config) = Keys::read(path)
            .map_err(|refused| refused.to_string())
            .and_then(|keys| keys.into_config().map_err(|refused| refused.to_string()))
        else {
            return;
        };
        fs::write(path, config.to_yaml()).expect("it could be written before");
        assert_eq!(Keys::read(path).and_then(Keys::into_config).expect("our own text"), config);
    });
}

/// Scenarios of the fake NVML.
pub fn scenario(bytes: &[u8]) {
    in_file(bytes, |path| {
        if let Ok(scenario) = Scenario::read(path) {
            scenario.write(path).expect("it could be written before");
            assert_eq!(Scenario::read(path).expect("our own text"), scenario);
        }
    });
}

/// Traces of clusters.
pub fn trace(bytes: &[u8]) {
    in_file(bytes, |path| {
        for node in trace::nodes(path).into_iter().flatten() {
            assert!(node.cards <= 32 && (node.cards == 0 || !node.model.is_empty()), "{node:?}");
        }
        for pod in trace::pods(path, None).into_iter().flatten() {
            assert!(pod.cards <= 32 && pod.milli <= 1000);
        }
    });
}

/// For decoders that take a path.
fn in_file(bytes: &[u8], read: impl FnOnce(&Path)) {
    static DIRECTORY: LazyLock<tempfile::TempDir> =
        LazyLock::new(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory"));
    let path = DIRECTORY.path().join("input");
    fs::write(&path, bytes).expect("writable");
    read(&path);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every cut of a seed, and every byte of it flipped three ways.
    fn smoke(target: fn(&[u8]), seed: &str) {
        for at in 0..=seed.len() {
            target(&seed.as_bytes()[..at]);
            for flip in [1, 0x20, 0x80] {
                let mut bytes = seed.as_bytes().to_vec();
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= flip);
                target(&bytes);
            }
        }
    }

    #[test]
    fn every_target_takes_its_seeds() {
        smoke(journal, include_str!("seeds/journal/two-pods"));
        smoke(ids, include_str!("seeds/ids/slot"));
        smoke(ids, include_str!("seeds/ids/nonce"));
        smoke(quantities, include_str!("seeds/quantities/decimal"));
        smoke(quantities, include_str!("seeds/quantities/percent"));
        smoke(annotations, include_str!("seeds/annotations/request"));
        smoke(annotations, include_str!("seeds/annotations/planned"));
        smoke(annotations, include_str!("seeds/annotations/cards"));
        smoke(annotations, include_str!("seeds/annotations/preferences"));
        smoke(requests, include_str!("seeds/requests/limits"));
        smoke(requests, include_str!("seeds/requests/annotated"));
        smoke(pod_list, include_str!("seeds/pod_list/two-pods"));
        smoke(limits, include_str!("seeds/limits/two-cards"));
        smoke(region, include_str!("seeds/region/two-slots"));
        smoke(config, include_str!("seeds/config/some-keys"));
        smoke(scenario, include_str!("seeds/scenario/one-card"));
        smoke(trace, include_str!("seeds/trace/nodes"));
        smoke(trace, include_str!("seeds/trace/pods"));
        smoke(reviews, include_str!("seeds/reviews/created"));
        smoke(reviews, include_str!("seeds/reviews/changed"));
        smoke(reviews, include_str!("seeds/reviews/debugged"));
        smoke(reviews, include_str!("seeds/reviews/deployment"));
        smoke(filter, include_str!("seeds/filter/names"));
        smoke(filter, include_str!("seeds/filter/nodes"));
        smoke(bind, include_str!("seeds/bind/waiting"));
        smoke(preempt, include_str!("seeds/preempt/short"));
        smoke(preempt, include_str!("seeds/preempt/whole"));
        smoke(explain, include_str!("seeds/explain/pod"));
        smoke(gpu_node, include_str!("seeds/gpu_node/two-cards"));
        smoke(pod, include_str!("seeds/pod/bound"));
        smoke(pod, include_str!("seeds/pod/nominated"));
    }

    #[test]
    fn seeds_are_accepted() {
        let seed = journal::replay(include_bytes!("seeds/journal/two-pods")).expect("our version");
        assert_eq!((seed.report.records, seed.report.damaged), (3, vec![]));
        assert!(annotation::decode::<RequestAnnotation>(include_str!("seeds/annotations/request")).is_ok());
        assert!(annotation::decode::<Planned>(include_str!("seeds/annotations/planned")).is_ok());
        assert!(annotation::decode::<Cards>(include_str!("seeds/annotations/cards")).is_ok());
        let preferences = pairs(include_str!("seeds/annotations/preferences"), "");
        assert!(Preferences::from_annotations(&preferences).is_ok());
        cluster::seeds_are_accepted();
    }
}
