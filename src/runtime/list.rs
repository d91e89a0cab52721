//! Lists of the Kubernetes API, split into their items while they arrive: of a list of any length one item is in memory.
//!
//! A tenant decides how long a list is. 1.3 MB of `<` in one pod are 7.8 MB of JSON, as Go writes each as `\u003c`.

mod each;
mod envelope;

use serde_json::Error as JsonError;

pub use self::each::{Each, ItemError};
use self::envelope::Envelope;
pub use self::envelope::ListMeta;

/// Longest item, in bytes of JSON. etcd takes requests of 1.5 MiB (`--max-request-bytes`), which JSON makes six times as long
/// where it escapes every byte, and longer by the names of the fields.
pub const LARGEST_ITEM: usize = 16 << 20;

/// Receiver of a list's items.
pub trait Items {
    /// Reason not to go on with the list.
    type Error: From<ListError>;

    /// Takes the item with which `text` begins, if it is known already; returns its length.
    fn recognize(&mut self, text: &[u8]) -> Option<usize> {
        let _ = text;
        None
    }

    /// Takes the item at this position: from its opening to its closing brace, and not checked any further.
    fn item(&mut self, index: usize, text: &[u8]) -> Result<(), Self::Error>;
}

/// Splitter of a list, which passes on each item as soon as it is there.
#[derive(Debug, Default)]
pub struct Splitter<T> {
    items: T,
    /// What has arrived of the items and hasn't been passed on.
    text: Vec<u8>,
    envelope: Envelope,
    place: Place,
    scan: Scan,
    /// Items so far.
    count: usize,
}

/// A list that isn't one.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// What stands around the items isn't a list, or ends too early.
    #[error("{0}")]
    Envelope(#[from] JsonError),
    /// What stands around the items is longer than any list's metadata.
    #[error("more than {} KiB are outside of \"items\"", envelope::LARGEST >> 10)]
    LargeEnvelope,
    /// An item, or what should separate it from the next one, is something else.
    #[error("unexpected {:?} where items[{index}] {}", char::from(*byte), if *is_item { "should begin" } else { "has ended" })]
    Unexpected {
        /// Position of the item.
        index: usize,
        /// Byte that was found.
        byte: u8,
        /// Whether an item was expected, and not a separator.
        is_item: bool,
    },
    /// An item that is longer than any object of a cluster.
    #[error("items[{index}] is longer than {} MiB", LARGEST_ITEM >> 20)]
    LargeItem {
        /// Position of the item.
        index: usize,
    },
    /// A list that ends in its items.
    #[error("cut short in items[{index}]")]
    CutShort {
        /// Position of the item.
        index: usize,
    },
}

/// Where in a list the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Place {
    #[default]
    Envelope,
    /// Before or in an item; before the first one the list may end.
    Item {
        is_first: bool,
    },
    AfterItem,
}

/// Search for the end of an object, which goes on when more of it has arrived.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes that were looked at.
    at: usize,
    depth: usize,
    in_string: bool,
}

// === impl Splitter ===

impl<T: Items> Splitter<T> {
    /// A splitter for a list of which nothing has arrived yet.
    pub fn new(items: T) -> Self {
        let text = Vec::new();
        let envelope = Envelope::default();
        let place = Place::default();
        Self { items, text, envelope, place, scan: Scan::default(), count: 0 }
    }

    /// Takes the next bytes of the list, however many.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), T::Error> {
        if self.text.capacity() - self.text.len() < bytes.len() {
            // An eighth at a time, as the text of a large pod would otherwise take twice its memory.
            self.text.reserve_exact(bytes.len() + self.text.len() / 8);
        }
        self.text.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(next) = self.step(at)? {
            at = next;
        }
        self.text.drain(..at);
        if self.text.len() > LARGEST_ITEM {
            return Err(ListError::LargeItem { index: self.count }.into());
        }
        Ok(())
    }

    /// Ends the list. Returns who took the items, and the list's metadata.
    pub fn finish(self) -> Result<(T, ListMeta), T::Error> {
        if self.place != Place::Envelope {
            return Err(ListError::CutShort { index: self.count }.into());
        }
        Ok((self.items, self.envelope.metadata().map_err(ListError::Envelope)?))
    }

    /// Goes on from this position of the text to a later one, unless what comes there hasn't arrived.
    fn step(&mut self, at: usize) -> Result<Option<usize>, T::Error> {
        let Some(&byte) = self.text.get(at) else { return Ok(None) };
        match (self.place, byte) {
            (Place::Envelope, _) => {
                if self.envelope.push(byte)? {
                    self.place = Place::Item { is_first: true };
                }
            }
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (Place::Item { is_first: true } | Place::AfterItem, b']') => {
                self.envelope.push(byte)?;
                self.place = Place::Envelope;
            }
            (Place::AfterItem, b',') => self.place = Place::Item { is_first: false },
            (Place::Item { .. }, b'{') => return self.item(at),
            (place, byte) => {
                let is_item = place != Place::AfterItem;
                let index = if is_item { self.count } else { self.count - 1 };
                return Err(ListError::Unexpected { index, byte, is_item }.into());
            }
        }
        Ok(Some(at + 1))
    }

    fn item(&mut self, at: usize) -> Result<Option<usize>, T::Error> {
        let text = &self.text[at..];
        let length = match self.items.recognize(text) {
            Some(length) => length,
            None => match self.scan.end(text) {
                Some(length) => {
                    self.items.item(self.count, &text[..length])?;
                    length
                }
                None => return Ok(None),
            },
        };
        (self.scan, self.place) = (Scan::default(), Place::AfterItem);
        self.count += 1;
        Ok(Some(at + length))
    }
}

// === impl Scan ===

impl Scan {
    /// Length of the object with which the text begins, once all of it has arrived.
    fn end(&mut self, text: &[u8]) -> Option<usize> {
        while self.at < text.len() {
            if self.in_string {
                // From quote to quote, as a tenant's longest text may have an escape at every sixth byte.
                let quote = memchr::memchr(b'"', &text[self.at..]).map(|ahead| self.at + ahead);
                self.at = quote.map_or(text.len(), |quote| quote + 1);
                let quote = quote?;
                let escapes = text[..quote].iter().rev().take_while(|&&byte| byte == b'\\').count();
                self.in_string = escapes % 2 == 1;
                continue;
            }
            let byte = text[self.at];
            self.at += 1;
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            if self.depth == 0 {
                return Some(self.at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
