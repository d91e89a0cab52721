//! How cards and slots are named.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A card's UUID as NVML prints it (`GPU-…`, or `MIG-…` for an instance); never an index or a minor number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct CardId(#[schemars(with = "String")] Arc<str>);

/// One virtual device that the daemon registers for a card: `GPU-<uuid>::<n>`, the form that NVIDIA's plugin uses for
/// shared devices, so that dcgm-exporter maps it to its pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SlotId {
    /// The card that the slot belongs to.
    pub card: CardId,
    /// Number of the slot on its card, from 0.
    pub number: u32,
}

/// A text that names no card or no slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardIdError {
    /// Not `GPU-…` or `MIG-…`, or longer than the 63 characters that the device-plugin API grants an ID with its suffix.
    #[error("\"{0}\" is not a card UUID: expected \"GPU-\" or \"MIG-\" followed by letters, digits, '-' or '/'")]
    Card(String),
    /// Not `<card>::<n>`.
    #[error("\"{0}\" is not a slot: expected a card UUID, \"::\" and a number")]
    Slot(String),
}

// === impl CardId ===

impl CardId {
    /// The UUID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The slot with this number.
    pub fn slot(&self, number: u32) -> SlotId {
        SlotId { card: self.clone(), number }
    }
}

impl FromStr for CardId {
    type Err = CardIdError;

    fn from_str(text: &str) -> Result<Self, CardIdError> {
        let rest = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).unwrap_or_default();
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '/';
        if rest.is_empty() || text.len() > 63 || !rest.chars().all(legal) {
            return Err(CardIdError::Card(text.to_owned()));
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for CardId {
    type Error = CardIdError;

    fn try_from(text: String) -> Result<Self, CardIdError> {
        text.parse()
    }
}

impl From<CardId> for String {
    fn from(id: CardId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl SlotId ===

impl FromStr for SlotId {
    type Err = CardIdError;

    fn from_str(text: &str) -> Result<Self, CardIdError> {
        let malformed = || CardIdError::Slot(text.to_owned());
        let (card, number) = text.split_once("::").ok_or_else(malformed)?;
        // `u32::from_str` also takes "+1" and "007", which would make two names for one slot.
        let canonical = number == "0" || !number.starts_with(['0', '+']);
        let number = number.parse().ok().filter(|_| canonical).ok_or_else(malformed)?;
        Ok(Self { card: card.parse()?, number })
    }
}

impl TryFrom<String> for SlotId {
    type Error = CardIdError;

    fn try_from(text: String) -> Result<Self, CardIdError> {
        text.parse()
    }
}

impl From<SlotId> for String {
    fn from(slot: SlotId) -> Self {
        slot.to_string()
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.card, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_round_trip() {
        for text in ["GPU-5f3a-9c::0", "MIG-GPU-5f3a/1/0::31"] {
            let slot: SlotId = text.parse().expect("valid");
            assert_eq!(slot.to_string(), text);
        }
    }

    #[test]
    fn names_of_nothing_are_refused() {
        for text in ["", "GPU-", "gpu-1", "0", "GPU-a b", "GPU-a\n"] {
            assert!(text.parse::<CardId>().is_err(), "{text:?} is no card");
        }
        for text in ["GPU-a", "GPU-a::", "GPU-a::-1", "GPU-a::+1", "GPU-a::01", "GPU-a::1::2", "::1"] {
            assert!(text.parse::<SlotId>().is_err(), "{text:?} is no slot");
        }
    }
}
