//! The fields of every object. Helm applies what it is given, and of a field that the API doesn't have nothing is heard again.

use divvy_api::gpuquota::GpuQuota;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::objects;

/// The object as its type has it: without the fields that the type doesn't know.
fn typed<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let read: T =
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{}: {error}", objects::called(object)));
    serde_json::to_value(read).unwrap()
}

fn as_its_kind(object: &Value) -> Value {
    match object["kind"].as_str().unwrap() {
        "APIService" => typed::<APIService>(object),
        "ClusterRole" => typed::<ClusterRole>(object),
        "ClusterRoleBinding" => typed::<ClusterRoleBinding>(object),
        "ConfigMap" => typed::<ConfigMap>(object),
        "CustomResourceDefinition" => typed::<CustomResourceDefinition>(object),
        "DaemonSet" => typed::<DaemonSet>(object),
        "Deployment" => typed::<Deployment>(object),
        "GpuQuota" => typed::<GpuQuota>(object),
        "HorizontalPodAutoscaler" => typed::<HorizontalPodAutoscaler>(object),
        "Job" => typed::<Job>(object),
        "MutatingWebhookConfiguration" => typed::<MutatingWebhookConfiguration>(object),
        "Namespace" => typed::<Namespace>(object),
        "NetworkPolicy" => typed::<NetworkPolicy>(object),
        "Pod" => typed::<Pod>(object),
        "PodDisruptionBudget" => typed::<PodDisruptionBudget>(object),
        "PriorityClass" => typed::<PriorityClass>(object),
        "ResourceQuota" => typed::<ResourceQuota>(object),
        "Role" => typed::<Role>(object),
        "RoleBinding" => typed::<RoleBinding>(object),
        "Service" => typed::<Service>(object),
        "ServiceAccount" => typed::<ServiceAccount>(object),
        "ValidatingAdmissionPolicy" => typed::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => typed::<ValidatingAdmissionPolicyBinding>(object),
        "ValidatingWebhookConfiguration" => typed::<ValidatingWebhookConfiguration>(object),
        kind => panic!("{kind} isn't known here"),
    }
}

/// The path of something that is in the first and not in the second, or is another text, number or list there.
fn lost(written: &Value, kept: &Value) -> Option<String> {
    match (written, kept) {
        (Value::Object(written), Value::Object(kept)) => written.iter().find_map(|(field, value)| {
            Some(format!(".{field}{}", lost(value, kept.get(field).unwrap_or(&Value::Null))?))
        }),
        (Value::Array(written), Value::Array(kept)) if written.len() == kept.len() => written
            .iter()
            .zip(kept)
            .enumerate()
            .find_map(|(at, (written, kept))| Some(format!("[{at}]{}", lost(written, kept)?))),
        // An amount may be written as a number; the API's type is a text.
        (Value::Number(number), Value::String(text)) => (number.to_string() != *text).then(String::new),
        _ => (written != kept).then(String::new),
    }
}

#[test]
fn no_object_has_a_field_that_its_kind_lacks() {
    let directories =
        ["deploy/manifests", "deploy/examples", "deploy/uninstall", "deploy/aggregated-api"].map(objects::all);
    let apart = ["deploy/scheduler/divvy-scheduler.yaml", "deploy/mps/divvy-mps.yaml"].map(objects::read);
    for object in directories.iter().chain(&apart).flatten() {
        assert_eq!(lost(object, &as_its_kind(object)), None, "{}", objects::called(object));
    }
}

#[test]
fn objects_share_labels_and_one_namespace() {
    for object in ["deploy/manifests", "deploy/uninstall", "deploy/aggregated-api"].map(objects::all).concat() {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        // The Role of the front proxy's ConfigMap is there.
        let is_readers = object["kind"] == "RoleBinding" && namespace == "kube-system";
        assert!(["", "divvy-system"].contains(&namespace) || is_readers, "{metadata}");
        // kubectl replaces the definition as a whole; its text is compared with the code's.
        let part_of =
            object["kind"] == "CustomResourceDefinition" || metadata["labels"]["app.kubernetes.io/part-of"] == "divvy";
        assert!(part_of, "{metadata}");
    }
}

/// Each is where the other may be.
#[test]
fn daemon_is_uninstalled_where_it_runs() {
    let [daemon, uninstall] = ["manifests/node-daemonset", "uninstall/uninstall"]
        .map(|file| objects::read(&format!("deploy/{file}.yaml")))
        .map(|objects| objects.into_iter().find(|object| object["kind"] == "DaemonSet").unwrap());
    let [daemon, uninstall] = [&daemon, &uninstall].map(|set| &set["spec"]["template"]["spec"]);
    for field in ["affinity", "tolerations", "serviceAccountName", "priorityClassName"] {
        assert_eq!(daemon[field], uninstall[field], "{field}");
    }
    let volumes = daemon["volumes"].as_array().unwrap();
    for volume in uninstall["volumes"].as_array().unwrap() {
        assert!(volumes.contains(volume), "{volume}");
    }
    let mounts = daemon["containers"][0]["volumeMounts"].as_array().unwrap();
    for container in [&uninstall["initContainers"][0], &uninstall["containers"][0]] {
        for mount in container["volumeMounts"].as_array().unwrap() {
            assert!(mounts.contains(mount), "{mount}");
        }
    }
}

#[test]
fn kustomize_takes_what_kubectl_takes() {
    let listed = objects::parse(&objects::text("deploy/manifests/Kustomization"));
    let listed: Vec<_> = listed[0]["resources"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert_eq!(listed, objects::files("deploy/manifests"));
}
