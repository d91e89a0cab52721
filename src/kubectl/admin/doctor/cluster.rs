//! Checks of the objects that nodes depend on: the API server, the definition of `GpuNode`, the daemons, policies.

use divvy_api::config::KEY;
use divvy_api::gpunode::GpuNode;
use divvy_api::installation::{CONFIG_MAP, DAEMON, POLICIES, pods_of};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding as Binding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::{CustomResourceExt as _, ResourceExt as _};

use super::finding::{State, Verdict};
use super::objects::Objects;
use crate::cluster::Refusal;
use crate::text::listed;

/// From there on a kubelet shows its pods to who may get nodes/pods alone.
const OLDEST: (u32, u32) = (1, 33);
pub(super) fn api_server(version: &Info) -> Verdict {
    let Info { git_version, major, minor, .. } = version;
    // Some distributions write "33+".
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0_u32);
    if (number(major), number(minor)) >= OLDEST {
        return Verdict::ok(format!("Kubernetes {git_version}"));
    }
    let (major, minor) = OLDEST;
    let found = format!("Kubernetes {git_version}; Divvy needs {major}.{minor}");
    Verdict::failed(found, "upgrade the control plane and the kubelets")
}

pub(super) fn definition(objects: &Objects) -> Result<Verdict, &Refusal> {
    let apply = "apply crd.yaml of deploy/manifests, of the version of Divvy that runs";
    let Some(definition) = objects.definition.as_ref()? else {
        return Ok(Verdict::failed("there is none, so no node can report its GPUs", apply));
    };
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let wrong = conditions.into_iter().find(|condition| condition.type_ == "Established" && condition.status != "True");
    if let Some(wrong) = wrong {
        let message = wrong.message.as_deref().unwrap_or_default();
        return Ok(Verdict::failed(format!("the API server doesn't serve it: {message}"), apply));
    }
    let ours = GpuNode::crd();
    let version = &ours.spec.versions[0];
    let name = &version.name;
    let served = definition.spec.versions.iter().find(|served| served.name == *name && served.served);
    Ok(match served {
        None => Verdict::failed(format!("{name} isn't served"), apply),
        Some(served) if schema(served) != schema(version) => Verdict::warning(
            format!("{name} is served with another schema than this plugin knows: fields may get lost"),
            apply,
        ),
        Some(_) => Verdict::ok(format!("{name} is served")),
    })
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

pub(super) fn namespace(objects: &Objects) -> Result<Verdict, &Refusal> {
    let name = &objects.namespace;
    let apply = "name the one of Divvy with -n, or install it: kubectl apply -f deploy/manifests/";
    Ok(match objects.home.as_ref()? {
        Some(_) => Verdict::ok(name),
        None => Verdict::failed(format!("there is no namespace {name}"), apply),
    })
}

/// The configuration that all parts share; nothing to say if it can be read.
pub(super) fn configuration(objects: &Objects) -> Result<Option<Verdict>, &Refusal> {
    let edit = || format!("kubectl -n {} edit configmap {CONFIG_MAP}", objects.namespace);
    let problem = objects.config.as_ref()?.as_ref().err();
    Ok(problem
        .map(|problem| Verdict::failed(format!("{KEY}: {problem}: with it no daemon and no webhook starts"), edit())))
}

pub(super) fn daemons(objects: &Objects) -> Result<Verdict, &Refusal> {
    let namespace = &objects.namespace;
    let Some(daemons) = objects.daemons.as_ref()? else {
        return Ok(Verdict::failed(format!("there is none in {namespace}"), "apply deploy/manifests"));
    };
    let status = daemons.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let ready = status.number_ready;
    let found = format!("{ready} of {wanted} pods are ready");
    let look = format!("kubectl -n {namespace} get pods -l {} -o wide, and the log of one that isn't", pods_of(DAEMON));
    Ok(match (wanted, ready) {
        (0, _) => {
            let label = "kubectl label node NAME nvidia.com/gpu.present=true, or install node feature discovery";
            Verdict::failed("no Node carries one of the labels that it selects", label)
        }
        (_, 0) => Verdict::failed(found, look),
        _ if ready < wanted => Verdict::warning(found, look),
        _ => Verdict::ok(found),
    })
}

pub(super) fn policies(objects: &Objects) -> Result<Verdict, &Refusal> {
    let policies = objects.policies.as_ref()?;
    let bindings = objects.bindings.as_ref()?;
    let policy = |binding: &Binding| binding.spec.as_ref().and_then(|spec| spec.policy_name.clone());
    let is_bound = |name: &str| bindings.iter().any(|binding| policy(binding).as_deref() == Some(name));
    let is_there = |name: &str| policies.iter().any(|policy| policy.name_any() == name);
    let missing: Vec<&str> = POLICIES.into_iter().filter(|name| !(is_there(name) && is_bound(name))).collect();
    if missing.is_empty() {
        return Ok(Verdict::ok(format!("{} are there and bound", POLICIES.len())));
    }
    let found = format!(
        "missing or not bound: {}; without them a daemon may write other nodes' objects, and a user what Divvy writes on \
         pods",
        listed(&missing, POLICIES.len())
    );
    Ok(Verdict::warning(found, "apply policy.yaml of deploy/manifests"))
}

/// What can't be seen from here.
pub(super) fn toolkit() -> Verdict {
    let found = "whether pods without GPU request get GPUs through NVIDIA_VISIBLE_DEVICES, which CUDA images set, can't be \
                 seen from here";
    let remedy =
        "on each node, in the toolkit's config.toml: accept-nvidia-visible-devices-envvar-when-unprivileged = false";
    Verdict { state: State::NotChecked, ..Verdict::warning(found, remedy) }
}
