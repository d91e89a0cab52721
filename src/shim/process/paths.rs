//! Paths in a container of the files that the daemon puts there (`divvy_api::container`). Tests have no container: the library
//! that they build looks in the directory that a program was started in.

use core::ffi::CStr;

use crate::text::Text;

#[cfg(not(divvy_test))]
macro_rules! root {
    ($rest:literal) => {
        concat!("/var/run/divvy/", $rest, "\0")
    };
}
#[cfg(divvy_test)]
macro_rules! root {
    ($rest:literal) => {
        concat!($rest, "\0")
    };
}

/// The limits file.
pub(crate) const LIMITS: &CStr = path(root!("limits/limits"));
/// The overhead file: what the driver charges the container beyond its accounting region.
pub(crate) const OVERHEAD: &CStr = path(root!("limits/overhead"));
/// The accounting region that the container's processes share.
pub(crate) const REGION: &CStr = path(root!("region/books"));
const CLOCK: &CStr = path(root!("limits/clock-"));

/// Where the control daemon of the multi-process service is reached, as the driver is told.
pub(crate) const SERVICE: &CStr = path(root!("mps"));

/// The clock page of a card.
pub(crate) fn clock(card: &str) -> Text<160> {
    Text::formatted(format_args!("{}{card}", CLOCK.to_str().unwrap_or_default()))
}

const fn path(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(path) => path,
        Err(_) => c"", // or a text without a zero byte at its end
    }
}
