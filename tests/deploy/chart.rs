//! The chart, rendered by Helm: the objects of the manifests, and what values make of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use divvy_api::{Memory, ResourceNames};
use divvy_systems::Dialect;
use fake_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{objects, scheduler, webhooks};

const CHART: &str = "deploy/helm/divvy";

/// Helm, if there is one: `HELM`, or the first in `PATH`.
pub(crate) fn helm() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || std::env::split_paths(&paths).map(|place| place.join("helm")).find(|program| program.is_file());
    let found = std::env::var_os("HELM").map(PathBuf::from).or_else(in_path);
    if found.is_none() {
        scheduler::skipped("no helm: HELM names it, or PATH has it");
    }
    found
}

/// What a release of this name in this namespace would apply, or why there is none.
fn try_render(helm: &PathBuf, namespace: &str, values: &Value) -> Result<Vec<Value>, String> {
    try_render_with(helm, namespace, values, &[])
}

fn try_render_with(helm: &PathBuf, namespace: &str, values: &Value, flags: &[&str]) -> Result<Vec<Value>, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), values.to_string()).unwrap();
    let mut command = Command::new(helm);
    command.args(["template", "divvy"]).arg(objects::at(CHART)).args([
        "--kube-version=1.36.3",
        "--namespace",
        namespace,
    ]);
    let ended = command.arg("--values").arg(file.path()).args(flags).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if ended.status.success() { Ok(objects::parse(&text(ended.stdout))) } else { Err(text(ended.stderr)) }
}

pub(crate) fn render(helm: &PathBuf, namespace: &str, values: &Value) -> Vec<Value> {
    try_render(helm, namespace, values).unwrap_or_else(|why| panic!("{why}"))
}

/// By name, and comparable: without what is the chart's alone, and with files in ConfigMaps as what they say.
fn comparable(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let compare = |mut object: Value| {
        if let Some(annotations) = object["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !key.starts_with("helm.sh/"));
        }
        if object["metadata"].get("annotations") == Some(&json!({})) {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        if let Some(template) = object.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut) {
            template.remove("annotations");
        }
        for file in object.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(|data| data.values_mut())
        {
            *file = objects::parse(file.as_str().unwrap()).remove(0);
        }
        (objects::called(&object), plain(object))
    };
    objects.into_iter().map(compare).collect()
}

/// Helm writes 0.0 as 0.
fn plain(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(values) => values.into_iter().map(plain).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(field, value)| (field, plain(value))).collect())
        }
        other => other,
    }
}

#[test]
fn the_chart_yields_the_objects_of_the_manifests() {
    let Some(helm) = helm() else { return };
    let apart = ["deploy/scheduler/divvy-scheduler.yaml", "deploy/mps/divvy-mps.yaml"];
    let mut wanted = apart.map(objects::read).concat();
    wanted.extend(["deploy/manifests", "deploy/uninstall", "deploy/aggregated-api"].map(objects::all).concat());
    let config = wanted.iter_mut().find(|object| objects::called(object) == "ConfigMap divvy-system/divvy-webhook");
    config.unwrap()["data"]["divvy-webhook.yaml"] = json!("version: v1\naggregatedApi: \"on\"\n");
    // Helm makes the namespace, before it has a release to put anything into.
    wanted.retain(|object| object["kind"] != "Namespace");
    let second = objects::find(&wanted, "Deployment divvy-system/divvy-scheduler");
    let image = &second["spec"]["template"]["spec"]["containers"][0]["image"];
    let enabled = json!({ "enabled": true });
    let uninstall = json!({ "renderOffline": true });
    let values = json!({
        "scheduler": { "enabled": true, "image": image }, "mps": enabled, "uninstall": uninstall,
        "webhook": { "aggregatedApi": "on" },
    });
    let (rendered, wanted) = (comparable(render(&helm, "divvy-system", &values)), comparable(wanted));
    assert_eq!(rendered.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (name, object) in wanted {
        assert_eq!(rendered[&name], object, "{name}");
    }
}

#[test]
fn match_conditions_follow_the_dialects() {
    let Some(helm) = helm() else { return };
    for name in divvy_systems::ALL.map(|system| system.name) {
        let settings = if name == "time-slicing" {
            json!({ "name": name, "replicas": 4, "resource": "example.com/gpu.shared" })
        } else {
            json!(name)
        };
        let dialects = json!([settings]);
        let values = json!({ "webhook": { "dialects": dialects }, "cluster": { "resourceCount": "example.com/gpu" } });
        let webhooks = webhooks::webhooks(&render(&helm, "divvy-system", &values));
        let names = ResourceNames { count: "example.com/gpu".parse().unwrap(), ..ResourceNames::default() };
        webhooks::assert_conditions(&webhooks, &names, &serde_json::from_value::<Vec<_>>(dialects).unwrap());
    }
    // Every setting has a row, and every value that it may have by default is one there.
    let defaults =
        Dialect::defaults().chain(serde_json::from_value(json!({ "name": "time-slicing", "replicas": 100 })));
    let spelled_out = json!(defaults.collect::<Vec<_>>());
    render(&helm, "divvy-system", &json!({ "webhook": { "dialects": spelled_out } }));
    let several =
        json!(["hami", "kai", { "name": "gpushare", "unit": "Mi" }, { "name": "time-slicing", "replicas": 2 }]);
    let values = json!({ "webhook": { "dialects": ["hami"] }, "cluster": { "advertise": "devices" } });
    let webhooks = webhooks::webhooks(&render(&helm, "divvy-system", &values));
    let in_devices = ResourceNames::default().in_units(Memory::mib(256)).unwrap();
    webhooks::assert_conditions(&webhooks, &in_devices, &serde_json::from_value::<Vec<_>>(json!(["hami"])).unwrap());
    let objects = render(&helm, "divvy-system", &json!({ "webhook": { "dialects": several } }));
    let dialects: Vec<Dialect> = serde_json::from_value(several).unwrap();
    webhooks::assert_conditions(&webhooks::webhooks(&objects), &ResourceNames::default(), &dialects);
    let config = objects::find(&objects, "ConfigMap divvy-system/divvy-webhook")["data"]["divvy-webhook.yaml"].as_str();
    let written = &objects::parse(config.unwrap())[0]["dialects"];
    assert_eq!(serde_json::from_value::<Vec<Dialect>>(written.clone()).unwrap(), dialects);
    for wrong in [
        json!(["slurm"]),
        json!([{ "unit": "Gi" }]),
        json!([{ "name": "hami", "countAlon": "whole" }]),
        json!([{ "name": "hami", "unit": "Gi" }]),
        json!([{ "name": "gpushare", "unit": "Ki" }]),
        json!([{ "name": "volcano", "memoryFactor": 0 }]),
        json!([{ "name": "time-slicing", "replicas": 101 }]),
    ] {
        let refused = try_render(&helm, "divvy-system", &json!({ "webhook": { "dialects": wrong } }));
        assert!(refused.is_err(), "{wrong}");
    }
}

#[test]
fn names_are_the_same_everywhere() {
    let Some(helm) = helm() else { return };
    let values = json!({
        "cluster": {
            "resourceCount": "example.com/card", "resourceMemory": "example.com/memory", "resourceCores": "example.com/cores",
            "advertise": "devices", "memoryUnit": 512,
        },
        "scheduler": { "enabled": true, "image": "kube-scheduler:v1" },
        "mps": { "enabled": true },
        "webhook": { "aggregatedApi": "legacy-watch" },
        "extraLabels": { "team": "ml" },
    });
    let objects = render(&helm, "gpus", &values);
    let name = |text: &str| text.parse().unwrap();
    let names = ResourceNames {
        count: name("example.com/card"),
        memory: name("example.com/memory-512mi"),
        cores: name("example.com/cores"),
        ..ResourceNames::default()
    };
    webhooks::assert_conditions(&webhooks::webhooks(&objects), &names, &[]);
    for object in &objects {
        assert!(!object.to_string().contains("divvy-system"), "{}", objects::called(object));
        assert_eq!(object["metadata"]["labels"]["team"], "ml", "{}", objects::called(object));
    }
    let policy = objects::find(&objects, "ValidatingAdmissionPolicy /divvy-node-nodes");
    let amounts = policy["spec"]["variables"].as_array().unwrap().iter().find(|variable| variable["name"] == "amounts");
    // Amounts in the Node's status keep their names: they are what is patched if units aren't devices.
    let wanted = "['example.com/memory', 'nvidia.com/gpumem-percentage', 'example.com/cores']";
    assert_eq!(amounts.unwrap()["expression"], wanted);
    let config = objects::find(&objects, "ConfigMap gpus/divvy-scheduler")["data"]["scheduler.yaml"].as_str().unwrap();
    let asked = &objects::parse(config)[0]["extenders"][0]["managedResources"];
    let asked: Vec<_> = asked.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(
        asked,
        ["example.com/card", "example.com/memory-512mi", "nvidia.com/gpumem-percentage", "example.com/cores"]
    );
}

#[test]
fn uninstallation_is_a_hook_of_the_daemons_image_and_paths() {
    let Some(helm) = helm() else { return };
    let values = json!({
        "images": { "node": "here/divvy-node:2" },
        "node": { "runDir": "/run/gpus", "stateDir": "/srv/gpus" },
        "daemonset": { "nodeSelector": { "pool": "gpu" } },
        "uninstall": { "renderOffline": true },
    });
    let objects = render(&helm, "gpus", &values);
    let hooks: Vec<&Value> =
        objects.iter().filter(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete").collect();
    assert_eq!(hooks.len(), objects::all("deploy/uninstall").len());
    let weight = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook-weight"].as_str().unwrap().to_owned();
    let job = objects::find(&objects, "Job gpus/divvy-uninstall");
    assert!(hooks.iter().all(|hook| weight(hook) < weight(job) || hook["kind"] == "Job"), "the Job needs the others");
    let set = objects::find(&objects, "DaemonSet gpus/divvy-uninstall");
    for workload in [job, set] {
        let spec = workload["spec"]["template"]["spec"].to_string();
        assert!(spec.contains("here/divvy-node:2") && !spec.contains("\"divvy-node:0"), "{spec}");
    }
    let spec = &set["spec"]["template"]["spec"];
    assert_eq!(spec["nodeSelector"], json!({ "pool": "gpu" }));
    for container in [&spec["initContainers"][0], &spec["containers"][0]] {
        let mounts = container["volumeMounts"].to_string();
        assert!(mounts.contains("/run/gpus") && mounts.contains("/srv/gpus"), "{mounts}");
    }
    let off = render(&helm, "gpus", &json!({ "uninstall": { "enabled": false, "renderOffline": true } }));
    assert!(!off.iter().any(|object| objects::called(object).contains("divvy-uninstall")));
}

/// Who pipes it to kubectl, as GitOps tools do, runs whatever is in it.
#[test]
fn plain_render_has_nothing_that_uninstalls() {
    let Some(helm) = helm() else { return };
    let rendered = render(&helm, "gpus", &json!({}));
    objects::find(&rendered, "DaemonSet gpus/divvy-node");
    for object in &rendered {
        let said = object.to_string();
        let uninstalls =
            ["divvy-uninstall", "--uninstall", "helm.sh/hook\""].iter().find(|words| said.contains(**words));
        assert!(uninstalls.is_none(), "{}: {uninstalls:?}", objects::called(object));
    }
}

/// So `helm install` asks, and keeps what `helm uninstall` runs.
#[tokio::test(flavor = "multi_thread")]
async fn render_that_asks_a_cluster_has_the_uninstallation() {
    let Some(helm) = helm() else { return };
    let server = ApiServer::start(&[("token", "admin")]).await.unwrap();
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), server.kubeconfig("token")).unwrap();
    let flags = ["--dry-run=server", "--kubeconfig", kubeconfig.path().to_str().unwrap()];
    let asked = try_render_with(&helm, "gpus", &json!({}), &flags).unwrap();
    let job = objects::find(&asked, "Job gpus/divvy-uninstall");
    assert_eq!(job["metadata"]["annotations"]["helm.sh/hook"], "pre-delete");
    let off = try_render_with(&helm, "gpus", &json!({ "uninstall": { "enabled": false } }), &flags).unwrap();
    assert!(!off.iter().any(|object| objects::called(object).contains("divvy-uninstall")));
}

#[test]
fn cert_manager_replaces_secret_and_configuration_rights() {
    let Some(helm) = helm() else { return };
    let values =
        json!({ "certManager": { "enabled": true, "issuerRef": { "kind": "ClusterIssuer", "name": "internal" } } });
    let objects = render(&helm, "divvy-system", &values);
    for role in ["ClusterRole /divvy-webhook", "Role divvy-system/divvy-webhook"] {
        let rules = objects::find(&objects, role)["rules"].to_string();
        assert!(!rules.contains("secrets") && !rules.contains("webhookconfigurations"), "{rules}");
    }
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let annotations = &objects::find(&objects, &format!("{kind} /divvy-webhook"))["metadata"]["annotations"];
        assert_eq!(annotations["cert-manager.io/inject-ca-from"], "divvy-system/divvy-webhook");
    }
    let certificate = &objects::find(&objects, "Certificate divvy-system/divvy-webhook")["spec"];
    let pod = &objects::find(&objects, "Deployment divvy-system/divvy-webhook")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][2]["secret"]["secretName"], certificate["secretName"]);
    let config = objects::find(&objects, "ConfigMap divvy-system/divvy-webhook")["data"]["divvy-webhook.yaml"].as_str();
    let config = &objects::parse(config.unwrap())[0];
    let directory = pod["containers"][0]["volumeMounts"][2]["mountPath"].as_str().unwrap();
    assert_eq!(config["certificateDir"], directory);
}

#[test]
fn the_daemon_can_be_had_alone() {
    let Some(helm) = helm() else { return };
    let objects = render(&helm, "divvy-system", &json!({ "deployment": { "enabled": false } }));
    let webhook = objects.iter().filter(|object| object["metadata"]["name"] == "divvy-webhook").count();
    assert_eq!(webhook, 0);
    objects::find(&objects, "DaemonSet divvy-system/divvy-node");
}

#[test]
fn directories_are_mounted_where_the_configuration_says() {
    let Some(helm) = helm() else { return };
    let values = json!({ "node": { "runDir": "/run/cards", "kubeletRootDir": "/kubelet" } });
    let objects = render(&helm, "divvy-system", &values);
    let pod = &objects::find(&objects, "DaemonSet divvy-system/divvy-node")["spec"]["template"]["spec"];
    for (name, path, mounted) in [
        ("run", "/run/cards", "/run/cards"),
        ("state", "/var/lib/divvy", "/var/lib/divvy"),
        ("pod-resources", "/kubelet/pod-resources", "/kubelet/pod-resources"),
        // A kubelet has these there whatever its own directory is.
        ("device-plugins", "/var/lib/kubelet/device-plugins", "/kubelet/device-plugins"),
    ] {
        let of = |list: &Value| list.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap().clone();
        assert_eq!(of(&pod["volumes"])["hostPath"]["path"], path);
        assert_eq!(of(&pod["containers"][0]["volumeMounts"])["mountPath"], mounted);
    }
}

#[test]
fn the_service_is_where_the_configuration_has_the_driver() {
    let Some(helm) = helm() else { return };
    let values = json!({
        "images": { "mps": "registry/mps:2" },
        "node": { "runDir": "/run/cards", "driverRoot": "/run/nvidia/driver" },
        "mps": { "enabled": true, "nodeSelector": { "pool": "shared" } },
    });
    let objects = render(&helm, "divvy-system", &values);
    let pod = &objects::find(&objects, "DaemonSet divvy-system/divvy-mps")["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({ "pool": "shared" }));
    let args = ["--driver-root=/run/nvidia/driver", "--host-root=/host", "--run-dir=/run/cards"];
    assert_eq!(pod["containers"][0]["args"], json!(args));
    for (name, path, mounted) in [
        ("run", "/run/cards", "/run/cards"),
        ("mps", "/run/cards/mps", "/host/run/nvidia/driver/run/cards/mps"),
        ("shm", "/run/cards/mps/shm", "/host/run/nvidia/driver/dev/shm"),
    ] {
        let of = |list: &Value| list.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap().clone();
        assert_eq!(of(&pod["volumes"])["hostPath"]["path"], path);
        assert_eq!(of(&pod["containers"][0]["volumeMounts"])["mountPath"], mounted);
    }
    let first = &pod["initContainers"][0];
    assert_eq!((&first["image"], &pod["containers"][0]["image"]), (&json!("registry/mps:2"), &json!("registry/mps:2")));
    assert_eq!(first["args"], json!(["--mount-shared-memory", "--run-dir=/run/cards"]));
    assert_eq!(first["volumeMounts"][0]["mountPath"], "/run/cards");
    let without = render(&helm, "divvy-system", &json!({}));
    assert!(without.iter().all(|object| object["metadata"]["name"] != "divvy-mps"), "off unless asked for");
}

#[test]
fn alerts_are_rendered_on_request() {
    let Some(helm) = helm() else { return };
    let values = json!({ "monitoring": { "rules": { "enabled": true, "labels": { "release": "prometheus" } } } });
    let objects = render(&helm, "divvy-system", &values);
    let rule = objects::find(&objects, "PrometheusRule divvy-system/divvy");
    assert_eq!(rule["metadata"]["labels"], json!({ "release": "prometheus" }));
    assert_eq!(rule["spec"], objects::read("deploy/monitoring/rules.yaml")[0]);
    let without = render(&helm, "divvy-system", &json!({}));
    assert!(without.iter().all(|object| object["kind"] != "PrometheusRule"), "off unless asked for");
}

#[test]
fn right_to_evict_is_left_out_where_the_leader_evicts_nobody() {
    let Some(helm) = helm() else { return };
    let evicts = |values: Value| {
        let objects = render(&helm, "gpus", &values);
        let text = objects.iter().map(Value::to_string).collect::<String>();
        text.contains("divvy-webhook-preemption")
    };
    assert!(evicts(json!({})) && evicts(json!({ "webhook": { "preemption": "on" } })));
    assert!(evicts(json!({ "cluster": { "scheduling": "gates" } })));
    assert!(!evicts(json!({ "webhook": { "preemption": "off" } })));
    assert!(!evicts(json!({ "cluster": { "scheduling": "extender" } })));
}

#[test]
fn value_that_is_gone_can_be_taken_away() {
    let Some(helm) = helm() else { return };
    let objects = render(&helm, "gpus", &json!({ "webhook": { "extender": null, "softTaints": "off" } }));
    let config = &objects::find(&objects, "ConfigMap gpus/divvy-webhook")["data"]["divvy-webhook.yaml"];
    assert_eq!(objects::parse(config.as_str().unwrap())[0], json!({ "version": "v1", "softTaints": "off" }));
}

#[test]
fn pods_with_metrics_are_scraped_on_request() {
    let Some(helm) = helm() else { return };
    let monitor =
        json!({ "enabled": true, "labels": { "release": "prometheus" }, "interval": "15s", "honorLabels": false });
    let values = json!({ "monitoring": { "podMonitor": monitor } });
    let objects = render(&helm, "gpus", &values);
    let monitor = objects::find(&objects, "PodMonitor gpus/divvy");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    let mut wanted = objects::read("deploy/monitoring/pod-monitor.yaml").remove(0)["spec"].take();
    let endpoint = &mut wanted["podMetricsEndpoints"][0];
    (endpoint["interval"], endpoint["honorLabels"]) = (json!("15s"), json!(false));
    assert_eq!(monitor["spec"], wanted);
    let plain = render(&helm, "divvy-system", &json!({ "monitoring": { "podMonitor": { "enabled": true } } }));
    let plain = objects::find(&plain, "PodMonitor divvy-system/divvy");
    assert_eq!(*plain, objects::read("deploy/monitoring/pod-monitor.yaml")[0]);
    let without = render(&helm, "divvy-system", &json!({}));
    assert!(without.iter().all(|object| object["kind"] != "PodMonitor"), "off unless asked for");
    for interval in ["15", "a minute", "15s "] {
        let values = json!({ "monitoring": { "podMonitor": { "interval": interval } } });
        assert!(try_render(&helm, "gpus", &values).is_err(), "{interval}");
    }
}

#[test]
fn grafana_gets_the_dashboard_on_request() {
    let Some(helm) = helm() else { return };
    let grafana = json!({ "enabled": true, "label": "dashboards", "labelValue": "yes", "annotations": { "grafana_folder": "GPUs" } });
    let objects = render(&helm, "gpus", &json!({ "monitoring": { "grafana": grafana } }));
    let map = objects::find(&objects, "ConfigMap gpus/divvy-dashboard");
    assert_eq!(map["data"], json!({ "divvy.json": objects::text("deploy/monitoring/grafana/divvy.json") }));
    assert_eq!(map["metadata"]["labels"]["dashboards"], "yes");
    assert_eq!(map["metadata"]["annotations"], json!({ "grafana_folder": "GPUs" }));
    let plain = render(&helm, "gpus", &json!({ "monitoring": { "grafana": { "enabled": true } } }));
    let labels = &objects::find(&plain, "ConfigMap gpus/divvy-dashboard")["metadata"]["labels"];
    assert_eq!(labels["grafana_dashboard"], "1", "what the sidecar of Grafana's chart looks for");
    let without = render(&helm, "gpus", &json!({}));
    assert!(without.iter().all(|object| object["metadata"]["name"] != "divvy-dashboard"), "off unless asked for");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_installed() {
    let Some(helm) = helm() else { return };
    for (values, why) in [
        (json!({ "nodes": {} }), "'nodes' not allowed"),
        (json!({ "node": { "slotPerCard": 3 } }), "'slotPerCard' not allowed"),
        (json!({ "cluster": { "slotsPerCard": 300 } }), "maximum: got 300, want 256"),
        (json!({ "webhook": { "preemption": false } }), "must be one of 'on', 'off'"),
        (json!({ "webhook": { "extender": "on" } }), "webhook.extender is gone: set cluster.scheduling to extender"),
        (json!({ "cluster": { "scheduling": "on" } }), "must be one of 'gates', 'extender', 'node'"),
        (json!({ "node": { "overrides": [{ "slotsPerCard": 3 }] } }), "missing property 'selector'"),
        (json!({ "certManager": { "enabled": true } }), "missing property 'name'"),
        (
            json!({ "scheduler": { "enabled": true } }),
            "scheduler.image: name the kube-scheduler of the cluster's version",
        ),
        (json!({ "webhook": { "resourceCount": "a.b/d" } }), "'resourceCount' not allowed"),
        (json!({ "node": { "resourceCount": "a.b/c" } }), "'not' failed"),
    ] {
        let refused = try_render(&helm, "divvy-system", &values).expect_err("a refusal");
        assert!(refused.contains(why), "{refused}");
    }
}

/// Without Helm nothing else would notice that a file was added and left out of the chart.
#[test]
fn the_chart_leads_to_every_manifest() {
    let templates = std::fs::read_dir(objects::at(CHART).join("templates")).unwrap();
    let text: String = templates.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    for file in objects::files("deploy/manifests").iter().filter(|file| *file != "00-namespace.yaml") {
        assert!(text.contains(&format!("\"manifests/{file}\"")), "{file}");
    }
    for file in text.split('"').filter_map(|word| word.strip_suffix(".yaml")).filter(|word| word.contains('/')) {
        assert!(objects::at(CHART).join(format!("{file}.yaml")).is_file(), "{file}: a link is missing");
    }
}

#[test]
fn the_aggregated_api_is_off_unless_asked_for() {
    let Some(helm) = helm() else { return };
    let is_of_the_api =
        |object: &Value| object["kind"] == "APIService" || objects::called(object).contains("divvy-aggregated-api");
    for values in
        [json!({}), json!({ "webhook": { "aggregatedApi": "off" } }), json!({ "apiserver": { "enabled": false } })]
    {
        let without = render(&helm, "divvy-system", &values);
        assert!(!without.iter().any(is_of_the_api), "{values}");
    }
    let values = json!({ "webhook": { "aggregatedApi": "on" }, "networkPolicy": { "controlPlane": ["192.0.2.0/24"] } });
    let objects = render(&helm, "gpus", &values);
    let service = objects::find(&objects, "APIService /v1alpha1.metrics.nvidia.com");
    assert_eq!(service["spec"]["service"]["namespace"], "gpus");
    assert_eq!(service["metadata"].get("annotations"), None, "the webhook fills caBundle in");
    objects::find(&objects, "RoleBinding kube-system/divvy-aggregated-api");
    let rule = objects::find(&objects, "NetworkPolicy gpus/divvy-webhook")["spec"]["ingress"][0].clone();
    assert!(rule["ports"].to_string().contains("aggregated-api") && rule["from"].to_string().contains("192.0.2.0/24"));
    let issuer = json!({ "enabled": true, "issuerRef": { "name": "internal" } });
    let values = json!({ "webhook": { "aggregatedApi": "on" }, "certManager": issuer });
    let objects = render(&helm, "gpus", &values);
    let service = objects::find(&objects, "APIService /v1alpha1.metrics.nvidia.com");
    assert_eq!(service["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], "gpus/divvy-webhook");
    let refused = try_render(&helm, "gpus", &json!({ "apiserver": { "enabled": true } })).unwrap_err();
    assert!(refused.contains("set webhook.aggregatedApi to on or legacy-watch"), "{refused}");
}
