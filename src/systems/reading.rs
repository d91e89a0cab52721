//! Limits of one container, read as numbers.

use divvy_api::Memory;
use divvy_api::quantity::{QuantityError, parse_bytes, parse_count, parse_memory};
use divvy_api::request::MOST_CARDS;

use crate::pod::Container;
use crate::{Refusal, Size};

/// Limits of one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'p>(pub(crate) &'p Container);

/// How a number may be written, and how memory in MiB.
const PLAIN: &str = "without a suffix";
const IN_MIB: &str = "as a number of MiB, or with a binary suffix such as 8Gi";

/// MiB: 4 TiB, more than any GPU has. A larger amount is in another unit than its author thinks.
pub(crate) const MOST_OF_A_CARD: u64 = 4 << 20;

/// Most characters of a value that a message repeats.
const SHOWN: usize = 64;

// === impl Reading ===

impl<'p> Reading<'p> {
    /// The text of a limit. A request alone, or one that says something else, is refused, as the API server does.
    pub(crate) fn text(self, resource: &str) -> Result<Option<&'p str>, Refusal> {
        let Self(container) = self;
        let limit = container.limits.get(resource);
        let request = container.requests.get(resource);
        match (limit, request) {
            (None, Some(request)) => {
                Err(self.refuse_text(resource, request, "is a request without a limit: set the limit"))
            }
            (Some(limit), Some(request)) if !same(limit, request) => {
                let problem = format!("isn't the request, which is {}: leave the request out", shown(request));
                Err(self.refuse_text(resource, limit, problem))
            }
            (limit, _) => Ok(limit.map(String::as_str)),
        }
    }

    /// A whole number; zero counts as absent.
    pub(crate) fn count(self, resource: &str) -> Result<Option<u64>, Refusal> {
        let read = |text| parse_count(text).map_err(|error| self.quantity(resource, text, &error, PLAIN));
        Ok(self.text(resource)?.map(read).transpose()?.filter(|count| *count > 0))
    }

    /// So many GPUs.
    pub(crate) fn cards(self, resource: &str) -> Result<Option<u64>, Refusal> {
        match self.count(resource)? {
            Some(cards) if cards > MOST_CARDS => Err(self.refuse_cards(resource)),
            cards => Ok(cards),
        }
    }

    /// Percent of one GPU.
    pub(crate) fn percent(self, resource: &str) -> Result<Option<u64>, Refusal> {
        match self.count(resource)? {
            Some(percent) if percent > 100 => Err(self.refuse(resource, "a GPU has 100")),
            percent => Ok(percent),
        }
    }

    /// Memory in units of so many MiB.
    pub(crate) fn memory(self, resource: &str, unit: u64) -> Result<Option<Size>, Refusal> {
        let units = self.count(resource)?;
        units.map(|units| self.mib(resource, units.saturating_mul(unit))).transpose()
    }

    /// Memory as our own limit has it: MiB, or with a binary suffix.
    pub(crate) fn memory_in_mib(self, resource: &str) -> Result<Option<u64>, Refusal> {
        let read = |text| parse_memory(text).map_err(|error| self.quantity(resource, text, &error, IN_MIB));
        Ok(self.text(resource)?.map(read).transpose()?.map(Memory::as_mib).filter(|mib| *mib > 0))
    }

    /// Memory in bytes, in whole MiB, rounded up.
    pub(crate) fn bytes(self, resource: &str) -> Result<Option<u64>, Refusal> {
        let read = |text| parse_bytes(text).map_err(|error| self.quantity(resource, text, &error, PLAIN));
        Ok(self.text(resource)?.map(read).transpose()?.map(|bytes| bytes.div_ceil(1 << 20)).filter(|mib| *mib > 0))
    }

    /// So many MiB of each GPU.
    pub(crate) fn mib(self, resource: &str, mib: u64) -> Result<Size, Refusal> {
        match mib {
            0 => Err(self.refuse(resource, "leaves nothing of each GPU")),
            1..=MOST_OF_A_CARD => Ok(Size::Mib(mib)),
            _ => Err(self.refuse(resource, "is more memory than any GPU has")),
        }
    }

    /// A part of each of so many GPUs, of an amount that is written for all of them together.
    pub(crate) fn each(self, resource: &str, total: u64, cards: u64, unit: &str) -> Result<u64, Refusal> {
        if total.is_multiple_of(cards) {
            return Ok(total / cards);
        }
        Err(self.refuse(resource, format!("{total}{unit} can't be divided by {cards} GPUs: set a multiple of {cards}")))
    }

    /// Refusal of more GPUs than a container can have.
    pub(crate) fn refuse_cards(self, resource: &str) -> Refusal {
        self.refuse(resource, format!("at most {MOST_CARDS} GPUs can be requested"))
    }

    /// Refusal of the limit's value.
    pub(crate) fn refuse(self, resource: &str, problem: impl Into<String>) -> Refusal {
        let text = self.0.limits.get(resource).or_else(|| self.0.requests.get(resource));
        self.refuse_text(resource, text.map_or("", String::as_str), problem)
    }

    fn refuse_text(self, resource: &str, text: &str, problem: impl Into<String>) -> Refusal {
        Refusal::Value { field: self.0.field_of(resource), value: shown(text), problem: problem.into() }
    }

    fn quantity(self, resource: &str, text: &str, error: &QuantityError, way_out: &str) -> Refusal {
        let problem = match error {
            QuantityError::Malformed(_) => "is not a quantity: expected a whole number".to_owned(),
            QuantityError::DecimalSuffix { .. } | QuantityError::Fraction(_) => {
                format!("is not a whole number: write it {way_out}")
            }
            QuantityError::OutOfRange(_) => "is out of range".to_owned(),
        };
        self.refuse_text(resource, text, problem)
    }
}

/// Whether two texts are the same quantity.
fn same(limit: &str, request: &str) -> bool {
    limit == request || parse_bytes(limit).is_ok_and(|limit| parse_bytes(request) == Ok(limit))
}

/// A value's start for a message: what tenants write may be long.
pub(crate) fn shown(text: &str) -> String {
    cut(text, SHOWN)
}

/// The first so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
