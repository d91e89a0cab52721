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

/// What a MIG instance is of its card, as the driver names it: `[<c>c.]<g>g.<m>gb[+<attribute>]`, such as `1g.10gb`,
/// `1g.10gb+me` or, where one GPU instance is cut further, `1c.3g.40gb`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct MigProfile(#[schemars(with = "String")] Arc<str>);

/// A text that is no MIG profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a MIG profile: expected a form like \"1g.10gb\", \"1g.10gb+me\" or \"1c.3g.40gb\"")]
pub struct BadMigProfile(String);

/// A text that names no card or no slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardIdError {
    /// Not `GPU-…` or `MIG-…`, or longer than the 63 characters that the device-plugin API grants an ID with its suffix.
    #[error("\"{0}\" is not a GPU UUID: expected \"GPU-\" or \"MIG-\" followed by letters, digits, '-' or '/'")]
    Card(String),
    /// Not `<card>::<n>`.
    #[error("\"{0}\" is not a slot: expected a GPU UUID, \"::\" and a number")]
    Slot(String),
}

// === impl CardId ===

impl CardId {
    /// The UUID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a MIG instance, which NVML names `MIG-…`, and not a GPU.
    pub fn is_instance(&self) -> bool {
        self.0.starts_with("MIG-")
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

// === impl MigProfile ===

impl MigProfile {
    /// As the driver writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As it stands in a resource's name, which has no `+`: `1g.10gb.me`. [`FromStr`] reads this form too.
    pub fn resource_text(&self) -> String {
        self.0.replace('+', ".")
    }
}

impl FromStr for MigProfile {
    type Err = BadMigProfile;

    /// Takes the driver's form and that of a resource's name. Some attributes say what is missing: `1g.24gb-me`.
    fn from_str(text: &str) -> Result<Self, BadMigProfile> {
        // With "mig-" in front it must still be the name of a resource, of 63 characters at most.
        const LONGEST: usize = 59;
        let refused = || BadMigProfile(text.to_owned());
        let unit = text.find("gb").filter(|_| text.len() <= LONGEST).ok_or_else(refused)?;
        let (slices, attribute) = text.split_at(unit + "gb".len());
        let shaped = match slices.split('.').collect::<Vec<_>>()[..] {
            [gpu, memory] => is_amount(gpu, "g") && is_amount(memory, "gb"),
            [compute, gpu, memory] => is_amount(compute, "c") && is_amount(gpu, "g") && is_amount(memory, "gb"),
            _ => false,
        };
        let plain = |c: char| c.is_ascii_alphanumeric();
        let named =
            |name: &str| name.starts_with(plain) && name.ends_with(plain) && name.chars().all(|c| plain(c) || c == '.');
        let canonical = match attribute.strip_prefix(['+', '.']) {
            Some(name) if named(name) => format!("{slices}+{name}"),
            None if attribute.is_empty() || attribute.strip_prefix('-').is_some_and(named) => text.to_owned(),
            _ => return Err(refused()),
        };
        if shaped { Ok(Self(canonical.into())) } else { Err(refused()) }
    }
}

/// A number in the only way to write it, and its unit.
fn is_amount(text: &str, unit: &str) -> bool {
    let digits = text.strip_suffix(unit).unwrap_or_default();
    !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

impl TryFrom<String> for MigProfile {
    type Error = BadMigProfile;

    fn try_from(text: String) -> Result<Self, BadMigProfile> {
        text.parse()
    }
}

impl From<MigProfile> for String {
    fn from(profile: MigProfile) -> Self {
        profile.0.as_ref().to_owned()
    }
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    fn mig_instance_is_recognised_by_its_id() {
        let is_instance = |text: &str| text.parse::<CardId>().expect("valid").is_instance();
        assert_eq!(["MIG-5f3a-9c", "MIG-GPU-5f3a/1/0", "GPU-5f3a-9c"].map(is_instance), [true, true, false]);
    }

    #[test]
    fn malformed_card_and_slot_ids_are_refused() {
        for text in ["", "GPU-", "gpu-1", "0", "GPU-a b", "GPU-a\n"] {
            assert!(text.parse::<CardId>().is_err(), "{text:?} is no card");
        }
        for text in ["GPU-a", "GPU-a::", "GPU-a::-1", "GPU-a::+1", "GPU-a::01", "GPU-a::1::2", "::1"] {
            assert!(text.parse::<SlotId>().is_err(), "{text:?} is no slot");
        }
    }

    #[test]
    fn mig_profile_parses_in_driver_and_resource_form() {
        for (driver, resource) in [
            ("1g.5gb", "1g.5gb"),
            ("7g.80gb", "7g.80gb"),
            ("1c.3g.40gb", "1c.3g.40gb"),
            ("1g.10gb+me", "1g.10gb.me"),
            ("1g.24gb+me.all", "1g.24gb.me.all"),
            ("1g.24gb-me", "1g.24gb-me"),
        ] {
            let profile: MigProfile = driver.parse().expect("valid");
            assert_eq!((profile.as_str(), profile.resource_text().as_str()), (driver, resource));
            assert_eq!(resource.parse(), Ok(profile));
        }
    }

    #[test]
    fn malformed_mig_profile_is_refused() {
        let long = format!("1g.10gb+{}", "a".repeat(60));
        for text in
            ["", "gb", "1g", "10gb", "1g.gb", "g.10gb", "01g.10gb", "+1g.10gb", "1g.10GB", "1c.1c.1g.10gb", "1g.10gb+"]
                .into_iter()
                .chain(["1g.10gbme", "1g.10gb+-me", "1g.10gb+me,gfx", "1g.10gb+me/", "MIG 1g.10gb", "1g.10gb ", &long])
        {
            assert!(text.parse::<MigProfile>().is_err(), "{text:?} is no profile");
        }
    }
}
