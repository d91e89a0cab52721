use std::borrow::Borrow;

use divvy_api::gpunode::GpuNodeReport;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::fetch::FoundNode;
use super::host::Host;
use super::*;

const CARDS: [&str; 2] = ["GPU-1d97b7c2-0b1c-4e2a-9a51-3f1f5a1a0001", "GPU-69ba03f4-77aa-4d0e-8c1d-6f0e2b2b0002"];

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().expect("a time")
}

fn found(name: &str, data: impl Borrow<Value>, host: Host) -> FoundNode {
    let gpu_node = GpuNodeReport::read(ObjectMeta::default(), data.borrow());
    FoundNode { name: name.to_owned(), gpu_node, host }
}

/// A Node whose kubelet says this of itself, and has this many healthy slots.
fn host(ready: &str, slots: &str) -> Host {
    let capacity = json!({ "nvidia.com/gpu": "64", "nvidia.com/gpumem": "92160" });
    with_devices(ready, &capacity, &json!({ "nvidia.com/gpu": slots }))
}

fn with_devices(ready: &str, capacity: &Value, allocatable: &Value) -> Host {
    let condition = json!({
        "type": "Ready", "status": ready, "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": "2026-11-21T11:20:00Z",
    });
    let status = json!({ "conditions": [condition], "capacity": capacity, "allocatable": allocatable });
    Host::There(serde_json::from_value(json!({ "metadata": { "name": "n" }, "status": status })).expect("a Node"))
}

fn card(number: usize) -> Value {
    json!({
        "uuid": CARDS[number], "model": "NVIDIA L40S", "memoryMi": 46080, "health": "Healthy", "numa": number,
    })
}

fn share(pod: &str, container: &str, kind: &str, card: usize, memory: u64, cores: u32) -> Value {
    let (namespace, pod) = pod.split_once('/').expect("namespace/pod");
    json!({
        "podUid": format!("uid-of-{pod}"), "namespace": namespace, "pod": pod, "container": container, "kind": kind,
        "card": CARDS[card], "memoryMi": memory, "cores": cores, "exclusive": cores == 100,
    })
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-21T11:57:00Z",
    })
}

/// Two cards and three pods; one of them has an init container and a sidecar.
fn node() -> Value {
    json!({ "spec": {}, "status": {
        "cards": [card(0), card(1)],
        "links": [{ "link": "NODE", "cards": [0, 1] }],
        "shares": [
            share("default/train-12", "main", "app", 1, 46080, 100),
            share("team-a/serve-0", "warm-up", "init", 0, 20480, 10),
            share("team-a/serve-0", "cache", "sidecar", 0, 1024, 0),
            share("team-a/serve-0", "server", "app", 0, 8192, 30),
            share("team-b/notebook", "main", "app", 0, 3000, 0),
        ],
        "tier": "accounting",
        "ledgerRevision": 17,
        "conditions": [
            condition("Ready", "True", "Registered", "device plugin is registered with the kubelet"),
            condition("InventoryKnown", "True", "CardsKnown", "NVML answers"),
            condition("SpecApplied", "True", "Applied", "the spec is in effect"),
            condition("Draining", "False", "Serving", "the node accepts new pods"),
        ],
    }})
}

/// The node with some of it changed.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut node = node();
    change(&mut node);
    node
}

fn report(found: &[FoundNode]) -> InspectReport {
    InspectReport::new(found, None, now())
}

fn shown(data: Value, host: Host) -> String {
    table::render(&report(&[found("node-1", data, host)]), false, true)
}

#[test]
fn healthy_node_is_shown() {
    insta::assert_snapshot!(shown(node(), host("True", "64")));
}

#[test]
fn wide_output_shows_every_column() {
    let data = changed(|node| {
        node["status"]["cards"][0]["utilization"] = 70.into();
        node["status"]["cards"][1]["mig"] = "3g.20gb".into();
        node["status"]["clique"] = "5f3a9c10-0000-4000-8000-000000000001.7".into();
    });
    let report = report(&[found("node-1", data, host("True", "64"))]);
    insta::assert_snapshot!(table::render(&report, true, true));
}

#[test]
fn whole_instances_are_held_by_hardware() {
    let data = changed(|node| {
        let (card, status) = (CARDS[1].replacen("GPU", "MIG", 1), &mut node["status"]);
        (status["cards"][1]["uuid"], status["cards"][1]["mig"]) = (card.clone().into(), "3g.20gb".into());
        status["shares"][0]["card"] = card.clone().into();
        status["shares"][4]["card"] = card.into();
    });
    let report = report(&[found("node-1", data, host("True", "64"))]);
    let by_hardware: Vec<bool> = report.nodes[0].cards[1].shares.iter().map(|share| share.by_hardware).collect();
    assert_eq!(by_hardware, [true, false], "whoever has a part isn't");
    insta::assert_snapshot!(table::render(&report, false, true));
}

#[test]
fn share_of_another_plugins_pod_is_told() {
    let data = changed(|node| node["status"]["shares"][0]["adopted"] = true.into());
    let shown = table::render(&report(&[found("node-1", data, host("True", "64"))]), false, true);
    let line = shown.lines().find(|line| line.contains("train-12")).expect("the share");
    assert!(line.trim_end().ends_with("another plugin's"), "{shown}");
}

#[test]
fn json_has_the_amounts_of_the_table() {
    let report = report(&[found("node-1", node(), host("True", "64"))]);
    insta::assert_json_snapshot!(report);
}

#[test]
fn gpu_for_one_process_says_what_to_do() {
    let exclusive = changed(|node| node["status"]["cards"][0]["computeMode"] = "Exclusive_Process".into());
    let report = report(&[found("node-1", exclusive, Host::Unknown)]);
    let said = "takes no parts, as it is in compute mode Exclusive_Process: set it with nvidia-smi -c DEFAULT";
    let shown = table::render(&report, false, true);
    assert!(shown.lines().any(|line| line.ends_with(said)), "{shown}");
    assert_eq!(report.nodes[0].totals.healthy_cards, 2);
}

#[test]
fn pod_holds_the_larger_of_its_init_peak_and_the_rest() {
    let report = report(&[found("node-1", node(), Host::Unknown)]);
    let card = &report.nodes[0].cards[0];
    assert_eq!((card.memory_mi.held, card.cores.held, card.pods), (20_480 + 3000, 30, 2));
    assert_eq!((card.memory_mi.free, card.cores.free), (46_080 - 23_480, 70));
}

#[test]
fn unhealthy_and_cordoned_cards_have_no_free_amounts() {
    let sick = changed(|node| {
        node["status"]["cards"][0]["health"] = "Unhealthy".into();
        node["status"]["cards"][0]["reason"] = "XID 79: the card has fallen off the bus".into();
        node["spec"]["unschedulableCards"] = json!([CARDS[1]]);
        node["status"]["cards"][1]["health"] = "Unhealthy".into();
        node["status"]["cards"][1]["cordoned"] = true.into();
    });
    let both = changed(|node| {
        node["spec"]["unschedulableCards"] = json!([CARDS[1]]);
        node["status"]["cards"][1]["health"] = "Unhealthy".into();
        node["status"]["cards"][1]["reason"] = "XID 48".into();
        node["status"]["shares"] = json!([]);
    });
    insta::assert_snapshot!([sick, both].map(|data| shown(data, host("True", "64"))).join("\n"));
}

#[test]
fn node_that_takes_no_pods_names_its_problems() {
    let with = |at: usize, condition: Value| changed(|node| node["status"]["conditions"][at] = condition);
    let draining =
        with(3, condition("Draining", "True", "Stopping", "divvy-node is shutting down; the node accepts no new pods"));
    let silent = changed(|node| {
        let problem =
            |kind| condition(kind, "False", "NvmlProblem", "libnvidia-ml.so.1: cannot open shared object file");
        node["status"]["conditions"][0] = problem("Ready");
        node["status"]["conditions"][1] = problem("InventoryKnown");
        node["status"]["cards"] = json!([]);
    });
    let unapplied = with(2, condition("SpecApplied", "False", "UnknownCard", "spec.unschedulableCards names GPU-x"));
    let nodes = [
        found(
            "cordoned",
            unapplied,
            serde_json::from_value(json!({ "metadata": {}, "spec": { "unschedulable": true } }))
                .map(|node| Host::There(Box::new(node)))
                .expect("a Node"),
        ),
        found("dead-daemon", node(), host("True", "0")),
        found("dead-kubelet", node(), host("Unknown", "64")),
        found("draining", draining, host("True", "64")),
        found("gone", node(), Host::Gone),
        found("new", json!({ "spec": {} }), host("True", "64")),
        found("without-nvml", silent, host("True", "64")),
    ];
    let report = report(&nodes);
    assert!(report.nodes.iter().all(|node| !node.takes_pods && node.totals.memory_mi.free == 0), "{report:#?}");
    let lines = table::render(&report, false, true);
    let told: Vec<&str> = lines.lines().filter(|line| line.contains(": ")).collect();
    insta::assert_snapshot!(told.join("\n"));
    // Cards that pods hold are shown although the daemon knows of none.
    insta::assert_snapshot!(
        "cards-of-a-node-without-nvml",
        table::render(&InspectReport::new(&nodes[6..], None, now()), false, true)
    );
}

#[test]
fn missing_daemon_is_detected_by_the_kubelets_devices() {
    let takes_pods = |data: Value, capacity: &Value, allocatable: &Value| {
        report(&[found("n", data, with_devices("True", capacity, allocatable))]).nodes[0].takes_pods
    };
    let of = |gpu: &str| json!({ "nvidia.com/gpu": gpu, "nvidia.com/gpumem": "92160" });
    assert!(takes_pods(node(), &of("64"), &of("32")));
    assert!(!takes_pods(node(), &of("64"), &of("0")), "a moment after its end");
    assert!(!takes_pods(node(), &of("0"), &of("0")), "minutes after its end");
    let mixed = json!({ "nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpumem": "92160" });
    assert!(takes_pods(node(), &mixed, &mixed), "all cards are cut into instances");
    let renamed = json!({ "nvidia.com/gpu": "0", "example.org/gpu": "64", "example.org/gpumem": "92160" });
    assert!(takes_pods(node(), &renamed, &renamed), "left over from another plugin");
    let sick = changed(|node| {
        for at in 0..2 {
            node["status"]["cards"][at]["health"] = "Unhealthy".into();
        }
    });
    assert!(takes_pods(sick, &of("64"), &of("0")), "its cards are all sick, and it says so");
}

#[test]
fn report_of_another_version_is_shown_in_part() {
    let newer = changed(|node| {
        let status = &mut node["status"];
        status["tier"] = "quantum".into();
        status["surprise"] = json!({ "a": 1 });
        status["conditions"].as_array_mut().expect("a list").push(condition("Sparkling", "Maybe", "Who", "knows"));
        status["cards"][0]["health"] = "Degraded".into();
        status["cards"][1]["memoryMi"] = "45Gi".into();
        status["shares"][0]["kind"] = "ephemeral".into();
        status["shares"][1]["cores"] = json!(-1);
        status["shares"][2] = json!("none");
    });
    insta::assert_snapshot!(shown(newer, host("True", "64")));
    let odd = [
        json!(null),
        json!({ "status": null }),
        json!({ "status": [] }),
        json!({ "spec": 1, "status": { "cards": 7 } }),
    ];
    for data in odd {
        assert!(shown(data.clone(), Host::Unknown).starts_with("node-1: TAKES NO PODS"), "{data}");
    }
}

#[test]
fn tenant_names_are_escaped() {
    let data = changed(|node| {
        node["status"]["shares"][0]["pod"] = "\u{1b}]0;pwned\u{7}".into();
        node["status"]["cards"][0]["reason"] = "a\nb\u{9b}2J".into();
        node["status"]["tier"] = "\u{202e}".into();
        node["status"]["conditions"][0] = condition("Ready", "False", "\r", "\u{1b}[2J");
    });
    let report = report(&[found("node-\u{1b}1", data, host("True", "64"))]);
    for wide in [false, true] {
        let text = table::render(&report, wide, true);
        assert!(!text.contains(|c: char| c != '\n' && c.is_control() || c == '\u{202e}'), "{text:?}");
    }
}

#[test]
fn namespace_filter_keeps_the_totals() {
    let idle = changed(|node| node["status"]["shares"] = json!([]));
    let nodes = [found("node-1", node(), host("True", "64")), found("node-2", idle, host("True", "64"))];
    let report = InspectReport::new(&nodes, Some("team-a"), now());
    insta::assert_snapshot!(table::render(&report, false, true));
}

#[test]
fn several_nodes_are_summed_up() {
    let idle = changed(|node| node["status"]["shares"] = json!([]));
    let scaled = changed(|node| node["status"]["scales"] = json!({ "memory": 150, "cores": 200 }));
    let nodes =
        [found("b", node(), host("True", "0")), found("c", idle, Host::Unknown), found("a", scaled, Host::Unknown)];
    insta::assert_snapshot!(table::render(&report(&nodes), false, false));
    assert_eq!(table::render(&report(&[]), false, true), "");
}

#[test]
fn columns_of_what_gpus_differ_in_are_shown() {
    let data = changed(|node| {
        let status = &mut node["status"];
        status["slotsPerCard"] = 32.into();
        status["cards"][0]["tier"] = "shim".into();
        status["cards"][1]["slots"] = 4.into();
        status["cards"][1]["scales"] = json!({ "memory": 50, "cores": 150 });
        status["shares"] = json!([]);
    });
    insta::assert_snapshot!(shown(data, host("True", "64")));
}

#[test]
fn similar_uuids_are_shortened_to_distinct_lengths() {
    let long = "a-deployment-with-a-name-as-long-as-kubernetes-allows-7d9c6b5f4d-x2x7q";
    let data = changed(|node| {
        let status = &mut node["status"];
        for (at, uuid) in
            ["GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000012"].iter().enumerate()
        {
            status["cards"][at]["uuid"] = (*uuid).into();
            status["shares"][at]["card"] = (*uuid).into();
        }
        status["shares"].as_array_mut().expect("a list").truncate(2);
        status["shares"][1]["pod"] = long.into();
    });
    insta::assert_snapshot!(shown(data, host("True", "64")));
}

#[test]
fn oversubscribed_node_shows_gpu_and_host_memory_apart() {
    let oversubscribed = |pod: &str, memory: u64, host: u64| {
        let mut share = share(pod, "main", "app", 0, memory, 0);
        share["hostMemoryMi"] = host.into();
        share
    };
    let mut data = node();
    data["status"]["shares"] = json!([
        oversubscribed("a/one", 30720, 10240),
        oversubscribed("a/two", 30720, 10240),
        share("b/three", "main", "app", 1, 3000, 0)
    ]);
    data["status"]["oversubscription"] = json!({ "memoryScale": 150, "hostMemoryMi": 65536 });
    insta::assert_snapshot!(shown(data, host("True", "64")));
}
