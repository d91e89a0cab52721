//! What tenants write into their regions, which the daemon reads.

use divvy_region::layout::{self, LINE};
use divvy_region::snapshot::{Snapshot, weight};

/// A region's file as found; and a true header for one card or two, with the bytes over what tenants write: the lines of a
/// card, of a slot and of its use in turn.
pub fn region(bytes: &[u8]) {
    read(bytes);
    let cards = 1 + bytes.len() % 2;
    let mut file = vec![0; layout::size(cards)];
    let header = layout::header(cards as u32, 1).expect("one card or two");
    file[..LINE].copy_from_slice(&header);
    for (index, chunk) in bytes.chunks(LINE).take(3 * layout::SLOTS).enumerate() {
        let slot = index / 3;
        let start = match index % 3 {
            0 => LINE * (1 + slot % cards),
            1 => layout::slot_bytes(cards, slot).start,
            _ => layout::use_bytes(cards, slot % cards, slot + 1).end - LINE,
        };
        file[start..start + chunk.len()].copy_from_slice(chunk);
    }
    // How many slots are in use is the one number in the header that tenants change.
    let high = bytes.first_chunk().copied().unwrap_or([u8::MAX; 4]);
    file[28..32].copy_from_slice(&high);
    assert!(read(&file), "its header is right");
}

fn read(bytes: &[u8]) -> bool {
    let _sum = weight(bytes);
    let Ok(snapshot) = Snapshot::new(bytes) else { return false };
    for card in 0..snapshot.cards() {
        let usage = snapshot.totals(card).expect("one of its cards").usage;
        let uses = &bytes[layout::use_bytes(snapshot.cards(), card, snapshot.high())];
        assert_eq!(usage.in_flight_ns > 0, weight(uses) > 0, "both ways of reading agree");
        for (slot, _) in snapshot.owners() {
            assert!(usage.committed >= snapshot.usage(card, slot).expect("one of its slots").committed);
            assert!(snapshot.erasure(slot).all(|range| bytes.get(range).is_some()));
        }
    }
    true
}
