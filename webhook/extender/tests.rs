mod costs;
mod quotas;
mod random;

use std::time::Instant;

use divvy_api::Tier;
use divvy_api::gpunode::GpuNode;
use divvy_api::names::annotation::{CARD_MODEL, TIER};
use serde_json::{Value, json};

use super::*;
use divvy_index::Outcome;
use divvy_index::demand::SchedulingConfig;
use divvy_index::fixture::{cut, node, pod, share, status};
use divvy_index::pod::PodView;

pub(super) fn extender(nodes: &[GpuNode], shortlist: usize) -> Extender {
    let index = Index::new(SchedulingConfig::default());
    for node in nodes {
        index.apply_gpu_node(node.metadata.name.as_deref().expect("a name"), node);
    }
    Extender::new(Arc::new(index), shortlist)
}

/// A pod as the scheduler sends it.
pub(super) fn json_of(pod: &PodView) -> Value {
    let containers = pod
        .containers
        .iter()
        .map(|container| json!({"name": container.name, "resources": {"limits": container.limits}}));
    json!({
        "metadata": {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name, "annotations": pod.annotations},
        "spec": {
            "priority": pod.priority, "schedulerName": pod.scheduling.scheduler, "nodeName": pod.node, "containers": containers.collect::<Vec<_>>(),
            "schedulingGroup": pod.group.as_ref().map(|group| json!({"podGroupName": group.name})),
        },
        "status": {"phase": if pod.ended { "Failed" } else { "Pending" }},
    })
}

fn filter(extender: &Extender, args: &Value) -> Value {
    let answer = extender.filter(args.to_string().as_bytes()).expect("arguments");
    serde_json::from_slice(&answer).expect("JSON")
}

fn named(pod: &PodView, names: &[&str]) -> Value {
    json!({"Pod": json_of(pod), "Nodes": null, "NodeNames": names})
}

/// n1 is emptier than n2; n3 is full with pods of priority 0, and n4 takes none.
fn four() -> [GpuNode; 4] {
    let mut nodes = ["n1", "n2", "n3", "n4"].map(|name| node(name, 2));
    let held = [(1, vec![(0, 10, 0)]), (2, vec![(0, 40, 100), (1, 40, 100)])];
    for (at, shares) in held {
        let shares =
            shares.into_iter().map(|(card, gib, cores)| share(&nodes[at], &format!("{at}-{card}"), card, gib, cores));
        let shares = shares.collect();
        status(&mut nodes[at]).shares = shares;
    }
    status(&mut nodes[3]).conditions[0].status = "False".into();
    status(&mut nodes[3]).conditions[0].message = "NVML hangs".into();
    nodes
}

#[test]
fn filter_answers_best_nodes_in_the_form_of_the_request() {
    let extender = extender(&four(), 16);
    let names = ["n1", "n2", "n3", "n4", "n2", "nowhere"];
    let answer = extender.filter(named(&pod("a", 1, 8, 0), &names).to_string().as_bytes()).expect("arguments");
    insta::assert_snapshot!(
        String::from_utf8(answer).expect("text"),
        @r#"{"Nodes":null,"NodeNames":["n2"],"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":""}"#
    );
    let item =
        |name: &str| json!({"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"podCIDR": "10.0.0.0/24"}});
    let nodes = json!({"metadata": {}, "items": names.map(item)});
    let args = json!({"pod": json_of(&pod("a", 1, 8, 0)), "nodes": nodes, "nodenames": null});
    let answer = extender.filter(args.to_string().as_bytes()).expect("arguments");
    insta::assert_snapshot!(
        String::from_utf8(answer).expect("text"),
        @r#"{"Nodes":{"metadata":{},"items":[{"metadata":{"labels":{"a":"b"},"name":"n2"},"spec":{"podCIDR":"10.0.0.0/24"}}]},"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":""}"#
    );
}

#[test]
fn pod_with_an_unreadable_list_gets_no_node() {
    let extender = extender(&four(), 16);
    let mut pod = pod("a", 1, 8, 0);
    pod.annotations.insert(CARD_MODEL.into(), "A100,".repeat(50_000));
    extender.index.apply_pod(&pod, Instant::now());
    assert!(extender.index.waiting().is_empty(), "nothing of it is kept");
    let answer = filter(&extender, &named(&pod, &["n1", "n2"]));
    let reason = answer["FailedAndUnresolvableNodes"]["n1"].as_str().expect("a reason");
    assert!(reason.starts_with("annotation divvy.dev/card-model: 50000 items in 250000 bytes"), "{answer}");
    let scores = extender.prioritize(named(&pod, &["n1", "n2"]).to_string().as_bytes()).expect("arguments");
    assert_eq!(String::from_utf8(scores).expect("text"), r#"[{"Host":"n1","Score":0},{"Host":"n2","Score":0}]"#);
    let args = json!({"PodName": "a", "PodNamespace": "default", "PodUID": "a", "Node": "n1"}).to_string();
    let bound = extender.bind(args.as_bytes(), Instant::now()).expect("arguments");
    assert!(matches!(bound, Bind::Unknown(_)), "{bound:?}");
}

#[test]
fn field_names_match_in_any_letter_case() {
    let extender = extender(&four(), 16);
    for (of_pod, of_names) in [("Pod", "NodeNames"), ("pod", "nodeNames"), ("POD", "nodenames"), ("pOD", "NODENAMES")] {
        let args = json!({of_pod: json_of(&pod("a", 1, 8, 0)), of_names: ["n1", "n2"], "later": {"x": [1]}});
        assert_eq!(filter(&extender, &args)["NodeNames"], json!(["n2"]), "{args}");
    }
}

#[test]
fn filter_of_no_nodes_answers_no_nodes() {
    let extender = extender(&four(), 16);
    let pod = json_of(&pod("a", 1, 8, 0));
    for args in [
        json!({"Pod": pod, "NodeNames": []}),
        json!({"Pod": pod, "NodeNames": null, "Nodes": null}),
        json!({"Pod": pod}),
        json!({"Pod": pod, "Nodes": {"items": null}}),
        json!({"Pod": pod, "Nodes": {}}),
    ] {
        let answer = filter(&extender, &args);
        assert_eq!((&answer["NodeNames"], &answer["Error"]), (&json!([]), &json!("")), "{args}");
    }
    assert_eq!(filter(&extender, &json!({}))["Error"], "Pod is missing");
}

#[test]
fn filter_without_fitting_nodes_gives_each_a_reason() {
    let extender = extender(&four(), 16);
    let names = ["n1", "n2", "n3", "n4", "nowhere"];
    for uid in ["2-0", "2-1"] {
        extender.index.apply_pod(&PodView { node: Some("n3".into()), ..pod(uid, 1, 40, 100) }, Instant::now());
    }
    let large = PodView { priority: 1000, ..pod("a", 2, 39, 0) };
    let two_large = PodView { priority: 1000, ..pod("b", 3, 39, 0) };
    let meek = pod("c", 1, 41, 0);
    let answers = [large, two_large, meek].map(|pod| filter(&extender, &named(&pod, &names[1..])));
    insta::assert_json_snapshot!(answers);
}

#[test]
fn mig_tier_pod_takes_the_tightest_instance() {
    let mut nodes = ["gpus", "large", "full", "small", "least"].map(|name| node(name, 2));
    for (at, gib) in [(1, [40, 20]), (2, [10, 10]), (3, [5, 5]), (4, [20, 10])] {
        cut(&mut nodes[at], &gib);
    }
    let held = [share(&nodes[2], "alone", 0, 10, 100), share(&nodes[2], "part", 1, 2, 20)];
    status(&mut nodes[2]).shares = held.to_vec();
    status(&mut nodes[0]).tier = Tier::Shim;
    let extender = extender(&nodes, 16);
    let by_hardware = |gib| {
        let mut pod = pod("a", 1, gib, 30);
        pod.annotations.insert(TIER.to_owned(), "mig".to_owned());
        pod
    };
    let names = ["gpus", "large", "full", "small", "least"];
    assert_eq!(filter(&extender, &named(&by_hardware(8), &names))["NodeNames"], json!(["least"]));
    extender.index.apply_pod(&by_hardware(8), Instant::now());
    let call = json!({"PodName": "a", "PodNamespace": "default", "PodUID": "a", "Node": "least"});
    let bound = extender.bind(call.to_string().as_bytes(), Instant::now()).expect("arguments");
    let Bind::Post(Binding { planned, .. }) = bound else { panic!("it fits") };
    assert!(planned.contains("MIG-least-1"), "{planned}");
    insta::assert_json_snapshot!(filter(&extender, &named(&by_hardware(39), &["gpus", "full", "small", "least"])));
}

#[test]
fn filter_passes_pods_without_gpus_and_fails_invalid_ones() {
    let extender = extender(&four(), 16);
    let mut plain = pod("a", 1, 8, 0);
    plain.containers[0].limits.clear();
    assert_eq!(filter(&extender, &named(&plain, &["x", "n3"]))["NodeNames"], json!(["x", "n3"]), "not our affair");
    plain.containers[0].limits.insert("nvidia.com/gpucores".into(), "101".into());
    let answer = filter(&extender, &named(&plain, &["n1"]));
    insta::assert_snapshot!(
        answer["FailedAndUnresolvableNodes"]["n1"],
        @r#""spec.containers[0].resources.limits[nvidia.com/gpucores]: 101 is out of range: allowed are 1 to 100 percent of each GPU""#
    );
}

#[test]
fn shortlist_limits_the_nodes_that_filter_answers() {
    let nodes: Vec<GpuNode> = (0..9).map(|number| node(&format!("n{number}"), 2)).collect();
    let names: Vec<String> = (0..9).rev().map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (shortlist, expected) in [(1, json!(["n0"])), (3, json!(["n0", "n1", "n2"])), (0, json!(names))] {
        let extender = extender(&nodes, shortlist);
        assert_eq!(filter(&extender, &named(&pod("a", 1, 8, 0), &names))["NodeNames"], expected);
    }
}

#[test]
fn filter_reserves_nothing_and_prioritize_orders_nodes() {
    let extender = extender(&four(), 0);
    let args = named(&pod("a", 1, 8, 0), &["n1", "n2", "n3", "nowhere"]);
    let before = extender.index.snapshot().node("n2").expect("it is known").revision;
    assert_eq!(filter(&extender, &args), filter(&extender, &args));
    assert_eq!(extender.index.snapshot().node("n2").expect("it is known").revision, before);
    let scores = extender.prioritize(args.to_string().as_bytes()).expect("arguments");
    insta::assert_snapshot!(
        String::from_utf8(scores).expect("text"),
        @r#"[{"Host":"n1","Score":5},{"Host":"n2","Score":10},{"Host":"n3","Score":0},{"Host":"nowhere","Score":0}]"#
    );
}

#[test]
fn bind_reserves_gpus_and_annotates_the_binding() {
    let (extender, now) = (extender(&four(), 16), Instant::now());
    let args = json!({"podname": "a", "PodNamespace": "default", "podUID": "a", "NODE": "n2"}).to_string();
    let bind = || extender.bind(args.as_bytes(), now).expect("arguments");
    filter(&extender, &named(&pod("a", 1, 8, 0), &["n2"]));
    let Bind::Unknown(unknown) = bind() else { panic!("the watch hasn't shown this pod") };
    assert!(String::from_utf8_lossy(&unknown).contains("pod default/a is not known yet"));

    extender.index.apply_pod(&pod("a", 1, 8, 0), now);
    let Bind::Post(binding) = bind() else { panic!("it fits") };
    insta::assert_snapshot!(
        serde_json::to_string(&binding.object()).expect("JSON"),
        @r#"{"apiVersion":"v1","kind":"Binding","metadata":{"annotations":{"divvy.dev/planned":"{\"version\":\"v1\",\"node\":\"n2\",\"containers\":{\"main\":{\"chosen\":[\"GPU-n2-0\"]}}}"},"name":"a","namespace":"default","uid":"a"},"target":{"kind":"Node","name":"n2"}}"#
    );
    assert_eq!(bind(), Bind::Post(binding.clone()), "the same again");
    assert_eq!(extender.index.reserved().len(), 1);
    assert_eq!(extender.failed(&binding, "conflict"), br#"{"Error":"conflict"}"#);
    assert_eq!(extender.index.reserved().len(), 0);
    let Bind::Post(binding) = bind() else { panic!("it fits") };
    assert_eq!(extender.committed(&binding, now), br#"{"Error":""}"#);
    extender.failed(&binding, "");
    assert_eq!(extender.index.reserved().len(), 1, "what is bound stays bound");
    assert_eq!(extender.index.outcomes().get(Outcome::Kept), 0);
}

#[test]
fn bind_refuses_an_empty_uid_and_names_of_another_pod() {
    let (extender, now) = (extender(&four(), 16), Instant::now());
    for uid in ["a", ""] {
        extender.index.apply_pod(&PodView { uid: uid.into(), ..pod("a", 1, 8, 0) }, now);
    }
    let refusal = |namespace: &str, name: &str, uid: &str| {
        let args = json!({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": "n2"}).to_string();
        let Bind::Answer(refusal) = extender.bind(args.as_bytes(), now).expect("arguments") else {
            panic!("{namespace}/{name} is bound")
        };
        String::from_utf8(refusal).expect("text")
    };
    assert_eq!(refusal("default", "a", ""), r#"{"Error":"pod default/a: PodUID is empty"}"#);
    for (namespace, name) in [("kube-system", "a"), ("default", "b"), ("default", "a?dryRun=All"), ("..", "..")] {
        let expected = format!("the pod with UID a is default/a, not {namespace}/{name}");
        assert!(refusal(namespace, name, "a").contains(&expected));
    }
    assert_eq!(extender.index.reserved().len(), 0);
}

#[test]
fn pod_fits_where_it_has_a_reservation() {
    let (extender, now) = (extender(&[node("n1", 1)], 16), Instant::now());
    let args = named(&pod("a", 1, 30, 0), &["n1"]);
    assert_eq!(filter(&extender, &args)["NodeNames"], json!(["n1"]));
    let bind = json!({"PodName": "a", "PodNamespace": "default", "PodUID": "a", "Node": "n1"}).to_string();
    extender.index.apply_pod(&pod("a", 1, 30, 0), now);
    extender.bind(bind.as_bytes(), now).expect("arguments");
    assert_eq!(filter(&extender, &args)["NodeNames"], json!(["n1"]));
    assert_eq!(filter(&extender, &named(&pod("b", 1, 30, 0), &["n1"]))["NodeNames"], json!([]));
}

#[test]
fn preempt_keeps_nodes_whose_victims_free_enough_gpus() {
    let mut nodes = [node("n1", 2), node("n2", 2)];
    let shares =
        vec![share(&nodes[0], "a", 0, 30, 0), share(&nodes[0], "b", 0, 10, 0), share(&nodes[0], "c", 1, 40, 0)];
    status(&mut nodes[0]).shares = shares;
    let extender = extender(&nodes, 16);
    for (uid, priority) in [("a", 5), ("b", 1), ("c", 500)] {
        let held = PodView { priority, node: Some("n1".into()), ..pod(uid, 1, 1, 0) };
        extender.index.apply_pod(&held, Instant::now());
    }
    let preempt = |priority, victims: Value| {
        let of = PodView { priority, ..pod("p", 1, 35, 0) };
        let args = json!({"Pod": json_of(&of), "NodeNameToVictims": null, "NodeNameToMetaVictims": victims});
        let answer = extender.preempt(args.to_string().as_bytes()).expect("arguments");
        String::from_utf8(answer).expect("text")
    };
    let answers = [
        preempt(
            100,
            json!({"n1": {"Pods": [{"UID": "b"}], "NumPDBViolations": 1}, "nowhere": {"Pods": [{"UID": "x"}]}}),
        ),
        preempt(3, json!({"n1": {"Pods": [{"UID": "b"}], "NumPDBViolations": 0}})),
        preempt(100, json!({"n1": null})),
        preempt(100, json!({"n2": {"Pods": null}})),
        preempt(1000, json!({"n1": {"Pods": [{"UID": "c"}]}})),
        preempt(1000, json!({"n1": {"pods": [{"metadata": {"uid": "c"}}]}})),
    ];
    insta::assert_debug_snapshot!(answers);
}

#[test]
fn preempt_spares_nominated_pods() {
    let mut n1 = node("n1", 2);
    status(&mut n1).shares = vec![share(&n1, "a", 0, 40, 0)];
    let (extender, now) = (extender(&[n1], 16), Instant::now());
    extender.index.apply_pod(&PodView { priority: 1, node: Some("n1".into()), ..pod("a", 1, 40, 0) }, now);
    extender.index.apply_pod(&PodView { priority: 5, nominated: Some("n1".into()), ..pod("b", 1, 30, 0) }, now);
    let of = PodView { priority: 100, ..pod("p", 2, 35, 0) };
    let args = json!({"Pod": json_of(&of), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}]}}});
    let answer = extender.preempt(args.to_string().as_bytes()).expect("arguments");
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    assert_eq!(answer["NodeNameToMetaVictims"]["n1"]["Pods"], json!([{"UID": "a"}]));
}
