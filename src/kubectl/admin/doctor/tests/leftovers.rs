//! Leftovers of Divvy and of other systems.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::admin::doctor::objects::{AGGREGATED, ForeignObject};
use crate::view::inspect::NodeView;
use divvy_systems::{Mark, Program};

/// A Node that none of Divvy's daemons runs on.
fn bare(name: &str, annotations: &Value, labels: &Value, amounts: &Value) -> NodeView {
    read(json!({
        "metadata": { "name": name, "annotations": annotations, "labels": labels },
        "status": { "capacity": amounts, "allocatable": amounts },
    }))
}

/// A Node with everything that a program leaves there.
fn marked(program: &Program, name: &str) -> NodeView {
    let [mut annotations, mut labels, mut amounts] = [json!({}), json!({}), json!({})];
    for mark in program.marks.iter().chain(program.shared) {
        let key = |pattern: &str| pattern.replace('*', "x");
        match mark {
            Mark::Annotation(pattern) => annotations[key(pattern)] = "".into(),
            Mark::Resource(pattern) => amounts[key(pattern)] = "0".into(),
            Mark::Label(label) => {
                let (label, value) = label.split_once('=').unwrap_or((label, "any"));
                labels[label] = value.into();
            }
        }
    }
    bare(name, &annotations, &labels, &amounts)
}

fn add(objects: &mut Objects, node: NodeView) {
    objects.nodes.as_mut().expect("nodes").push(node);
}

fn agents(objects: &mut Objects) -> &mut Vec<Agent> {
    objects.agents.as_mut().expect("DaemonSets")
}

fn of_hami() -> &'static Program {
    Program::with_daemon_set("hami-device-plugin").expect("a known program")
}

fn object(program: &'static str, name: &str, service: Option<bool>, refuses: bool) -> ForeignObject {
    let service = service.map(|is_there| ("kube-system/its-scheduler".to_owned(), is_there));
    ForeignObject { program, name: name.to_owned(), service, refuses, unavailable: None }
}

#[test]
fn marks_of_each_removed_system_are_named_with_a_remedy() {
    let programs = Program::all().filter(|program| !program.marks.is_empty());
    let said = programs.map(|program| {
        wrong(|objects| {
            add(objects, marked(program, "moved"));
            if program.only_beside_divvy {
                agents(objects)[0].nodes.insert("moved".to_owned());
            }
        })
    });
    let said: Vec<String> = said.collect();
    assert!(said.iter().all(|said| said.lines().count() == 2), "{said:#?}");
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn system_that_runs_beside_divvy_is_a_conflict() {
    let daemon_sets = [
        "volcano-device-plugin",
        "volcano-vgpu-device-plugin",
        "hami-device-plugin",
        "vgpu-device-plugin",
        "gpushare-device-plugin-ds",
        "elastic-gpu-agent",
        "nano-gpu-agent",
        "gpu-manager-daemonset",
        "qgpu-manager",
        "nvidia-gpu-scheduler",
        "nvidia-device-plugin-daemonset",
        "nvdp-nvidia-device-plugin",
    ];
    let said = daemon_sets.map(|name| wrong(|objects| agents(objects).push(agent("gpu", name, &["node-2", "other"]))));
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn device_plugin_of_the_gpu_operator_is_kept_off_by_a_label() {
    let said = wrong(|objects| {
        let plugin = agent("gpu-operator", "nvidia-device-plugin-daemonset", &["node-2", "other"]);
        agents(objects).push(Agent { is_operators: true, ..plugin });
    });
    let label = "kubectl label --overwrite node node-2 nvidia.com/gpu.deploy.device-plugin=false";
    assert!(said.contains(label) && !said.contains("delete daemonset"), "{said}");
}

#[test]
fn system_with_nodes_of_its_own_is_no_finding() {
    let said = wrong(|objects| {
        add(objects, marked(of_hami(), "node-3"));
        agents(objects).push(agent("kube-system", "hami-device-plugin", &["node-3"]));
    });
    assert_eq!(said, "");
}

#[test]
fn objects_without_their_service_are_left_over() {
    let hami = "HAMi or 4paradigm vGPU";
    let of = |foreign: Vec<ForeignObject>| wrong(|objects| objects.foreign = Ok(foreign));
    let webhook = "mutatingwebhookconfigurations/hami-webhook";
    let crd = || object("nvidia-gpu-scheduler", "customresourcedefinitions/gpunodes.x", None, false);
    let said = [
        of(vec![object(hami, webhook, Some(false), false)]),
        of(vec![object(hami, webhook, Some(false), true)]),
        of(vec![object(hami, webhook, Some(true), true)]),
        of(vec![object("nvidia-gpu-scheduler", "apiservices/v1alpha1.metrics.nvidia.com", Some(false), false), crd()]),
        wrong(|objects| {
            objects.foreign = Ok(vec![crd()]);
            agents(objects).push(agent("gpu", "nvidia-gpu-scheduler", &["other"]));
        }),
        wrong(|objects| {
            objects.foreign = Err(Refusal::Forbidden("User \"x\" cannot get customresourcedefinitions".to_owned()));
        }),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

/// What divvy-node leaves on a Node.
fn left(name: &str) -> NodeView {
    let annotations = json!({ "divvy.dev/generation": "7", "divvy.dev/labels": "nvidia.com/gpu.count" });
    let labels = json!({ "nvidia.com/gpu.count": "1", "nvidia.com/gpu.present": "true" });
    let amounts = json!({ "nvidia.com/gpu": "0", "nvidia.com/gpumem": "24576", "nvidia.com/gpucores": "100" });
    let mut node = serde_json::to_value(bare(name, &annotations, &labels, &amounts)).expect("JSON");
    node["spec"] = json!({ "taints": [{ "key": "divvy.dev/free-gpus", "effect": "PreferNoSchedule" }] });
    read(node)
}

/// Leftovers of Divvy, and nothing else.
fn of_divvy(change: impl FnOnce(&mut Objects)) -> String {
    wrong(|objects| {
        uninstall_webhook(objects);
        objects.hiding = Ok(Vec::new());
        change(objects);
    })
}

#[test]
fn traces_of_divvy_without_a_daemon_are_left_over() {
    let said = [
        of_divvy(|objects| add(objects, left("node-3"))),
        of_divvy(|objects| {
            objects.gpu_nodes.as_mut().expect("some").push(gpu_node("node-3"));
            for name in ["node-3", "node-4", "node-5", "node-6"] {
                add(objects, left(name));
            }
        }),
        of_divvy(|objects| {
            agents(objects).clear();
            add(objects, left("node-3"));
        }),
        of_divvy(|objects| {
            agents(objects).clear();
            (objects.nodes, objects.gpu_nodes) = (Ok(Vec::new()), Ok(vec![gpu_node("gone")]));
            objects.policies = Ok(Vec::new());
        }),
        // With policies, but nothing on Nodes.
        of_divvy(|objects| {
            agents(objects).clear();
            (objects.nodes, objects.gpu_nodes) = (Ok(Vec::new()), Ok(vec![gpu_node("gone")]));
        }),
        // With the webhook, which watches GpuNodes.
        wrong(|objects| {
            agents(objects).clear();
            (objects.nodes, objects.gpu_nodes) = (Ok(Vec::new()), Ok(vec![gpu_node("gone")]));
        }),
        // Amounts alone: the annotations were removed by hand.
        of_divvy(|objects| add(objects, bare("node-3", &json!({}), &json!({}), &json!({ "nvidia.com/gpumem": "1" })))),
        of_divvy(|objects| objects.agents = Err(Refusal::Forbidden("User \"x\" cannot list daemonsets".to_owned()))),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn nothing_is_left_over_while_a_pod_of_the_daemon_is_missing() {
    let said = of_divvy(|objects| {
        let well = json!({ "divvy.dev/generation": "7" });
        add(objects, bare("node-3", &well, &json!({}), &json!({})));
        agents(objects)[0].wanted = 3;
    });
    assert_eq!(said, "");
}

#[test]
fn amounts_of_hami_are_not_taken_for_those_of_divvy() {
    let said = wrong(|objects| {
        let annotations = json!({ "hami.io/node-handshake": "Deleted_2026.11.20 10:00:00" });
        add(objects, bare("node-3", &annotations, &json!({}), &json!({ "nvidia.com/gpumem": "1" })));
        let both = json!({ "hami.io/node-handshake": "Deleted_2026.11.20 10:00:00", "divvy.dev/generation": "1" });
        add(objects, bare("node-4", &both, &json!({}), &json!({ "nvidia.com/gpucores": "1" })));
        agents(objects)[0].nodes.insert("node-4".to_owned());
    });
    insta::assert_snapshot!(said);
}

#[test]
fn leftovers_on_many_nodes_are_one_line() {
    let said = wrong(|objects| {
        for node in 0..5000 {
            add(objects, marked(of_hami(), &format!("other-{node:04}")));
            add(objects, left(&format!("node-{node:04}")));
        }
    });
    assert!(said.contains("5000 nodes (other-0000, other-0001, other-0002 and 4997 more)"), "{said}");
    assert!(said.contains("5000 nodes (node-0000, node-0001, node-0002 and 4997 more)"), "{said}");
    assert_eq!(said.lines().count(), 4, "{said}");
}

#[test]
fn unrelated_keys_on_nodes_are_no_finding() {
    // Beginnings and neighbours of what is looked for.
    let near = [
        "hami.io/node-handshake-Ascend910B",
        "hami.io/mutex.lock",
        "volcano.sh/queue",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.replicas",
        "nvidia.com/mig.capable",
        "nvidia.com/gpumem-256mi",
        "aliyun.com/cpu",
        "tencent.com/vcuda",
        "nano-gpu",
        "divvy.dev/hide-gpus",
        "gpu",
    ];
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..200 {
        let mut keys = |values: &[&str]| -> Value {
            let mut map = json!({});
            for _ in 0..random.random_range(0..8) {
                let value = values[random.random_range(0..values.len())];
                let key = match random.random_range(0..2) {
                    0 => near[random.random_range(0..near.len())].to_owned(),
                    _ => format!("example.com/{}", random.random_range(0..1000)),
                };
                map[key] = value.into();
            }
            map
        };
        let node = bare("node-3", &keys(&["", "true"]), &keys(&["on", "true", "false"]), &keys(&["0", "7"]));
        let said = wrong(|objects| {
            add(objects, node.clone());
            agents(objects)[0].nodes.insert("node-3".to_owned());
        });
        assert_eq!(said, "", "{node:?}");
    }
}

#[test]
fn aggregated_api_is_named_while_nobody_answers() {
    let name = "apiservices/v1alpha1.metrics.nvidia.com";
    let said = |unavailable: Option<&str>| {
        let object = ForeignObject {
            unavailable: unavailable.map(str::to_owned),
            ..object(AGGREGATED, name, Some(true), false)
        };
        wrong(|objects| objects.foreign = Ok(vec![object]))
    };
    assert_eq!(said(None), "");
    let dead = said(Some("MissingEndpoints: endpoints for service/divvy-webhook have no addresses"));
    assert!(
        dead.contains("isn't available (MissingEndpoints: ") && dead.contains("kubectl delete apiservices v1alpha1"),
        "{dead}"
    );
    assert!(!dead.contains("nvidia-gpu-scheduler"), "{dead}");
}
