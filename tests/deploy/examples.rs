//! The examples, submitted as the API server would show them to the webhook.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use divvy_api::names::annotation;
use divvy_webhook::admission::{Endpoint, FavouredNamespaces, Settings, review};
use serde_json::{Value, json};

use crate::objects;

/// The pod of a pod, or the one that a controller makes from a template.
fn pod_of(object: &Value) -> Option<Value> {
    match object["kind"].as_str().unwrap() {
        "Pod" => Some(object.clone()),
        "Deployment" | "Job" => {
            let template = &object["spec"]["template"];
            let mut metadata = template["metadata"].as_object().cloned().unwrap_or_default();
            metadata
                .insert("generateName".to_owned(), format!("{}-", object["metadata"]["name"].as_str().unwrap()).into());
            Some(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] }))
        }
        _ => None,
    }
}

/// The API server requests what is limited, before anybody is asked.
fn with_requests(mut pod: Value) -> Value {
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let limits = container["resources"]["limits"].clone();
            if !limits.is_null() {
                container["resources"]["requests"] = limits;
            }
        }
    }
    pod
}

pub(crate) fn ask(endpoint: Endpoint, kind: &str, object: &Value) -> Value {
    let question = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": "default", "dryRun": false, "options": null, "oldObject": null,
            "kind": { "group": "", "version": "v1", "kind": kind }, "object": object,
        },
    });
    // priority.yaml tells that its namespace has to be one.
    let favoured_namespaces = FavouredNamespaces::Named(["default".to_owned()].into());
    let settings = Settings { favoured_namespaces, ..Settings::default() };
    let answer = review(question.to_string().as_bytes(), endpoint, &settings, &|_| None);
    let response = serde_json::from_slice::<Value>(&answer.body).unwrap()["response"].take();
    assert_eq!(response["allowed"], true, "{}: {}", objects::called(object), response["status"]["message"]);
    assert_eq!(response["warnings"], Value::Null, "{}", objects::called(object));
    response
}

/// The pod as it is stored.
pub(crate) fn admitted(pod: Value) -> Value {
    let mut pod = with_requests(pod);
    let answer = ask(Endpoint::Mutate, "Pod", &pod);
    if let Some(patch) = answer["patch"].as_str() {
        let patch: json_patch::Patch = serde_json::from_slice(&BASE64_STANDARD.decode(patch).unwrap()).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
    }
    ask(Endpoint::Validate, "Pod", &pod);
    pod
}

#[test]
fn every_example_is_admitted_with_the_request_that_it_speaks_of() {
    let mut requests = String::new();
    for object in objects::all("deploy/examples") {
        let Some(pod) = pod_of(&object) else { continue };
        if object["kind"] != "Pod" {
            ask(Endpoint::Templates, object["kind"].as_str().unwrap(), &object);
        }
        let pod = admitted(pod);
        writeln!(
            requests,
            "{}: {}",
            objects::called(&object),
            pod["metadata"]["annotations"][annotation::REQUEST].as_str().unwrap()
        )
        .unwrap();
        for list in ["initContainers", "containers"] {
            for container in pod["spec"][list].as_array().into_iter().flatten() {
                writeln!(requests, "  {} {}", container["name"].as_str().unwrap(), container["resources"]["requests"])
                    .unwrap();
            }
        }
    }
    insta::assert_snapshot!(requests);
}

/// Whoever knows one of the resources that a quota leaves out gets round it.
#[test]
fn the_quota_names_every_form() {
    let quota = objects::read("deploy/examples/quota.yaml");
    let names = divvy_api::ResourceNames::default();
    let quota = objects::find(&quota, "ResourceQuota team-a/gpus");
    for name in [names.count, names.memory, names.memory_percentage, names.cores] {
        assert!(quota["spec"]["hard"].get(format!("requests.{name}")).is_some(), "{name}");
    }
}
