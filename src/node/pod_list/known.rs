//! Pods of the previous list: between two lists nearly all of them are the same to the byte, and needn't be decoded again.

use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use divvy_node_core::pod::Pod;
use divvy_runtime::list::{Items, Splitter};

use super::{DecodeError, wire};

/// Longest text that is kept, in bytes: pods as users write them have 5 to 20 KB. Longer ones are decoded in each list.
const LONGEST: usize = 32 << 10;
/// Most text that is kept of all pods, in bytes: some 800 pods.
const MOST: usize = 4 << 20;

/// The pods of one list, each with the text that it was decoded from, as far as that isn't long.
#[derive(Debug, Default)]
pub struct Known {
    pods: BTreeMap<Bytes, Arc<Pod>>,
    /// Bytes of all texts.
    bytes: usize,
}

/// Reader of one list, which arrives in pieces.
#[derive(Debug)]
pub struct Reader(Splitter<Decoder>);

/// Decoder of a list's items, with the pods so far.
#[derive(Debug, Default)]
pub struct Decoder {
    before: Arc<Known>,
    known: Known,
    pods: Vec<Arc<Pod>>,
}

// === impl Known ===

impl Known {
    /// A reader for the next list, which decodes only those pods whose text differs from this one.
    pub fn reader(self: Arc<Self>) -> Reader {
        Reader(Splitter::new(Decoder { before: self, known: Self::default(), pods: Vec::new() }))
    }

    /// The pod with whose text `rest` begins.
    ///
    /// An object ends where its braces are closed, so no text is the beginning of another one. The one with which `rest`
    /// begins is therefore the last that isn't after `rest` in the order of bytes.
    fn first_of(&self, rest: &[u8]) -> Option<(&Bytes, &Arc<Pod>)> {
        let found = self.pods.range::<[u8], _>((Unbounded, Included(rest))).next_back()?;
        rest.starts_with(found.0).then_some(found)
    }

    fn keep(&mut self, text: Bytes, pod: Arc<Pod>) {
        if self.bytes + text.len() <= MOST {
            self.bytes += text.len();
            self.pods.insert(text, pod);
        }
    }
}

// === impl Reader ===

impl Reader {
    /// Takes the next bytes of the list.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.0.push(bytes)
    }

    /// Ends the list: its pods, and what the next one is compared with.
    pub fn finish(self) -> Result<(Vec<Arc<Pod>>, Known), DecodeError> {
        let (Decoder { pods, known, .. }, _) = self.0.finish()?;
        Ok((pods, known))
    }
}

// === impl Decoder ===

impl Decoder {
    /// The decoded pods, in the order of the list.
    pub fn into_pods(self) -> Vec<Arc<Pod>> {
        self.pods
    }
}

impl Items for Decoder {
    type Error = DecodeError;

    fn recognize(&mut self, text: &[u8]) -> Option<usize> {
        let (text, pod) = self.before.first_of(text)?;
        self.known.keep(text.clone(), Arc::clone(pod));
        self.pods.push(Arc::clone(pod));
        Some(text.len())
    }

    fn item(&mut self, index: usize, text: &[u8]) -> Result<(), DecodeError> {
        let pod: wire::Pod<'_> = serde_json::from_slice(text).map_err(|error| DecodeError::Pod { index, error })?;
        let pod = Arc::new(Pod::try_from(pod)?);
        if text.len() <= LONGEST {
            self.known.keep(Bytes::copy_from_slice(text), Arc::clone(&pod));
        }
        self.pods.push(pod);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
