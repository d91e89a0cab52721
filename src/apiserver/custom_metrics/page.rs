//! Figures of a node's containers, from the `/metrics` page of its daemon. Pure.
//!
//! The page is read while it arrives, line by line, and of its lines those that are named here. A line of these that can't be
//! read makes the page invalid: it isn't a daemon's, or is one of a version whose figures mean something else.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use divvy_api::CardId;

use crate::objects::{MOST_SHARES, PodName};

/// Longest page in bytes: several times that of a node with as many shares as are served.
const LONGEST_PAGE: usize = 16 << 20;
/// Longest line in bytes: names of a namespace, a pod and a container, a UUID and a number have less than 1 KiB.
const LONGEST_LINE: usize = 8 << 10;
/// Most of a line that an error shows, in characters.
const SHOWN: usize = 120;
/// Last line of a whole page, as OpenMetrics has it.
const END: &str = "# EOF";

/// Figures of the containers that hold shares of a node's GPUs.
pub type Page = BTreeMap<Holder, Figures>;

/// A container and one of its GPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The pod.
    pub pod: PodName,
    /// Name of the container.
    pub container: String,
    /// UUID of the GPU.
    pub card: CardId,
}

/// What the page says of one GPU of one container; none of what it doesn't say. Amounts of memory are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// `divvy_container_memory_limit_bytes`.
    pub memory_limit: Option<f64>,
    /// `divvy_container_memory_used_bytes`.
    pub memory_used: Option<f64>,
    /// `divvy_container_memory_overhead_bytes`.
    pub memory_overhead: Option<f64>,
    /// `divvy_container_memory_driver_bytes`.
    pub memory_driver: Option<f64>,
    /// `divvy_share_compute_ratio`.
    pub compute_share: Option<f64>,
    /// `divvy_container_busy_seconds_total`.
    pub busy_seconds: Option<f64>,
}

/// Reader of a page that arrives in parts.
#[derive(Debug, Default)]
pub struct Reader {
    page: Page,
    /// Beginning of a line whose end hasn't arrived.
    line: Vec<u8>,
    bytes: usize,
    is_whole: bool,
}

/// A page that isn't one of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// Longer than any node's.
    #[error("more than {} MiB", LONGEST_PAGE >> 20)]
    LongPage,
    /// A line that is longer than any series.
    #[error("a line of more than {} KiB", LONGEST_LINE >> 10)]
    LongLine,
    /// There can't be so many containers on a node.
    #[error("more than {MOST_SHARES} containers with GPUs")]
    ManyShares,
    /// A line with bytes that are no UTF-8.
    #[error("a line isn't text")]
    NotText,
    /// A line that should be a series.
    #[error("not a series: {0:?}")]
    Series(String),
    /// The last line isn't the one that ends a page.
    #[error("it ends without {END:?}")]
    CutShort,
}

type Field = fn(&mut Figures) -> &mut Option<f64>;

const FIELDS: [(&str, Field); 6] = [
    ("divvy_container_memory_limit_bytes", |of| &mut of.memory_limit),
    ("divvy_container_memory_used_bytes", |of| &mut of.memory_used),
    ("divvy_container_memory_overhead_bytes", |of| &mut of.memory_overhead),
    ("divvy_container_memory_driver_bytes", |of| &mut of.memory_driver),
    ("divvy_share_compute_ratio", |of| &mut of.compute_share),
    ("divvy_container_busy_seconds_total", |of| &mut of.busy_seconds),
];

// === impl Reader ===

impl Reader {
    /// Takes the next bytes of the page, however many.
    pub fn push(&mut self, part: &[u8]) -> Result<(), PageError> {
        self.bytes += part.len();
        if self.bytes > LONGEST_PAGE {
            return Err(PageError::LongPage);
        }
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() > LONGEST_LINE {
                return Err(PageError::LongLine);
            }
            if self.line.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                self.take(std::str::from_utf8(&line).map_err(|_invalid| PageError::NotText)?.trim_end())?;
            }
        }
        Ok(())
    }

    /// Ends the page.
    pub fn finish(self) -> Result<Page, PageError> {
        if self.is_whole { Ok(self.page) } else { Err(PageError::CutShort) }
    }

    fn take(&mut self, line: &str) -> Result<(), PageError> {
        self.is_whole = line == END;
        let Some((name, rest)) = line.split_once('{') else { return Ok(()) };
        let Some((_, field)) = FIELDS.iter().find(|(known, _)| *known == name) else { return Ok(()) };
        let invalid = || PageError::Series(line.chars().take(SHOWN).collect());
        let (holder, value) = series(rest).ok_or_else(invalid)?;
        let count = self.page.len();
        match self.page.entry(holder) {
            Entry::Occupied(known) => *field(known.into_mut()) = Some(value),
            Entry::Vacant(_) if count == MOST_SHARES => return Err(PageError::ManyShares),
            Entry::Vacant(new) => *field(new.insert(Figures::default())) = Some(value),
        }
        Ok(())
    }
}

/// Reads `namespace="…",pod="…",container="…",uuid="…"} 1.0`; other labels, a timestamp and an exemplar are passed over. The
/// value is finite and not negative.
fn series(text: &str) -> Option<(Holder, f64)> {
    let (labels, rest) = labels(text)?;
    let value = rest.strip_prefix(' ')?.split(' ').next()?.parse::<f64>().ok()?;
    let label = |name: &str| labels.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value);
    let pod = PodName { namespace: label("namespace")?.into(), pod: label("pod")?.into() };
    let holder = Holder { pod, container: label("container")?.to_owned(), card: label("uuid")?.parse().ok()? };
    (value.is_finite() && value >= 0.0).then_some((holder, value))
}

/// Name and value.
type Label<'a> = (&'a str, Cow<'a, str>);

/// Labels up to the closing brace, and what follows on it.
fn labels(text: &str) -> Option<(Vec<Label<'_>>, &str)> {
    let (mut labels, mut rest) = (Vec::new(), text);
    loop {
        if let Some(end) = rest.strip_prefix('}') {
            return Some((labels, end));
        }
        let (key, quoted) = rest.split_once("=\"")?;
        let (value, after) = quoted_value(quoted)?;
        labels.push((key, value));
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.starts_with('}') => after,
            None => return None,
        };
    }
}

/// A label's value up to its closing quote, with `\\`, `\"` and `\n` resolved, and what follows on the quote.
fn quoted_value(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text[end..].starts_with('"') {
        return Some((text[..end].into(), &text[end + 1..]));
    }
    let (mut value, mut chars) = (text[..end].to_owned(), text[end..].chars());
    loop {
        match chars.next()? {
            '"' => return Some((value.into(), chars.as_str())),
            '\\' => value.push(match chars.next()? {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            }),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests;
