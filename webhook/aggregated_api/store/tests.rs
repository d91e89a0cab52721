use std::collections::BTreeMap;

use divvy_api::CardId;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::aggregated_api::objects::{ContainerDevices, Device};

fn card(number: u8) -> CardId {
    format!("GPU-{number}").parse().unwrap()
}

/// A node whose pods are (name, UID, card).
fn node(name: &str, pods: &[(u8, u8, u8)]) -> NodeView {
    let mut view = NodeView { name: name.into(), uid: Some(format!("uid-{name}")), ..NodeView::default() };
    view.info.spec.device_node = name.into();
    for (pod, uid, id) in pods {
        let key = PodKey {
            name: PodName { namespace: "d".into(), pod: format!("p{pod}").into() },
            uid: format!("u{uid}").into(),
        };
        let device =
            Device { device_id: card(*id), device_model: None, device_node: name.into(), device_problem: None };
        let device_info = vec![device];
        view.info.spec.device_busy.insert(card(*id));
        let main = ContainerDevices { container_name: "main".to_owned(), device_info };
        view.pods.entry(key).or_default().push(main);
    }
    view
}

fn store(history: usize) -> Store {
    Store::new(Clock::with_tag(1_000, 7), history)
}

fn names(store: &Store) -> Vec<String> {
    store.list(ServedKind::PodResource).objects.iter().map(|object| object.name.clone()).collect()
}

/// What becomes of a report, or of its end.
#[derive(Clone, Debug)]
enum Step {
    Report(u8, Vec<(u8, u8, u8)>),
    Gone(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let pods = prop::collection::vec((0u8..3, 0u8..3, 0u8..3), 0..5);
    prop_oneof![
        4 => (0u8..3, pods).prop_map(|(node, pods)| Step::Report(node, pods)),
        1 => (0u8..3).prop_map(Step::Gone),
    ]
}

fn take(store: &mut Store, step: &Step, millis: u64) {
    match step {
        Step::Report(name, pods) => store.apply(node(&format!("n{name}"), pods), millis),
        Step::Gone(name) => store.remove(&format!("n{name}"), millis),
    }
}

type Objects = BTreeMap<String, Arc<Object>>;

fn objects(listing: &Listing) -> Objects {
    listing.objects.iter().map(|object| (object.name.clone(), Arc::clone(object))).collect()
}

/// Follows the changes by a few at a time, as a watcher does.
fn follow(store: &Store, kind: ServedKind, mut version: Version, objects: &mut Objects) -> Result<Version, Expired> {
    loop {
        let changes = store.after(kind, version, 2)?;
        for Event { change, object } in &changes.events {
            assert!(object.version > version, "versions grow");
            version = object.version;
            let before = match change {
                Change::Deleted => objects.remove(&object.name),
                Change::Added | Change::Modified => objects.insert(object.name.clone(), Arc::clone(object)),
            };
            assert_eq!(before.is_none(), *change == Change::Added, "{change:?} of {}", object.name);
        }
        if changes.events.is_empty() {
            return Ok(changes.version);
        }
        version = changes.version;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn list_and_watch_from_any_point_give_a_fresh_list(
        steps in prop::collection::vec(step(), 1..30),
        clock in prop::collection::vec(0u64..3, 30),
        history in 1usize..40,
    ) {
        let (mut store, mut watchers, mut millis) = (store(history), Vec::new(), 1_000);
        for (step, passed) in steps.iter().zip(clock) {
            millis += passed;
            for kind in ServedKind::ALL {
                let listing = store.list(kind);
                watchers.push((kind, listing.version, objects(&listing)));
            }
            take(&mut store, step, millis);
        }
        for (kind, version, mut seen) in watchers {
            let wanted = objects(&store.list(kind));
            match follow(&store, kind, version, &mut seen) {
                Ok(version) => {
                    prop_assert_eq!(version, store.list(kind).version);
                    prop_assert_eq!(seen, wanted);
                }
                Err(Expired { asked, oldest }) => prop_assert!(asked < oldest),
            }
        }
    }

    #[test]
    fn state_is_that_of_the_last_reports(steps in prop::collection::vec(step(), 1..30)) {
        let (mut by_steps, mut anew, mut last) = (store(100), store(100), BTreeMap::new());
        for step in &steps {
            take(&mut by_steps, step, 0);
            let (Step::Report(node, _) | Step::Gone(node)) = step;
            last.insert(*node, step);
        }
        for step in last.into_values() {
            take(&mut anew, step, 0);
        }
        for kind in ServedKind::ALL {
            let shown = |store: &Store| -> Vec<_> {
                let objects = store.list(kind).objects;
                objects.iter().map(|object| json!([object.name, object.metadata()["uid"], object.spec(), object.status()])).collect()
            };
            prop_assert_eq!(shown(&by_steps), shown(&anew));
        }
    }
}

#[test]
fn pods_of_one_name_are_all_shown_and_renamed_in_order() {
    let mut store = store(100);
    store.apply(node("n1", &[(1, 2, 0)]), 0);
    assert_eq!(names(&store), ["d.p1"]);
    store.apply(node("n2", &[(1, 1, 0)]), 0);
    assert_eq!(names(&store), ["d.p1", "d.p1:u2"]);
    store.remove("n2", 0);
    assert_eq!(names(&store), ["d.p1"]);
    assert_eq!(store.get(ServedKind::PodResource, "d.p1").unwrap().metadata()["uid"], "u2");
}

#[test]
fn same_report_is_no_change() {
    let mut store = store(100);
    store.apply(node("n1", &[(1, 1, 0)]), 5_000);
    let version = store.list(ServedKind::PodResource).version;
    let later = NodeView { reported: Some("later".to_owned()), ..node("n1", &[(1, 1, 0)]) };
    store.apply(later, 9_000);
    assert_eq!(store.list(ServedKind::PodResource).version, version);
}

#[test]
fn versions_of_others_or_of_a_time_before_are_gone() {
    let mut store = store(100);
    let first = store.list(ServedKind::GpuInfo).version;
    store.apply(node("n1", &[]), 2_000);
    assert_eq!(store.after(ServedKind::GpuInfo, first, 10).unwrap().events.len(), 1);
    let mut other = Store::new(Clock::with_tag(1_500, 8), 100);
    other.apply(node("n1", &[]), 1_600);
    let restarted = Store::new(Clock::with_tag(3_000, 7), 100);
    for version in [
        other.list(ServedKind::GpuInfo).version,
        restarted.list(ServedKind::GpuInfo).version,
        "5".parse().unwrap(),
        u64::MAX.to_string().parse().unwrap(),
    ] {
        store.after(ServedKind::GpuInfo, version, 10).unwrap_err();
        store.check(version).unwrap_err();
    }
    let version = store.list(ServedKind::GpuInfo).version;
    restarted.check(version).unwrap_err();
}

#[test]
fn forgotten_changes_are_gone_and_later_ones_are_not() {
    let mut store = store(2);
    let versions: Vec<_> = (1..=4u8)
        .map(|pod| {
            store.apply(node("n1", &[(pod, 1, 0)]), 0);
            store.list(ServedKind::PodResource).version
        })
        .collect();
    // Each report deletes a pod and adds one.
    store.after(ServedKind::PodResource, versions[1], 10).unwrap_err();
    assert_eq!(store.after(ServedKind::PodResource, versions[2], 10).unwrap().events.len(), 2);
    assert!(store.after(ServedKind::PodResource, versions[3], 10).unwrap().events.is_empty());
}

#[test]
fn history_of_large_changes_is_short() {
    let mut store = store(usize::MAX);
    let mut large = node("n1", &[]);
    let mut versions = Vec::new();
    for turn in 0..40 {
        large.info.spec.device_node = turn.to_string().repeat(1 << 20);
        store.apply(large.clone(), turn);
        versions.push(store.list(ServedKind::GpuInfo).version);
    }
    store.after(ServedKind::GpuInfo, versions[0], 1).unwrap_err();
    let kept = store.after(ServedKind::GpuInfo, versions[30], 100).unwrap();
    assert_eq!(kept.events.len(), 9);
}

#[test]
fn latest_version_is_that_of_the_kind() {
    let mut store = store(1);
    let first = store.latest(ServedKind::PodResource);
    store.apply(node("n1", &[]), 2_000);
    assert_eq!(store.latest(ServedKind::PodResource), first, "the node has no pods");
    assert_eq!(store.latest(ServedKind::GpuInfo), store.now());
    store.apply(node("n1", &[(1, 1, 0)]), 3_000);
    assert_eq!(store.latest(ServedKind::PodResource), store.now());
}

#[test]
fn clock_that_goes_back_or_wild_gives_growing_versions() {
    let mut clock = Clock::with_tag(u64::MAX, 3);
    let mut last = clock.now();
    assert!(clock.gave(last));
    let mut clock_of_today = Clock::with_tag(1_790_000_000_000, 3);
    for millis in [1_790_000_000_000, 5, 0, 1_800_000_000_000] {
        let next = clock_of_today.tick(millis);
        assert!(next > clock_of_today.first_version());
        assert!(next.to_string().parse::<i64>().is_ok(), "clients may read it as a signed number");
    }
    last = last.max(clock.tick(0));
    assert!(clock.gave(last));
}
