use std::collections::BTreeSet;
use std::sync::LazyLock;

use divvy_api::ResourceNames;
use divvy_api::config::{ClusterConfig, Scheduling};
use divvy_api::gpunode::{GpuNode, GpuNodeReport};
use divvy_api::names::label::HIDE_GPUS;
use divvy_systems::{Dialect, match_conditions};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::{CustomResourceExt as _, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::objects::{Agent, Configuration, Replica};
use super::*;
use crate::admin::limits::Limit;
use crate::cluster::Refusal;

/// A certificate that is valid in 2026, in PEM; another one with each call.
fn certificate() -> String {
    let mut params = rcgen::CertificateParams::new(["divvy-webhook".to_owned()]).expect("a name");
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2026, 1, 1), rcgen::date_time_ymd(2027, 1, 1));
    params.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a certificate").pem()
}

/// The authority of the installation.
static CA: LazyLock<String> = LazyLock::new(certificate);

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object of this kind")
}

fn configuration(names: &[(&str, &str)]) -> Configuration {
    let client = json!({ "caBundle": ByteString(CA.as_bytes().to_vec()) });
    let webhook =
        |(name, policy): &(&str, &str)| json!({ "name": name, "failurePolicy": policy, "clientConfig": client });
    read(json!({ "webhooks": names.iter().map(webhook).collect::<Vec<_>>() }))
}

fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": "2026-11-21T11:00:00Z",
    })
}

/// A `GpuNode` with one card of 24Gi.
fn gpu_node(name: &str) -> GpuNodeReport {
    gpu_node_with(name, |_| {})
}

/// The same with some of its status changed.
fn gpu_node_with(name: &str, change: impl FnOnce(&mut Value)) -> GpuNodeReport {
    let card = json!({ "uuid": format!("GPU-{name}"), "model": "NVIDIA L4", "memoryMi": 24576, "health": "Healthy" });
    let mut status = json!({
        "cards": [card], "shares": [], "tier": "accounting", "conditions": [condition("Ready", "True", "m")],
    });
    change(&mut status);
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    GpuNodeReport::read(metadata, &json!({ "spec": {}, "status": status }))
}

fn node(name: &str) -> Value {
    let amounts = json!({ "nvidia.com/gpu": "32", "nvidia.com/gpumem": "24576" });
    json!({
        "metadata": { "name": name, "labels": { "nvidia.com/gpu.present": "true" } },
        "status": { "capacity": amounts, "allocatable": amounts },
    })
}

fn slice(endpoints: &Value) -> Vec<EndpointSlice> {
    vec![read(json!({ "addressType": "IPv4", "endpoints": endpoints }))]
}

/// A DaemonSet with a pod on each of its nodes.
fn agent(namespace: &str, name: &str, nodes: &[&str]) -> Agent {
    let nodes: BTreeSet<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
    Agent { namespace: namespace.to_owned(), name: name.to_owned(), wanted: nodes.len(), nodes, is_operators: false }
}

/// An installation with nothing wrong.
fn sound() -> Objects {
    let named = |name: &str| json!({ "metadata": { "name": name } });
    let bound = |name: &str| json!({ "metadata": { "name": name }, "spec": { "policyName": name } });
    let policies = [
        "divvy-gpunodes",
        "divvy-node-nodes",
        "divvy-node-pods",
        "divvy-pod-annotations",
        "divvy-pod-templates",
        "divvy-webhook-evictions",
        "divvy-webhook-nodes",
        "divvy-webhook-pods",
    ];
    let replica = |pod: &str, calls: f64| Replica { pod: pod.to_owned(), readyz: Ok(()), calls: Some(calls) };
    Objects {
        now: "2026-11-21T12:00:00Z".parse().expect("a time"),
        namespace: "divvy-system".to_owned(),
        definition: Ok(Some(GpuNode::crd())),
        home: Ok(Some(read(named("divvy-system")))),
        config: Ok(Ok(ClusterConfig { scheduling: Scheduling::Extender, ..ClusterConfig::default() })),
        daemons: Ok(Some(read(json!({ "status": {
            "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
        } })))),
        nodes: Ok(vec![read(node("node-1")), read(node("node-2"))]),
        gpu_nodes: Ok(vec![gpu_node("node-1"), gpu_node("node-2")]),
        policies: Ok(policies.map(|name| read(named(name))).to_vec()),
        bindings: Ok(policies.map(|name| read(bound(name))).to_vec()),
        deployment: Ok(Some(read(json!({
            "spec": { "replicas": 2, "selector": {}, "template": {} }, "status": { "readyReplicas": 2 },
        })))),
        service: Ok(Some(read(named("divvy-webhook")))),
        endpoints: Ok(slice(&json!([
            { "addresses": ["10.0.0.1"] },
            { "addresses": ["10.0.0.2"], "conditions": { "ready": true } },
        ]))),
        extender: Ok(Some(read(named("divvy-extender")))),
        extender_endpoints: Ok(slice(&json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }]))),
        mutating: Ok(Some(configuration(&[
            ("mutate.divvy.dev", "Fail"),
            ("hide.divvy.dev", "Fail"),
            ("jobs.divvy.dev", "Fail"),
        ]))),
        validating: Ok(Some(configuration(&[("validate.divvy.dev", "Fail"), ("templates.divvy.dev", "Ignore")]))),
        webhook_config: Ok(Some(read(json!({ "data": { "divvy-webhook.yaml": "version: v1\n" } })))),
        secret: Ok(Some(read(json!({ "data": { "ca.crt": ByteString(CA.as_bytes().to_vec()) } })))),
        lease: Ok(Some(read(json!({ "spec": {
            "holderIdentity": "divvy-webhook-a", "renewTime": "2026-11-21T11:59:58.000000Z",
        } })))),
        replicas: Ok(vec![replica("divvy-webhook-a", 7.0), replica("divvy-webhook-b", 0.0)]),
        agents: Ok(vec![agent("divvy-system", "divvy-node", &["node-1", "node-2"])]),
        foreign: Ok(Vec::new()),
        hiding: Ok(vec![labelled("team-a", "true"), labelled("team-b", "true")]),
        needed_first: Ok(Vec::new()),
        limits: Ok(Vec::new()),
        pending: Ok(Vec::new()),
        running: Ok(Vec::new()),
    }
}

/// A namespace with this value of the label.
fn labelled(name: &str, value: &str) -> Namespace {
    read(json!({ "metadata": { "name": name, "labels": { HIDE_GPUS: value } } }))
}

/// What isn't ok once some of the installation is changed.
fn wrong(change: impl FnOnce(&mut Objects)) -> String {
    let mut objects = sound();
    change(&mut objects);
    let findings = all(&objects).into_iter();
    let findings = findings.filter(|it| it.verdict.state != State::Ok && it.link != "container toolkit");
    let line = |Finding { link, verdict: Verdict { state, found, remedy } }: Finding| {
        let remedy = remedy.map(|remedy| format!("\n  do: {remedy}")).unwrap_or_default();
        format!("{state}: {link}: {found}{remedy}\n")
    };
    findings.map(line).collect()
}

/// A node's status is changed.
fn status(objects: &mut Objects, node: usize, change: impl FnOnce(&mut Value)) {
    let gpu_node = &mut objects.gpu_nodes.as_mut().expect("GpuNodes")[node];
    *gpu_node = gpu_node_with(&gpu_node.name_any(), change);
}

#[test]
fn sound_installation_has_no_remedies() {
    assert_eq!(wrong(|_| {}), "");
    insta::assert_snapshot!("sound", DoctorReport { version: "v1", checks: all(&sound()) });
    insta::assert_json_snapshot!("json", DoctorReport { version: "v1", checks: all(&sound())[..2].to_vec() });
}

fn uninstall_webhook(objects: &mut Objects) {
    (objects.deployment, objects.service) = (Ok(None), Ok(None));
    (objects.mutating, objects.validating) = (Ok(None), Ok(None));
}

#[test]
fn missing_webhook_is_reported_once() {
    let bare = wrong(|objects| {
        uninstall_webhook(objects);
        objects.hiding = Ok(Vec::new());
    });
    assert_eq!(bare, "");
    let forbidden = || Refusal::Forbidden("no".to_owned());
    let unseen = wrong(|objects| {
        (objects.deployment, objects.service) = (Err(forbidden()), Err(forbidden()));
        (objects.mutating, objects.validating) = (Err(forbidden()), Err(forbidden()));
        objects.hiding = Ok(Vec::new());
    });
    assert_eq!(unseen, "not checked: webhook: missing permission: no\n");
}

#[test]
fn every_cluster_check_can_fail() {
    let breaks = [
        wrong(|objects| objects.definition = Ok(None)),
        wrong(|objects| {
            let definition = objects.definition.as_mut().expect("one").as_mut().expect("one");
            definition.spec.versions[0].name = "v1".to_owned();
        }),
        wrong(|objects| {
            let definition = objects.definition.as_mut().expect("one").as_mut().expect("one");
            let schema = &mut definition.spec.versions[0].schema.as_mut().expect("one").open_api_v3_schema;
            schema.as_mut().expect("one").required = None;
        }),
        wrong(|objects| objects.home = Ok(None)),
        wrong(|objects| objects.daemons = Ok(None)),
        wrong(|objects| objects.daemons.as_mut().expect("one").as_mut().expect("one").status = None),
        wrong(|objects| {
            let daemons = objects.daemons.as_mut().expect("one").as_mut().expect("one");
            daemons.status.as_mut().expect("one").number_ready = 1;
        }),
        wrong(|objects| drop(objects.bindings.as_mut().expect("some").pop())),
        wrong(|objects| objects.config = Ok(Err("unknown field `memoryUnits`".to_owned()))),
        wrong(|objects| objects.policies = Err(Refusal::Forbidden("User \"x\" cannot list policies".to_owned()))),
    ];
    insta::assert_snapshot!(breaks.join("\n"));
}

#[test]
fn enforcement_is_shown_for_nodes_and_whole_instances() {
    let mut objects = sound();
    let share = |pod: &str, exclusive: bool| {
        json!({
            "podUid": pod, "namespace": "ns", "pod": pod, "container": "main", "card": "MIG-a", "memoryMi": 1024,
            "cores": 100, "exclusive": exclusive,
        })
    };
    status(&mut objects, 0, |status| {
        status["shares"] = json!([share("a", true), share("b", false)]);
        status["cards"][0]["tier"] = "shim".into();
    });
    status(&mut objects, 1, |status| status["tier"] = "mig".into());
    let found =
        all(&objects).into_iter().find(|finding| finding.link == "enforcement").expect("it is said").verdict.found;
    assert_eq!(
        found,
        "accounting on 1 node: shares are counted, and nothing is enforced; mig on 1 node: hardware; shim for 1 GPU of \
         nodes with a weaker one: a library in the container, which a process can get round; mig for 1 whole instance, on \
         whatever node: hardware"
    );
}

#[test]
fn nodes_with_problems_are_named() {
    let breaks = [
        wrong(|objects| objects.gpu_nodes.as_mut().expect("some").truncate(1)),
        wrong(|objects| objects.nodes.as_mut().expect("some").truncate(1)),
        wrong(|objects| {
            let unregistered = condition("Ready", "False", "the kubelet has not registered it");
            status(objects, 0, |status| status["conditions"][0] = unregistered);
        }),
        wrong(|objects| {
            let mut rival = condition("Ready", "False", "nvidia.com/gpu is served by /usr/bin/other");
            rival["reason"] = "AnotherPlugin".into();
            status(objects, 0, |status| status["conditions"][0] = rival);
        }),
        wrong(|objects| {
            let draining = condition("Draining", "True", "the daemon is about to stop");
            status(objects, 0, |status| status["conditions"].as_array_mut().expect("a list").push(draining));
        }),
        wrong(|objects| {
            status(objects, 1, |status| {
                let card = &mut status["cards"][0];
                (card["health"], card["reason"]) = ("Unhealthy".into(), "XID 79".into());
            });
        }),
        wrong(|objects| {
            status(objects, 1, |status| status["cards"][0]["computeMode"] = "Exclusive_Process".into());
        }),
        wrong(|objects| {
            let mut cordoned = node("node-1");
            cordoned["spec"] = json!({ "unschedulable": true });
            objects.nodes.as_mut().expect("some")[0] = read(cordoned);
        }),
        wrong(|objects| {
            let mut stale = node("node-2");
            stale["status"]["capacity"]["nvidia.com/gpumem"] = "12k".into();
            objects.nodes.as_mut().expect("some")[1] = read(stale);
        }),
        wrong(|objects| {
            let mut bare = node("node-2");
            bare["status"]["capacity"] = json!({ "nvidia.com/gpu": "32" });
            objects.nodes.as_mut().expect("some")[1] = read(bare);
        }),
        wrong(|objects| (objects.gpu_nodes, objects.nodes) = (Ok(Vec::new()), Ok(Vec::new()))),
        wrong(|objects| objects.nodes = Err(Refusal::Forbidden("User \"x\" cannot list nodes".to_owned()))),
    ];
    insta::assert_snapshot!(breaks.join("\n"));
}

#[test]
fn resources_are_those_of_the_installation() {
    let renamed = |objects: &mut Objects| {
        let memory = "example.com/gpu-memory".parse().expect("a name");
        objects.config = Ok(Ok(ClusterConfig { resource_memory: memory, ..ClusterConfig::default() }));
    };
    let offered = wrong(|objects| {
        renamed(objects);
        for node in objects.nodes.iter_mut().flatten() {
            *node = read(json!({
                "metadata": { "name": node.name_any() },
                "status": { "capacity": { "nvidia.com/gpu": "32", "example.com/gpu-memory": "24576" } },
            }));
        }
    });
    assert_eq!(offered, "");
    assert!(wrong(renamed).contains("its Node offers no example.com/gpu-memory"));
}

#[test]
fn amount_of_an_oversubscribing_node_includes_host_memory() {
    let offers = |mib: u64| {
        wrong(|objects| {
            status(objects, 1, |status| {
                status["oversubscription"] = json!({ "memoryScale": 150, "hostMemoryMi": 8192 });
                status["shares"] = json!([{
                    "podUid": "u", "namespace": "ns", "pod": "p", "container": "c", "kind": "app", "card": "GPU-node-2",
                    "memoryMi": 12288, "hostMemoryMi": 4096, "cores": 0,
                }]);
            });
            let mut node = node("node-2");
            node["status"]["capacity"]["nvidia.com/gpumem"] = mib.to_string().into();
            objects.nodes.as_mut().expect("some")[1] = read(node);
        })
    };
    // 12 GiB are held, 16 of the GPU and 4 of the host are left.
    assert_eq!(offers(32 << 10), "");
    assert!(offers((32 << 10) + 1).contains("by its GpuNode that should be 16384 to 32768"));
}

#[test]
fn every_webhook_check_can_fail() {
    let bundle = |pem: &str| ByteString(pem.as_bytes().to_vec());
    let with = |pem: &str| {
        let bundle = bundle(pem);
        wrong(|objects| {
            let webhooks = &mut objects.mutating.as_mut().expect("one").as_mut().expect("one").webhooks;
            webhooks[0].client_config.ca_bundle = Some(bundle);
        })
    };
    let breaks = [
        wrong(|objects| objects.deployment = Ok(None)),
        wrong(|objects| {
            let deployment = objects.deployment.as_mut().expect("one").as_mut().expect("one");
            deployment.status = None;
        }),
        wrong(|objects| objects.service = Ok(None)),
        wrong(|objects| objects.endpoints = Ok(Vec::new())),
        wrong(|objects| objects.extender = Ok(None)),
        wrong(|objects| objects.extender_endpoints = Ok(Vec::new())),
        wrong(|objects| {
            let not_ready = json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": false } }]);
            objects.extender_endpoints = Ok(slice(&not_ready));
        }),
        wrong(|objects| objects.extender_endpoints = Err(Refusal::Forbidden("User \"x\" cannot list".to_owned()))),
        wrong(|objects| objects.mutating = Ok(None)),
        wrong(|objects| objects.validating = Ok(Some(configuration(&[("validate.divvy.dev", "Fail")])))),
        wrong(|objects| {
            objects.mutating = Ok(Some(configuration(&[
                ("mutate.divvy.dev", "Ignore"),
                ("hide.divvy.dev", "Fail"),
                ("jobs.divvy.dev", "Fail"),
            ])));
        }),
        with(""),
        with("rubbish"),
        with(&certificate()),
        wrong(|objects| objects.now = "2028-01-01T00:00:00Z".parse().expect("a time")),
        wrong(|objects| {
            objects.replicas.as_mut().expect("two")[1].readyz = Err("nodes: not synced\npods: not synced\n".to_owned());
        }),
        wrong(|objects| objects.replicas = Err(Refusal::Forbidden("User \"x\" cannot get pods/proxy".to_owned()))),
        wrong(|objects| objects.lease = Ok(None)),
        wrong(|objects| objects.now = "2026-11-21T13:00:00Z".parse().expect("a time")),
        wrong(|objects| objects.replicas.as_mut().expect("two")[0].calls = Some(0.0)),
    ];
    insta::assert_snapshot!(breaks.join("\n"));
    let both = with(&format!("{}{}", certificate(), *CA));
    assert_eq!(both, "", "while authorities change, both are believed");
}

#[test]
fn label_that_hides_no_gpus_is_reported() {
    let old = || configuration(&[("mutate.divvy.dev", "Fail")]);
    let forbidden = || Refusal::Forbidden("User \"x\" cannot list".to_owned());
    let breaks = [
        wrong(|objects| objects.mutating = Ok(Some(old()))),
        wrong(|objects| {
            uninstall_webhook(objects);
        }),
        wrong(|objects| objects.hiding.as_mut().expect("two").push(labelled("team-c", "yes"))),
        wrong(|objects| objects.hiding = Err(forbidden())),
    ];
    insta::assert_snapshot!(breaks.join("\n"));
}

#[test]
fn label_that_may_keep_the_cluster_from_starting_is_reported() {
    let breaks = [
        wrong(|objects| objects.hiding.as_mut().expect("two").push(labelled("kube-system", "true"))),
        wrong(|objects| objects.needed_first = Ok(vec!["team-b".to_owned()])),
        wrong(|objects| objects.needed_first = Err(Refusal::Forbidden("User \"x\" cannot list".to_owned()))),
    ];
    insta::assert_snapshot!(breaks.join("\n"));
}

#[test]
fn planned_pod_proves_that_the_extender_is_called() {
    let planned = json!({ "metadata": { "annotations": { "divvy.dev/planned": "{}" } } });
    let said = wrong(|objects| {
        objects.replicas.as_mut().expect("two").iter_mut().for_each(|replica| replica.calls = None);
        objects.running = Ok(vec![read(planned)]);
    });
    assert_eq!(said, "");
}

#[test]
fn extender_is_checked_only_where_the_scheduler_calls_it() {
    let without = |scheduling: Scheduling| {
        wrong(|objects| {
            objects.config = Ok(Ok(ClusterConfig { scheduling, ..ClusterConfig::default() }));
            objects.extender = Ok(None);
            objects.replicas.as_mut().expect("two").iter_mut().for_each(|replica| replica.calls = None);
        })
    };
    assert_eq!(without(Scheduling::Gates), "");
    let expected = "warning: scheduler: scheduling is node: nodes are chosen without regard to their GPUs\n  \
        do: set scheduling: gates in cluster-config.yaml\n";
    assert_eq!(without(Scheduling::Node), expected);
}

#[test]
fn pods_waiting_for_gpus_are_counted() {
    let pod = |name: &str, limits: Value| {
        let container = json!({ "name": "main", "resources": { "limits": limits } });
        read(json!({ "metadata": { "namespace": "a", "name": name }, "spec": { "containers": [container] } }))
    };
    let said = wrong(|objects| {
        let one = json!({ "nvidia.com/gpu": "1" });
        let pods = ["p", "q", "r", "s"].map(|name| pod(name, one.clone()));
        objects.pending = Ok(pods.into_iter().chain([pod("other", json!({ "cpu": "1" }))]).collect());
    });
    let expected = "warning: waiting pods: 4 pods wait for GPUs: a/p, a/q, a/r and 1 more\n  \
        do: kubectl divvy explain -n a p says why\n";
    assert_eq!(said, expected);
}

#[test]
fn old_api_server_is_refused() {
    let server = |major: &str, minor: &str| {
        let git_version = format!("v{major}.{minor}.0");
        let check =
            cluster::api_server(&Info { git_version, major: major.into(), minor: minor.into(), ..Info::default() });
        (check.state, check.found)
    };
    assert_eq!(server("1", "33"), (State::Ok, "Kubernetes v1.33.0".to_owned()));
    assert_eq!(server("1", "36+").0, State::Ok);
    assert_eq!(server("1", "32"), (State::Failed, "Kubernetes v1.32.0; Divvy needs 1.33".to_owned()));
    assert_eq!(server("", "").0, State::Failed);
}

#[test]
fn counters_are_summed_over_their_labels() {
    let metrics = "# TYPE divvy_extender_calls counter\ndivvy_extender_calls_total{verb=\"filter\"} 3\n\
        divvy_extender_calls_total{verb=\"bind\"} 2.0\ndivvy_extender_calls_total_other 9\nx 1\n";
    assert!((objects::sum(metrics, "divvy_extender_calls_total") - 5.0).abs() < 1e-9);
    assert!(objects::sum("", "x").abs() < 1e-9);
}

#[test]
fn soft_taints_without_a_webhook_are_left_over() {
    let said = |tainted: bool, installed: bool| {
        let mut objects = sound();
        if tainted {
            let mut node = node("node-1");
            node["spec"] = json!({ "taints": [{ "key": "divvy.dev/cpu-for-gpus", "effect": "PreferNoSchedule" }] });
            objects.nodes = Ok(vec![read(node)]);
        }
        if !installed {
            uninstall_webhook(&mut objects);
        }
        webhook::soft_taints(&objects)
    };
    assert_eq!(said(false, false), None);
    let states = [(false, true), (true, true), (true, false)].map(|(tainted, installed)| {
        let check = said(tainted, installed).expect("something to say");
        format!("{}: {}; {}", check.state, check.found, check.remedy.unwrap_or_default())
    });
    insta::assert_snapshot!(states.join("\n"));
}

mod leftovers;

#[test]
fn dialects_are_compared_with_the_match_conditions() {
    let with = |dialects: &str, expression: &str, quota: Value| {
        wrong(|objects| {
            let text = format!("version: v1\ndialects: {dialects}\n");
            objects.webhook_config = Ok(Some(read(json!({ "data": { "divvy-webhook.yaml": text } }))));
            let mutating = objects.mutating.as_mut().expect("one").as_mut().expect("one");
            let condition = json!({ "name": "requests-gpus", "expression": expression });
            mutating.webhooks[0].match_conditions = vec![read(condition)];
            objects.limits = Ok(Limit::read("ResourceQuota", &quota).into_iter().collect());
        })
    };
    let names = "name in ['nvidia.com/gpucores', 'aliyun.com/gpu-mem', 'aliyun.com/gpu-core.percentage']";
    assert_eq!(with("[gpushare]", names, json!({})), "");
    let quota = json!({
        "metadata": { "name": "gpus", "namespace": "ml" }, "spec": { "hard": { "requests.aliyun.com/gpu-mem": "20", "pods": "4" } },
    });
    let breaks = [
        with("[gpushare]", "name in ['nvidia.com/gpucores']", json!({})),
        with("[gpushare, kai]", names, json!({})),
        with("[kai]", "key in ['gpu-fraction', 'gpu-memory'] || key.startsWith('nvidia.com/container.')", json!({})),
        with("[gpushare]", names, quota.clone()),
        with("[slurm]", names, json!({})),
        with("[kai, kai]", names, json!({})),
    ];
    insta::assert_snapshot!(breaks.join("\n"));
    assert_eq!(with("[]", "", quota), "", "nothing is translated");
    let kai = serde_saphyr::from_str::<Vec<Dialect>>("[kai]").expect("a name");
    let conditions = match_conditions("mutate.divvy.dev", &ResourceNames::default(), &kai).expect("one webhook");
    assert_eq!(with("[kai]", &conditions[0].expression, json!({})), "");
    let in_vain = json!({
        "metadata": { "name": "gpus", "namespace": "ml" },
        "spec": { "hard": { "limits.nvidia.com/gpumem": "20000", "limits.memory": "4Gi" } },
    });
    let hami = "name in ['nvidia.com/gpucores', 'nvidia.com/priority']";
    insta::assert_snapshot!("quota_of_hami", with("[hami]", hami, in_vain.clone()));
    assert_eq!(with("[gpushare]", names, in_vain), "");
    let off = with("[]", names, json!({}));
    assert!(off.contains("mutate.divvy.dev name aliyun.com/gpu-mem, and gpushare is off: "), "{off}");
    assert!(with("[hami]", &format!("{hami} || {names}"), json!({})).contains("gpushare is off"));
}

#[test]
fn quotas_are_written_anew_in_the_names_of_the_installation() {
    let said = wrong(|objects| {
        let text = "version: v1\ndialects: [gpushare, hami]\n";
        objects.webhook_config = Ok(Some(read(json!({ "data": { "divvy-webhook.yaml": text } }))));
        let cores = "example.com/cores".parse().expect("a name");
        objects.config = Ok(Ok(ClusterConfig { resource_cores: cores, ..ClusterConfig::default() }));
        let hard = json!({ "requests.aliyun.com/gpu-mem": "20", "limits.nvidia.com/gpumem": "1" });
        let quota = json!({ "metadata": { "name": "gpus", "namespace": "ml" }, "spec": { "hard": hard } });
        objects.limits = Ok(Limit::read("ResourceQuota", &quota).into_iter().collect());
    });
    let four = "requests of nvidia.com/gpu, nvidia.com/gpumem, nvidia.com/gpumem-percentage and example.com/cores";
    assert_eq!(said.matches(four).count(), 2, "{said}");
}

#[test]
fn unit_of_gpushare_is_compared_with_its_nodes() {
    let said = |unit: &str| {
        wrong(|objects| {
            let text = format!("version: v1\ndialects: [{{name: gpushare, unit: {unit}}}]\n");
            objects.webhook_config = Ok(Some(read(json!({ "data": { "divvy-webhook.yaml": text } }))));
            let amounts = json!({ "aliyun.com/gpu-mem": "15109", "aliyun.com/gpu-count": "1" });
            let node = json!({ "metadata": { "name": "old" }, "status": { "capacity": amounts } });
            objects.nodes.as_mut().expect("nodes").push(read(node));
        })
    };
    let warning = "warning: unit of gpushare: a unit of aliyun.com/gpu-mem is 1Mi on old (15109 on a GPU), and 1Gi in the \
                   dialect gpushare\n  do: set unit: Mi of gpushare in dialects of the webhook's configuration\n";
    assert!(said("Gi").contains(warning), "{}", said("Gi"));
    assert!(!said("Mi").contains("unit of gpushare"), "{}", said("Mi"));
}
