//! The limits file ([`divvy_region::limits`]) as this library reads it, and the UUIDs of cards that it names.

use core::ffi::CStr;
use core::fmt;
use core::str::from_utf8;

use divvy_region::limits::{Cards, LONGEST, Limits, Malformed, UUID};

use crate::sys::{Errno, File};
use crate::text::Text;

/// The text of the limits file, or of another file of the daemon's with no more bytes.
pub(crate) struct Contents {
    bytes: [u8; LONGEST],
    length: usize,
}

/// The UUID of a card, such as `GPU-8f6d…` or `MIG-…`.
#[derive(Clone, Copy)]
pub(crate) struct CardId(Text<{ UUID + 1 }>);

/// Why limits are not known.
pub(crate) enum Unread<'a> {
    Io(Errno),
    NotText,
    Malformed(Malformed<'a>),
}

// === impl Contents ===

impl Contents {
    pub(crate) fn read(path: &CStr) -> Result<Self, Errno> {
        let mut bytes = [0; LONGEST];
        let length = File::open(path)?.read(&mut bytes)?;
        Ok(Self { bytes, length })
    }

    pub(crate) fn text(&self) -> Option<&str> {
        from_utf8(self.bytes.get(..self.length)?).ok()
    }

    pub(crate) fn limits(&self) -> Result<Limits<&str, Cards<'_>>, Unread<'_>> {
        Limits::read_in_container(self.text().ok_or(Unread::NotText)?).map_err(Unread::Malformed)
    }
}

// === impl CardId ===

impl CardId {
    /// A UUID as the daemon and NVML spell it.
    pub(crate) fn new(uuid: &str) -> Self {
        Self(Text::formatted(format_args!("{uuid}")))
    }

    /// The spelling of what CUDA answers. Whether it is a card's or a MIG instance's UUID CUDA does not say.
    pub(crate) fn of_bytes(prefix: &str, uuid: [u8; 16]) -> Self {
        let digits = Text::<33>::formatted(format_args!("{:032x}", u128::from_be_bytes(uuid)));
        let digits = digits.as_str();
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        let [time_low, time_mid, time_high, sequence, node] =
            [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
        Self(Text::formatted(format_args!("{prefix}{time_low}-{time_mid}-{time_high}-{sequence}-{node}")))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for CardId {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

// === impl Unread ===

impl fmt::Display for Unread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NotText => f.write_str("not text in UTF-8"),
            Self::Malformed(malformed) => write!(f, "{malformed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_id_of_bytes_is_spelled_as_in_the_limits_file() {
        let mut uuid = [0; 16];
        uuid.iter_mut().zip(0xa0..).for_each(|(byte, value)| *byte = value);
        let id = CardId::of_bytes("GPU-", uuid);
        assert_eq!(id.as_str(), "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
        assert!(id == CardId::new("GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf") && id != CardId::new("GPU-a0a1a2a3"));
    }
}
