//! What a journal looks like: one line of JSON a change.
//!
//! ```text
//! 5f3c0a11 {"version":"v1","revision":2000000}
//!
//! 91be27d0 {"revision":2000001,"hold":{"pod":{"uid":…},"containers":[…],"why":"allocated container \"main\""}}
//!
//! 0c44e1f7 {"revision":2000002,"release":{"uid":…,"why":"gone from the kubelet's list"}}
//! ```
//!
//! A record that this build can't read, though its CRC is right, is of a newer one. It is kept as it is, written back at
//! every rewrite before the others, until its pod ends; so is one with fields that this build doesn't know, as long as its
//! pod's entry stays the same.
//!
//! Each line carries its CRC-32. A record begins *and* ends with a newline, so that every byte belongs to one record
//! and a damaged byte costs that record alone.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ledger::allocations::{Allocations, Change};

/// The version that this build writes and reads.
const VERSION: &str = "v1";
/// Largest number that every reader of JSON gets exactly; far above any revision that this program writes.
const LARGEST_REVISION: u64 = 1 << 53;

/// What a journal's bytes say.
#[derive(Debug, Default)]
pub struct Replay {
    /// Allocations that the records add up to.
    pub allocations: Allocations,
    /// The highest revision found.
    pub revision: u64,
    /// How reading went.
    pub report: ReplayReport,
    /// Bytes before the torn tail.
    pub(in crate::ledger) whole: u64,
}

/// How reading a journal went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Records read.
    pub records: usize,
    /// Bytes of a last record that was never finished; dropped.
    pub torn: usize,
    /// Records that can't be read; skipped. The file they stand in is kept as `journal.damaged`.
    pub damaged: Vec<Damage>,
    /// Records of a newer build, which are kept as they are. What they say of their pods isn't known.
    pub unknown: Vec<Damage>,
    /// Why the journal was not rewritten as it should be at every start; it was read and can be written on.
    pub not_rewritten: Option<String>,
}

/// A record that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record at byte {offset}: {reason}")]
pub struct Damage {
    /// Where its line begins.
    pub offset: usize,
    /// What is wrong.
    pub reason: String,
}

/// A journal that another version wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("version \"{0}\" is unknown: this build reads {VERSION}")]
pub struct UnknownVersion(pub String);

#[derive(Serialize, Deserialize)]
struct Header {
    version: String,
    /// Revision of the ledger at the time of writing, which may be above that of any record that follows.
    revision: u64,
}

#[derive(Serialize, Deserialize)]
struct Record<C> {
    revision: u64,
    #[serde(flatten)]
    change: C,
}

impl fmt::Display for ReplayReport {
    /// A line for each thing that is wrong; nothing if nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for damage in &self.damaged {
            writeln!(f, "{damage}: skipped, see journal.damaged")?;
        }
        for record in &self.unknown {
            writeln!(f, "{record}: kept for the newer version that wrote it")?;
        }
        if self.torn > 0 {
            writeln!(f, "{} bytes of an unfinished last record dropped", self.torn)?;
        }
        if let Some(problem) = &self.not_rewritten {
            writeln!(f, "appended to without a rewrite: {problem}")?;
        }
        Ok(())
    }
}

/// Adds up a journal's bytes, whatever they are.
pub fn replay(bytes: &[u8]) -> Result<Replay, UnknownVersion> {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if let Ok(Header { version, .. }) = parse(first)
        && version != VERSION
    {
        return Err(UnknownVersion(version));
    }
    let mut replay = Replay::default();
    let mut offset = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let begin = offset;
        offset += line.len();
        let Some(line) = line.strip_suffix(b"\n") else {
            replay.report.torn = line.len();
            break;
        };
        replay.whole = offset as u64;
        let read = match line {
            [] => Ok(None),
            line if begin == 0 => replay.header(line).map(|()| None),
            line => replay.record(line),
        };
        match read {
            Ok(None) => {}
            Ok(Some(reason)) => replay.report.unknown.push(Damage { offset: begin, reason }),
            Err(reason) => replay.report.damaged.push(Damage { offset: begin, reason }),
        }
    }
    Ok(replay)
}

fn json(content: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(content).expect("strings, numbers and lists of them always serialise")
}

fn line(json: &[u8]) -> Vec<u8> {
    [format!("{:08x} ", crc32fast::hash(json)).as_bytes(), json, b"\n"].concat()
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(whole(line)?).map_err(|error| error.to_string())
}

/// The JSON of a line, if it is as it was written.
fn whole(line: &[u8]) -> Result<&[u8], String> {
    let (sum, json) = line.split_at_checked(9).ok_or("too short for a record")?;
    let is_whole = sum == format!("{:08x} ", crc32fast::hash(json)).as_bytes();
    is_whole.then_some(json).ok_or_else(|| "its checksum differs".to_owned())
}

pub(super) fn record(revision: u64, change: &Change) -> Vec<u8> {
    [b"\n".to_vec(), line(&json(&Record { revision, change }))].concat()
}

pub(super) fn snapshot(allocations: &Allocations, revision: u64) -> Vec<u8> {
    let mut bytes = line(&json(&Header { version: VERSION.to_owned(), revision }));
    for unknown in allocations.unknown() {
        bytes.extend([b"\n".to_vec(), line(unknown)].concat());
    }
    for (entry, changed_at, written) in allocations.entries() {
        bytes.extend(match written {
            Some(written) => [b"\n".to_vec(), line(written)].concat(),
            None => record(changed_at, &Change::Hold { entry: entry.clone(), why: "kept".to_owned() }),
        });
    }
    bytes
}

// === impl Replay ===

impl Replay {
    /// A header that can't be read costs the revision that it carries.
    fn header(&mut self, line: &[u8]) -> Result<(), String> {
        let header: Header = parse(line)?;
        self.reach(header.revision)
    }

    /// Makes the change, or keeps the record and answers why it can't be read.
    fn record(&mut self, line: &[u8]) -> Result<Option<String>, String> {
        let written = whole(line)?;
        let Record { revision, change } = match serde_json::from_slice::<Record<Change>>(written) {
            Ok(record) => record,
            Err(unreadable) => return self.keep(written, unreadable.to_string()).map(Some),
        };
        self.reach(revision)?;
        let has_more = json(&Record { revision, change: &change }) != written;
        let uid = change.uid().to_owned();
        self.allocations.apply(change, revision);
        if has_more {
            self.allocations.keep_written(&uid, written);
        }
        self.report.records += 1;
        Ok(None)
    }

    fn keep(&mut self, written: &[u8], unreadable: String) -> Result<String, String> {
        let record: Value = serde_json::from_slice(written).map_err(|error| error.to_string())?;
        self.reach(record["revision"].as_u64().ok_or_else(|| unreadable.clone())?)?;
        let uid = record.pointer("/hold/pod/uid").or_else(|| record.pointer("/release/uid")).and_then(Value::as_str);
        self.allocations.keep_unknown(uid, written);
        Ok(unreadable)
    }

    fn reach(&mut self, revision: u64) -> Result<(), String> {
        if revision > LARGEST_REVISION {
            return Err(format!("revision {revision} is out of range"));
        }
        self.revision = self.revision.max(revision);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal as released daemons write it.
    const JOURNAL: &str = r#"f7cb82e5 {"version":"v1","revision":1000000}

46668b0c {"revision":1000001,"hold":{"pod":{"uid":"a","namespace":"default","name":"pod-a"},"containers":[{"claim":{"name":"main","kind":"app","claim":{"cards":1,"memory":"8Gi","cores":30},"counted":{"count":1,"memory":8192,"percent":0,"cores":30}},"holding":{"nonce":"67e5504410b1426f9247bb680e5fe0c8","parts":[{"card":"GPU-1","slot":0,"share":{"memoryMi":8192,"cores":30}}],"origin":"allocated"}}],"why":"allocated container \"main\""}}

54948354 {"revision":1000002,"hold":{"pod":{"uid":"b","namespace":"ml","name":"train"},"containers":[{"claim":{"name":"fetch","kind":"init","claim":{"cards":1,"memory":"8Gi","cores":30},"counted":{"count":1,"memory":8192,"percent":0,"cores":30}},"holding":{"nonce":"0b7d5044a0b1426f9247bb680e5fe0c8","parts":[{"card":"GPU-2","lost":3,"share":{"memoryMi":8192,"cores":30}}],"origin":"restored","terms":{"tier":"shim","compute":"burst","priority":"low"}}}],"why":"corrected by the kubelet's records"}}

155446e6 {"revision":1000003,"release":{"uid":"a","namespace":"default","name":"pod-a","why":"gone from the kubelet's list"}}

3d1431ea {"revision":1000004,"hold":{"pod":{"uid":"c","namespace":"ml","name":"notebook"},"containers":[{"claim":{"name":"main","kind":"app","claim":{"cards":1,"memory":"750Mi","cores":0},"counted":{"count":1,"memory":750,"percent":0,"cores":0}},"holding":{"nonce":"1c9e5504410b1426f9247bb680e5fe0c","parts":[{"card":"GPU-1","slot":2,"share":{"memoryMi":750,"hostMemoryMi":250,"cores":0}}],"origin":"allocated","terms":{"tier":"shim","compute":"cap"}}}],"why":"allocated container \"main\""}}
"#;

    /// A rollback reads what this build writes, and an upgrade what was written before.
    #[test]
    fn journal_lines_keep_their_keys() {
        let lines: Vec<&str> = JOURNAL.split('\n').filter(|line| !line.is_empty()).collect();
        let header: Header = parse(lines[0].as_bytes()).expect("a header");
        assert_eq!((header.version.as_str(), header.revision), ("v1", 1_000_000));
        for written in &lines[1..] {
            let Record { revision, change } = parse::<Record<Change>>(written.as_bytes()).expect(written);
            assert_eq!(String::from_utf8(record(revision, &change)).expect("text"), format!("\n{written}\n"));
        }
        assert_eq!(replay(JOURNAL.as_bytes()).expect("this version").report.records, 4);
    }
}
