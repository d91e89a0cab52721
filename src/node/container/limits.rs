//! The limits file: what a container holds, in lines that a reader without heap or standard library can parse.
//!
//! ```text
//! divvy-limits v1
//! # accounting: a promise in the books, enforced by nothing
//! tier accounting
//! compute cap
//! pod 5d8e01f4-… default trainer-0
//! container main
//! card GPU-8f6d… memory-mib 8192 cores 30 exclusive 0
//! end
//! ```
//!
//! Fields are parted by one space, lines of `#` are for people, and a file without `end` was cut. There is one way to
//! write each file, so a reader may refuse every other.
//!
//! Libdivvy keeps the container to its shares where the tier is `shim`, to those of memory where it is `mps`, and does
//! nothing where it is another: the file is replaced when the node's tier changes. `compute` is `cap` for a container that
//! never gets more than its share, `burst` for one that may use time that others leave idle; `high` or `low` follows for one
//! that goes first or last where there is not enough of that.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use divvy_api::annotation::{Compute, Priority};
use divvy_api::{CardId, Cores, Memory, Share, Tier};

const HEADER: &str = "divvy-limits v1";

/// What one container holds, and how that is enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How the shares are enforced.
    pub tier: Tier,
    /// What happens with compute that others leave idle.
    pub compute: Compute,
    /// Who goes first where there isn't enough of that.
    pub priority: Option<Priority>,
    /// `metadata.uid` of the pod.
    pub pod_uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// At least one card, each once.
    pub cards: Vec<(CardId, Share)>,
}

/// A text that is no limits file; whoever reads it must give the container nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// Written by another version.
    #[error("line 1 is {0:?}: this build reads \"{HEADER}\"")]
    Version(String),
    /// Written in part.
    #[error("the last line is not \"end\": the file was cut")]
    Cut,
    /// A line that isn't what must follow the line before.
    #[error("{found:?} stands where {expected} should")]
    Line {
        /// The line, empty where the file ends.
        found: String,
        /// Its form.
        expected: &'static str,
    },
    /// One card with two shares.
    #[error("card {0} is listed twice")]
    Twice(CardId),
}

/// Whether `text` can stand as one field: a UID, or a name as Kubernetes allows them.
pub(super) fn is_field(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=253).contains(&text.len()) && text.chars().all(legal)
}

/// What the tier means to whoever opens the file.
fn meaning(tier: Tier, cards: &[(CardId, Share)]) -> &'static str {
    match tier {
        Tier::Mig => "kept by the hardware: whole MIG instances, which nobody else is given",
        _ if cards.iter().all(|(_, share)| share.exclusive) => "whole cards, which nobody else is given",
        Tier::Accounting => "a promise in the books, enforced by nothing",
        Tier::Shim => "kept by libdivvy.so inside the container, which can detect more than it can prevent",
        Tier::Mps => "memory and a cap on compute kept by CUDA's multi-process service, and memory by libdivvy.so too",
    }
}

// === impl Limits ===

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tier, compute, priority, pod_uid, namespace, pod, container, cards } = self;
        writeln!(f, "{HEADER}\n# {tier}: {}\ntier {tier}", meaning(*tier, cards))?;
        let priority = priority.map(|priority| format!(" {}", priority.as_str())).unwrap_or_default();
        writeln!(f, "compute {}{priority}", compute.as_str())?;
        writeln!(f, "pod {pod_uid} {namespace} {pod}\ncontainer {container}")?;
        for (card, share) in cards {
            let (memory, cores, exclusive) = (share.memory.as_mib(), share.cores.units(), u8::from(share.exclusive));
            writeln!(f, "card {card} memory-mib {memory} cores {cores} exclusive {exclusive}")?;
        }
        writeln!(f, "end")
    }
}

impl FromStr for Limits {
    type Err = LimitsError;

    fn from_str(text: &str) -> Result<Self, LimitsError> {
        let (header, body) = text.split_once('\n').unwrap_or((text, ""));
        if header != HEADER {
            return Err(LimitsError::Version(header.to_owned()));
        }
        let body = body.strip_suffix("\nend\n").ok_or(LimitsError::Cut)?;
        let mut lines = body.split('\n').filter(|line| !line.starts_with('#'));
        let tier = read(lines.next(), "tier <tier>", |line| line.strip_prefix("tier ")?.parse().ok())?;
        let (compute, priority) = read(lines.next(), "compute <cap|burst> [high|low]", compute)?;
        let [pod_uid, namespace, pod] = read(lines.next(), "pod <uid> <namespace> <name>", pod)?;
        let container = read(lines.next(), "container <name>", |line| field(line.strip_prefix("container ")?))?;
        let mut cards = vec![read(lines.next(), CARD, card)?];
        for line in lines {
            cards.push(read(Some(line), CARD, card)?);
        }
        check_unique(&cards)?;
        Ok(Self { tier, compute, priority, pod_uid, namespace, pod, container, cards })
    }
}

const CARD: &str = "card <uuid> memory-mib <n> cores <n> exclusive <0|1>";

/// A line that must be of this form.
fn read<T>(line: Option<&str>, expected: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, LimitsError> {
    let line = line.unwrap_or_default();
    parse(line).ok_or_else(|| LimitsError::Line { found: line.to_owned(), expected })
}

/// Refuses two shares of one card.
pub(super) fn check_unique(cards: &[(CardId, Share)]) -> Result<(), LimitsError> {
    let mut seen = HashSet::new();
    match cards.iter().find(|(card, _)| !seen.insert(card)) {
        Some((card, _)) => Err(LimitsError::Twice(card.clone())),
        None => Ok(()),
    }
}

fn field(text: &str) -> Option<String> {
    is_field(text).then(|| text.to_owned())
}

fn compute(line: &str) -> Option<(Compute, Option<Priority>)> {
    let words = line.strip_prefix("compute ")?;
    let (compute, priority) =
        words.split_once(' ').map_or((words, None), |(compute, priority)| (compute, Some(priority)));
    let compute = [Compute::Cap, Compute::Burst].into_iter().find(|known| known.as_str() == compute)?;
    let known = |word| [Priority::High, Priority::Low].into_iter().find(|known| known.as_str() == word);
    Some((compute, priority.map(|word| known(word).ok_or(())).transpose().ok()?))
}

fn pod(line: &str) -> Option<[String; 3]> {
    let mut fields = line.strip_prefix("pod ")?.splitn(3, ' ').map(field);
    Some([fields.next()??, fields.next()??, fields.next()??])
}

fn card(line: &str) -> Option<(CardId, Share)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let ["card", id, "memory-mib", memory, "cores", cores, "exclusive", exclusive @ ("0" | "1")] = fields[..] else {
        return None;
    };
    let memory = Memory::mib(number(memory)?);
    let cores = Cores::new(number(cores)?.try_into().ok()?);
    Some((id.parse().ok()?, Share { memory, cores, exclusive: exclusive == "1" }))
}

/// Digits alone, without zeros in front: `u64::from_str` takes "+1" and "007" too.
fn number(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| canonical)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_limits() -> impl Strategy<Value = Limits> {
        let share = (any::<u64>(), any::<u32>(), any::<bool>()).prop_map(|(memory, cores, exclusive)| Share {
            memory: Memory::mib(memory),
            cores: Cores::new(cores),
            exclusive,
        });
        let card = "(GPU|MIG)-[a-f0-9]{8}".prop_map(|id| id.parse().expect("a UUID"));
        let cards = prop::collection::btree_map(card, share, 1..5).prop_map(|cards| cards.into_iter().collect());
        let tier = prop::sample::select(vec![Tier::Accounting, Tier::Shim, Tier::Mps, Tier::Mig]);
        let compute = prop::sample::select(vec![Compute::Cap, Compute::Burst]);
        let priority = prop::sample::select(vec![None, Some(Priority::High), Some(Priority::Low)]);
        let field = || "[A-Za-z0-9_.-]{1,40}";
        (tier, compute, priority, field(), field(), field(), field(), cards).prop_map(
            |(tier, compute, priority, pod_uid, namespace, pod, container, cards)| Limits {
                tier,
                compute,
                priority,
                pod_uid,
                namespace,
                pod,
                container,
                cards,
            },
        )
    }

    const SMALL: &str = "divvy-limits v1\ntier accounting\ncompute cap\npod u ns p\ncontainer c\ncard GPU-a memory-mib 1 cores 0 exclusive 0\nend\n";

    #[test]
    fn comments_are_passed_over() {
        let plain: Limits = SMALL.parse().expect("valid");
        let (head, tail) = SMALL.split_at(SMALL.find("end").expect("an end"));
        assert_eq!((head.replace('\n', "\n# for people\n") + tail).parse(), Ok(plain));
    }

    #[test]
    fn every_other_spelling_is_refused() {
        let spellings = [
            ("v1", "v2"),
            ("tier accounting", "tier none"),
            ("tier accounting\n", ""),
            ("compute cap", "compute none"),
            ("compute cap\n", ""),
            ("compute cap", "compute cap normal"),
            ("compute cap", "compute cap "),
            ("compute cap", "compute cap high low"),
            ("pod u ns p", "pod u ns"),
            ("pod u ns p", "pod u ns p q"),
            ("container c", "container  c"),
            ("container c", "container"),
            ("GPU-a", "0"),
            ("memory-mib 1", "memory-mib 01"),
            ("memory-mib 1", "memory-mib +1"),
            ("memory-mib 1", "memory-mib -1"),
            ("cores 0", "cores 4294967296"),
            ("exclusive 0", "exclusive 2"),
            ("exclusive 0", "exclusive 0 "),
            ("exclusive 0\n", "exclusive 0\r\n"),
            ("card GPU-a memory-mib 1 cores 0 exclusive 0\n", ""),
            ("end\n", "end\nend\n"),
            ("end\n", "end\n# more\n"),
        ];
        for (from, to) in spellings {
            let changed = SMALL.replacen(from, to, 1);
            assert_ne!(changed, SMALL, "{from:?} is in the text");
            assert!(changed.parse::<Limits>().is_err(), "{to:?} for {from:?}");
        }
        let card = "card GPU-a memory-mib 1 cores 0 exclusive 0\n";
        let twice = SMALL.replace(card, &[card, card].concat()).parse::<Limits>().expect_err("two shares of one card");
        assert_eq!(twice.to_string(), "card GPU-a is listed twice");
        let missing = SMALL.replace("container c\n", "").parse::<Limits>().expect_err("no container");
        assert_eq!(
            missing.to_string(),
            "\"card GPU-a memory-mib 1 cores 0 exclusive 0\" stands where container <name> should"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(limits in any_limits()) {
            prop_assert_eq!(limits.to_string().parse(), Ok(limits));
        }

        #[test]
        fn a_cut_file_is_refused(limits in any_limits(), cut in any::<prop::sample::Index>()) {
            let text = limits.to_string();
            let cut = &text[..cut.index(text.len())];
            prop_assert!(cut.parse::<Limits>().is_err(), "{cut:?}");
        }

        #[test]
        fn no_text_panics(text in "(divvy-limits v1\n)?((tier|compute|pod|container|card|end|#)?[ -~\n]{0,20}){0,8}") {
            prop_assert!(text.parse::<Limits>().is_err());
        }
    }
}
