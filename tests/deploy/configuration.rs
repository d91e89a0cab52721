//! The configuration files in the ConfigMaps, as the programs read them.

use std::ffi::OsString;

use divvy_api::config::{ClusterConfig, KEY};
use divvy_api::installation::{API_SERVICE, CONFIG_MAP, WEBHOOK};
use divvy_mps::config::Task;
use divvy_runtime::settings::{KeySet, Within};
use serde_json::Value;

use crate::objects;

/// What the downward API and the command line of a pod tell a program.
fn of_the_pod(container: &Value) -> impl Fn(&str) -> Option<OsString> {
    let variables: Vec<(String, &str)> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| {
            let text = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap() {
                "spec.nodeName" => "node-1",
                "metadata.name" => "divvy-webhook-0",
                "metadata.namespace" => "divvy-system",
                "status.hostIP" | "status.podIP" => "10.0.0.7",
                other => panic!("{other} is no field of a pod here"),
            };
            (variable["name"].as_str().unwrap().to_owned(), text)
        })
        .collect();
    move |name| variables.iter().find(|(variable, _)| variable == name).map(|(_, text)| text.into())
}

/// The keys that a program finds in its pod.
fn keys<K: KeySet + From<ClusterConfig>>(workload: &str, program: &str) -> K {
    let objects = objects::all("deploy/manifests");
    let pod = &objects::find(&objects, &format!("{workload} divvy-system/{program}"))["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let config = objects::find(&objects, &format!("ConfigMap divvy-system/{program}"));
    // The file is where the flag says, in the volume of the ConfigMap.
    let file = format!("{program}.yaml");
    let args = [format!("--config-file=/etc/divvy/{file}"), format!("--cluster-config=/etc/divvy-cluster/{KEY}")];
    assert_eq!(container["args"], serde_json::json!(args));
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/divvy");
    assert_eq!(pod["volumes"][0]["configMap"]["name"], config["metadata"]["name"]);
    assert_eq!(container["volumeMounts"][1]["mountPath"], "/etc/divvy-cluster");
    assert_eq!(pod["volumes"][1]["configMap"]["name"], CONFIG_MAP);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(&file);
    std::fs::write(&path, config["data"][&file].as_str().unwrap()).unwrap();
    let file: K = divvy_runtime::settings::read(&path).unwrap_or_else(|refused| panic!("{refused}"));
    K::from_env(of_the_pod(container)).unwrap_or_else(|refused| panic!("{refused}")).or(file).or(cluster().into())
}

/// The keys that all parts share.
pub(crate) fn cluster() -> ClusterConfig {
    let objects = objects::all("deploy/manifests");
    let config = objects::find(&objects, &format!("ConfigMap divvy-system/{CONFIG_MAP}"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(KEY);
    std::fs::write(&path, config["data"][KEY].as_str().unwrap()).unwrap();
    divvy_runtime::settings::read_cluster(&path).unwrap_or_else(|refused| panic!("{refused}"))
}

/// What divvy-webhook is configured with.
pub(crate) fn webhook() -> divvy_webhook::config::Config {
    keys::<divvy_webhook::config::Keys>("Deployment", "divvy-webhook").into_config().unwrap()
}

/// What divvy-node is configured with.
pub(crate) fn node() -> divvy_node::config::Config {
    keys::<divvy_node::config::Keys>("DaemonSet", "divvy-node").into_config().unwrap()
}

/// The keys of a configuration in camel case, with their values.
pub(crate) fn fields(config: &impl serde::Serialize) -> serde_json::Map<String, Value> {
    match serde_json::to_value(config).unwrap() {
        Value::Object(fields) => fields,
        other => panic!("{other} is no configuration"),
    }
}

#[test]
fn both_programs_take_the_shared_keys_from_the_cluster_config() {
    let shared = ClusterConfig { slots_per_card: Within::new(7), ..ClusterConfig::default() };
    let (node, webhook) = (fields(&node()), fields(&webhook()));
    let own = ["adminAddress", "drainTimeout", "kubeconfig", "listenAddress", "logFormat", "logLevel"];
    let both: Vec<_> = webhook.keys().filter(|key| node.contains_key(*key) && !own.contains(&key.as_str())).collect();
    let cluster = fields(&shared);
    assert_eq!(both.len(), 11, "{both:?}");
    for key in both {
        assert_eq!(node[key], webhook[key], "{key}");
        assert!(cluster.contains_key(key), "{key}");
    }
    let slots = |node: divvy_node::config::Keys| node.slots_per_card.unwrap().get();
    assert_eq!(slots(shared.clone().into()), 7);
    assert_eq!(divvy_webhook::config::Keys::from(shared).slots_per_card.unwrap().get(), 7);
}

#[test]
fn objects_are_called_what_the_webhook_looks_for() {
    let objects = objects::all("deploy/manifests");
    objects::find(&objects, &format!("Service divvy-system/{WEBHOOK}"));
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        objects::find(&objects, &format!("{kind} /{WEBHOOK}"));
    }
}

#[test]
fn pods_live_long_enough_to_drain() {
    let objects = objects::all("deploy/manifests");
    let grace = |name: &str| {
        let object = objects::find(&objects, name);
        let seconds = object["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
        std::time::Duration::from_secs(seconds)
    };
    let (node, webhook) = (node(), webhook());
    assert!(grace("DaemonSet divvy-system/divvy-node") > 2 * node.drain_timeout.get());
    assert!(
        grace("Deployment divvy-system/divvy-webhook") > webhook.shutdown_delay.get() + webhook.drain_timeout.get()
    );
}

#[test]
fn mps_daemonset_agrees_with_the_daemon_on_paths() {
    let objects = objects::read("deploy/mps/divvy-mps.yaml");
    let daemonset = &objects::find(&objects, "DaemonSet divvy-system/divvy-mps")["spec"];
    assert_eq!(daemonset["updateStrategy"]["type"], "OnDelete", "its clients end with it");
    let service = &daemonset["template"]["spec"];
    let container = &service["containers"][0];
    for image in [&container["image"], &service["initContainers"][0]["image"]] {
        assert_eq!(*image, format!("divvy-mps:{}", env!("CARGO_PKG_VERSION")));
    }
    let parsed = |container: &Value| {
        let args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().into());
        divvy_mps::config::parse(std::iter::once("divvy-mps".into()).chain(args), |_| None).expect("valid")
    };
    let (task, of_first) = parsed(&service["initContainers"][0]);
    assert!(matches!(task, Task::MountSharedMemory));
    let (task, config) = parsed(container);
    assert!(matches!(task, Task::Supervise));
    assert_eq!(of_first.run_dir, config.run_dir);
    let node = node();
    assert_eq!(config.run_dir, node.run_dir);
    assert_eq!((&config.host_root, &config.driver_root), (&node.host_root, &node.driver_root));
    assert!(service["terminationGracePeriodSeconds"].as_u64().unwrap() > config.drain_timeout.get().as_secs());
    let mounted = |name: &str| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        mounts.iter().find(|mount| mount["name"] == name).unwrap()["mountPath"].as_str().unwrap().to_owned()
    };
    let root = config.driver_root.on_host(&config.host_root).display().to_string();
    let place = divvy_mps::MpsDirectory::new(&config.run_dir);
    assert_eq!(mounted("run"), config.run_dir.display().to_string());
    assert_eq!(format!("{}/pipe", mounted("mps")), format!("{root}{}", place.pipe().display()));
    assert_eq!(mounted("shm"), format!("{root}/dev/shm"));
    let source = service["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "shm").unwrap();
    assert_eq!(source["hostPath"]["path"], place.shared_memory().display().to_string());
}

#[test]
fn aggregated_api_is_where_its_apiservice_leads() {
    let (config, objects) =
        (webhook(), [objects::all("deploy/manifests"), objects::all("deploy/aggregated-api")].concat());
    let api = &objects::find(&objects, &format!("APIService /{API_SERVICE}"))["spec"];
    assert_eq!(format!("{}.{}", api["version"].as_str().unwrap(), api["group"].as_str().unwrap()), API_SERVICE);
    assert_eq!(api["service"]["name"], WEBHOOK);
    let service = objects::find(&objects, &format!("Service divvy-system/{WEBHOOK}"));
    let with = |list: &Value, field: &str, wanted: &Value| {
        list.as_array().unwrap().iter().find(|port| port[field] == *wanted).unwrap().clone()
    };
    let port = with(&service["spec"]["ports"], "port", &api["service"]["port"]);
    let deployment = objects::find(&objects, "Deployment divvy-system/divvy-webhook");
    let ports = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"];
    let listens = with(ports, "name", &port["targetPort"])["containerPort"].clone();
    assert_eq!(listens, config.listen_address.listener(divvy_webhook::config::Listener::AggregatedApi).port());
    let policy = objects::find(&objects, "NetworkPolicy divvy-system/divvy-webhook");
    with(&policy["spec"]["ingress"][0]["ports"], "port", &port["targetPort"]);
    let rules = objects::find(&objects, "ClusterRole /divvy-aggregated-api")["rules"].to_string();
    assert!(rules.contains(&format!("[\"{API_SERVICE}\"]")), "{rules}");
}
