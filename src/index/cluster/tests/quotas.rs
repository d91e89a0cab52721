//! What counts for a `GpuQuota`, and what a pod is judged by.

use divvy_api::ContainerKind;
use divvy_api::gpuquota::{Amount, GpuQuotaSpec};
use serde_json::{Value, json};

use super::*;
use crate::fixture::container;

const A100: &str = "NVIDIA A100-SXM4-40GB";
const T4: &str = "Tesla T4";

fn limit(index: &Index, name: &str, spec: &Value) {
    let spec: GpuQuotaSpec = serde_json::from_value(spec.clone()).expect("a quota");
    index.apply_quota("default", name, Ok(&spec));
}

fn used(index: &Index) -> u64 {
    Amount::Count.in_totals(&index.quotas()[0].used)
}

/// A node with a GPU of each model.
fn mixed(name: &str) -> GpuNode {
    let mut node = node(name, 2);
    status(&mut node).cards[1].model = T4.into();
    node
}

fn naming(model: &str) -> PodView {
    let mut pod = pod("p", 1, 10, 0);
    pod.annotations.extend((!model.is_empty()).then(|| (CARD_MODEL.to_owned(), model.to_owned())));
    pod
}

#[test]
fn pods_that_are_gone_count_no_more_whatever_nodes_report() {
    let (mut n1, now) = (node("n1", 4), Instant::now());
    let shares = [("a", 0), ("b", 1), ("foreign", 2)].map(|(pod, card)| share(&n1, pod, card, 10, 0));
    status(&mut n1).shares = shares.into();
    let index = index(&[&n1]);
    limit(&index, "all", &json!({"hard": {"gpu": 4}}));
    let on_n1 = |name, gpus| PodView { node: Some("n1".to_owned()), ..pod(name, gpus, 10, 0) };
    for pod in [on_n1("a", 1), on_n1("b", 1), PodView { containers: Vec::new(), ..on_n1("foreign", 1) }] {
        index.apply_pod(&pod, now);
    }
    let show = |unschedulable, allocatable_gpus| {
        index.apply_node("n1", NodeObject { unschedulable, allocatable_gpus, ..NodeObject::default() });
    };
    show(None, Some(128));
    index.delete_pod("a");
    assert_eq!(held(&index, "n1"), [10, 10, 10, 0], "the ledger is kept: a container may be about to end");
    for (unschedulable, gpus) in [
        (None, Some(128)),
        (Some(Unschedulable::NotReady), Some(128)),
        (Some(Unschedulable::Cordoned), Some(128)),
        (None, Some(0)),
    ] {
        show(unschedulable, gpus);
        assert_eq!(used(&index), 2, "{unschedulable:?} {gpus:?}");
    }
    show(Some(Unschedulable::NotReady), Some(128));
    index.delete_pod("b");
    assert_eq!(used(&index), 1, "a pod that ends on a dead node");
    assert_eq!(held(&index, "n1"), [10, 10, 10, 0], "no GPU is given out by guesswork");
    index.keep_nodes(&HashSet::new());
    index.delete_pod("foreign");
    assert_eq!(used(&index), 0, "its Node is gone");
}

#[test]
fn report_charges_only_pods_that_the_api_server_shows() {
    let [mut n1, mut n2] = ["n1", "n2"].map(|name| node(name, 4));
    let index = index(&[&n1, &n2]);
    limit(&index, "all", &json!({"hard": {"gpu": 2}}));
    // Pods that nobody has, pods of another node, and a pod of its own in the name of another namespace.
    let shares = [("invented", 0), ("elsewhere", 1), ("own", 2), ("waits", 3)];
    status(&mut n1).shares = shares.map(|(pod, card)| share(&n1, pod, card, 10, 0)).into();
    index.apply_gpu_node("n1", &n1);
    for pod in [
        PodView { node: Some("n2".to_owned()), ..pod("elsewhere", 1, 10, 0) },
        PodView { node: Some("n1".to_owned()), namespace: "other".to_owned(), ..pod("own", 1, 10, 0) },
        pod("waits", 1, 10, 0),
    ] {
        index.apply_pod(&pod, Instant::now());
    }
    assert_eq!(used(&index), 0);
    assert_eq!(held(&index, "n1"), [10; 4], "no GPU is given out that may be in use");
    status(&mut n2).shares = vec![share(&n2, "elsewhere", 0, 10, 0)];
    index.apply_gpu_node("n2", &n2);
    assert_eq!(used(&index), 1, "its own node may");
    index.apply_pod(&PodView { node: Some("n1".to_owned()), ..pod("waits", 1, 10, 0) }, Instant::now());
    assert_eq!(used(&index), 2, "the report came first");
}

#[test]
fn kinds_of_gpus_that_no_node_has_any_more_are_not_judged() {
    let mut undivided = node("n1", 1);
    status(&mut undivided).tier = Tier::Mig;
    let index = index(&[&undivided, &node("n2", 1)]);
    limit(&index, "all", &json!({"hard": {"gpumem": "10Gi"}}));
    let part = demand(&pod("p", 1, 10, 0));
    assert_eq!(index.snapshot_for(&part).exceeded().len(), 1, "a whole GPU would have 40 GiB");
    index.apply_gpu_node("n1", &node("n1", 1));
    assert_eq!(index.snapshot_for(&part).exceeded(), []);
    index.apply_gpu_node("n1", &undivided);
    assert_eq!(index.snapshot_for(&part).exceeded().len(), 1);
    index.delete_gpu_node("n1");
    assert_eq!(index.snapshot_for(&part).exceeded(), []);
}

#[test]
fn pod_is_judged_by_all_that_it_comes_to_hold() {
    let index = index(&[&node("n1", 2)]);
    limit(&index, "all", &json!({"hard": {"gpumem": "50Gi"}}));
    // The kubelet gives the init container's GPU to the next container, and the other fits beside neither.
    let container = |(name, kind, gib)| container(name, kind, 1, gib, 0);
    let containers =
        [("init", ContainerKind::Init, 26), ("one", ContainerKind::App, 25), ("two", ContainerKind::App, 25)];
    let pod = PodView { containers: containers.map(container).into(), ..pod("p", 1, 8, 0) };
    assert_eq!(index.snapshot_for(&demand(&pod)).exceeded(), [], "50 GiB at its peak");
    let refused =
        index.reserve(&demand(&pod), "n1", Instant::now()).expect_err("26 GiB of one and 25 GiB of the other");
    let reason = "node n1: exceeded GpuQuota all, requested: gpumem=51Gi, used: gpumem=0Mi, limited: gpumem=50Gi";
    assert_eq!(refused.to_string(), reason);
    assert_eq!(held(&index, "n1"), [0, 0]);
    limit(&index, "all", &json!({"hard": {"gpumem": "51Gi"}}));
    index.reserve(&demand(&pod), "n1", Instant::now()).expect("all of it");
    assert_eq!(Amount::Memory.in_totals(&index.quotas()[0].used), 51 << 10);
}

#[test]
fn node_may_not_turn_to_a_model_that_was_not_judged() {
    let index = index(&[&mixed("n1"), &node("n2", 1)]);
    limit(&index, "t4", &json!({"models": ["T4"], "hard": {"gpu": 1}}));
    let plan = |name, node| {
        let a100 = PodView { uid: name, ..naming("A100") };
        index.reserve(&demand(&a100), node, Instant::now()).expect("a free GPU").avoid_models
    };
    assert_eq!(plan("a".into(), "n1"), ["=Tesla T4"], "another pod may get the last of them meanwhile");
    assert_eq!(plan("b".into(), "n2"), Vec::<String>::new(), "the node has none");
    limit(&index, "a100", &json!({"models": ["A100"], "hard": {"gpu": 9}}));
    assert_eq!(plan("c".into(), "n1"), ["=Tesla T4"], "what the pod is judged by");
}

#[test]
fn pods_count_when_the_report_of_their_node_is_deleted() {
    let (mut n1, now) = (node("n1", 3), Instant::now());
    status(&mut n1).shares = vec![share(&n1, "holds", 1, 10, 0), share(&n1, "gone", 2, 10, 0)];
    let index = index(&[&n1]);
    limit(&index, "all", &json!({"hard": {"gpu": 3}}));
    index.apply_pod(&PodView { node: Some("n1".to_owned()), ..pod("holds", 1, 10, 0) }, now);
    let planned = index.reserve(&demand(&pod("bound", 1, 10, 0)), "n1", now).expect("a free GPU");
    index.apply_pod(&bound(pod("bound", 1, 10, 0), &planned), now);
    assert_eq!(used(&index), 2, "those that the API server has there");
    index.delete_gpu_node("n1");
    assert_eq!(used(&index), 2);
    index.apply_gpu_node("n1", &n1);
    assert_eq!(used(&index), 2, "each is counted once");
    index.delete_gpu_node("n1");
    index.expire(now + AGES);
    assert_eq!(used(&index), 2, "as long as they run");
    index.delete_pod("bound");
    assert_eq!(used(&index), 1);
    index.apply_pod(&PodView { node: Some("n2".to_owned()), ..pod("holds", 1, 10, 0) }, now);
    assert_eq!(used(&index), 0, "never so, but nothing may count for ever");
}

#[test]
fn pods_end_while_the_report_of_their_node_is_unreadable() {
    let mut n1 = node("n1", 2);
    status(&mut n1).shares = vec![share(&n1, "a", 0, 10, 0), share(&n1, "b", 1, 10, 0)];
    let index = index(&[&n1]);
    limit(&index, "all", &json!({"hard": {"gpu": 2}}));
    for name in ["a", "b"] {
        index.apply_pod(&PodView { node: Some("n1".to_owned()), ..pod(name, 1, 10, 0) }, Instant::now());
    }
    let first = status(&mut n1).cards[0].clone();
    status(&mut n1).cards.push(first);
    index.apply_gpu_node("n1", &n1);
    assert_eq!(used(&index), 2, "as it was last known");
    index.delete_pod("a");
    assert_eq!(used(&index), 1);
}

#[test]
fn quota_is_used_up_where_no_model_could_help() {
    let index = index(&[&node("n1", 2)]);
    let used_up = |pod: &PodView| index.snapshot_for(&demand(pod)).feasibility(&demand(pod), AGES).used_up.is_some();
    let no_more = json!({"gpu": 0});
    limit(&index, "a100", &json!({"models": ["A100"], "hard": no_more}));
    assert!(!used_up(&naming("")), "a node with another model may come");
    assert!(used_up(&naming("A100")) && used_up(&naming("a100-sxm4")) && used_up(&naming(&format!("={A100}"))));
    assert!(!used_up(&naming("A100,H100")) && !used_up(&naming("*A100*")));
    limit(&index, "h100", &json!({"models": ["H100"], "hard": no_more}));
    assert!(used_up(&naming("A100,H100")) && !used_up(&naming("")), "each by its own quota");
    for exact in [format!("={A100}"), "*-40GB".to_owned()] {
        limit(&index, "a100", &json!({"models": [exact], "hard": no_more}));
        assert!(!used_up(&naming(A100)), "{A100} in a longer name: {exact}");
        assert!(used_up(&naming(&format!("={A100}"))), "{exact}");
    }
    index.delete_quota("default", "a100");
    index.delete_quota("default", "h100");

    let mut whole = pod("p", 1, 0, 100);
    whole.containers[0].limits.remove("nvidia.com/gpumem");
    for (hard, part_is_refused, whole_is_refused) in [
        (json!({"gpumem": "9Gi"}), true, false), // a smaller GPU may come
        (json!({"gpumem": 0}), true, true),
        (json!({"gpumem-percentage": 99}), false, true),
        (json!({"gpumem-percentage": 0}), true, true),
        (json!({"gpucores": 99}), false, true),
        (json!({"gpu": 1}), false, false),
        (json!({"gpu": 0}), true, true),
    ] {
        limit(&index, "all", &json!({"hard": hard}));
        assert_eq!((used_up(&naming("")), used_up(&whole)), (part_is_refused, whole_is_refused), "{hard}");
    }
}
