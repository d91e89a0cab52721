//! Types of keys that only the daemon has. They are parsed from text, as those of `divvy_runtime::settings` are.

use divvy_api::quantity::parse_memory;
use divvy_api::{Memory, Tier};
use serde::{Deserialize, Serialize};

/// Multiple of a GPU's capacity, in percent: 10 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "f64")]
pub struct Scale(u32);

/// Amount of memory, in MiB or with a binary suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemoryAmount(pub(super) Memory);

/// The word for a tier that isn't named.
const AUTO: &str = "auto";

/// `tier`: the name of one, or `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub struct TierChoice(pub(super) Option<Tier>);

/// `migStrategy`, by the names of NVIDIA's plugin. GPUs out of MIG mode are cards in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigStrategy {
    /// Instances are left alone, so a GPU in MIG mode can't be allocated.
    #[default]
    None,
    /// Instances are cards like any other.
    Single,
    /// Instances are cards of a resource of their profile.
    Mixed,
}

// === impl MigStrategy ===

impl MigStrategy {
    /// Whether instances are cards.
    pub fn makes_cards(self) -> bool {
        self != Self::None
    }

    /// Why a GPU in MIG mode is not allocated as a whole.
    pub fn objection(self) -> &'static str {
        if self.makes_cards() {
            "in MIG mode: its instances are advertised instead"
        } else {
            "in MIG mode: set migStrategy to single or mixed, or disable MIG mode on the GPU"
        }
    }
}

// === impl Scale ===

impl Scale {
    /// 100 %: the capacity itself.
    pub const ONE: Self = Self(100);

    /// A multiple in percent that was read before.
    pub(super) const fn of_percent(percent: u32) -> Self {
        Self(percent)
    }

    /// The multiple in percent.
    pub const fn percent(self) -> u32 {
        self.0
    }
}

impl TryFrom<String> for Scale {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (whole, decimals) = text.split_once('.').unwrap_or((&text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let legal = digits(whole) && digits(decimals) && decimals.len() <= 2;
        let percent = legal.then(|| format!("{whole}{decimals:0<2}").parse().ok()).flatten();
        let percent = percent.filter(|percent| (10..=1000).contains(percent));
        percent.map(Self).ok_or_else(|| format!("\"{text}\" is not a scale from 0.1 to 10 with at most two decimals"))
    }
}

impl From<Scale> for f64 {
    fn from(scale: Scale) -> Self {
        Self::from(scale.0) / 100.0
    }
}

// === impl MemoryAmount ===

impl MemoryAmount {
    /// Nothing.
    pub const NONE: Self = Self(Memory::ZERO);

    /// The amount.
    pub const fn get(self) -> Memory {
        self.0
    }
}

impl TryFrom<String> for MemoryAmount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let refused = |problem| format!("{problem}: expected an amount of memory such as 64Gi, or 0");
        parse_memory(&text).map(Self).map_err(refused)
    }
}

impl From<MemoryAmount> for String {
    fn from(MemoryAmount(memory): MemoryAmount) -> Self {
        if memory.is_zero() { "0".to_owned() } else { memory.to_string() }
    }
}

// === impl TierChoice ===

impl TierChoice {
    /// The tier that is named, which the daemon serves or exits; `None`: the strongest that the node supports.
    pub const fn named(self) -> Option<Tier> {
        self.0
    }
}

impl TryFrom<String> for TierChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse() {
            _ if text == AUTO => Ok(Self(None)),
            Ok(tier) => Ok(Self(Some(tier))),
            Err(tiers) => Err(format!("\"{text}\" is not a tier: expected {AUTO}, {tiers}")),
        }
    }
}

impl From<TierChoice> for &'static str {
    fn from(TierChoice(tier): TierChoice) -> Self {
        tier.map_or(AUTO, Tier::as_str)
    }
}
