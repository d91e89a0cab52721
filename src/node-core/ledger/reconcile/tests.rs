mod random;

use std::collections::{HashMap, HashSet};

use divvy_api::annotation::{RequestAnnotation, encode};
use divvy_api::{ContainerKind, ContainerSpec, Cores, GpuRequest, Memory, Share};
use divvy_placement::Held;

use super::*;
use crate::ledger::tests::model::inventory;
use crate::ledger::{Holding, Origin, Part};
use crate::pod::{ContainerState, Phase};

const MEMORY: Memory = Memory::mib(1000);
/// Cards that are known, from `GPU-0` on.
const KNOWN_CARDS: usize = 8;

/// Name, kind and limits, those of `nvidia.com/` resources.
type Spec<'a> = (&'a str, ContainerKind, &'a [(&'a str, &'a str)]);

/// A running pod.
fn pod(uid: &str, containers: &[Spec<'_>]) -> Arc<Pod> {
    let spec = |(index, (name, kind, limits)): (usize, &Spec<'_>)| ContainerSpec {
        name: (*name).to_owned(),
        kind: *kind,
        index,
        limits: limits.iter().map(|(name, value)| (format!("nvidia.com/{name}"), (*value).to_owned())).collect(),
    };
    Arc::new(Pod {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: format!("pod-{uid}"),
        annotations: BTreeMap::new(),
        containers: containers.iter().enumerate().map(spec).collect(),
        phase: Phase::Running,
        states: containers.iter().map(|(name, ..)| ((*name).to_owned(), ContainerState::Running)).collect(),
    })
}

/// A pod with one container that requests 300 MiB and 30 cores.
fn simple(uid: &str) -> Arc<Pod> {
    pod(uid, &[("main", ContainerKind::App, &[("gpumem", "300"), ("gpucores", "30")])])
}

fn assigned(uid: &str, container: &str, devices: &[&str]) -> DeviceRecord {
    DeviceRecord {
        namespace: "default".to_owned(),
        pod: format!("pod-{uid}"),
        container: container.to_owned(),
        resource: "nvidia.com/gpu".to_owned(),
        devices: devices.iter().map(|id| (*id).to_owned()).collect(),
    }
}

fn card(name: &str) -> CardId {
    name.parse().expect("uuid")
}

/// What the kubelet says of the books, with everything new since revision `as_of`.
fn heard(allocations: &Allocations, as_of: u64, pods: &[Arc<Pod>], assigned: Option<&[DeviceRecord]>) -> Reconciled {
    let names = ResourceNames::default();
    let found = |pod: &PodRef, container: &str| {
        let digits = format!("{:032x}", u128::from(crc32fast::hash(format!("{pod}{container}").as_bytes())));
        FoundContainer { nonce: digits.parse().expect("digits"), ..FoundContainer::unknown() }
    };
    let reading = RestoreContext {
        names: &names,
        defaults: Defaults::default(),
        inventory: &inventory(KNOWN_CARDS),
        found: &found,
    };
    reconcile(
        allocations,
        &Observed {
            as_of,
            pods,
            is_whole: true,
            listed_before: None,
            cgroups: &HashMap::new(),
            records: assigned,
            foreign: &[],
        },
        &reading,
    )
}

/// The books after that, which must have nothing left to change.
fn reconciled(allocations: &Allocations, pods: &[Arc<Pod>], assigned: &[DeviceRecord]) -> (Allocations, Vec<String>) {
    let Reconciled { changes, notes } = heard(allocations, u64::MAX, pods, Some(assigned));
    let mut allocations = allocations.clone();
    for change in changes {
        allocations.apply(change, 1);
    }
    assert_eq!(heard(&allocations, u64::MAX, pods, Some(assigned)).changes, []);
    (allocations, notes)
}

fn allocations(pods: &[Arc<Pod>], records: &[DeviceRecord]) -> Allocations {
    reconciled(&Allocations::default(), pods, records).0
}

fn released(reconciled: &Reconciled) -> Vec<(&str, &str)> {
    let release = |change: &'_ Change| matches!(change, Change::Release { .. });
    assert!(reconciled.changes.iter().all(release));
    let why = |change| match change {
        &Change::Release { ref pod, ref why } | &Change::Hold { entry: PodEntry { ref pod, .. }, ref why } => {
            (pod.uid.as_str(), why.as_str())
        }
    };
    reconciled.changes.iter().map(why).collect()
}

fn holding<'a>(allocations: &'a Allocations, uid: &str, container: &str) -> &'a Holding {
    let entry = allocations.pod(uid).and_then(|entry| entry.container(container));
    entry.and_then(|container| container.holding.as_ref()).expect("held")
}

fn parts(allocations: &Allocations, uid: &str, container: &str) -> Vec<(String, Option<u32>)> {
    let named = |part: &Part| (part.card.to_string(), part.slot);
    holding(allocations, uid, container).parts.iter().map(named).collect()
}

fn share(mib: u64, cores: u32) -> Share {
    Share { memory: Memory::mib(mib), cores: Cores::new(cores), ..Share::default() }
}

#[test]
fn share_ends_with_its_pod() {
    let mut pods: Vec<Arc<Pod>> = ["gone", "failed", "done", "terminating", "looping", "last"].map(simple).into();
    let records: Vec<DeviceRecord> =
        pods.iter().zip(0..).map(|(pod, slot)| assigned(&pod.uid, "main", &[&format!("GPU-{slot}::0")])).collect();
    let allocations = allocations(&pods, &records);
    pods.remove(0);
    let mut set = |at: usize, phase, state| {
        let pod = Arc::make_mut(&mut pods[at]);
        pod.phase = phase;
        pod.states = [("main".to_owned(), state)].into();
    };
    set(0, Phase::Failed, ContainerState::Terminated);
    set(1, Phase::Succeeded, ContainerState::Terminated);
    set(2, Phase::Failed, ContainerState::Running);
    set(3, Phase::Running, ContainerState::Waiting { started_before: true });
    set(4, Phase::Running, ContainerState::Terminated);
    let all_terminated = "all containers terminated";
    assert_eq!(
        released(&heard(&allocations, u64::MAX, &pods, None)),
        [
            ("done", format!("Succeeded, {all_terminated}").as_str()),
            ("failed", format!("Failed, {all_terminated}").as_str()),
            ("gone", "gone from the kubelet's list"),
        ]
    );
}

#[test]
fn incomplete_list_ends_no_share() {
    let pods = ["a", "b"].map(simple);
    let allocations = allocations(&pods, &[assigned("a", "main", &["GPU-1::0"]), assigned("b", "main", &["GPU-1::1"])]);
    assert_eq!(heard(&allocations, u64::MAX, &[], Some(&[])).changes, []);
    assert_eq!(heard(&allocations, 0, &pods[..1], None).changes, [], "b was booked while the list was under way");
    let names = ResourceNames::default();
    let found = |_: &PodRef, _: &str| FoundContainer::unknown();
    let reading = RestoreContext {
        names: &names,
        defaults: Defaults::default(),
        inventory: &inventory(KNOWN_CARDS),
        found: &found,
    };
    let seen = HashSet::new();
    let starting = Observed {
        as_of: u64::MAX,
        pods: &pods[..1],
        is_whole: false,
        listed_before: Some(&seen),
        cgroups: &HashMap::new(),
        records: None,
        foreign: &[],
    };
    assert_eq!(reconcile(&allocations, &starting, &reading).changes, [], "the kubelet has just started");
    let seen = HashSet::from([pods[1].uid.clone()]);
    let starting = Observed { listed_before: Some(&seen), ..starting };
    assert_eq!(released(&reconcile(&allocations, &starting, &reading)).len(), 1, "it has listed b since it started");
    let traces = HashMap::from([(pods[1].uid.clone(), CgroupState::Exists)]);
    let forced = Observed { cgroups: &traces, ..starting };
    assert_eq!(reconcile(&allocations, &forced, &reading).changes, [], "deleted by force, and its processes run on");
    let traces = HashMap::from([(pods[1].uid.clone(), CgroupState::Removed)]);
    let forced = Observed { cgroups: &traces, pods: &[], listed_before: None, ..starting };
    assert_eq!(
        released(&reconcile(&allocations, &forced, &reading)).len(),
        1,
        "its processes are dead, whatever is listed"
    );
    let listed = Observed { pods: &pods, ..forced };
    assert_eq!(reconcile(&allocations, &listed, &reading).changes, [], "it is to be started again");
    assert_eq!(released(&heard(&allocations, u64::MAX, &pods[..1], None)).len(), 1);
}

#[test]
fn lost_record_is_restored_from_the_pods_requests() {
    let mut annotated = pod("b", &[("main", ContainerKind::App, &[("gpu", "2"), ("gpumem-percentage", "40")])]);
    let request = GpuRequest { cards: 2, memory: "20%".parse().expect("amount"), cores: Cores::ZERO };
    let request = RequestAnnotation { containers: [("main".to_owned(), request)].into() };
    Arc::make_mut(&mut annotated).annotations.insert("divvy.dev/request".to_owned(), encode(&request));
    let pods = [simple("a"), annotated, simple("without a record")];
    let records = [assigned("a", "main", &["GPU-1::3"]), assigned("b", "main", &["GPU-2::0", "GPU-1::0"])];
    let (allocations, notes) = reconciled(&Allocations::default(), &pods, &records);
    assert_eq!(notes, [""; 0]);
    assert_eq!(allocations.pods().count(), 2);
    let Holding { parts, origin, .. } = holding(&allocations, "a", "main");
    assert_eq!(
        (parts, *origin),
        (&vec![Part { card: card("GPU-1"), slot: Some(3), lost: None, share: share(300, 30) }], Origin::Restored)
    );
    assert_eq!(
        holding(&allocations, "b", "main").parts.iter().map(|part| part.share).collect::<Vec<_>>(),
        [share(200, 0); 2]
    );
    assert_eq!(allocations.held(&card("GPU-1"), None).memory, Memory::mib(500));
}

#[test]
fn init_containers_are_charged_to_the_cards_of_those_after_them() {
    use ContainerKind::{App, Init, Sidecar};
    let pods = [pod(
        "a",
        &[
            ("early", Sidecar, &[("gpumem", "50")]),
            ("init", Init, &[("gpumem", "700"), ("gpu", "2")]),
            ("main", App, &[("gpumem", "300")]),
            ("other", App, &[("gpumem", "100"), ("gpu", "1")]),
        ],
    )];
    let records = [
        assigned("a", "early", &["GPU-1::0"]),
        assigned("a", "main", &["GPU-2::0"]),
        assigned("a", "other", &["GPU-2::1"]),
    ];
    let (allocations, notes) = reconciled(&Allocations::default(), &pods, &records);
    assert_eq!(parts(&allocations, "a", "init"), [("GPU-2".to_owned(), Some(0))]);
    assert_eq!(
        notes,
        [
            "pod default/pod-a (a): init container \"init\" requests 2 GPUs with 700Mi memory and 0 cores each, of which 1 can be identified"
        ]
    );
    assert_eq!(allocations.held(&card("GPU-2"), None).memory, Memory::mib(700), "the init step is the peak");
    assert_eq!(allocations.held(&card("GPU-1"), None).memory, Memory::mib(50));
}

#[test]
fn pods_of_another_plugin_hold_their_cards_alone() {
    use ContainerKind::App;
    let mut unreadable = simple("b");
    Arc::make_mut(&mut unreadable).annotations.insert("divvy.dev/request".to_owned(), "{".to_owned());
    let pods = [
        pod("a", &[("main", App, &[("gpu", "1"), ("gpumem", "10")])]),
        unreadable,
        pod("c", &[("main", App, &[])]),
        pod("d", &[("main", App, &[("gpu", "1")])]),
    ];
    let records = [
        assigned("a", "main", &["GPU-1"]),
        assigned("b", "main", &["GPU-2::5"]),
        assigned("c", "main", &["GPU-3::5"]),
        assigned("d", "main", &["GPU-4::0"]),
    ];
    let (allocations, notes) = reconciled(&Allocations::default(), &pods, &records);
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].starts_with("pod default/pod-b (b): its requests can't be read, so it holds its GPUs exclusively: ")
    );
    let alone = Held { memory: MEMORY, cores: Cores::FULL, exclusive: true, pods: 1, ..Held::default() };
    let origins = ["a", "b", "c", "d"].map(|uid| holding(&allocations, uid, "main").origin);
    assert_eq!(origins, [Origin::Adopted, Origin::Adopted, Origin::Adopted, Origin::Restored]);
    for number in 1..=4 {
        assert_eq!(allocations.held(&card(&format!("GPU-{number}")), None), alone);
    }
    assert_eq!(parts(&allocations, "a", "main"), [("GPU-1".to_owned(), None)]);
}

#[test]
fn kubelet_decides_slots_ledger_decides_shares() {
    let pods = [simple("a"), simple("b")];
    let before = allocations(&pods, &[assigned("a", "main", &["GPU-1::0"]), assigned("b", "main", &["GPU-1::1"])]);
    let pods = [Arc::clone(&pods[0]), pod("b", &[("main", ContainerKind::App, &[("gpumem", "999")])])];
    let records = [assigned("a", "main", &["GPU-1::1"]), assigned("b", "main", &["GPU-1::0"])];
    let (after, _) = reconciled(&before, &pods, &records);
    assert_eq!(parts(&after, "a", "main"), [("GPU-1".to_owned(), Some(1))]);
    assert_eq!(parts(&after, "b", "main"), [("GPU-1".to_owned(), Some(0))]);
    assert_eq!(after.held(&card("GPU-1"), None), before.held(&card("GPU-1"), None));

    let (moved, _) = reconciled(&after, &pods, &[assigned("a", "main", &["GPU-2::7"])]);
    assert_eq!(parts(&moved, "a", "main"), [("GPU-2".to_owned(), Some(7))]);
    assert_eq!(holding(&moved, "a", "main").parts[0].share, share(300, 30));
    assert_eq!(holding(&moved, "a", "main").nonce, holding(&before, "a", "main").nonce, "its directories are mounted");
    assert_eq!(parts(&moved, "b", "main"), parts(&after, "b", "main"), "a pod without a record keeps what it has");
}

#[test]
fn slot_on_record_twice_stays_with_its_holder_in_the_ledger() {
    let pods = ["a", "b", "c"].map(simple);
    let b_first = allocations(&pods, &[assigned("b", "main", &["GPU-1::0"])]);
    let records = ["a", "b", "c"].map(|uid| assigned(uid, "main", &["GPU-1::0"]));
    let (allocations, _) = reconciled(&b_first, &pods, &records);
    let slots = ["a", "b", "c"].map(|uid| holding(&allocations, uid, "main").parts[0].slot);
    assert_eq!(slots, [None, Some(0), None]);
    assert_eq!(allocations.held(&card("GPU-1"), None).pods, 3, "all three hold shares");

    let (allocations, _) = reconciled(&allocations, &[Arc::clone(&pods[0]), Arc::clone(&pods[2])], &records);
    let slots = ["a", "c"].map(|uid| holding(&allocations, uid, "main").parts[0].slot);
    assert_eq!(slots, [Some(0), None], "once its holder has ended, another on record gets it");
}

#[test]
fn records_older_than_the_ledger_change_nothing() {
    let pods = ["a", "b"].map(simple);
    let mut allocations = allocations(&pods, &[assigned("a", "main", &["GPU-1::0"])]);
    let mut entry = allocations.pod("a").expect("booked").clone();
    entry.containers[0].holding.as_mut().expect("held").parts[0].slot = Some(5);
    allocations.apply(Change::Hold { entry, why: "asked again".to_owned() }, 9);
    let records = [assigned("a", "main", &["GPU-1::0"]), assigned("b", "main", &["GPU-1::5"])];
    let Reconciled { changes, .. } = heard(&allocations, 8, &pods, Some(&records));
    for change in changes {
        allocations.apply(change, 10);
    }
    assert_eq!(parts(&allocations, "a", "main"), [("GPU-1".to_owned(), Some(5))]);
    assert_eq!(parts(&allocations, "b", "main"), [("GPU-1".to_owned(), None)]);
}

#[test]
fn unresolved_records_are_reported_in_notes() {
    let mut twin = simple("twin");
    Arc::make_mut(&mut twin).name = "pod-a".to_owned();
    let odd = simple("odd");
    let lost = simple("lost");
    let pods = [simple("a"), twin, odd, lost];
    let records = [
        assigned("a", "main", &["GPU-1::0"]),
        assigned("odd", "main", &["nvidia0"]),
        assigned("lost", "main", &["MIG-away::0"]),
        assigned("odd", "renamed", &["GPU-1::1"]),
        assigned("ended", "main", &["GPU-1::1"]),
    ];
    let (allocations, notes) = reconciled(&Allocations::default(), &pods, &records);
    let held: Vec<&str> = allocations.pods().map(|entry| entry.pod.uid.as_str()).collect();
    assert_eq!(held, ["lost"]);
    assert_eq!(
        notes,
        [
            "pod default/pod-a, container \"main\": two pods have this name, so its devices have no clear holder",
            "pod default/pod-odd, container \"main\": \"nvidia0\" is not a GPU UUID: expected \"GPU-\" or \"MIG-\" followed by letters, digits, '-' or '/'",
            "pod default/pod-odd, container \"renamed\": the pod has no such container",
            "pod default/pod-lost (lost): holds MIG-away exclusively, as that isn't known yet",
        ]
    );
}
