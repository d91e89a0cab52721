//! Amounts of memory and compute, and how people and the API server write them.

use std::fmt;
use std::iter::Sum;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Card memory, counted in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Memory(u64);

/// Compute of a card in core units, 1 % each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cores(u32);

/// Why a text is no amount. [`crate::limits::RequestError`] adds the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not Kubernetes' quantity grammar.
    #[error("\"{0}\" is not a quantity: expected a number such as 8, 8192Mi or 8Gi")]
    Malformed(String),
    /// `8G` and `8M` are decimal bytes to Kubernetes and "gigabytes" to people; 7 % apart.
    #[error("\"{text}\" is ambiguous: did you mean \"{meant}\"?")]
    DecimalSuffix {
        /// What was written.
        text: String,
        /// The binary form of the same number.
        meant: String,
    },
    /// Half a card, or a binary suffix on something that isn't memory.
    #[error("\"{0}\" is not a whole number")]
    Fraction(String),
    /// Negative, or above what 64 bits hold.
    #[error("\"{0}\" is out of range")]
    OutOfRange(String),
}

const BYTES_PER_MIB: u128 = 1 << 20;

/// Parses memory as users write it: binary suffixes are bytes, rounded up to MiB; plain numbers and `k` are MiB (the
/// API server itself writes 80000 as `80k`); `M`, `G` and above are refused.
pub fn parse_memory(text: &str) -> Result<Memory, QuantityError> {
    let number = Number::parse(text)?;
    match number.suffix {
        Suffix::Binary(_) => Memory::from_bytes(number.value_rounded_up(text)?, text),
        Suffix::Decimal(power @ (6 | 9 | 12 | 15 | 18)) => Err(decimal_suffix(text, power)),
        Suffix::Decimal(_) | Suffix::Exponent(_) => number.whole(text).map(Memory),
    }
}

/// Parses a count or a percentage: a whole number in any decimal spelling.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    let number = Number::parse(text)?;
    match number.suffix {
        Suffix::Binary(_) => Err(QuantityError::Fraction(text.to_owned())),
        Suffix::Decimal(_) | Suffix::Exponent(_) => number.whole(text),
    }
}

/// Parses an amount of CPU as Kubernetes writes it, in thousandths of a core, rounded up: `2` and `1500m`.
pub fn parse_cpu(text: &str) -> Result<u32, QuantityError> {
    let mut number = Number::parse(text)?;
    number.digits = number.digits.saturating_mul(1000);
    let milli = number.value_rounded_up(text)?;
    u32::try_from(milli).map_err(|_wide| QuantityError::OutOfRange(text.to_owned()))
}

/// Parses an amount of host memory as Kubernetes reads it, with any suffix, in whole bytes, rounded up.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let bytes = Number::parse(text)?.value_rounded_up(text)?;
    u64::try_from(bytes).map_err(|_wide| QuantityError::OutOfRange(text.to_owned()))
}

/// Parses a total of MiB that the API server has rewritten: like [`parse_memory`], but `2M` is 2 000 000.
pub fn parse_memory_total(text: &str) -> Result<Memory, QuantityError> {
    match parse_memory(text) {
        Err(QuantityError::DecimalSuffix { .. }) => Number::parse(text)?.whole(text).map(Memory),
        other => other,
    }
}

/// A quantity before its unit is known: `digits` × 10^-`decimals`, then the suffix.
struct Number {
    negative: bool,
    digits: u128,
    decimals: u32,
    suffix: Suffix,
}

enum Suffix {
    /// Power of two: `Ki` is 10.
    Binary(u32),
    /// Power of ten: none is 0, `k` is 3, `m` is -3.
    Decimal(i32),
    /// `e3`, which the API server keeps as written.
    Exponent(i32),
}

// === impl Number ===

impl Number {
    fn parse(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed(text.to_owned());
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (mantissa, suffix) = unsigned.split_at(end);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let suffix = Suffix::parse(suffix).ok_or_else(malformed)?;
        let digits: String = [whole, fraction].concat();
        if digits.len() > 30 {
            return Err(QuantityError::OutOfRange(text.to_owned()));
        }
        let digits = digits.parse().map_err(|_parse| malformed())?;
        let decimals = u32::try_from(fraction.len()).map_err(|_long| malformed())?;
        Ok(Self { negative: text.starts_with('-') && digits != 0, digits, decimals, suffix })
    }

    /// The value as a fraction: numerator and denominator.
    fn ratio(&self, text: &str) -> Result<(u128, u128), QuantityError> {
        let out_of_range = || QuantityError::OutOfRange(text.to_owned());
        let ten = |power: u32| 10u128.checked_pow(power).ok_or_else(out_of_range);
        if self.negative {
            return Err(out_of_range());
        }
        let denominator = ten(self.decimals)?;
        let (up, down) = match self.suffix {
            Suffix::Binary(power) => (1u128 << power, 1),
            Suffix::Decimal(power) | Suffix::Exponent(power) if power < 0 => (1, ten(power.unsigned_abs())?),
            Suffix::Decimal(power) | Suffix::Exponent(power) => (ten(power.unsigned_abs())?, 1),
        };
        let numerator = self.digits.checked_mul(up).ok_or_else(out_of_range)?;
        Ok((numerator, denominator.checked_mul(down).ok_or_else(out_of_range)?))
    }

    fn whole(&self, text: &str) -> Result<u64, QuantityError> {
        let (numerator, denominator) = self.ratio(text)?;
        if !numerator.is_multiple_of(denominator) {
            return Err(QuantityError::Fraction(text.to_owned()));
        }
        u64::try_from(numerator / denominator).map_err(|_wide| QuantityError::OutOfRange(text.to_owned()))
    }

    fn value_rounded_up(&self, text: &str) -> Result<u128, QuantityError> {
        let (numerator, denominator) = self.ratio(text)?;
        Ok(numerator.div_ceil(denominator))
    }
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            exponent => {
                let digits = exponent.strip_prefix(['e', 'E'])?;
                let plain = digits.strip_prefix(['+', '-']).unwrap_or(digits);
                if plain.is_empty() || !plain.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                Self::Exponent(digits.parse().ok()?)
            }
        })
    }
}

fn decimal_suffix(text: &str, power: i32) -> QuantityError {
    let binary = match power {
        6 => "Mi",
        9 => "Gi",
        12 => "Ti",
        15 => "Pi",
        _ => "Ei",
    };
    let meant = format!("{}{binary}", &text[..text.len() - 1]);
    QuantityError::DecimalSuffix { text: text.to_owned(), meant }
}

// === impl Memory ===

impl Memory {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// This many MiB.
    pub const fn mib(mib: u64) -> Self {
        Self(mib)
    }

    /// Bytes that a card reports, rounded down: a part of a MiB can't be allocated.
    pub const fn from_bytes_floor(bytes: u64) -> Self {
        Self(bytes >> 20)
    }

    fn from_bytes(bytes: u128, text: &str) -> Result<Self, QuantityError> {
        u64::try_from(bytes.div_ceil(BYTES_PER_MIB))
            .map(Self)
            .map_err(|_wide| QuantityError::OutOfRange(text.to_owned()))
    }

    /// In MiB.
    pub const fn as_mib(self) -> u64 {
        self.0
    }

    /// Whether this is nothing.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// `percent` of this, rounded down so that parts never add up to more than the whole.
    #[must_use]
    pub fn percent(self, percent: u32) -> Self {
        let mib = self.0;
        let percent = u64::from(percent);
        // The division of 128 bits that large amounts take is too slow for each GPU of a cluster.
        let exact = || u64::try_from(u128::from(mib) * u128::from(percent) / 100).unwrap_or(u64::MAX);
        Self(mib.checked_mul(percent).map_or_else(exact, |product| product / 100))
    }

    /// Sum, stopping at the largest value; amounts come from tenants.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This many times as much, stopping at the largest value; counts come from tenants.
    #[must_use]
    pub fn saturating_mul(self, count: usize) -> Self {
        Self(self.0.saturating_mul(u64::try_from(count).unwrap_or(u64::MAX)))
    }

    /// Difference, stopping at zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 && self.0.is_multiple_of(1024) {
            write!(f, "{}Gi", self.0 / 1024)
        } else {
            write!(f, "{}Mi", self.0)
        }
    }
}

// === impl Cores ===

impl Cores {
    /// Nothing guaranteed.
    pub const ZERO: Self = Self(0);
    /// All of a card, which makes a request exclusive.
    pub const FULL: Self = Self(100);

    /// This many percent of a card.
    pub const fn new(units: u32) -> Self {
        Self(units)
    }

    /// In percent of a card.
    pub const fn units(self) -> u32 {
        self.0
    }

    /// Sum, stopping at the largest value; amounts come from tenants.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Difference, stopping at zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Cores {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cpu_parses_every_form_of_the_api_server() {
        for (text, milli) in [("2", 2000), ("1500m", 1500), ("0.1", 100), ("100u", 1), ("1k", 1_000_000), ("0", 0)] {
            assert_eq!(parse_cpu(text), Ok(milli), "{text}");
        }
        for text in ["-1", "1P", "", "m", "99999999999999999999999999999"] {
            assert!(parse_cpu(text).is_err(), "{text}");
        }
    }

    #[test]
    fn host_memory_parses_to_bytes() {
        for (text, bytes) in
            [("128974848", 128_974_848), ("129M", 129_000_000), ("123Mi", 128_974_848), ("1m", 1), ("1e3", 1000)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["-1", "", "Mi", "20E", "99999999999999999999999999999Gi"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_parses_binary_and_decimal_units() {
        let cases = [
            ("8Gi", 8192),
            ("3000Mi", 3000),
            ("8192", 8192),
            ("80k", 80_000),
            ("8e3", 8000),
            ("8000m", 8),
            ("1Ki", 1),
            ("1.5Gi", 1536),
            ("1025Ki", 2),
            ("+8", 8),
            ("0", 0),
            ("-0", 0),
        ];
        for (text, mib) in cases {
            assert_eq!(parse_memory(text), Ok(Memory::mib(mib)), "{text}");
        }
    }

    #[test]
    fn decimal_suffixes_are_refused_with_the_binary_spelling() {
        let error = parse_memory("8G").expect_err("ambiguous");
        assert_eq!(error.to_string(), "\"8G\" is ambiguous: did you mean \"8Gi\"?");
        let error = parse_memory("1.5M").expect_err("ambiguous");
        assert_eq!(error.to_string(), "\"1.5M\" is ambiguous: did you mean \"1.5Mi\"?");
        assert_eq!(parse_memory_total("2M"), Ok(Memory::mib(2_000_000)), "the API server's own spelling of a total");
    }

    #[test]
    fn malformed_quantities_are_refused() {
        for text in ["", ".", "Gi", "8 Gi", "8gi", "8GiB", "1.2.3", "e3", "8e", "0x8", "٣", "--1", "1e+-2"] {
            assert!(matches!(parse_memory(text), Err(QuantityError::Malformed(_))), "{text:?}");
        }
        for text in ["-1", "-1Gi", "99999999999999999999999Gi", "1e99", "1e-99", "1e99999999999"] {
            assert!(parse_memory(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_count("1500m"), Err(QuantityError::Fraction("1500m".into())));
        assert_eq!(parse_count("3000m"), Ok(3));
        assert_eq!(parse_count("1Ki"), Err(QuantityError::Fraction("1Ki".into())));
    }

    proptest! {
        #[test]
        fn display_parses_back(mib in 0u64..1 << 40) {
            let memory = Memory::mib(mib);
            prop_assert_eq!(parse_memory(&memory.to_string()), Ok(memory));
        }

        #[test]
        fn parsing_a_quantity_never_panics(text in "\\PC{0,40}") {
            let _ = (parse_memory(&text).is_ok(), parse_count(&text).is_ok(), parse_memory_total(&text).is_ok());
        }

        #[test]
        fn number_like_texts_never_panic(text in "[+-]?[0-9.]{0,40}([numkMGTPEi]|e[+-]?[0-9]{1,12}){0,2}") {
            let _ = (parse_memory(&text).is_ok(), parse_count(&text).is_ok(), parse_memory_total(&text).is_ok());
        }

        #[test]
        fn percentages_never_add_up_past_the_whole(mib in 0u64..1 << 40, cut in 0u32..=100) {
            let whole = Memory::mib(mib);
            prop_assert!(whole.percent(cut).saturating_add(whole.percent(100 - cut)) <= whole);
        }
    }
}
