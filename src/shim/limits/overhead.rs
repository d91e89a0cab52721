//! What the driver charges the container beyond its books, as `divvy-node` measures it (`usage/overhead.rs`): a line for
//! each card, read whole, believed whole or not at all.
//!
//! ```text
//! GPU-8f6d… 536870912
//! ```

use core::str::from_utf8;

use super::{Id, number};

/// The cards that a file tells of, and bytes of each; `None` if it is no such file.
pub(crate) fn read(text: &[u8]) -> Option<impl Iterator<Item = (Id, u64)> + Clone> {
    let text = from_utf8(text).ok().filter(|text| text.is_empty() || text.ends_with('\n'))?;
    let lines = text.lines().map(line);
    lines.clone().all(|line| line.is_some()).then(|| lines.flatten())
}

fn line(text: &str) -> Option<(Id, u64)> {
    let (id, bytes) = text.split_once(' ')?;
    Some((Id::new(id.as_bytes())?, number(bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Option<Vec<(String, u64)>> {
        Some(read(text.as_bytes())?.map(|(id, bytes)| (id.as_str().to_owned(), bytes)).collect())
    }

    #[test]
    fn each_line_is_a_card_and_bytes() {
        let [a, b] = [("GPU-a", 536_870_912), ("MIG-b", 0)].map(|(id, bytes)| (id.to_owned(), bytes));
        assert_eq!(told("GPU-a 536870912\nMIG-b 0\n"), Some(vec![a, b]));
        assert_eq!(told(""), Some(vec![]));
    }

    #[test]
    fn any_other_line_spoils_it_all() {
        for spoilt in
            ["GPU-a\n", "GPU-a 01\n", "GPU-a 5", "GPU-a 5\n\n", "GPU-a +5\n", " 5\n", "GPU-a 18446744073709551616\n"]
        {
            assert_eq!(told(spoilt), None, "{spoilt:?}");
        }
        assert!(read(&[0xff, b'\n']).is_none());
    }
}
