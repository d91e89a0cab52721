//! Every file that the daemon writes is read, and nothing else.

use super::*;
use crate::terms::{Compute, Priority};

const SMALL: &str = "divvy-limits v1\n\
                     # shim: enforced by libdivvy.so inside the container, which can detect more than it can prevent\n\
                     tier shim\ncompute burst\npod u ns p\ncontainer c\n\
                     card GPU-a memory-mib 8192 cores 30 exclusive 0\ncard GPU-b memory-mib 1 cores 0 exclusive 1 host-mib 1\nend\n";

const TERMS: Terms = Terms { tier: Tier::Shim, compute: Compute::Burst, compute_limit: None, priority: None };

fn cards() -> [CardLimits<'static>; 2] {
    [
        CardLimits { uuid: "GPU-a", memory_mib: 8192, host_mib: 0, cores: 30, exclusive: false },
        CardLimits { uuid: "GPU-b", memory_mib: 1, host_mib: 1, cores: 0, exclusive: true },
    ]
}

fn limits<C>(terms: Terms, cards: C) -> Limits<&'static str, C> {
    Limits { terms, pod_uid: "u", namespace: "ns", pod: "p", container: "c", cards }
}

fn written<'a, C: Iterator<Item = CardLimits<'a>> + Clone>(limits: Limits<&str, C>) -> String {
    let mut text = String::new();
    limits.write(&mut text).expect("room");
    text
}

#[test]
fn limits_file_is_read() {
    let read = Limits::read(SMALL).expect("a sound file");
    assert_eq!(read.terms, TERMS);
    assert_eq!([read.pod_uid, read.namespace, read.pod, read.container], ["u", "ns", "p", "c"]);
    assert!(read.cards.eq(cards()));
}

/// Containers that run have such files, and libraries of the version that was there when they started.
#[test]
fn limits_file_is_written_byte_for_byte() {
    let said = |compute, priority, percent: Option<u32>| {
        let compute_limit = percent.and_then(ComputeLimit::new);
        let terms = Terms { tier: Tier::Shim, compute, compute_limit, priority };
        let text = written(limits(terms, cards().into_iter()));
        assert_eq!(Limits::read(&text).expect("sound").terms, terms);
        text
    };
    assert_eq!(said(Compute::Burst, None, None), SMALL);
    assert_eq!(said(Compute::Cap, Some(Priority::Low), None), SMALL.replace("burst", "cap low"));
    assert_eq!(said(Compute::Burst, Some(Priority::High), None), SMALL.replace("burst", "burst high"));
    let limited = said(Compute::Burst, Some(Priority::Low), Some(50));
    assert_eq!(limited, SMALL.replace("burst", "burst low limit 50"));
    assert_eq!(said(Compute::Burst, None, Some(50)), SMALL.replace("burst", "burst limit 50"));
}

#[test]
fn comment_says_what_enforces_the_shares() {
    let [divided, whole] = cards();
    let second = |tier, cards: &[CardLimits<'_>]| {
        let text = written(limits(Terms { tier, ..TERMS }, cards.iter().copied()));
        text.lines().nth(1).expect("a comment").to_owned()
    };
    assert_eq!(
        Tier::ALL.iter().map(|tier| second(*tier, &[divided, whole])).collect::<Vec<_>>(),
        [
            "# accounting: recorded in the node's ledger, not enforced",
            "# shim: enforced by libdivvy.so inside the container, which can detect more than it can prevent",
            "# mps: memory and a cap on compute enforced by CUDA's multi-process service, and memory by libdivvy.so too",
            "# mig: enforced by the hardware: whole MIG instances, allocated to no other container",
        ]
    );
    assert_eq!(second(Tier::Shim, &[whole]), "# shim: whole GPUs, allocated to no other container");
    assert_eq!(
        second(Tier::Mig, &[whole]),
        "# mig: enforced by the hardware: whole MIG instances, allocated to no other container"
    );
}

/// The node may be changed to a tier that came after the library of a container that runs.
#[test]
fn tier_of_a_newer_build_is_readable_in_the_container_only() {
    let newer = SMALL.replace("tier shim", "tier vault");
    assert_eq!(Limits::read(&newer).expect_err("unknown").line, 3);
    let read = Limits::read_in_container(&newer).expect("sound");
    assert_eq!(read.terms, Terms { tier: Tier::Accounting, ..TERMS });
    assert!(read.cards.eq(cards()));
    assert_eq!(Limits::read_in_container(&newer.replace("vault", "a b")).expect_err("two words").line, 3);
    assert_eq!(Limits::read_in_container(SMALL).expect("sound").terms, TERMS);
}

#[test]
fn longest_limits_file_fits() {
    let uuid = |number: usize| format!("{number:096}");
    let uuids: Vec<String> = (0..CARDS).map(uuid).collect();
    let card =
        |uuid| CardLimits { uuid, memory_mib: u64::MAX >> 20, host_mib: u64::MAX >> 20, cores: 100, exclusive: false };
    let name = "n".repeat(253);
    for tier in Tier::ALL {
        let compute_limit = ComputeLimit::new(100);
        let limits = Limits {
            terms: Terms { tier: *tier, compute: Compute::Burst, compute_limit, priority: Some(Priority::High) },
            pod_uid: &*name,
            namespace: &*name,
            pod: &*name,
            container: &*name,
            cards: uuids.iter().map(|uuid| card(uuid.as_str())),
        };
        let text = written(limits);
        assert!(text.len() <= LONGEST, "{} bytes", text.len());
        assert_eq!(Limits::read(&text).expect("sound").cards.count(), CARDS);
    }
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
