//! The overhead file: bytes of each card that the driver charges a container beyond its accounting region, such as those of
//! modules. The daemon measures and writes them; libdivvy subtracts them from the limit.
//!
//! ```text
//! GPU-8f6d… 536870912
//! ```

use core::fmt::{self, Display, Write};

use crate::limits::{is_uuid, number};

/// Reads a whole file: UUIDs of cards with bytes. `None` if any line is malformed.
pub fn read(text: &str) -> Option<impl Iterator<Item = (&str, u64)> + Clone> {
    let lines = Some(text).filter(|text| text.is_empty() || text.ends_with('\n'))?.lines().map(line);
    lines.clone().all(|line| line.is_some()).then(|| lines.flatten())
}

/// Writes a file.
///
/// # Errors
/// The error of `out`, if it can't be written.
pub fn write(out: &mut impl Write, cards: impl IntoIterator<Item = (impl Display, u64)>) -> fmt::Result {
    cards.into_iter().try_for_each(|(uuid, bytes)| writeln!(out, "{uuid} {bytes}"))
}

fn line(text: &str) -> Option<(&str, u64)> {
    let (uuid, bytes) = text.split_once(' ').filter(|(uuid, _)| is_uuid(uuid))?;
    Some((uuid, number(bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_file_round_trips() {
        let cards = [("GPU-a", 536_870_912), ("MIG-b", 0)];
        let mut text = String::new();
        write(&mut text, cards).expect("room");
        assert_eq!(text, "GPU-a 536870912\nMIG-b 0\n");
        assert!(read(&text).expect("sound").eq(cards));
        assert_eq!(read("").map(Iterator::count), Some(0));
    }

    #[test]
    fn malformed_line_invalidates_the_overhead_file() {
        for text in
            ["GPU-a\n", "GPU-a 01\n", "GPU-a 5", "GPU-a 5\n\n", "GPU-a +5\n", " 5\n", "GPU-a 18446744073709551616\n"]
        {
            assert!(read(text).is_none(), "{text:?}");
        }
    }
}
