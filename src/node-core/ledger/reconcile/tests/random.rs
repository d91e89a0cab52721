//! Random books against random lists.

use proptest::prelude::*;

use super::*;
use crate::ledger::tests::model::{CARDS, Model, SLOTS, capacities, card, pod_shape, view, violations};

type Id = (usize, Option<u32>);

#[derive(Clone, Debug)]
struct Listed {
    uid: usize,
    phase: Phase,
    running: bool,
    /// Of containers by position: cards, and slots of them.
    devices: Vec<(usize, Vec<Id>)>,
}

fn listed() -> impl Strategy<Value = Listed> {
    let phase = prop_oneof![1 => Just(Phase::Pending), 4 => Just(Phase::Running), 1 => Just(Phase::Failed), 1 => Just(Phase::Succeeded)];
    let device = (0..CARDS, prop::option::weighted(0.9, 0..SLOTS));
    let devices = prop::collection::vec((0..4usize, prop::collection::vec(device, 0..3)), 0..4);
    (0..6usize, phase, any::<bool>(), devices).prop_map(|(uid, phase, running, devices)| Listed {
        uid,
        phase,
        running,
        devices,
    })
}

/// What a kubelet has on record for a booked entry.
fn records(entry: &PodEntry) -> Vec<DeviceRecord> {
    let listed = |container: &&crate::ledger::ContainerEntry| container.request.kind != ContainerKind::Init;
    let record = |container: &crate::ledger::ContainerEntry| {
        let parts = container.holding.iter().flat_map(|holding| &holding.parts);
        let devices: Vec<String> = parts.rev().filter_map(Part::slot_id).map(|slot| slot.to_string()).collect();
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        assigned(&entry.pod.uid, &container.request.name, &devices)
    };
    entry.containers.iter().filter(listed).map(record).collect()
}

/// Books with pods that fit, and the model they equal.
fn books() -> impl Strategy<Value = (Allocations, Model)> {
    let pods = prop::collection::vec((pod_shape(), prop::collection::vec(0..48usize, 4)), 1..5);
    pods.prop_map(|pods| {
        let (mut allocations, mut model) = (Allocations::default(), Model::default());
        for (uid, (requests, picks)) in pods.into_iter().enumerate() {
            for (at, pick) in (0..requests.len()).zip(picks) {
                if let Some((entry, _)) = model.plan(&uid.to_string(), &requests, at, pick) {
                    allocations.apply(Change::Hold { entry: entry.clone(), why: String::new() }, 1);
                    model.hold(entry);
                }
            }
        }
        (allocations, model)
    })
}

proptest! {
    #[test]
    fn one_pass_reconciles_any_kubelet_records(
        (allocations, model) in books(),
        mut lists in prop::collection::vec(listed(), 0..6),
    ) {
        lists.sort_by_key(|listed| listed.uid);
        lists.dedup_by_key(|listed| listed.uid);
        let pods: Vec<Arc<Pod>> = lists.iter().map(|listed| {
            let mut pod = model.pods.get(&listed.uid.to_string()).map_or_else(|| simple(&listed.uid.to_string()), view);
            let state = if listed.running { ContainerState::Running } else { ContainerState::Terminated };
            let view = Arc::make_mut(&mut pod);
            (view.phase, view.states) = (listed.phase, [("main".to_owned(), state)].into());
            pod
        }).collect();
        let records: Vec<DeviceRecord> = lists.iter().flat_map(|listed| listed.devices.iter().map(|(container, devices)| {
            let id = |(number, slot): &Id| match slot {
                Some(slot) => card(*number).slot(*slot).to_string(),
                None => card(*number).to_string(),
            };
            let devices: Vec<String> = devices.iter().map(id).collect();
            let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
            assigned(&listed.uid.to_string(), &format!("c{container}"), &devices)
        })).collect();
        let (after, _) = reconciled(&allocations, &pods, &records);
        prop_assert_eq!(violations(&after, &[]), Vec::<String>::new());
        for entry in allocations.pods() {
            let listed = pods.iter().find(|pod| pod.uid == entry.pod.uid);
            let lives = pods.is_empty() || listed.is_some_and(|pod| !pod.has_ended());
            prop_assert_eq!(after.pod(&entry.pod.uid).is_some(), lives);
            let on_record = |name: &str| records.iter().any(|record| record.pod == entry.pod.name && record.container == name);
            for container in entry.containers.iter().filter(|container| lives && !on_record(&container.request.name)) {
                let shares = |entry: &PodEntry| {
                    let held = entry.container(&container.request.name).and_then(|container| container.holding.clone());
                    held.map(|held| held.parts.iter().map(|part| (part.card.clone(), part.share)).collect::<Vec<_>>())
                };
                let kept = shares(after.pod(&entry.pod.uid).expect("lives"));
                prop_assert!(container.holding.is_none() || kept == shares(entry));
            }
        }
    }

    #[test]
    fn lost_journal_is_restored_from_the_kubelets_records((allocations, model) in books()) {
        let pods: Vec<Arc<Pod>> = model.pods.values().map(view).collect();
        let records: Vec<DeviceRecord> = allocations.pods().flat_map(records).collect();
        let (restored, _) = reconciled(&Allocations::default(), &pods, &records);
        for container in allocations.pods().flat_map(|entry| entry.containers.iter().map(move |container| (entry, container))) {
            let (entry, container) = container;
            let listed = container.request.kind != ContainerKind::Init;
            let Some(held) = container.holding.as_ref().filter(|_| listed) else { continue };
            let mut expected: Vec<&Part> = held.parts.iter().filter(|part| part.slot.is_some()).collect();
            if !expected.is_empty() {
                expected.sort_by_key(|part| &part.card);
                let found = holding(&restored, &entry.pod.uid, &container.request.name);
                prop_assert_eq!(found.parts.iter().collect::<Vec<_>>(), expected);
            }
        }
        if allocations.pods().all(|entry| entry.containers.iter().all(|container| container.request.kind != ContainerKind::Init)) {
            prop_assert_eq!(violations(&restored, &capacities()), Vec::<String>::new());
        }
    }
}
