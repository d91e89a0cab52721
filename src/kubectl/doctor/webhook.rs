//! The webhook: whether it runs, which authority the API server trusts, whether there is a leader, and whether it is called.

use std::collections::BTreeSet;

use divvy_api::config::Scheduling;
use divvy_api::names::taint;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::certificate::{self, Authority};
use super::check::Check;
use super::facts::{Configuration, EXTENDER, Facts, HIDES_GPUS, Replica, ServiceFacts, WEBHOOK, WebhookFacts};
use super::{leftovers, pods};
use crate::text::listed;

/// Webhooks of each configuration with their failure policies, as shipped.
const MUTATING: [(&str, &str); 3] = [("mutate.divvy.dev", "Fail"), (HIDE, "Fail"), ("jobs.divvy.dev", "Fail")];
const VALIDATING: [(&str, &str); 2] = [("validate.divvy.dev", "Fail"), ("templates.divvy.dev", "Ignore")];
/// Webhook for the pods of namespaces with the label [`HIDES_GPUS`].
const HIDE: &str = "hide.divvy.dev";
/// Namespace of what a cluster needs to start.
const SYSTEM: &str = "kube-system";
/// A Lease is renewed every few seconds; clocks differ by less.
const STALE: i64 = 300;

/// Checks of the webhook's links, or one that says that it isn't installed.
pub(super) fn webhook(facts: &Facts) -> Vec<Check> {
    let WebhookFacts { deployment, mutating, validating, .. } = &facts.webhook;
    if !facts.webhook.is_installed() {
        return vec![match (deployment, mutating) {
            (Err(refused), _) | (_, Err(refused)) => Check::unseen("webhook", refused),
            _ => Check::ok(
                "webhook",
                "not installed: nodes decide alone, requests aren't checked when pods are created, and no soft taints \
                 keep CPU beside free GPUs",
            ),
        }];
    }
    let mut checks = vec![replicas(facts), service(facts)];
    if facts.scheduling() == Scheduling::Extender {
        checks.push(extender_service(facts));
    }
    checks.push(configuration("mutating webhook", mutating, &MUTATING, facts));
    checks.push(configuration("validating webhook", validating, &VALIDATING, facts));
    checks.extend([answers(facts), lease(facts), pods::scheduler(facts)]);
    checks
}

/// Whether nodes carry soft taints; nothing to say without a webhook, unless some are left over.
pub(super) fn soft_taints(facts: &Facts) -> Option<Check> {
    let link = "soft taints";
    // A refusal has a line of its own.
    let (Ok(nodes), Ok(gpu_nodes)) = (&facts.nodes, &facts.gpu_nodes) else { return None };
    let is_installed = facts.webhook.is_installed();
    // Those on nodes without divvy-node are among its leftovers.
    let left = if is_installed { BTreeSet::new() } else { leftovers::without_daemon(facts) };
    let tainted = nodes.iter().filter(|node| node.has_soft_taint() && !left.contains(&node.name_any())).count();
    match (is_installed, tainted) {
        (true, 0) => Some(Check::ok(
            link,
            "on no node: softTaints is off, no expected pod could use a free GPU, or other taints keep pods \
             without GPUs off",
        )),
        (true, _) => Some(Check::ok(
            link,
            format!("on {tainted} of {} nodes with GPUs: pods without GPUs avoid them", gpu_nodes.len()),
        )),
        (false, 0) => None,
        (false, _) => {
            let keys = taint::SOFT.map(|key| format!("kubectl taint nodes --all {key}-")).join(", and ");
            let found = format!("left over on {tainted} of {} nodes: pods without GPUs avoid them", nodes.len());
            Some(Check::warning(link, found, keys))
        }
    }
}

/// Whether GPUs are hidden where a label asks for it; nothing to say where none does.
pub(super) fn hidden(facts: &Facts) -> Option<Check> {
    let link = "hidden GPUs";
    let (labelled, mutating) = match (&facts.hiding, &facts.webhook.mutating) {
        (Ok(labelled), _) if labelled.is_empty() => return None,
        (Err(refused), _) | (_, Err(refused)) => return Some(Check::unseen(link, refused)),
        (Ok(labelled), Ok(mutating)) => (labelled, mutating),
    };
    let is_on = |namespace: &&Namespace| namespace.labels().get(HIDES_GPUS).is_some_and(|value| value == "true");
    if let Some(off) = labelled.iter().find(|namespace| !is_on(namespace)) {
        let (name, value) = (off.name_any(), &off.labels()[HIDES_GPUS]);
        let found = format!("namespace {name} has the label {HIDES_GPUS} with \"{value}\", which has no effect");
        let remedy =
            format!("kubectl label --overwrite namespace {name} {HIDES_GPUS}=true, or {HIDES_GPUS}- to remove it");
        return Some(Check::warning(link, found, remedy));
    }
    let needed_first = facts.needed_first.as_deref().unwrap_or_default();
    let is_needed_first = |name: &String| name == SYSTEM || needed_first.contains(name);
    if let Some(name) = labelled.iter().map(Namespace::name_any).find(is_needed_first) {
        let found = format!(
            "namespace {name} has the label {HIDES_GPUS}: while the webhook is down no pod can be created there, but those on \
             the host's network and of the system's priority classes, which see the GPUs that their images ask for"
        );
        let remedy = format!("kubectl label namespace {name} {HIDES_GPUS}-, and change the toolkit's settings instead");
        return Some(Check::warning(link, found, remedy));
    }
    let names = listed(&labelled.iter().map(Namespace::name_any).collect::<Vec<_>>(), 3);
    let is_called = mutating.iter().flat_map(|found| &found.webhooks).any(|webhook| webhook.name == HIDE);
    Some(if is_called {
        Check::ok(link, format!("pods without a GPU request see none in {names}"))
    } else {
        let found = format!("{HIDE} is missing: the label {HIDES_GPUS} has no effect in {names}");
        Check::failed(link, found, "apply deploy/manifests")
    })
}

fn replicas(facts: &Facts) -> Check {
    let (link, namespace) = (format!("Deployment {WEBHOOK}"), &facts.namespace);
    let look = format!("kubectl -n {namespace} describe deployment {WEBHOOK}, and its pods' logs");
    match &facts.webhook.deployment {
        Err(refused) => Check::unseen(link, refused),
        Ok(None) => Check::failed(
            link,
            format!("there is none in {namespace}, so pods that request GPUs are refused"),
            "apply deploy/manifests, or delete the webhook configurations",
        ),
        Ok(Some(deployment)) => {
            let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
            let found = format!("{ready} of {wanted} replicas are ready");
            match ready {
                0 => Check::failed(link, format!("{found}: pods that request GPUs are refused"), look),
                _ if ready < wanted => Check::warning(link, found, look),
                _ => Check::ok(link, found),
            }
        }
    }
}

/// The Service by which the API server reaches the webhook.
fn service(facts: &Facts) -> Check {
    let remedies = Remedies {
        missing: "apply deploy/manifests",
        unreachable: "the API server reaches no replica",
        no_endpoint: "compare its selector with the pods' labels, and see why they aren't ready".to_owned(),
    };
    reachable(&facts.webhook.service, &facts.namespace, remedies)
}

/// The Service by which the scheduler reaches the extender: the leader writes its EndpointSlice.
fn extender_service(facts: &Facts) -> Check {
    let remedies = Remedies {
        missing: "apply deploy/manifests, and write its ClusterIP into the scheduler's configuration: a new Service has \
                  another one",
        unreachable: "the scheduler reaches no extender",
        no_endpoint: format!(
            "the leader writes EndpointSlice {EXTENDER} when its term begins: see the logs of {WEBHOOK}, and whether \
             webhook-rbac.yaml of deploy/manifests is applied"
        ),
    };
    reachable(&facts.webhook.extender, &facts.namespace, remedies)
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

fn reachable(found: &ServiceFacts, namespace: &str, remedies: Remedies) -> Check {
    let link = format!("Service {}", found.name);
    match (&found.service, found.ready()) {
        (Err(refused), _) | (Ok(Some(_)), Err(refused)) => Check::unseen(link, refused),
        (Ok(None), _) => Check::failed(link, format!("there is none in {namespace}"), remedies.missing),
        (Ok(Some(_)), Ok(0)) => {
            Check::failed(link, format!("no ready endpoint: {}", remedies.unreachable), remedies.no_endpoint)
        }
        (Ok(Some(_)), Ok(1)) => Check::ok(link, "1 ready endpoint"),
        (Ok(Some(_)), Ok(ready)) => Check::ok(link, format!("{ready} ready endpoints")),
    }
}

fn configuration(
    kind: &str,
    found: &Result<Option<Configuration>, crate::cluster::Refusal>,
    shipped: &[(&str, &str)],
    facts: &Facts,
) -> Check {
    let apply = "apply deploy/manifests";
    let webhooks = match found {
        Err(refused) => return Check::unseen(kind, refused),
        Ok(None) => {
            return Check::failed(kind, format!("there is no {WEBHOOK} of this kind: pods aren't reviewed"), apply);
        }
        Ok(Some(Configuration { webhooks })) => webhooks,
    };
    if let Some((name, _)) = shipped.iter().find(|(name, _)| webhooks.iter().all(|webhook| webhook.name != *name)) {
        return Check::failed(kind, format!("{name} is missing"), apply);
    }
    let own = facts.webhook.secret.as_ref().ok().and_then(|secret| secret.as_ref()?.data.as_ref()?.get("ca.crt"));
    let judged: Vec<(&str, Authority)> = webhooks
        .iter()
        .map(|webhook| {
            let bundle = webhook.client_config.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
            (webhook.name.as_str(), certificate::authority(bundle, own.map(|own| &*own.0), facts.now))
        })
        .collect();
    if let Some((name, authority)) = judged.iter().find(|(_, authority)| !matches!(authority, Authority::Sound(_))) {
        let remedy = format!("the leader fills in caBundle: see the logs of {WEBHOOK}");
        return Check::failed(kind, format!("{name}: {authority}"), remedy);
    }
    let changed = webhooks.iter().find_map(|webhook| {
        let (_, policy) =
            shipped.iter().find(|(name, policy)| webhook.name == *name && webhook.failure_policy != *policy)?;
        Some(format!("{} has failurePolicy {}, as shipped it is {policy}", webhook.name, webhook.failure_policy))
    });
    match changed {
        Some(changed) => Check::warning(
            kind,
            changed,
            "with Ignore, pods that are created while the webhook is down aren't reviewed; with Fail, they are refused",
        ),
        None => Check::ok(kind, judged.first().map(|(_, authority)| authority.to_string()).unwrap_or_default()),
    }
}

fn answers(facts: &Facts) -> Check {
    let link = "webhook answers";
    let replicas = match &facts.webhook.replicas {
        Err(refused) => return Check::unseen(link, refused),
        Ok(replicas) => replicas,
    };
    let wrong = replicas.iter().find_map(|Replica { pod, readyz, .. }| Some((pod, readyz.as_ref().err()?)));
    match wrong {
        Some((pod, why)) => Check::failed(
            link,
            format!("{pod}: {}", why.trim().replace('\n', "; ")),
            format!("kubectl -n {} logs {pod}", facts.namespace),
        ),
        None if replicas.is_empty() => Check::failed(
            link,
            format!("there is no pod with the label app.kubernetes.io/name={WEBHOOK}"),
            "see its Deployment",
        ),
        None => Check::ok(link, format!("{} of {} pods report ready", replicas.len(), replicas.len())),
    }
}

fn lease(facts: &Facts) -> Check {
    let link = format!("Lease {WEBHOOK}");
    let lease = match &facts.webhook.lease {
        Err(refused) => return Check::unseen(link, refused),
        Ok(lease) => lease.as_ref().and_then(|lease| lease.spec.as_ref()),
    };
    let holder = lease.and_then(|lease| lease.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let Some(holder) = holder else {
        return Check::failed(
            link,
            "no leader: the scheduler's calls aren't answered",
            format!("see the logs of {WEBHOOK}: each replica logs why it isn't the leader"),
        );
    };
    let renewed = lease.and_then(|lease| lease.renew_time.as_ref()).map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let age = facts.now.as_second().saturating_sub(renewed.as_second());
    if age > STALE {
        return Check::failed(
            link,
            format!("{holder} is the leader, and hasn't renewed the Lease since {renewed}"),
            format!("see the logs of {WEBHOOK}, and whether the clocks agree"),
        );
    }
    Check::ok(link, format!("{holder} is the leader"))
}
