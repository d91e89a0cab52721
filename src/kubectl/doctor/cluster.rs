//! Checks of the objects that nodes depend on: the API server, the definition of `GpuNode`, the daemons, policies.

use divvy_api::config::{CONFIG_MAP, KEY};
use divvy_api::gpunode::GpuNode;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding as Binding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::{CustomResourceExt as _, ResourceExt as _};

use super::check::{Check, State};
use super::facts::Facts;
use crate::text::listed;

/// From there on a kubelet shows its pods to who may get nodes/pods alone.
const OLDEST: (u32, u32) = (1, 33);
/// `deploy/manifests/policy.yaml`.
pub(super) const POLICIES: [&str; 8] = [
    "divvy-gpunodes",
    "divvy-node-nodes",
    "divvy-node-pods",
    "divvy-pod-annotations",
    "divvy-pod-templates",
    "divvy-webhook-evictions",
    "divvy-webhook-nodes",
    "divvy-webhook-pods",
];

pub(super) fn api_server(version: &Info) -> Check {
    let (link, Info { git_version, major, minor, .. }) = ("API server", version);
    // Some distributions write "33+".
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0_u32);
    if (number(major), number(minor)) >= OLDEST {
        return Check::ok(link, format!("Kubernetes {git_version}"));
    }
    let (major, minor) = OLDEST;
    let found = format!("Kubernetes {git_version}; Divvy needs {major}.{minor}");
    Check::failed(link, found, "upgrade the control plane and the kubelets")
}

pub(super) fn definition(facts: &Facts) -> Check {
    let link = format!("CRD {}", GpuNode::crd_name());
    let apply = "apply crd.yaml of deploy/manifests, of the version of Divvy that runs";
    let definition = match &facts.definition {
        Err(refused) => return Check::unseen(link, refused),
        Ok(None) => return Check::failed(link, "there is none, so no node can report its GPUs", apply),
        Ok(Some(definition)) => definition,
    };
    let ours = GpuNode::crd();
    let version = &ours.spec.versions[0];
    let served = definition.spec.versions.iter().find(|served| served.name == version.name && served.served);
    let condition = |kind: &str| {
        let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().find(|condition| condition.type_ == kind)
    };
    if let Some(wrong) = condition("Established").filter(|condition| condition.status != "True") {
        let message = wrong.message.as_deref().unwrap_or_default();
        return Check::failed(link, format!("the API server doesn't serve it: {message}"), apply);
    }
    match served {
        None => Check::failed(link, format!("{} isn't served", version.name), apply),
        Some(served) if schema(served) != schema(version) => Check::warning(
            link,
            format!("{} is served with another schema than this plugin knows: fields may get lost", version.name),
            apply,
        ),
        Some(_) => Check::ok(link, format!("{} is served", version.name)),
    }
}

/// The schema without its descriptions, which change nothing.
fn schema(version: &CustomResourceDefinitionVersion) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.retain(|name, value| name != "description" || !value.is_string());
                fields.values_mut().for_each(strip);
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut schema = serde_json::to_value(&version.schema).unwrap_or_default();
    strip(&mut schema);
    schema
}

pub(super) fn namespace(facts: &Facts) -> Check {
    let (link, name) = ("namespace", &facts.namespace);
    match &facts.home {
        Err(refused) => Check::unseen(link, refused),
        Ok(Some(_)) => Check::ok(link, name),
        Ok(None) => {
            let apply = "name the one of Divvy with -n, or install it: kubectl apply -f deploy/manifests/";
            Check::failed(link, format!("there is no namespace {name}"), apply)
        }
    }
}

pub(super) fn daemons(facts: &Facts) -> Check {
    let (link, namespace) = ("DaemonSet divvy-node", &facts.namespace);
    let daemons = match &facts.daemons {
        Err(refused) => return Check::unseen(link, refused),
        Ok(None) => return Check::failed(link, format!("there is none in {namespace}"), "apply deploy/manifests"),
        Ok(Some(daemons)) => daemons.status.clone().unwrap_or_default(),
    };
    let (wanted, ready) = (daemons.desired_number_scheduled, daemons.number_ready);
    let found = format!("{ready} of {wanted} pods are ready");
    let look = format!(
        "kubectl -n {namespace} get pods -l app.kubernetes.io/name=divvy-node -o wide, and the log of one that isn't"
    );
    match (wanted, ready) {
        (0, _) => {
            let label = "kubectl label node NAME nvidia.com/gpu.present=true, or install node feature discovery";
            Check::failed(link, "no Node carries one of the labels that it selects", label)
        }
        (_, 0) => Check::failed(link, found, look),
        _ if ready < wanted => Check::warning(link, found, look),
        _ => Check::ok(link, found),
    }
}

pub(super) fn policies(facts: &Facts) -> Check {
    let link = "admission policies";
    let (policies, bindings) = match (&facts.policies, &facts.bindings) {
        (Err(refused), _) | (_, Err(refused)) => return Check::unseen(link, refused),
        (Ok(policies), Ok(bindings)) => (policies, bindings),
    };
    let policy = |binding: &Binding| binding.spec.as_ref().and_then(|spec| spec.policy_name.clone());
    let is_bound = |name: &str| bindings.iter().any(|binding| policy(binding).as_deref() == Some(name));
    let is_there = |name: &str| policies.iter().any(|policy| policy.name_any() == name);
    let missing: Vec<&str> = POLICIES.into_iter().filter(|name| !(is_there(name) && is_bound(name))).collect();
    if missing.is_empty() {
        return Check::ok(link, format!("{} are there and bound", POLICIES.len()));
    }
    let found = format!(
        "missing or not bound: {}; without them a daemon may write other nodes' objects, and a user what Divvy writes on \
         pods",
        listed(&missing, POLICIES.len())
    );
    Check::warning(link, found, "apply policy.yaml of deploy/manifests")
}

/// The configuration that all parts share; nothing to say if it can be read.
pub(super) fn configuration(facts: &Facts) -> Option<Check> {
    let link = format!("ConfigMap {CONFIG_MAP}");
    match &facts.config {
        Err(refused) => Some(Check::unseen(link, refused)),
        Ok(Ok(_)) => None,
        Ok(Err(problem)) => {
            let found = format!("{KEY}: {problem}: with it no daemon and no webhook starts");
            Some(Check::failed(link, found, format!("kubectl -n {} edit configmap {CONFIG_MAP}", facts.namespace)))
        }
    }
}

/// What can't be seen from here.
pub(super) fn toolkit() -> Check {
    Check {
        link: "container toolkit".to_owned(),
        state: State::NotChecked,
        found: "whether pods without GPU request get GPUs through NVIDIA_VISIBLE_DEVICES, which CUDA images set, can't be seen from here"
            .to_owned(),
        remedy: Some(
            "on each node, in the toolkit's config.toml: accept-nvidia-visible-devices-envvar-when-unprivileged = false"
                .to_owned(),
        ),
    }
}
