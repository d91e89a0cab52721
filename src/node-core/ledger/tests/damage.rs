//! Journals cut short, damaged, or never ours.

use std::ops::Range;

use divvy_api::ContainerRequest;
use proptest::prelude::*;

use super::model::{Model, pod_shape, violations};
use super::{file, release, reopen};
use crate::ledger::journal::{Replay, replay};
use crate::ledger::{Change, Nonce, next_opening};

/// A journal of one opening, and what each of its records says.
struct Written {
    bytes: Vec<u8>,
    records: Vec<Line>,
}

struct Line {
    at: Range<usize>,
    revision: u64,
    /// The books after it.
    model: Model,
    /// Whose it is: a nonce given, or a pod that ended.
    uid: String,
    nonce: Option<Nonce>,
}

fn write(shapes: &[Vec<ContainerRequest>], picks: &[(usize, usize)]) -> Written {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    let (mut model, mut records) = (Model::default(), Vec::new());
    let len = || usize::try_from(std::fs::metadata(file(dir.path())).expect("journal").len()).expect("small");
    for (pod, pick) in picks {
        let (uid, requests, begin) = (pod.to_string(), &shapes[*pod], len());
        let held = |at: &usize| model.pods.get(&uid).is_some_and(|entry| entry.containers[*at].holding.is_some());
        let at = (0..requests.len()).find(|at| requests[*at].request.is_some() && !held(at));
        let nonce = match at.and_then(|at| Some((at, model.plan(&uid, requests, at, *pick)?))) {
            Some((at, (entry, holding))) => {
                let nonce = holding.nonce;
                ledger.allocate(&entry.pod, requests, &requests[at].name, holding).expect("writes");
                model.hold(entry);
                Some(nonce)
            }
            None if release(&mut ledger, &uid, "gone").expect("writes").is_some() => {
                model.pods.remove(&uid);
                None
            }
            None => continue,
        };
        records.push(Line { at: begin..len(), revision: ledger.revision(), model: model.clone(), uid, nonce });
    }
    Written { bytes: std::fs::read(file(dir.path())).expect("journal"), records }
}

fn written() -> impl Strategy<Value = Written> {
    let picks = prop::collection::vec((0..3usize, 0..48usize), 1..7);
    (prop::collection::vec(pod_shape(), 3), picks).prop_map(|(shapes, picks)| write(&shapes, &picks))
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn truncated_journal_replays_its_whole_records(written in written()) {
        let last = written.records.last().map_or(0, |record| record.revision);
        for cut in 0..=written.bytes.len() {
            let Replay { allocations, revision, report, .. } = replay(&written.bytes[..cut]).expect("our version");
            let whole = written.records.iter().take_while(|record| record.at.end <= cut).last();
            whole.map(|record| record.model.clone()).unwrap_or_default().agrees_with(&allocations)?;
            prop_assert_eq!(report.damaged, vec![]);
            prop_assert!(revision >= whole.map_or(0, |record| record.revision));
            let header_read = revision > 0;
            prop_assert!(!header_read || next_opening(revision) > last, "{} after {}", revision, last);
        }
    }

    #[test]
    fn damaged_byte_loses_one_record(written in written(), xor in 1..=255u8) {
        for offset in 0..written.bytes.len() {
            let mut bytes = written.bytes.clone();
            bytes[offset] ^= xor;
            let Replay { allocations, report, .. } = replay(&bytes).expect("a damaged version is damage");
            let hit = written.records.iter().position(|record| record.at.contains(&offset));
            let last = written.records.len().checked_sub(1);
            prop_assert_eq!(report.records, written.records.len() - usize::from(hit.is_some()));
            prop_assert!(!report.damaged.is_empty() || report.torn > 0 && hit == last, "unnoticed at {}", offset);
            let lost = hit.map(|hit| &written.records[hit]);
            let ended_later = |from: usize, uid: &str| {
                written.records[from..].iter().any(|record| record.uid == uid && record.nonce.is_none())
            };
            for (at, record) in written.records.iter().enumerate().filter(|(at, _)| Some(*at) != hit) {
                let Some(nonce) = record.nonce.filter(|_| !ended_later(at, &record.uid)) else { continue };
                let entry = allocations.pod(&record.uid);
                let kept = entry.is_some_and(|entry| {
                    entry.containers.iter().filter_map(|container| container.holding.as_ref()).any(|held| held.nonce == nonce)
                });
                prop_assert!(kept, "{} lost, though another record was hit: {:?}", record.uid, lost.map(|lost| &lost.at));
            }
            prop_assert_eq!(violations(&allocations, &[]), Vec::<String>::new());
        }
    }

    #[test]
    fn replay_of_any_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(replay(&bytes).is_ok(), "no header of another version comes about by chance");
    }

    #[test]
    fn replay_of_any_records_never_panics(lines in prop::collection::vec("\\{\"(version|revision)\":[0-9]{1,21},\"(hold|release|revision)\":(\\{\\}|[0-9]{1,20})\\}", 0..6)) {
        let line = |json: &String| format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        let text: String = lines.iter().map(line).collect();
        prop_assert!(replay(text.as_bytes()).is_ok());
    }
}

#[test]
fn damage_is_reported_with_its_place_and_the_file_is_kept() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    ledger.allocate(&super::pod("a"), &[super::app("x")], "x", super::holding("GPU-1", 0)).expect("writes");
    let offset = std::fs::read(file(dir.path())).expect("journal").len() + 1;
    ledger.allocate(&super::pod("b"), &[super::app("x")], "x", super::holding("GPU-1", 1)).expect("writes");
    ledger.allocate(&super::pod("c"), &[super::app("x")], "x", super::holding("GPU-1", 2)).expect("writes");
    drop(ledger);
    let mut bytes = std::fs::read(file(dir.path())).expect("journal");
    bytes[offset + 30] ^= 1;
    std::fs::write(file(dir.path()), &bytes).expect("writes");
    for _ in 0..2 {
        let (ledger, report) = reopen(dir.path());
        let pods: Vec<&str> = ledger.allocations().pods().map(|entry| entry.pod.uid.as_str()).collect();
        assert_eq!(pods, ["a", "c"]);
        if !report.damaged.is_empty() {
            assert_eq!(report.damaged[0].to_string(), format!("record at byte {offset}: its checksum differs"));
        }
        assert_eq!(std::fs::read(dir.path().join("journal.damaged")).expect("kept"), bytes);
    }
}

#[test]
fn impossible_revision_is_damage() {
    for revision in [u64::MAX, (1 << 53) + 1] {
        let change = Change::Release { pod: super::pod("a"), why: "gone".to_owned() };
        let mut record = serde_json::to_value(&change).expect("json");
        record["revision"] = revision.into();
        let json = record.to_string();
        let text = format!("\n{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        let Replay { report, revision: reached, .. } = replay(text.as_bytes()).expect("no version");
        assert_eq!((report.damaged.len(), reached), (1, 0));
        assert!(report.damaged[0].reason.ends_with("is out of range"));
    }
}

#[test]
fn damaged_journal_never_takes_the_place_of_an_earlier_one() {
    let dir = tempfile::tempdir().expect("dir");
    let mut kept = Vec::new();
    for name in ["journal.damaged", "journal.damaged.1", "journal.damaged.2"] {
        let (mut ledger, _) = reopen(dir.path());
        ledger.allocate(&super::pod(name), &[super::app("x")], "x", super::holding("GPU-1", 0)).expect("writes");
        drop(ledger);
        let mut bytes = std::fs::read(file(dir.path())).expect("journal");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(file(dir.path()), &bytes).expect("writes");
        assert!(!reopen(dir.path()).1.damaged.is_empty());
        kept.push((name, bytes));
    }
    for (name, bytes) in kept {
        assert!(std::fs::read(dir.path().join(name)).expect("kept") == bytes, "{name}");
    }
}

/// Lines of a newer build: a field more in a request, a share and a holding; a tier that this build doesn't know; a change
/// that it doesn't know.
const NEWER: [&str; 3] = [
    r#"{"revision":2000001,"hold":{"pod":{"uid":"a","namespace":"default","name":"pod-a"},"containers":[{"claim":{"name":"main","kind":"app","claim":{"cards":1,"memory":"8Gi","cores":30,"bandwidth":5},"counted":{"count":1,"memory":8192,"percent":0,"cores":30}},"holding":{"nonce":"67e5504410b1426f9247bb680e5fe0c8","parts":[{"card":"GPU-1","slot":0,"share":{"memoryMi":8192,"cores":30,"bandwidth":5}}],"origin":"allocated","since":7}}],"why":"allocated"}}"#,
    r#"{"revision":2000002,"hold":{"pod":{"uid":"b","namespace":"default","name":"pod-b"},"containers":[{"claim":{"name":"main","kind":"app","claim":null},"holding":{"nonce":"0b7d5044a0b1426f9247bb680e5fe0c8","parts":[{"card":"GPU-1","slot":1,"share":{"memoryMi":1,"cores":0}}],"origin":"allocated","terms":{"tier":"vault","compute":"cap"}}}],"why":"allocated"}}"#,
    r#"{"revision":2000003,"lend":{"card":"GPU-1"}}"#,
];

#[test]
fn records_of_a_newer_build_survive_a_rollback() {
    let dir = tempfile::tempdir().expect("dir");
    let line = |json: &str| format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
    let header = line(r#"{"version":"v1","revision":2000000}"#);
    let newer = NEWER.map(line);
    std::fs::create_dir_all(dir.path()).expect("dir");
    std::fs::write(file(dir.path()), header + "\n" + &newer.join("\n")).expect("writes");
    let has = |number: usize| std::fs::read_to_string(file(dir.path())).expect("journal").contains(&newer[number]);
    for opening in 0..3 {
        let (mut ledger, report) = reopen(dir.path());
        assert_eq!((report.damaged.len(), report.unknown.len(), report.torn), (0, 2, 0), "{report}");
        assert!(report.to_string().contains("unknown variant `vault`"), "{report}");
        let held = ledger.allocations().pod("a").and_then(|entry| entry.holding("main")).expect("it is readable");
        assert_eq!(held.nonce.to_string(), "67e5504410b1426f9247bb680e5fe0c8");
        assert!(ledger.revision() > 2_000_003, "above what can't be read");
        assert_eq!([0, 1, 2].map(has), [true; 3], "rewritten at start {opening}");
        let name = format!("later-{opening}");
        ledger.allocate(&super::pod(&name), &[super::app("x")], "x", super::holding("GPU-2", opening)).expect("writes");
    }
    let (mut ledger, _) = reopen(dir.path());
    ledger.allocate(&super::pod("a"), &[super::app("x")], "x", super::holding("GPU-3", 0)).expect("writes");
    ledger.allocate(&super::pod("b"), &[super::app("x")], "x", super::holding("GPU-3", 1)).expect("writes");
    assert!(release(&mut ledger, "b", "gone").expect("writes").is_some());
    drop(ledger);
    drop(reopen(dir.path()));
    assert_eq!([0, 1, 2].map(has), [false, false, true], "the one has changed, the other has ended");
}
