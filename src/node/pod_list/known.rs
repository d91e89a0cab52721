//! Cache of decoded pods from the previous list: between two lists nearly all of them are the same to the byte.

use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use divvy_node_core::pod::Pod;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

use super::{DecodeError, decode, wire};

/// The pods of one list, each with the text that it was decoded from: parts of the list's own body, no copies.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<Bytes, Arc<Pod>>);

/// Goes over the text of a list from value to value. `None` for any text that it doesn't support and [`decode`] may.
struct Walk<'a> {
    body: &'a Bytes,
    at: usize,
}

// === impl Known ===

impl Known {
    /// Decodes a list as [`decode`] does, but only those pods whose text differs from the previous list.
    pub fn decode(&mut self, body: &Bytes) -> Result<Vec<Arc<Pod>>, DecodeError> {
        let Some(pods) = (Walk { body, at: 0 }).list(self) else {
            self.0.clear();
            return decode(body);
        };
        let views = pods.iter().map(|(_, view)| Arc::clone(view)).collect();
        self.0 = pods.into_iter().collect();
        Ok(views)
    }

    /// The pod with whose text `rest` begins.
    ///
    /// An object ends where its braces are closed, so no text is the beginning of another one. The one with which `rest`
    /// begins is therefore the last that isn't after `rest` in the order of bytes.
    fn first_of(&self, rest: &[u8]) -> Option<(usize, &Arc<Pod>)> {
        let (text, view) = self.0.range::<[u8], _>((Unbounded, Included(rest))).next_back()?;
        rest.starts_with(text).then_some((text.len(), view))
    }
}

// === impl Walk ===

impl<'a> Walk<'a> {
    /// The pods of the list that is all of the text.
    fn list(&mut self, known: &Known) -> Option<Vec<(Bytes, Arc<Pod>)>> {
        let mut pods = None;
        let mut separator = self.take(b"{")?;
        while separator != b'}' {
            let key: &str = self.value()?;
            self.take(b":")?;
            if key != "items" {
                self.value::<IgnoredAny>()?;
            } else if pods.replace(self.pods(known)?).is_some() {
                return None;
            }
            separator = self.take(b",}")?;
        }
        pods.filter(|_| self.next().is_none())
    }

    fn pods(&mut self, known: &Known) -> Option<Vec<(Bytes, Arc<Pod>)>> {
        let mut pods = Vec::with_capacity(known.0.len() + 1);
        let mut separator = self.take(b"[")?;
        while separator != b']' {
            self.next()?;
            let start = self.at;
            let view = if let Some((length, view)) = known.first_of(&self.body[start..]) {
                self.at += length;
                Arc::clone(view)
            } else {
                Arc::new(self.value::<wire::Pod<'_>>()?.try_into().ok()?)
            };
            pods.push((self.body.slice(start..self.at), view));
            separator = self.take(b",]")?;
        }
        Some(pods)
    }

    /// Decodes the value that comes next.
    fn value<T: Deserialize<'a>>(&mut self) -> Option<T> {
        let mut values = Deserializer::from_slice(&self.body[self.at..]).into_iter();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(value)
    }

    /// Takes the byte that comes next, if it is one of these.
    fn take(&mut self, expected: &[u8]) -> Option<u8> {
        let byte = self.next().filter(|byte| expected.contains(byte))?;
        self.at += 1;
        Some(byte)
    }

    /// The byte that comes next, after white space.
    fn next(&mut self) -> Option<u8> {
        let rest = &self.body[self.at..];
        self.at += rest.iter().position(|byte| !b" \t\r\n".contains(byte)).unwrap_or(rest.len());
        self.body.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests;
