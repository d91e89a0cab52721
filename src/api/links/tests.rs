use proptest::prelude::*;

use super::*;

#[test]
fn classes_are_written_as_nvidia_smi_writes_them() {
    for text in ["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV18"] {
        assert_eq!(text.parse::<Link>().map(|link| link.to_string()), Ok(text.to_owned()));
    }
    for text in ["", "NV", "NV+1", "NV-1", "sys", "X", "NV99999999999"] {
        assert!(text.parse::<Link>().is_err(), "{text:?}");
    }
}

#[test]
fn set_ranks_by_its_worst_link() {
    let links = Links::quads(8, 4);
    assert_eq!(links.bottleneck(&[0, 1, 2, 3]), Some(Link::NvLink(4)));
    assert_eq!(links.bottleneck(&[0, 1, 4]), Some(Link::System));
    assert_eq!(links.bottleneck(&[0]), None);
    assert_eq!(links.bottleneck(&[0, 99]), Some(Link::System), "nothing is known of a card outside the table");
}

#[test]
fn twins_are_interchangeable_cards() {
    let quads = Links::quads(8, 4);
    assert!(quads.are_twins(0, 3) && quads.are_twins(4, 5) && !quads.are_twins(0, 4));
    assert!((1..16).all(|card| Links::nvswitch(16, 18).are_twins(0, card)));
    let dgx1 = Links::dgx1();
    assert!((0..8).all(|a| (0..a).all(|b| !dgx1.are_twins(a, b))), "the cube mesh looks different from every corner");
}

#[test]
fn free_sets_are_rated_by_later_jobs() {
    let quads = Links::quads(8, 4);
    let value = |free| (quads.value(free) >> 32, quads.value(free) & 0xffff_ffff);
    let ((all, _), (broken, rest)) = (value(0b1111_1111), value(0b1111_1110));
    assert!(broken < all, "a set of eight is gone");
    let ((both_broken, _), (one_broken, less)) = (value(0b1110_1110), value(0b1111_1100));
    assert!(both_broken < one_broken, "a whole quad is worth more than two broken ones");
    assert_eq!(one_broken, broken, "two more cards of the broken quad change no set, …");
    assert!(less < rest, "… but leave fewer links");
    assert_eq!(rest, 9 * 2 * (6 + 3), "the rank of NV4 at both ends of nine links");
    assert_eq!(Links::default().value(u32::MAX), 0);
}

proptest! {
    #[test]
    fn links_are_symmetric_and_total(cards in 0usize..10, classes in prop::collection::vec(0u32..8, 45), a in 0usize..12, b in 0usize..12) {
        let mut classes = classes.into_iter();
        let links = Links::new(cards, |_, _| classes.next().map_or(Link::System, Link::NvLink));
        prop_assert_eq!(links.get(a, b), links.get(b, a));
        let twins = (0..cards).all(|x| x == a || x == b || !links.are_twins(a, b) || links.get(a, x) == links.get(b, x));
        prop_assert!(twins || a >= cards || b >= cards);
    }
}

#[test]
fn cards_behind_a_switch_are_one_group() {
    let groups = |links: Links| links.groups().into_iter().map(|group| format!("{} {:?}", group.link, group.cards));
    assert_eq!(groups(Links::nvswitch(4, 18)).collect::<Vec<_>>(), ["NV18 [0, 1, 2, 3]"]);
    assert_eq!(
        groups(Links::pcie(4)).collect::<Vec<_>>(),
        ["PIX [0, 1]", "PIX [2, 3]"],
        "what only the system links is in no group"
    );
    assert_eq!(groups(Links::dgx1()).count(), 12, "of 16 linked pairs");
}

proptest! {
    #[test]
    fn links_survive_their_groups(cards in 0usize..9, classes in prop::collection::vec(0u32..8, 36)) {
        let link = |a: usize, b: usize| match classes[(a * 5 + b * 7) % 36] {
            0 => Link::System,
            1 => Link::Node,
            2 => Link::HostBridge,
            3 => Link::MultiSwitch,
            4 => Link::SingleSwitch,
            more => Link::NvLink(more),
        };
        let links = Links::new(cards, link);
        prop_assert_eq!(&Links::from_groups(cards, &links.groups()), &links);
    }
}
