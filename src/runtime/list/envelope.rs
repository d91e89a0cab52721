//! What stands around a list's items: kind, version and metadata, which may come before or after them.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::ListError;

/// Most of it, in bytes; in it is the token by which the list goes on.
pub(super) const LARGEST: usize = 64 << 10;
const ITEMS: &[u8] = b"\"items\"";

/// The text of a list without its items.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    text: Vec<u8>,
    depth: usize,
    /// Where the string begins that isn't closed yet.
    string: Option<usize>,
    is_escaped: bool,
    /// Whether the last string was the key of the items.
    is_items: bool,
}

#[derive(Deserialize)]
struct List {
    metadata: Option<ListMeta>,
    #[serde(deserialize_with = "present")]
    items: Option<[IgnoredAny; 0]>,
}

/// Metadata of a list.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// Token by which the list goes on, if there is more of it.
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
    /// Version of which the objects are, from which a watch goes on.
    pub resource_version: Option<String>,
}

/// Go writes a list of nothing as null. A list that isn't there at all is an error.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(source: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(source)
}

// === impl Envelope ===

impl Envelope {
    /// Takes a byte; says whether the items begin after it.
    pub(super) fn push(&mut self, byte: u8) -> Result<bool, ListError> {
        if self.text.len() == LARGEST {
            return Err(ListError::LargeEnvelope);
        }
        self.text.push(byte);
        if let Some(start) = self.string {
            if self.is_escaped {
                self.is_escaped = false;
            } else if byte == b'\\' {
                self.is_escaped = true;
            } else if byte == b'"' {
                self.string = None;
                self.is_items = self.depth == 1 && &self.text[start..] == ITEMS;
            }
            return Ok(false);
        }
        match byte {
            b'"' => self.string = Some(self.text.len() - 1),
            b'[' if self.is_items => {
                self.is_items = false;
                // Its end is pushed as well, and closes this.
                self.depth += 1;
                return Ok(true);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.is_items &= matches!(byte, b':' | b' ' | b'\t' | b'\r' | b'\n');
        Ok(false)
    }

    /// Reads it to its end.
    pub(super) fn metadata(&self) -> Result<ListMeta, serde_json::Error> {
        let List { metadata, items } = serde_json::from_slice(&self.text)?;
        let [] = items.unwrap_or_default();
        let ListMeta { continue_token, resource_version } = metadata.unwrap_or_default();
        let continue_token = continue_token.filter(|token| !token.is_empty());
        Ok(ListMeta { continue_token, resource_version })
    }
}
