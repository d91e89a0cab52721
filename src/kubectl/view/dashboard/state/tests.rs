use std::collections::BTreeMap;

use divvy_index::demand::SchedulingConfig;
use divvy_index::fixture;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// What a page has, by what it was sent.
#[derive(Default)]
struct Page {
    sent: Sent,
    nodes: BTreeMap<Arc<str>, Arc<str>>,
    pods: BTreeMap<Arc<str>, Arc<str>>,
}

impl Page {
    fn update(&mut self, state: &DashboardState) -> Option<Status> {
        let Changes { nodes, gone_nodes, pods, gone_pods, status } = state.news(&mut self.sent);
        for name in gone_nodes {
            self.nodes.remove(&name).expect("it was there");
        }
        for uid in gone_pods {
            self.pods.remove(&uid).expect("it was there");
        }
        self.nodes.extend(nodes);
        self.pods.extend(pods);
        status
    }
}

fn state() -> DashboardState {
    DashboardState::new(Index::new(SchedulingConfig::default()))
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// A `GpuNode` with one GPU, of which these pods hold shares.
fn gpu_node(name: &str, holders: &[&str]) -> Object {
    let mut node = fixture::node(name, 1);
    fixture::status(&mut node).shares = holders.iter().map(|pod| fixture::share(&node.clone(), pod, 0, 4, 0)).collect();
    Object::GpuNode(Box::new(object(json!(node))))
}

fn node(name: &str, cordoned: bool) -> Object {
    let node = json!({ "metadata": { "name": name }, "spec": { "unschedulable": cordoned } });
    Object::Node(Box::new(object(node)))
}

fn pod(name: &str, node: Option<&str>) -> Object {
    let limits = json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "8Gi" });
    let container = json!({ "name": "main", "resources": { "limits": limits } });
    let planned = node.map(|node| {
        let chosen = json!([format!("GPU-{node}-0")]);
        json!({ "version": "v1", "node": node, "containers": { "main": { "chosen": chosen } } }).to_string()
    });
    let annotations = planned.map(|planned| json!({ "divvy.dev/planned": planned }));
    Object::Pod(Box::new(object(json!({
        "metadata": { "name": name, "namespace": "team", "uid": name, "annotations": annotations },
        "spec": { "nodeName": node, "containers": [container] }, "status": { "phase": "Pending" },
    }))))
}

fn read(json: &str) -> Value {
    serde_json::from_str(json).expect("JSON")
}

#[test]
fn verdicts_are_looked_at_in_turn() {
    let (state, mut page) = (state(), Page::default());
    for name in ["a", "b", "c"] {
        state.apply(pod(name, None));
    }
    state.apply(gpu_node("n1", &[]));
    page.update(&state);
    let fits = |page: &Page| page.pods.values().filter(|pod| read(pod)["fitting"] == 1).count();
    assert_eq!(fits(&page), 0, "they came before the node");
    for judged in 1..=3 {
        let mut is_done = true;
        state.change(|inner, version| is_done = inner.judge_pods(&state.index, Duration::ZERO, version));
        page.update(&state);
        assert_eq!((fits(&page), is_done), (judged, false));
    }
    state.change(|inner, version| assert!(inner.judge_pods(&state.index, JUDGING, version)));
}

#[test]
fn promise_lasts_until_the_node_reports_the_pod() {
    let (state, mut page) = (state(), Page::default());
    state.apply(gpu_node("n1", &[]));
    state.apply(pod("p", Some("n1")));
    page.update(&state);
    let reservations = |page: &Page| read(&page.nodes["n1"])["reservations"].clone();
    assert_eq!(reservations(&page)[0]["pod"], "p");
    assert_eq!(read(&page.pods["p"])["phase"], "bound");
    state.apply(gpu_node("n1", &["p"]));
    page.update(&state);
    assert_eq!((reservations(&page), page.pods.len()), (Value::Null, 0), "it holds what it was reserved");
    state.delete(&pod("p", Some("n1")));
    page.update(&state);
    assert!(page.nodes["n1"].contains("\"podUid\":\"p\""), "a pod that runs is no longer pending");
}

#[test]
fn page_is_complete_once_all_kinds_are_listed() {
    let (state, mut page) = (state(), Page::default());
    assert_eq!(page.update(&state), Some(Status { synced: false, problems: Vec::new() }));
    state.keep(Kind::GpuNodes, &HashSet::new());
    state.fails(Kind::Nodes, &Refusal::Forbidden("nodes is forbidden".to_owned()));
    state.fails(Kind::Pods, &Refusal::Unauthorized);
    assert!(!page.update(&state).expect("news").synced, "pods are tried again");
    assert_eq!(page.update(&state), None, "nothing is new");
    state.keep(Kind::Pods, &HashSet::new());
    let status = page.update(&state).expect("news");
    assert!(status.synced && status.problems.len() == 1, "{status:?}");
}

#[test]
fn node_without_its_object_is_gone_once_nodes_are_listed() {
    let (state, mut page) = (state(), Page::default());
    let problems = |page: &Page| read(&page.nodes["n1"])["problems"].to_string();
    state.apply(gpu_node("n1", &[]));
    page.update(&state);
    assert_eq!(problems(&page), "[]", "nothing is known of Nodes");
    state.keep(Kind::Nodes, &HashSet::new());
    page.update(&state);
    assert!(problems(&page).contains("the Node is gone"), "{}", problems(&page));
    state.apply(node("n1", true));
    page.update(&state);
    assert!(problems(&page).contains("cordoned"), "{}", problems(&page));
}

#[test]
fn page_that_is_opened_later_needs_no_change_to_begin() {
    let state = state();
    state.apply(gpu_node("n1", &[]));
    assert_eq!(state.changed().has_changed().ok(), Some(true));
}

/// One step of a history.
fn step(state: &DashboardState, kind: u8, which: usize, how: u8) {
    let names = ["n0", "n1", "n2"];
    let (name, pod_name) = (names[which % 3], ["a", "b", "c", "d"][which % 4]);
    let bound = how.is_multiple_of(2).then_some(names[usize::from(how) % 3]);
    match kind {
        0 => state.apply(gpu_node(name, &["a", "b"][..usize::from(how) % 3])),
        1 => state.apply(node(name, how.is_multiple_of(2))),
        2 => state.apply(pod(pod_name, bound)),
        3 => state.delete(&pod(pod_name, None)),
        4 => state.delete(&gpu_node(name, &[])),
        5 => state.delete(&node(name, false)),
        6 => state.keep(Kind::Pods, &["a".to_owned(), "b".to_owned()].into()),
        7 => state.keep(Kind::GpuNodes, &[name.to_owned()].into()),
        _ => state.keep(Kind::Nodes, &[name.to_owned()].into()),
    }
}

proptest! {
    /// A page that was sent changes has what one has that was opened now.
    #[test]
    fn changes_add_up_to_what_a_new_page_is_sent(steps in vec((0_u8..9, 0_usize..12, 0_u8..6, any::<bool>()), 1..60)) {
        let (state, mut page) = (state(), Page::default());
        for (kind, which, how, is_sent) in steps {
            step(&state, kind, which, how);
            if is_sent {
                page.update(&state);
            }
        }
        page.update(&state);
        let mut new = Page::default();
        new.update(&state);
        prop_assert_eq!(&page.nodes, &new.nodes);
        prop_assert_eq!(&page.pods, &new.pods);
    }
}
