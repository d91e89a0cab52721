//! How schedulers ask: the cluster's own, and a second one.

use std::path::PathBuf;
use std::process::Command;

use divvy_api::ResourceNames;
use divvy_api::installation::{SECRET, WEBHOOK};
use divvy_api::limits::request_resources;
use serde_json::{Value, json};

use crate::objects;

/// Of `tlsConfig`, and in the webhook's Secret.
const FILES: [(&str, &str); 3] = [("caFile", "ca.crt"), ("certFile", "client.crt"), ("keyFile", "client.key")];
const STOCK: &str = "deploy/scheduler/kube-scheduler.yaml";

fn stock() -> Value {
    objects::read(STOCK).remove(0)
}

fn second() -> Value {
    let objects = objects::read("deploy/scheduler/divvy-scheduler.yaml");
    let config = objects::find(&objects, "ConfigMap divvy-system/divvy-scheduler");
    objects::parse(config["data"]["scheduler.yaml"].as_str().unwrap()).remove(0)
}

#[test]
fn both_schedulers_ask_the_same_of_the_same_pods() {
    let [mut stock, mut second] = [stock(), second()].map(|mut config| config["extenders"][0].take());
    for entry in [&mut stock, &mut second] {
        // Where the webhook is, and whom to believe, depends on where the scheduler runs.
        entry.as_object_mut().unwrap().remove("urlPrefix");
        for (key, name) in FILES {
            let file = entry["tlsConfig"].as_object_mut().unwrap().remove(key).unwrap();
            assert!(file.as_str().unwrap().ends_with(&format!("/{name}")), "{key}: {file}");
        }
    }
    assert_eq!(stock, second);
    let asked: Vec<_> =
        stock["managedResources"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    let names = ResourceNames::default();
    assert_eq!(asked, request_resources(&names).map(divvy_api::ResourceName::as_str));
    let name = format!("{WEBHOOK}.divvy-system.svc");
    assert_eq!(stock["tlsConfig"]["serverName"], name);
}

#[test]
fn second_scheduler_has_its_own_lease_and_no_key_of_the_webhook() {
    let objects = objects::read("deploy/scheduler/divvy-scheduler.yaml");
    let config = second();
    let role = objects::find(&objects, "Role divvy-system/divvy-scheduler");
    let lease = &config["leaderElection"];
    assert_eq!(role["rules"][0]["resourceNames"], json!([lease["resourceName"]]));
    assert_eq!(role["metadata"]["namespace"], lease["resourceNamespace"]);
    assert_eq!(config["profiles"], json!([{ "schedulerName": "divvy-scheduler" }]));
    let pod = &objects::find(&objects, "Deployment divvy-system/divvy-scheduler")["spec"]["template"]["spec"];
    let items: Vec<Value> = FILES.iter().map(|(_, name)| json!({ "key": name, "path": name })).collect();
    assert_eq!(pod["volumes"][1]["secret"]["items"], json!(items));
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], SECRET);
}

/// Unknown fields, wrong types and authorities that can't be read are errors to it.
#[test]
fn a_real_scheduler_takes_both_files() {
    let Some(programs) = std::env::var_os("KUBE_BIN_DIR").map(PathBuf::from) else {
        return skipped("KUBE_BIN_DIR isn't set: it names a directory with kube-scheduler");
    };
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let authority = rcgen::generate_simple_self_signed(["authority".to_owned()]).unwrap();
    std::fs::write(at("ca.crt"), authority.cert.pem()).unwrap();
    std::fs::write(at("client.crt"), authority.cert.pem()).unwrap();
    std::fs::write(at("client.key"), authority.signing_key.serialize_pem()).unwrap();
    let nobody = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "none",
        "clusters": [{ "name": "none", "cluster": { "server": "https://127.0.0.1:1" } }],
        "contexts": [{ "name": "none", "context": { "cluster": "none", "user": "none" } }],
        "users": [{ "name": "none", "user": { "token": "none" } }],
    });
    std::fs::write(at("kubeconfig"), nobody.to_string()).unwrap();
    for mut config in [stock(), second()] {
        for (key, name) in FILES {
            config["extenders"][0]["tlsConfig"][key] = at(name).into();
        }
        config["clientConnection"] = json!({ "kubeconfig": at("kubeconfig") });
        std::fs::write(at("config.yaml"), config.to_string()).unwrap();
        let mut scheduler = Command::new(programs.join("kube-scheduler"));
        scheduler.args([format!("--config={}", at("config.yaml")), format!("--write-config-to={}", at("taken.yaml"))]);
        let ended = scheduler.args(["--secure-port=0"]).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let taken = objects::parse(&std::fs::read_to_string(at("taken.yaml")).unwrap()).remove(0);
        assert_eq!(taken["extenders"][0]["urlPrefix"], config["extenders"][0]["urlPrefix"]);
    }
}

/// Says why a test has looked at nothing; what it prints itself is only shown where it fails.
pub(crate) fn skipped(why: &str) {
    use std::io::Write as _;
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
}
