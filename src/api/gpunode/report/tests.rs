use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::super::{CardStatus, GpuNodeStatus, HealthStatus, Oversubscription};
use super::*;
use crate::card::Scales;
use crate::card_id::CardId;
use crate::pod::ContainerKind;
use crate::quantity::Cores;

const CARDS: [&str; 2] = ["GPU-1d97b7c2-0b1c-4e2a-9a51-3f1f5a1a0001", "GPU-69ba03f4-77aa-4d0e-8c1d-6f0e2b2b0002"];

fn read(data: &Value) -> GpuNodeReport {
    GpuNodeReport::read(ObjectMeta::default(), data)
}

fn healths(spec: &Value, cards: &Value) -> Vec<String> {
    let cards = cards.as_array().expect("a list").iter().zip(CARDS).map(|(card, uuid)| {
        let mut card = card.clone();
        card["uuid"] = uuid.into();
        card["memoryMi"] = 1024.into();
        card
    });
    let report = read(&json!({ "spec": spec, "status": { "cards": cards.collect::<Vec<_>>() } }));
    report.node.cards.iter().map(|card| card.health.to_string()).collect()
}

#[test]
fn status_of_todays_daemon_is_read_whole() {
    let id = |at: usize| CARDS[at].parse::<CardId>().expect("a UUID");
    let other = CardStatus::healthy(id(1), "NVIDIA L4", Memory::mib(23_034));
    let status = GpuNodeStatus {
        cards: vec![
            CardStatus {
                health: HealthStatus::Unhealthy,
                reason: Some("XID 79".to_owned()),
                cordoned: true,
                numa: Some(1),
                mig: Some("1g.5gb".to_owned()),
                tier: Some(Tier::Mig),
                scales: Some(Scales { memory: 90, cores: 100 }),
                slots: Some(4),
                utilization: Some(70),
                ..CardStatus::healthy(id(0), "NVIDIA L40S", Memory::mib(46_080))
            },
            other,
        ],
        links: vec![LinkedCards { link: crate::links::Link::NvLink(18), cards: vec![0, 1] }],
        shares: vec![ShareStatus {
            pod_uid: "u".to_owned(),
            namespace: "ns".to_owned(),
            pod: "p".to_owned(),
            container: "c".to_owned(),
            kind: ContainerKind::Sidecar,
            card: id(0),
            share: Share { memory: Memory::mib(7), cores: Cores::new(3), exclusive: true, host: Memory::mib(2) },
            adopted: true,
        }],
        tier: Tier::Mps,
        scales: Scales { memory: 50, cores: 300 },
        slots_per_card: Some(16),
        clique: Some("d.0".to_owned()),
        oversubscription: Some(Oversubscription { memory_scale: 150, host_memory: Memory::mib(9) }),
        ledger_revision: 5,
        conditions: serde_json::from_value(json!([{
            "type": "Ready", "status": "True", "reason": "R", "message": "M", "lastTransitionTime": Time(Timestamp::UNIX_EPOCH),
        }]))
        .expect("conditions"),
        ..GpuNodeStatus::default()
    };
    let report =
        read(&json!({ "spec": { "unschedulableCards": [CARDS[0]], "releaseDriver": true }, "status": status }));
    assert_eq!(report.node.links.get(0, 1).to_string(), "NV18");
    insta::assert_debug_snapshot!(GpuNodeReport { node: NodeCards { links: Arc::default(), ..report.node }, ..report });
}

#[test]
fn cordon_is_told_from_what_ails_a_gpu() {
    let sick = json!({ "health": "Unhealthy", "reason": "XID 79" });
    let cordoned = json!({ "health": "Unhealthy", "cordoned": true });
    assert_eq!(healths(&json!({}), &json!([sick, cordoned])), ["unhealthy: XID 79", "cordoned"]);
    let both = json!({ "health": "Unhealthy", "reason": "XID 48", "cordoned": true });
    assert_eq!(healths(&json!({}), &json!([{ "health": "Healthy" }, both])), ["healthy", "cordoned; XID 48"]);
    let spec = json!({ "unschedulableCards": CARDS });
    let not_seen_yet = json!([{ "health": "Healthy" }, sick]);
    assert_eq!(healths(&spec, &not_seen_yet), ["cordoned", "cordoned; XID 79"], "before the daemon has applied it");
    assert_eq!(healths(&json!({}), &json!([{ "health": "Unhealthy" }])), ["unhealthy"]);
}

#[test]
fn what_a_newer_daemon_writes_is_read_as_far_as_possible() {
    let degraded = json!([{ "health": "Degraded", "reason": "row remap" }, { "health": "Degraded" }]);
    assert_eq!(healths(&json!({}), &degraded), ["unhealthy: Degraded: row remap", "unhealthy: Degraded"]);
    let card = |at: usize| json!({ "uuid": CARDS[at], "memoryMi": 1024, "health": "Healthy", "quantum": [1] });
    let links = json!([{ "link": "PHOTON", "cards": [0, 1] }, { "link": "PIX", "cards": [0, 1, 7] }, 3]);
    let report = read(&json!({ "status": { "cards": [card(0), card(1)], "links": links, "tier": "quantum" } }));
    assert_eq!(report.node.links.get(0, 1).to_string(), "PIX");
    assert_eq!((report.node.cards.len(), report.tier), (2, None));
    assert!(report.unread.len() == 1 && report.unread[0].starts_with("status.tier: "), "{:?}", report.unread);
}

#[test]
fn what_cannot_be_read_is_named() {
    let unread = |data: &Value| read(data).unread;
    assert_eq!(unread(&json!({ "status": { "cards": 7 } })), ["status.cards: expected a list"]);
    assert_eq!(unread(&json!({ "status": { "cards": [{}] } })), ["status.cards[0].uuid is missing"]);
    let share = json!({ "card": CARDS[0], "podUid": "u", "namespace": "n", "pod": "p", "container": "c", "cores": -1 });
    let problems = unread(&json!({ "status": { "shares": [share] } }));
    assert_eq!(problems[0], "status.shares[0].memoryMi is missing");
    assert!(problems[1].starts_with("status.shares[0].cores: "), "{problems:?}");
    for odd in [json!(null), json!({ "status": [] }), json!({ "spec": 1, "status": {} }), json!(3)] {
        assert!(read(&odd).node.cards.is_empty());
    }
}
