//! The limits file: what a container holds of each card, in lines that a reader without heap can parse.
//!
//! ```text
//! divvy-limits v1
//! # accounting: reserved in the ledger, enforced by nothing
//! tier accounting
//! compute cap
//! pod 5d8e01f4-… default trainer-0
//! container main
//! card GPU-8f6d… memory-mib 8192 cores 30 exclusive 0
//! end
//! ```
//!
//! The daemon writes it and reads it back after a restart; libdivvy reads it in the container. Fields are separated by one
//! space, lines that begin with `#` are for people, and a file without `end` was cut. There is one way to write each file,
//! and every other spelling is refused as a whole.
//!
//! Libdivvy enforces all shares where the tier is `shim`, those of memory where it is `mps`, and none where it is another:
//! the file is replaced when the node's tier changes. `compute` is `cap` for a container that never gets more than its
//! share, `burst` for one that may use idle time of others; `high` or `low` follows for one that goes first or last where
//! there is not enough idle time for all, and `limit` with the percentage of a card's compute that it has at most. `host-mib` follows where the share is oversubscribed: so much of its memory has its
//! place in the node's host memory, and may lie there.

use core::fmt::{self, Display, Write};

use crate::layout::CARDS;
use crate::terms::{ComputeLimit, Terms, Tier};

#[cfg(test)]
mod tests;

const HEADER: &str = "divvy-limits v1";
const COMPUTE: &str = "compute <cap|burst> [high|low] [limit <1 to 100>]";
const POD: &str = "pod <uid> <namespace> <name>";
const CONTAINER: &str = "container <name>";
const CARD: &str = "card <uuid> memory-mib <n> cores <n> exclusive <0|1> [host-mib <n>]";

/// The size of the longest file, in bytes: [`CARDS`] cards with UUIDs of [`UUID`] letters.
pub const LONGEST: usize = 16 << 10;
/// The length of the longest UUID: `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
pub const UUID: usize = 96;

/// The contents of a file. `T` is text, `C` what lists the cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits<T, C> {
    /// How the shares are enforced.
    pub terms: Terms,
    /// `metadata.uid` of the pod.
    pub pod_uid: T,
    /// The pod's namespace.
    pub namespace: T,
    /// The pod's name.
    pub pod: T,
    /// The container's name.
    pub container: T,
    /// The container's cards, in the order of the accounting region; each once, at least one, at most [`CARDS`].
    pub cards: C,
}

/// A container's share of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardLimits<'a> {
    /// The card's UUID, such as `GPU-8f6d…` or `MIG-…`.
    pub uuid: &'a str,
    /// Memory, in MiB; its bytes fit into 64 bits.
    pub memory_mib: u64,
    /// The part of the memory that the card needn't have, because the node's host memory is reserved for it, in MiB; 0 unless the
    /// container's share is oversubscribed.
    pub host_mib: u64,
    /// Percent of the card's compute; 0: no guarantee.
    pub cores: u32,
    /// Whether no other container is given the card.
    pub exclusive: bool,
}

/// The cards of a file that was checked.
#[derive(Clone, Debug)]
pub struct Cards<'a>(&'a str);

/// A text that is not a limits file. A container whose file is malformed may use no GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed<'a> {
    /// The number of the line, counted from 1.
    pub line: usize,
    /// The line; empty where the file ends.
    pub found: &'a str,
    /// Expected content.
    pub expected: &'static str,
}

/// Whether a text can be one field: a UID, or a name as Kubernetes allows them.
pub fn is_field(text: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(is_legal)
}

/// A number in digits alone, without leading zeros: `u64::from_str` takes "+1" and "007" too.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_canonical = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_canonical)
}

/// Whether a text can be a card's UUID.
pub(crate) fn is_uuid(text: &str) -> bool {
    (1..=UUID).contains(&text.len())
}

// === impl Limits ===

impl<'a> Limits<&'a str, Cards<'a>> {
    /// Reads a whole file.
    ///
    /// # Errors
    /// [`Malformed`] names the first line that is wrong.
    pub fn read(text: &'a str) -> Result<Self, Malformed<'a>> {
        Self::read_with(text, |tier| tier.parse().ok())
    }

    /// Reads a whole file in the container that it is about: a tier that a newer daemon has changed to is as `accounting`, as
    /// the library enforces nothing of it.
    ///
    /// # Errors
    /// As [`Limits::read`].
    pub fn read_in_container(text: &'a str) -> Result<Self, Malformed<'a>> {
        Self::read_with(text, |tier| is_field(tier).then(|| tier.parse().unwrap_or(Tier::Accounting)))
    }

    fn read_with(text: &'a str, tier: impl Fn(&str) -> Option<Tier>) -> Result<Self, Malformed<'a>> {
        let (first, _) = text.split_once('\n').unwrap_or((text, ""));
        if first != HEADER {
            return Err(Malformed { line: 1, found: first, expected: HEADER });
        }
        let Some(body) = text.strip_suffix("\nend\n") else {
            let found = text.lines().last().unwrap_or_default();
            return Err(Malformed { line: text.lines().count(), found, expected: "end" });
        };
        let end = Malformed { line: body.split('\n').count() + 1, found: "", expected: CARD };
        let mut lines = body.split('\n').enumerate().skip(1).filter(|(_, line)| !line.starts_with('#'));
        let mut next = |expected| {
            let line = lines.next().map(|(at, found)| Malformed { line: at + 1, found, expected });
            line.unwrap_or(Malformed { expected, ..end })
        };
        let tier = next("tier <tier>").parse(|line| tier(line.strip_prefix("tier ")?))?;
        let terms = next(COMPUTE).parse(|line| terms(tier, line))?;
        let [pod_uid, namespace, pod] = next(POD).parse(|line| fields(line.strip_prefix("pod ")?))?;
        let [container] = next(CONTAINER).parse(|line| fields(line.strip_prefix("container ")?))?;
        let cards = Cards(body);
        let mut read = 0;
        for (at, found) in lines {
            let line = Malformed { line: at + 1, found, expected: CARD };
            let card = line.parse(CardLimits::read)?;
            let is_listed = cards.clone().take(read).any(|other| other.uuid == card.uuid);
            Malformed { expected: "another card", ..line }.parse(|_| (!is_listed).then_some(()))?;
            Malformed { expected: "end", ..line }.parse(|_| (read < CARDS).then_some(()))?;
            read += 1;
        }
        end.parse(|_| (read > 0).then_some(()))?;
        Ok(Self { terms, pod_uid, namespace, pod, container, cards })
    }
}

impl<'a, C: Iterator<Item = CardLimits<'a>> + Clone> Limits<&str, C> {
    /// Writes the file, with a comment on the tier for people who open it.
    ///
    /// # Errors
    /// The error of `out`, if it can't be written.
    pub fn write(self, out: &mut impl Write) -> fmt::Result {
        let Self { terms, pod_uid, namespace, pod, container, cards } = self;
        let Terms { tier, compute, compute_limit, priority } = terms;
        let are_whole = tier != Tier::Mig && cards.clone().all(|card| card.exclusive);
        let comment = if are_whole { "whole GPUs, allocated to no other container" } else { tier.comment() };
        write!(out, "{HEADER}\n# {tier}: {comment}\ntier {tier}\ncompute {compute}")?;
        if let Some(priority) = priority {
            write!(out, " {priority}")?;
        }
        if let Some(limit) = compute_limit {
            write!(out, " limit {}", limit.percent())?;
        }
        out.write_char('\n')?;
        write!(out, "pod {pod_uid} {namespace} {pod}\ncontainer {container}\n")?;
        for CardLimits { uuid, memory_mib, host_mib, cores, exclusive } in cards {
            let exclusive = u8::from(exclusive);
            write!(out, "card {uuid} memory-mib {memory_mib} cores {cores} exclusive {exclusive}")?;
            if host_mib > 0 {
                write!(out, " host-mib {host_mib}")?;
            }
            out.write_char('\n')?;
        }
        out.write_str("end\n")
    }
}

fn terms(tier: Tier, line: &str) -> Option<Terms> {
    let mut words = line.strip_prefix("compute ")?.split(' ').peekable();
    let compute = words.next()?.parse().ok()?;
    let priority = words.next_if(|word| *word != "limit").map(str::parse).transpose().ok()?;
    let compute_limit = match words.next() {
        None => None,
        // `next_if` has passed over everything else.
        Some(_limit) => Some(ComputeLimit::new(u32::try_from(number(words.next()?)?).ok()?)?),
    };
    words.next().is_none().then_some(Terms { tier, compute, compute_limit, priority })
}

fn fields<const N: usize>(text: &str) -> Option<[&str; N]> {
    let mut words = text.split(' ').filter(|word| is_field(word));
    let fields = [(); N].map(|()| words.next().unwrap_or_default());
    // Words that are no fields, and any more words, are missing from these.
    let length = fields.iter().map(|field| field.len()).sum::<usize>() + N - 1;
    (length == text.len() && fields.iter().all(|field| !field.is_empty())).then_some(fields)
}

// === impl CardLimits ===

impl<'a> CardLimits<'a> {
    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_mib << 20
    }

    /// The part of it that may lie in host memory, in bytes.
    pub fn host_bytes(&self) -> u64 {
        self.host_mib << 20
    }

    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut after = |name: &str| (words.next()? == name).then(|| words.next())?;
        let uuid = after("card").filter(|uuid| is_uuid(uuid))?;
        let memory_mib = number(after("memory-mib")?).filter(|mib| *mib <= u64::MAX >> 20)?;
        let cores = u32::try_from(number(after("cores")?)?).ok()?;
        let exclusive = match after("exclusive")? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let host_mib = match words.next() {
            None => 0,
            Some("host-mib") => number(words.next()?).filter(|mib| (1..=memory_mib).contains(mib))?,
            Some(_) => return None,
        };
        words.next().is_none().then_some(Self { uuid, memory_mib, host_mib, cores, exclusive })
    }
}

// === impl Cards ===

impl<'a> Iterator for Cards<'a> {
    type Item = CardLimits<'a>;

    fn next(&mut self) -> Option<CardLimits<'a>> {
        while !self.0.is_empty() {
            let (line, rest) = self.0.split_once('\n').unwrap_or((self.0, ""));
            self.0 = rest;
            if let Some(card) = CardLimits::read(line) {
                return Some(card);
            }
        }
        None
    }
}

// === impl Malformed ===

impl<'a> Malformed<'a> {
    fn parse<T>(self, parse: impl FnOnce(&'a str) -> Option<T>) -> Result<T, Self> {
        parse(self.found).ok_or(self)
    }
}

impl Display for Malformed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, found, expected } = self;
        write!(f, "line {line} is {found:?}, expected \"{expected}\"")
    }
}
