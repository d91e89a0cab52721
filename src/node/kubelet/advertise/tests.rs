use divvy_api::{
    Card, ContainerKind, ContainerRequest, Cores, GpuRequest, Links, Memory, Share, SlotId, Terms, Totals,
};

use super::*;
use divvy_node_core::inventory::DeviceInfo;
use divvy_node_core::ledger::{Holding, Ledger, Nonce, Origin, Part};
use divvy_node_core::pod::PodRef;

fn listing(numa_topology: bool) -> Listing {
    Listing { names: ResourceNames::default(), numa_topology, advertise: Advertise::Amounts }
}

fn inventory() -> Inventory {
    let card = |number: u32| Card {
        numa: (number < 2).then_some(number),
        slots: 2,
        ..Card::healthy(format!("GPU-{number}").parse().expect("a UUID"), Memory::mib(1000))
    };
    Inventory::new((0..3).map(|number| (card(number), DeviceInfo::default())), Links::default())
}

/// Books in which a pod of its own holds each of these slots, with so many MiB.
fn allocations(held: &[(&str, u64)]) -> Allocations {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut ledger, _) = Ledger::open(directory.path()).expect("an empty ledger");
    for (slot, mib) in held {
        let pod = PodRef { uid: (*slot).to_owned(), namespace: "ns".to_owned(), name: (*slot).to_owned() };
        let (request, counted) = (Some(GpuRequest::whole(1)), Totals::default());
        let kind = ContainerKind::App;
        let request = ContainerRequest { name: "main".to_owned(), kind, profile: None, request, counted };
        let SlotId { card, number } = slot.parse().expect("a slot");
        let share = Share { memory: Memory::mib(*mib), cores: Cores::ZERO, ..Share::default() };
        let parts = vec![Part { card, slot: Some(number), lost: None, share }];
        let holding = Holding { nonce: Nonce::random(), parts, origin: Origin::Allocated, terms: Terms::default() };
        ledger.allocate(&pod, &[request], "main", holding).expect("booked");
    }
    ledger.allocations().clone()
}

/// Each slot with its health and its NUMA node.
fn listed(allocations: &Allocations, listing: &Listing) -> Vec<(String, bool, Option<i64>)> {
    let offers = offers(&inventory(), allocations, &BTreeSet::new(), listing);
    assert_eq!(offers.len(), 1, "nobody asks for instances here");
    let numa = |device: &api::Device| device.topology.as_ref().map(|topology| topology.nodes[0].id);
    let devices = offers[0].devices.iter();
    devices.map(|device| (device.id.clone(), device.health == api::HEALTHY, numa(device))).collect()
}

fn slot(id: &str, healthy: bool, numa: Option<i64>) -> (String, bool, Option<i64>) {
    (id.to_owned(), healthy, numa)
}

#[test]
fn slots_carry_no_topology_unless_asked_to() {
    let allocations = allocations(&[("GPU-0::1", 999)]);
    assert!(listed(&allocations, &listing(false)).iter().all(|(_, healthy, numa)| *healthy && numa.is_none()));
}

#[test]
fn free_slots_of_full_cards_are_unhealthy() {
    let allocations = allocations(&[("GPU-0::1", 1000), ("GPU-1::0", 999)]);
    let healthy = |listing: &Listing| {
        listed(&allocations, listing).into_iter().map(|(_, healthy, _)| healthy).collect::<Vec<_>>()
    };
    assert_eq!(healthy(&listing(false)), healthy(&listing(true)));
    assert_eq!(
        listed(&allocations, &listing(true)),
        [
            slot("GPU-0::0", false, Some(0)),
            slot("GPU-0::1", true, Some(0)),
            slot("GPU-1::0", true, Some(1)),
            slot("GPU-1::1", true, Some(1)),
            slot("GPU-2::0", true, None),
            slot("GPU-2::1", true, None),
        ]
    );
}

#[test]
fn card_of_a_pod_under_admission_is_not_full() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut ledger, _) = Ledger::open(directory.path()).expect("an empty ledger");
    let pod = PodRef { uid: "u".to_owned(), namespace: "ns".to_owned(), name: "p".to_owned() };
    let container = |name: &str, kind| ContainerRequest {
        name: name.to_owned(),
        kind,
        profile: None,
        request: Some(GpuRequest::whole(1)),
        counted: Totals::default(),
    };
    let requests = [container("warm-up", ContainerKind::Init), container("main", ContainerKind::App)];
    let SlotId { card, number } = "GPU-0::1".parse().expect("a slot");
    let mut healthy_after = |name: &str| {
        let share = Share { memory: Memory::mib(1000), cores: Cores::FULL, exclusive: true, ..Share::default() };
        let parts = vec![Part { card: card.clone(), slot: Some(number), lost: None, share }];
        let holding = Holding { nonce: Nonce::random(), parts, origin: Origin::Allocated, terms: Terms::default() };
        ledger.allocate(&pod, &requests, name, holding).expect("booked");
        listed(ledger.allocations(), &listing(false))[0].1
    };
    assert!(healthy_after("warm-up"), "the next container may need another slot");
    assert!(!healthy_after("main"));
}

#[test]
fn held_slots_of_unknown_cards_stay_listed() {
    let allocations = allocations(&[("GPU-0::7", 10), ("GPU-9::0", 10)]);
    let listed = listed(&allocations, &listing(true));
    assert_eq!(listed[6..], [slot("GPU-0::7", false, None), slot("GPU-9::0", false, None)]);
}

#[test]
fn only_held_devices_stay_healthy_while_nothing_is_accepted() {
    let allocations = allocations(&[("GPU-0::1", 10), ("GPU-9::0", 10)]);
    let mut offers = offers(&inventory(), &allocations, &BTreeSet::new(), &listing(false));
    assert_eq!(offers[0].healthy(), 6);
    keep_held(&mut offers, &allocations, &BTreeSet::new());
    let healthy = offers[0].devices.iter().filter(|device| device.health == api::HEALTHY);
    assert_eq!(healthy.map(|device| &*device.id).collect::<Vec<_>>(), ["GPU-0::1"], "GPU-9 isn't there");
    assert_eq!(offers[0].devices.len(), 7, "all stay listed");
}
