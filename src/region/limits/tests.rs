//! Every file that the daemon writes is read, and nothing else.

use super::*;

const SMALL: &str = "divvy-limits v1\n# shim: for people\ntier shim\ncompute burst\npod u ns p\ncontainer c\n\
                     card GPU-a memory-mib 8192 cores 30 exclusive 0\ncard GPU-b memory-mib 1 cores 0 exclusive 1 host-mib 1\nend\n";

fn cards() -> [Card<'static>; 2] {
    [
        Card { uuid: "GPU-a", memory_mib: 8192, host_mib: 0, cores: 30, exclusive: false },
        Card { uuid: "GPU-b", memory_mib: 1, host_mib: 1, cores: 0, exclusive: true },
    ]
}

#[test]
fn limits_file_is_read() {
    let limits = Limits::read(SMALL).expect("a sound file");
    assert_eq!((limits.tier, limits.compute, limits.priority), ("shim", Compute::Burst, Priority::Normal));
    assert_eq!([limits.pod_uid, limits.namespace, limits.pod, limits.container], ["u", "ns", "p", "c"]);
    assert!(limits.cards.eq(cards()));
}

/// Containers that run have such files, and libraries of the version that was there when they started.
#[test]
fn limits_file_is_written_byte_for_byte() {
    let limits = Limits {
        tier: "shim",
        compute: Compute::Burst,
        compute_limit: None,
        priority: Priority::Normal,
        pod_uid: "u",
        namespace: "ns",
        pod: "p",
        container: "c",
        cards: cards().into_iter(),
    };
    let written = |limits: Limits<'_, core::array::IntoIter<Card<'static>, 2>>| {
        let mut text = String::new();
        limits.write(&mut text, "for people").expect("room");
        text
    };
    assert_eq!(written(limits.clone()), SMALL);
    let low = written(Limits { compute: Compute::Cap, priority: Priority::Low, ..limits.clone() });
    assert_eq!(low, SMALL.replace("burst", "cap low"));
    let high = written(Limits { priority: Priority::High, ..limits.clone() });
    assert_eq!(high, SMALL.replace("burst", "burst high"));
    let limited = written(Limits { priority: Priority::Low, compute_limit: Some(50), ..limits.clone() });
    assert_eq!(limited, SMALL.replace("burst", "burst low limit 50"));
    let read = Limits::read(&limited).expect("sound");
    assert_eq!((read.priority, read.compute_limit), (Priority::Low, Some(50)));
    let unranked = written(Limits { compute_limit: Some(50), ..limits });
    assert_eq!(unranked, SMALL.replace("burst", "burst limit 50"));
    assert_eq!(Limits::read(&unranked).expect("sound").compute_limit, Some(50));
}

#[test]
fn longest_limits_file_fits() {
    let uuid = |number: usize| format!("{number:096}");
    let uuids: Vec<String> = (0..CARDS).map(uuid).collect();
    let card = |uuid| Card { uuid, memory_mib: u64::MAX >> 20, host_mib: u64::MAX >> 20, cores: 100, exclusive: false };
    let name = "n".repeat(253);
    let limits = Limits {
        tier: "accounting",
        compute: Compute::Burst,
        compute_limit: Some(100),
        priority: Priority::High,
        pod_uid: &name,
        namespace: &name,
        pod: &name,
        container: &name,
        cards: uuids.iter().map(|uuid| card(uuid.as_str())),
    };
    let mut text = String::new();
    limits.write(&mut text, &"c".repeat(120)).expect("room");
    assert!(text.len() <= LONGEST, "{} bytes", text.len());
    assert_eq!(Limits::read(&text).expect("sound").cards.count(), CARDS);
}

#[test]
fn malformed_limits_file_is_refused_at_its_line() {
    let malformed = [
        ("v1", "v2", 1),
        ("tier shim\n", "", 3),
        ("compute burst", "compute all", 4),
        ("compute burst", "compute burst normal", 4),
        ("compute burst", "compute burst low low", 4),
        ("compute burst", "compute burst limit 0", 4),
        ("compute burst", "compute burst limit 101", 4),
        ("compute burst", "compute burst limit 50 low", 4),
        ("compute burst", "compute burst limit", 4),
        ("compute burst", "compute ", 4),
        ("pod u", "bod u", 5),
        ("pod u ns p", "pod u ns", 5),
        ("pod u ns p", "pod u ns p q", 5),
        ("pod u ns p", "pod u  p", 5),
        ("pod u ns p", "pod u ns /", 5),
        ("container c\n", "", 6),
        ("GPU-a", "", 7),
        ("8192", "08192", 7),
        ("8192", "+8192", 7),
        ("8192", "99999999999999", 7),
        ("8192", "17592186044416", 7),
        ("exclusive 0", "exclusive 2", 7),
        ("exclusive 0", "exclusive 0 ", 7),
        ("GPU-b", "GPU-a", 8),
        ("host-mib 1", "host-mib 0", 8),
        ("host-mib 1", "host-mib 2", 8),
        ("host-mib 1", "host-mib", 8),
        ("host-mib 1", "host-mib 1 ", 8),
        ("host-mib 1", "host 1", 8),
    ];
    for (from, to, line) in malformed {
        let changed = SMALL.replacen(from, to, 1);
        assert_ne!(changed, SMALL, "{from}");
        assert_eq!(Limits::read(&changed).expect_err(to).line, line, "{to:?} for {from:?}");
    }
    for end in 0..SMALL.len() {
        assert!(Limits::read(&SMALL[..end]).is_err(), "cut after {end} bytes");
    }
    let card = "card GPU-a memory-mib 8192 cores 30 exclusive 0\n";
    let none = SMALL.replace(card, "").replace("card GPU-b memory-mib 1 cores 0 exclusive 1 host-mib 1\n", "");
    assert_eq!(Limits::read(&none).expect_err("no card").line, 7);
    let many: String = (0..65).map(|number| card.replace("GPU-a", &format!("GPU-{number}"))).collect();
    assert!(Limits::read(&SMALL.replace(card, &many)).is_err(), "more cards than a region has");
}
