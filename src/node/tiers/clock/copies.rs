//! Bytes of many regions, by one call of the system, or by a few where some can't be read.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use divvy_region::map::{self, AT_ONCE, Part};
use rustix::fs::{MemfdFlags, memfd_create};

/// What was copied last.
#[derive(Debug)]
pub(super) struct Copies {
    /// The system copies into it.
    file: File,
    bytes: Vec<u8>,
    /// Of each part, where its bytes are; `None` where it couldn't be read.
    places: Vec<Option<Range<usize>>>,
}

// === impl Copies ===

impl Copies {
    pub(super) fn new() -> io::Result<Self> {
        let file = memfd_create("divvy-clock", MemfdFlags::CLOEXEC)?;
        Ok(Self { file: file.into(), bytes: Vec::new(), places: Vec::new() })
    }

    /// Copies these parts, in place of the last ones.
    pub(super) fn take(&mut self, parts: &[Part<'_>]) {
        self.bytes.clear();
        self.places.clear();
        while let Some(rest) = parts.get(self.places.len()..).filter(|rest| !rest.is_empty()) {
            let asked = rest.get(..AT_ONCE).unwrap_or(rest);
            let (mut end, answered) = (self.bytes.len(), self.places.len() + asked.len());
            // Where not even the first can be read, nothing is added.
            let _copied = self.add(asked);
            let places = asked.iter().map(|part| {
                let start = end;
                end += part.length();
                start..end
            });
            self.places.extend(places.take_while(|place| place.end <= self.bytes.len()).map(Some));
            if self.places.len() < answered {
                self.places.push(None);
            }
        }
    }

    fn add(&mut self, parts: &[Part<'_>]) -> io::Result<()> {
        let copied = map::copy(parts, self.file.as_raw_fd()).map_err(io::Error::from_raw_os_error)?;
        let start = self.bytes.len();
        self.bytes.resize(start + copied, 0);
        self.file.read_exact_at(&mut self.bytes[start..], 0)
    }

    /// The bytes of each part, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.places.iter().map(|place| self.bytes.get(place.clone()?))
    }
}
