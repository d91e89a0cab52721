//! The webhook: whether it runs, which authority the API server trusts, whether there is a leader, and whether it is called.

use std::collections::BTreeSet;

use divvy_api::installation::{EXTENDER, WEBHOOK, pods_of};
use divvy_api::names::label::HIDE_GPUS;
use divvy_api::names::taint;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::certificate::{self, Authority};
use super::finding::Verdict;
use super::leftovers;
use super::objects::{Configuration, Fact, Objects, Replica, Webhook};
use crate::cluster::Refusal;
use crate::text::listed;

/// Webhooks of each configuration with their failure policies, as shipped.
const MUTATING: [(&str, &str); 3] = [("mutate.divvy.dev", "Fail"), (HIDE, "Fail"), ("jobs.divvy.dev", "Fail")];
const VALIDATING: [(&str, &str); 2] = [("validate.divvy.dev", "Fail"), ("templates.divvy.dev", "Ignore")];
/// Webhook for the pods of namespaces with the label [`HIDE_GPUS`].
const HIDE: &str = "hide.divvy.dev";
/// Namespace of what a cluster needs to start.
const SYSTEM: &str = "kube-system";
/// A Lease is renewed every few seconds; clocks differ by less.
const STALE: i64 = 300;

/// What it means that the webhook isn't installed, as far as that is known.
pub(super) fn absence(objects: &Objects) -> Result<Verdict, &Refusal> {
    objects.deployment.as_ref()?;
    objects.mutating.as_ref()?;
    Ok(Verdict::ok(
        "not installed: nodes decide alone, requests aren't checked when pods are created, and no soft taints keep CPU \
         beside free GPUs",
    ))
}

/// Whether nodes carry soft taints; nothing to say without a webhook, unless some are left over.
pub(super) fn soft_taints(objects: &Objects) -> Option<Verdict> {
    // A refusal has a line of its own.
    let (Ok(nodes), Ok(gpu_nodes)) = (&objects.nodes, &objects.gpu_nodes) else { return None };
    let is_installed = objects.has_webhook();
    // Those on nodes without divvy-node are among its leftovers.
    let left = if is_installed { BTreeSet::new() } else { leftovers::without_daemon(objects) };
    let tainted = nodes.iter().filter(|node| node.has_soft_taint() && !left.contains(&node.name_any())).count();
    match (is_installed, tainted) {
        (true, 0) => Some(Verdict::ok(
            "on no node: softTaints is off, no expected pod could use a free GPU, or other taints keep pods without GPUs off",
        )),
        (true, _) => Some(Verdict::ok(format!(
            "on {tainted} of {} nodes with GPUs: pods without GPUs avoid them",
            gpu_nodes.len()
        ))),
        (false, 0) => None,
        (false, _) => {
            let keys = taint::SOFT.map(|key| format!("kubectl taint nodes --all {key}-")).join(", and ");
            let found = format!("left over on {tainted} of {} nodes: pods without GPUs avoid them", nodes.len());
            Some(Verdict::warning(found, keys))
        }
    }
}

/// Whether GPUs are hidden where a label asks for it; nothing to say where none does.
pub(super) fn hidden(objects: &Objects) -> Result<Option<Verdict>, &Refusal> {
    let labelled = objects.hiding.as_ref()?;
    if labelled.is_empty() {
        return Ok(None);
    }
    let mutating = objects.mutating.as_ref()?;
    let is_on = |namespace: &&Namespace| namespace.labels().get(HIDE_GPUS).is_some_and(|value| value == "true");
    if let Some(off) = labelled.iter().find(|namespace| !is_on(namespace)) {
        let name = off.name_any();
        let value = &off.labels()[HIDE_GPUS];
        let found = format!("namespace {name} has the label {HIDE_GPUS} with \"{value}\", which has no effect");
        let remedy =
            format!("kubectl label --overwrite namespace {name} {HIDE_GPUS}=true, or {HIDE_GPUS}- to remove it");
        return Ok(Some(Verdict::warning(found, remedy)));
    }
    let needed_first = objects.needed_first.as_deref().unwrap_or_default();
    let is_needed_first = |name: &String| name == SYSTEM || needed_first.contains(name);
    if let Some(name) = labelled.iter().map(Namespace::name_any).find(is_needed_first) {
        let found = format!(
            "namespace {name} has the label {HIDE_GPUS}: while the webhook is down no pod can be created there, but those on \
             the host's network and of the system's priority classes, which see the GPUs that their images ask for"
        );
        let remedy = format!("kubectl label namespace {name} {HIDE_GPUS}-, and change the toolkit's settings instead");
        return Ok(Some(Verdict::warning(found, remedy)));
    }
    let names = listed(&labelled.iter().map(Namespace::name_any).collect::<Vec<_>>(), 3);
    let is_called = mutating.iter().flat_map(|found| &found.webhooks).any(|webhook| webhook.name == HIDE);
    Ok(Some(if is_called {
        Verdict::ok(format!("pods without a GPU request see none in {names}"))
    } else {
        let found = format!("{HIDE} is missing: the label {HIDE_GPUS} has no effect in {names}");
        Verdict::failed(found, "apply deploy/manifests")
    }))
}

pub(super) fn replicas(objects: &Objects) -> Result<Verdict, &Refusal> {
    let namespace = &objects.namespace;
    let Some(deployment) = objects.deployment.as_ref()? else {
        return Ok(Verdict::failed(
            format!("there is none in {namespace}, so pods that request GPUs are refused"),
            "apply deploy/manifests, or delete the webhook configurations",
        ));
    };
    let look = format!("kubectl -n {namespace} describe deployment {WEBHOOK}, and its pods' logs");
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let found = format!("{ready} of {wanted} replicas are ready");
    Ok(match ready {
        0 => Verdict::failed(format!("{found}: pods that request GPUs are refused"), look),
        _ if ready < wanted => Verdict::warning(found, look),
        _ => Verdict::ok(found),
    })
}

/// The Service by which the API server reaches the webhook.
pub(super) fn service(objects: &Objects) -> Result<Verdict, &Refusal> {
    let remedies = Remedies {
        missing: "apply deploy/manifests",
        unreachable: "the API server reaches no replica",
        no_endpoint: "compare its selector with the pods' labels, and see why they aren't ready".to_owned(),
    };
    reachable(&objects.service, &objects.endpoints, &objects.namespace, remedies)
}

/// The Service by which the scheduler reaches the extender: the leader writes its EndpointSlice.
pub(super) fn extender_service(objects: &Objects) -> Result<Verdict, &Refusal> {
    let remedies = Remedies {
        missing: "apply deploy/manifests, and write its ClusterIP into the scheduler's configuration: a new Service has \
                  another one",
        unreachable: "the scheduler reaches no extender",
        no_endpoint: format!(
            "the leader writes EndpointSlice {EXTENDER} when its term begins: see the logs of {WEBHOOK}, and whether \
             webhook-rbac.yaml of deploy/manifests is applied"
        ),
    };
    reachable(&objects.extender, &objects.extender_endpoints, &objects.namespace, remedies)
}

/// What to say of a Service that doesn't lead anywhere.
struct Remedies {
    /// What to do about a missing Service.
    missing: &'static str,
    /// Consequence of no ready endpoint.
    unreachable: &'static str,
    /// What to do about no ready endpoint.
    no_endpoint: String,
}

fn reachable<'o>(
    service: &'o Fact<Option<Service>>,
    slices: &'o Fact<Vec<EndpointSlice>>,
    namespace: &str,
    remedies: Remedies,
) -> Result<Verdict, &'o Refusal> {
    if service.as_ref()?.is_none() {
        return Ok(Verdict::failed(format!("there is none in {namespace}"), remedies.missing));
    }
    let is_ready = |endpoint: &&Endpoint| endpoint.conditions.as_ref().is_none_or(|now| now.ready != Some(false));
    let ready = slices.as_ref()?.iter().flat_map(|slice| &slice.endpoints).filter(is_ready).count();
    Ok(match ready {
        0 => Verdict::failed(format!("no ready endpoint: {}", remedies.unreachable), remedies.no_endpoint),
        1 => Verdict::ok("1 ready endpoint"),
        _ => Verdict::ok(format!("{ready} ready endpoints")),
    })
}

pub(super) fn mutating(objects: &Objects) -> Result<Verdict, &Refusal> {
    configuration(&objects.mutating, &MUTATING, objects)
}

pub(super) fn validating(objects: &Objects) -> Result<Verdict, &Refusal> {
    configuration(&objects.validating, &VALIDATING, objects)
}

fn configuration<'o>(
    found: &'o Fact<Option<Configuration>>,
    shipped: &[(&str, &str)],
    objects: &Objects,
) -> Result<Verdict, &'o Refusal> {
    let apply = "apply deploy/manifests";
    let Some(Configuration { webhooks }) = found.as_ref()? else {
        return Ok(Verdict::failed(format!("there is no {WEBHOOK} of this kind: pods aren't reviewed"), apply));
    };
    if let Some((name, _)) = shipped.iter().find(|(name, _)| webhooks.iter().all(|webhook| webhook.name != *name)) {
        return Ok(Verdict::failed(format!("{name} is missing"), apply));
    }
    let own = objects.secret.as_ref().ok().and_then(|secret| secret.as_ref()?.data.as_ref()?.get("ca.crt"));
    let authority_of = |webhook: &Webhook| {
        let bundle = webhook.client_config.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
        certificate::authority(bundle, own.map(|own| &*own.0), objects.now)
    };
    let judged: Vec<(&str, Authority)> =
        webhooks.iter().map(|webhook| (webhook.name.as_str(), authority_of(webhook))).collect();
    if let Some((name, authority)) = judged.iter().find(|(_, authority)| !matches!(authority, Authority::Sound(_))) {
        let remedy = format!("the leader fills in caBundle: see the logs of {WEBHOOK}");
        return Ok(Verdict::failed(format!("{name}: {authority}"), remedy));
    }
    let is_changed =
        |webhook: &Webhook, (name, policy): &(&str, &str)| webhook.name == *name && webhook.failure_policy != *policy;
    let changed = webhooks.iter().find_map(|webhook| {
        let (_, policy) = shipped.iter().find(|shipped| is_changed(webhook, shipped))?;
        Some(format!("{} has failurePolicy {}, as shipped it is {policy}", webhook.name, webhook.failure_policy))
    });
    Ok(match changed {
        Some(changed) => Verdict::warning(
            changed,
            "with Ignore, pods that are created while the webhook is down aren't reviewed; with Fail, they are refused",
        ),
        None => Verdict::ok(judged.first().map(|(_, authority)| authority.to_string()).unwrap_or_default()),
    })
}

pub(super) fn answers(objects: &Objects) -> Result<Verdict, &Refusal> {
    let replicas = objects.replicas.as_ref()?;
    let wrong = replicas.iter().find_map(|Replica { pod, readyz, .. }| Some((pod, readyz.as_ref().err()?)));
    Ok(match wrong {
        Some((pod, why)) => Verdict::failed(
            format!("{pod}: {}", why.trim().replace('\n', "; ")),
            format!("kubectl -n {} logs {pod}", objects.namespace),
        ),
        None if replicas.is_empty() => {
            Verdict::failed(format!("there is no pod with the label {}", pods_of(WEBHOOK)), "see its Deployment")
        }
        None => Verdict::ok(format!("{} of {} pods report ready", replicas.len(), replicas.len())),
    })
}

pub(super) fn lease(objects: &Objects) -> Result<Verdict, &Refusal> {
    let lease = objects.lease.as_ref()?.as_ref().and_then(|lease| lease.spec.as_ref());
    let holder = lease.and_then(|lease| lease.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let Some(holder) = holder else {
        return Ok(Verdict::failed(
            "no leader: the scheduler's calls aren't answered",
            format!("see the logs of {WEBHOOK}: each replica logs why it isn't the leader"),
        ));
    };
    let renewed = lease.and_then(|lease| lease.renew_time.as_ref()).map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let age = objects.now.as_second().saturating_sub(renewed.as_second());
    if age > STALE {
        return Ok(Verdict::failed(
            format!("{holder} is the leader, and hasn't renewed the Lease since {renewed}"),
            format!("see the logs of {WEBHOOK}, and whether the clocks agree"),
        ));
    }
    Ok(Verdict::ok(format!("{holder} is the leader")))
}
