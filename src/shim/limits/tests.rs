//! Every file that the daemon writes is read, and nothing else.

use super::*;

const SMALL: &str = "divvy-limits v1\n# shim: kept by us\ntier shim\ncompute burst\npod u ns p\ncontainer c\n\
                     card GPU-a memory-mib 8192 cores 30 exclusive 0\ncard GPU-b memory-mib 1 cores 0 exclusive 1\nend\n";

fn read(text: &str) -> Result<Limits, Malformed> {
    Limits::read(text.as_bytes())
}

#[test]
fn a_file_is_read() {
    let limits = read(SMALL).expect("a sound file");
    assert_eq!(limits.compute, Compute::Burst);
    let cards: [(&str, u64, u32, bool); 2] = [("GPU-a", 8 << 30, 30, false), ("GPU-b", 1 << 20, 0, true)];
    let found = limits.cards().iter().map(|card| (card.id.as_str(), card.memory, card.cores, card.exclusive));
    assert!(found.eq(cards));
    assert_eq!(limits.find(&Id::new(b"GPU-b").expect("a name")), Some(1));
    assert_eq!(limits.find(&Id::new(b"GPU-c").expect("a name")), None);
}

#[test]
fn a_uuid_is_spelled_as_in_the_file() {
    let mut uuid = [0; 16];
    uuid.iter_mut().zip(0xa0..).for_each(|(byte, value)| *byte = value);
    let id = Id::of_uuid("GPU-", uuid).expect("short");
    assert_eq!(id.as_str(), "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
}

#[test]
fn what_is_not_a_limits_file_is_refused_where_it_goes_wrong() {
    let spoilt = [
        ("v1", "v2", 1),
        ("tier shim\n", "", 3),
        ("compute burst", "compute all", 4),
        ("compute burst", "compute burst normal", 4),
        ("compute burst", "compute burst low low", 4),
        ("compute burst", "compute ", 4),
        ("pod u", "bod u", 5),
        ("container c\n", "", 6),
        ("GPU-a", "", 7),
        ("8192", "08192", 7),
        ("8192", "+8192", 7),
        ("8192", "99999999999999", 7),
        ("8192", "17592186044416", 7),
        ("exclusive 0", "exclusive 2", 7),
        ("exclusive 0", "exclusive 0 ", 7),
        ("GPU-b", "GPU-a", 8),
    ];
    for (from, to, line) in spoilt {
        let changed = SMALL.replacen(from, to, 1);
        assert_ne!(changed, SMALL, "{from}");
        assert_eq!(read(&changed).expect_err(to).line, line, "{to:?} for {from:?}");
    }
    for end in 0..SMALL.len() {
        assert!(read(&SMALL[..end]).is_err(), "cut after {end} bytes");
    }
    let card = "card GPU-a memory-mib 8192 cores 30 exclusive 0\n";
    let none = SMALL.replace(card, "").replace("card GPU-b memory-mib 1 cores 0 exclusive 1\n", "");
    assert!(read(&none).is_err(), "no card");
    let many: String = (0..65).map(|number| card.replace("GPU-a", &format!("GPU-{number}"))).collect();
    assert!(read(&SMALL.replace(card, &many)).is_err(), "more cards than a region has");
    assert!(Limits::read(&[0xff; 40]).is_err());
}
