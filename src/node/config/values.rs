//! Amounts, times and choices as keys have them. Each is read from text, so that file, flag and variable follow the same
//! rules.

use std::time::Duration;

use divvy_contract::{MemoryAmount, Tier};
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// A whole number from `LOW` to `HIGH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Within<const LOW: u32, const HIGH: u32>(u32);

/// A multiple of what a card has, in percent: 10 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "f64")]
pub struct Scale(u32);

/// A time span from 1 ms to a day, written with units: `250ms`, `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(Duration);

/// Memory of a claim that names cores alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DefaultMemory {
    /// The same percentage as its cores.
    SameAsCores,
    /// This, of each card.
    Amount(MemoryAmount),
}

/// A tier that this build can serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Served(Tier);

/// What is logged, in the syntax of `tracing_subscriber::filter::Targets`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogFilter {
    text: String,
    targets: Targets,
}

/// How memory and compute reach scheduler and kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Advertise {
    /// As amounts in the Node's status.
    #[default]
    Amounts,
    /// In coarse units, each a device of the device-plugin API. A kubelet takes a resource that had a plugin for one of
    /// devices until five minutes after the plugin's end (`endpointStopGracePeriod`), and refuses pods that name it:
    /// whoever changes back to amounts has to wait that long before pods ask for cores.
    Devices,
}

/// Something that is done or left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Left.
    #[default]
    Off,
    /// Done.
    On,
}

/// How it is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Plain,
    /// One object a line.
    Json,
}

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

// === impl Within ===

impl<const LOW: u32, const HIGH: u32> Within<LOW, HIGH> {
    pub(super) const fn new(value: u32) -> Self {
        assert!(LOW <= value && value <= HIGH, "a default is in its own range");
        Self(value)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const LOW: u32, const HIGH: u32> TryFrom<String> for Within<LOW, HIGH> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let value = text.parse().ok().filter(|value| (LOW..=HIGH).contains(value));
        value.map(Self).ok_or_else(|| format!("\"{text}\" is not a whole number from {LOW} to {HIGH}"))
    }
}

// === impl Scale ===

impl Scale {
    /// As much as there is.
    pub const ONE: Self = Self(100);

    /// In percent.
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

// === impl Period ===

impl Period {
    pub(super) const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    pub(super) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The time span.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const ALLOWED: &str = "expected 1ms to 24h, such as 250ms, 30s or 5m";
        let period = humantime::parse_duration(&text).map_err(|error| format!("\"{text}\": {error}: {ALLOWED}"))?;
        let legal = (SHORTEST..=LONGEST).contains(&period);
        if legal { Ok(Self(period)) } else { Err(format!("\"{text}\" is out of range: {ALLOWED}")) }
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        humantime::format_duration(period.0).to_string()
    }
}

// === impl DefaultMemory ===

const SAME_AS_CORES: &str = "same-as-cores";

impl DefaultMemory {
    /// The amount; `None`: the same percentage as the claim's cores.
    pub fn amount(self) -> Option<MemoryAmount> {
        match self {
            Self::SameAsCores => None,
            Self::Amount(amount) => Some(amount),
        }
    }
}

impl TryFrom<String> for DefaultMemory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            SAME_AS_CORES => Ok(Self::SameAsCores),
            amount => amount.parse().map(Self::Amount).map_err(|error| format!("{error}, or {SAME_AS_CORES}")),
        }
    }
}

impl From<DefaultMemory> for String {
    fn from(memory: DefaultMemory) -> Self {
        memory.amount().map_or_else(|| SAME_AS_CORES.to_owned(), Self::from)
    }
}

// === impl Served ===

impl Served {
    /// The tier.
    pub const fn get(self) -> Tier {
        self.0
    }
}

impl TryFrom<String> for Served {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse() {
            Ok(Tier::Accounting) => Ok(Self(Tier::Accounting)),
            Ok(tier) => Err(format!("\"{tier}\" can't be served by this build: expected accounting")),
            Err(unknown) => Err(format!("{unknown}, of which this build serves accounting")),
        }
    }
}

// === impl LogFilter ===

impl LogFilter {
    /// The filter itself.
    pub fn targets(&self) -> Targets {
        self.targets.clone()
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self { text: "info".to_owned(), targets: Targets::new().with_default(LevelFilter::INFO) }
    }
}

impl From<LogFilter> for String {
    fn from(filter: LogFilter) -> Self {
        filter.text
    }
}

impl TryFrom<String> for LogFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const ALLOWED: &str =
            "expected levels (off, error, warn, info, debug, trace) by target, such as info,divvy_node=debug";
        let targets: Targets = text.parse().map_err(|error| format!("\"{text}\": {error}: {ALLOWED}"))?;
        // A lone word is a target to the parser: "inof" would silence everything else.
        let word = |part: &str| part.chars().all(char::is_alphanumeric);
        match text.split(',').find(|part| word(part) && part.parse::<LevelFilter>().is_err()) {
            Some(part) => Err(format!("\"{part}\" is not a level: {ALLOWED}")),
            None => Ok(Self { text, targets }),
        }
    }
}
