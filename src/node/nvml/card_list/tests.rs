use divvy_api::{Health, Memory};
use proptest::prelude::*;

use super::*;
use crate::nvml::readings::Sensors;
use divvy_node_core::inventory::CardProcess;

/// What may befall a card, or the look for others.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Xid(u64),
    Gone,
    Silence,
    Unwatched,
    Unfound(u32),
    Uncounted,
}

fn card(name: &str) -> CardId {
    format!("GPU-{name}").parse().expect("valid")
}

fn sample() -> Sample {
    Sample {
        memory: Some(Memory::mib(1024)),
        memory_used: Some(Memory::ZERO),
        model: None,
        pci_bus_id: None,
        minor: None,
        index: None,
        clique: None,
        numa: None,
        compute_mode: None,
        processes: None,
        sensors: Sensors::default(),
        partition: None,
    }
}

fn options() -> InventoryOptions {
    InventoryOptions {
        driver_root: "/".into(),
        sysfs_root: "/sys".into(),
        mig_strategy: MigStrategy::None,
        probe_interval: Duration::from_secs(5),
        probe_timeout: Duration::from_secs(10),
        health: HealthOptions { ignored_xids: BTreeSet::new(), recover_after: Duration::from_secs(60) },
        released: None,
    }
}

/// Two cards, found and probed well.
fn pair(at: Instant) -> CardList {
    let mut cards = CardList::new(at, &options());
    cards.opened(at, Driver { version: String::new(), cuda: None });
    cards.counted(at, Ok(2));
    for (index, name) in ["sick", "well"].into_iter().enumerate() {
        let index = u32::try_from(index).expect("small");
        assert_eq!(cards.found(index, Ok(card(name))), Some(card(name)));
        cards.watched(at, &card(name));
        cards.probed(at, &card(name), Ok(sample()));
    }
    cards
}

/// A card that was seen stays listed.
fn find(cards: &CardList, name: &str) -> (Card, DeviceInfo) {
    let inventory = cards.inventory();
    let at = inventory.node.position(&card(name)).expect("listed");
    (inventory.cards()[at].clone(), inventory.devices[at].clone())
}

fn health(cards: &CardList, name: &str) -> Health {
    find(cards, name).0.health
}

fn blow() -> impl Strategy<Value = Blow> {
    prop_oneof![
        any::<u64>().prop_map(Blow::Xid),
        Just(Blow::Gone),
        Just(Blow::Silence),
        Just(Blow::Unwatched),
        (0u32..9).prop_map(Blow::Unfound),
        Just(Blow::Uncounted),
    ]
}

proptest! {
    #[test]
    fn failures_of_one_gpu_leave_others_healthy(blows in prop::collection::vec(blow(), 1..30)) {
        let options = options();
        let mut now = Instant::now();
        let mut cards = pair(now);
        for blow in blows {
            match blow {
                Blow::Xid(xid) => cards.xid(now, &card("sick"), None, xid),
                Blow::Gone => cards.probed(now, &card("sick"), Err(ProbeError::Gone)),
                Blow::Silence => now += options.probe_timeout + options.probe_interval,
                Blow::Unwatched => cards.unwatched(now, &card("sick"), "no thread"),
                Blow::Unfound(index) => drop(cards.found(index, Err("no such card".to_owned()))),
                Blow::Uncounted => cards.counted(now, Err("no idea".to_owned())),
            }
            cards.probed(now, &card("well"), Ok(sample()));
            cards.expire(now);
            prop_assert_eq!(health(&cards, "well"), Health::Healthy);
            health(&cards, "sick");
        }
    }
}

#[test]
fn utilization_is_unknown_after_a_failed_probe() {
    let start = Instant::now();
    let mut cards = pair(start);
    let mut after = |seconds, probed| {
        cards.probed(start + Duration::from_secs(seconds), &card("well"), probed);
        find(&cards, "well").0.utilization
    };
    let busy = |percent| {
        let sensors = Sensors { utilization: Some(percent), ..Sensors::default() };
        Ok(Sample { sensors, ..sample() })
    };
    assert_eq!(after(1, Ok(sample())), None);
    assert_eq!(after(2, busy(50)), Some(50));
    assert_eq!(after(62, busy(100)), Some(82), "an average");
    assert_eq!(after(63, Err(ProbeError::Gone)), None);
    assert_eq!(after(64, busy(10)), Some(10), "nothing of before");
}

#[test]
fn processes_are_unknown_after_a_failed_probe() {
    let start = Instant::now();
    let mut cards = pair(start);
    let mut after = |seconds, probed| {
        cards.probed(start + Duration::from_secs(seconds), &card("well"), probed);
        find(&cards, "well").1.processes
    };
    let processes = vec![CardProcess { pid: 7, bytes: Some(1) }];
    assert_eq!(after(1, Ok(Sample { processes: Some(processes.clone()), ..sample() })), Some(processes));
    assert_eq!(after(2, Ok(sample())), None);
    assert_eq!(after(3, Ok(Sample { processes: Some(vec![]), ..sample() })), Some(vec![]));
    assert_eq!(after(4, Err(ProbeError::Gone)), None);
}

#[test]
fn call_is_overdue_once_after_its_deadline() {
    let start = Instant::now();
    let options = options();
    let mut cards = pair(start);
    let due = start + options.probe_interval + options.probe_timeout;
    assert_eq!(cards.next_expiry(), Some(due));
    cards.expire(start + options.probe_timeout);
    assert_eq!(health(&cards, "well"), Health::Healthy);
    cards.expire(due);
    assert_eq!(health(&cards, "well"), Health::unhealthy("NVML has not answered for 10s"));
    assert_eq!(cards.next_expiry(), None, "else the keeper would spin");
}

#[test]
fn absurd_device_count_starts_few_threads() {
    let now = Instant::now();
    let mut cards = pair(now);
    cards.counted(now, Ok(u32::MAX));
    assert_eq!(cards.start_lookups(now).len(), MAX_CARDS as usize);
    assert!(cards.start_lookups(now).is_empty(), "they are under way");
}

#[test]
fn problem_stays_reported_during_the_next_probe() {
    let now = Instant::now();
    let mut cards = pair(now);
    cards.counted(now, Ok(3));
    assert_eq!(cards.start_lookups(now), [0, 1, 2]);
    assert_eq!(cards.found(2, Err("lost".to_owned())), None);
    assert_eq!(cards.start_lookups(now), [2]);
    assert_eq!(cards.inventory().problem.as_deref(), Some("GPU at index 2: lost"));
    cards.counted(now, Ok(2));
    assert_eq!(cards.found(2, Ok(card("late"))), Some(card("late")));
    assert_eq!(cards.inventory().problem, None);
}
