//! Other systems whose pods are translated: whether the API server sends them, in what unit they count, and what counts
//! their resources in vain.

use std::collections::BTreeSet;

use divvy_api::ResourceNames;
use divvy_systems::{Dialect, check};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

use super::finding::{Finding, Verdict};
use super::objects::{Configuration, Objects, Webhook};
use crate::admin::dialects::{WrongUnit, wrong_units};
use crate::admin::limits::{Limit, all_four};
use crate::cluster::Refusal;
use crate::text::{first_line, listed};

/// Key of the ConfigMap with the webhook's configuration.
const KEY: &str = "divvy-webhook.yaml";
/// Match condition by which the API server recognises pods that request GPUs.
const CONDITION: &str = "requests-gpus";
/// Most objects that are named.
const MOST: usize = 3;

/// What is read of the webhook's configuration.
#[derive(Default, Deserialize)]
struct Keys {
    #[serde(default)]
    dialects: Vec<Dialect>,
}

/// The dialects that are switched on, if that is known; otherwise [`reviewed`] says why it isn't.
fn known(objects: &Objects) -> Option<Vec<Dialect>> {
    configured(objects.webhook_config.as_ref().ok()?.as_ref(), objects).ok()
}

fn configured(config: Option<&ConfigMap>, objects: &Objects) -> Result<Vec<Dialect>, String> {
    let Some(text) = config.and_then(|config| config.data.as_ref()?.get(KEY)) else { return Ok(Vec::new()) };
    let keys = serde_saphyr::from_str::<Option<Keys>>(text);
    let keys = keys.map_err(|error| first_line(&error))?;
    let dialects = keys.unwrap_or_default().dialects;
    check(&dialects, &objects.names()).map(|()| dialects)
}

/// Whether the match conditions name what the dialects that are on are recognised by; nothing to say if none is.
pub(super) fn reviewed(objects: &Objects) -> Result<Option<Verdict>, &Refusal> {
    let dialects = match configured(objects.webhook_config.as_ref()?.as_ref(), objects) {
        Ok(dialects) if dialects.is_empty() => return Ok(None),
        Ok(dialects) => dialects,
        Err(problem) => {
            let remedy = "correct dialects in the webhook's configuration: docs/dialects";
            return Ok(Some(Verdict::failed(problem, remedy)));
        }
    };
    let names = objects.names();
    let on = dialects.iter().map(Dialect::name).collect::<Vec<_>>().join(", ");
    let lacking = webhooks(objects).find_map(|webhook| {
        let absent = unnamed(condition(webhook)?, &dialects, &names);
        (!absent.is_empty()).then_some((&webhook.name, absent))
    });
    let Some((webhook, absent)) = lacking else {
        return Ok(Some(Verdict::ok(format!("pods of {on} are translated"))));
    };
    Ok(Some(Verdict::failed(
        format!(
            "{on} on, but the match conditions of {webhook} don't name {}: such pods are not translated, and wait for ever",
            listed(&absent, MOST)
        ),
        "helm upgrade with webhook.dialects; with the manifests, add the names in webhook-configurations.yaml: docs/dialects",
    )))
}

fn webhooks(objects: &Objects) -> impl Iterator<Item = &Webhook> {
    let configurations = [&objects.mutating, &objects.validating];
    let configurations = configurations.into_iter().filter_map(|configuration| configuration.as_ref().ok()?.as_ref());
    configurations.flat_map(|Configuration { webhooks }| webhooks)
}

/// Whether the match conditions name what a dialect that is off is recognised by.
pub(super) fn unused(objects: &Objects) -> Option<Verdict> {
    let dialects = known(objects)?;
    let names = objects.names();
    let is_off = |known: &Dialect| dialects.iter().all(|on| on.name() != known.name());
    let off: Vec<Dialect> = Dialect::defaults().filter(is_off).collect();
    let words = |dialect: &Dialect| {
        let annotations = dialect.system().words.requests.iter().filter_map(|key| key.texts().next());
        dialect.resources(&names).into_iter().chain(annotations.map(str::to_owned)).collect::<Vec<_>>()
    };
    webhooks(objects).find_map(|webhook| {
        let expression = condition(webhook)?;
        let is_named = |word: &String| expression.contains(&format!("'{word}'"));
        let (dialect, word) = off.iter().find_map(|dialect| Some((dialect, words(dialect).into_iter().find(is_named)?)))?;
        let webhook = &webhook.name;
        let name = dialect.name();
        Some(Verdict::warning(
            format!("the match conditions of {webhook} name {word}, and {name} is off: such pods are reviewed, not translated"),
            format!("add {name} to dialects in the webhook's configuration, or remove its names: {}", dialect.system().page()),
        ))
    })
}

/// Whether nodes of other systems count memory in the units of their dialects.
pub(super) fn units(objects: &Objects) -> Vec<Finding> {
    // A refusal has a line of its own.
    let Ok(nodes) = &objects.nodes else { return Vec::new() };
    let wrong = wrong_units(&known(objects).unwrap_or_default(), nodes);
    let finding = |WrongUnit { found, system, key, right }| {
        let remedy = format!("set {key}: {right} of {system} in dialects of the webhook's configuration");
        Verdict::warning(found, remedy).about(format!("{key} of {system}"))
    };
    wrong.into_iter().map(finding).collect()
}

/// What these dialects are recognised by and an expression doesn't name.
fn unnamed(expression: &str, dialects: &[Dialect], names: &ResourceNames) -> Vec<String> {
    let is_named = |text: &str| expression.contains(&format!("'{text}'"));
    let of_dialect = |dialect: &Dialect| {
        let resources = dialect.resources(names).into_iter().filter(|name| !is_named(name));
        let keys = dialect.system().words.requests.iter().filter(|key| !key.texts().all(is_named));
        resources.chain(keys.map(ToString::to_string)).collect::<Vec<_>>()
    };
    dialects.iter().flat_map(of_dialect).collect()
}

fn condition(webhook: &Webhook) -> Option<&str> {
    let conditions = webhook.match_conditions.iter();
    conditions.filter(|condition| condition.name == CONDITION).map(|condition| condition.expression.as_str()).next()
}

/// Quota is counted after the translation.
pub(super) fn quotas(objects: &Objects) -> Result<Option<Verdict>, &Refusal> {
    let dialects = known(objects).unwrap_or_default();
    if dialects.is_empty() {
        return Ok(None);
    }
    let names = objects.names();
    let foreign: BTreeSet<String> = dialects.iter().flat_map(|dialect| dialect.resources(&names)).collect();
    let found = objects.limits.as_ref()?.iter().filter(|limit| !limit.among(&foreign).is_empty());
    let found: Vec<String> =
        found.map(|limit| format!("{} {}/{}", limit.kind.to_lowercase(), limit.namespace, limit.name)).collect();
    Ok((!found.is_empty()).then(|| {
        Verdict::warning(
            format!("{} count resources that no pod requests once it is translated", listed(&found, MOST)),
            format!("write them anew, in requests of {}", all_four(&names)),
        )
    }))
}

/// Some systems count `limits.nvidia.com/gpumem` of a quota by themselves; Kubernetes counts requests of such resources alone.
pub(super) fn limits_in_quotas(objects: &Objects) -> Vec<Finding> {
    let on = known(objects).unwrap_or_default();
    let names = objects.names();
    let counts = |limit: &&Limit| limit.in_vain.iter().any(|name| names.is_ours(name));
    // A refusal has a line of its own.
    let limits = objects.limits.iter().flatten().filter(counts);
    let found: Vec<String> = limits.map(|limit| format!("{}/{}", limit.namespace, limit.name)).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let verdict = Verdict::warning(
        format!("resourcequota {} counts limits of GPU resources, which nothing does any more", listed(&found, MOST)),
        format!("write requests of {} in place of limits.…: Kubernetes counts those itself", all_four(&names)),
    );
    let systems = on.iter().map(Dialect::system).filter(|system| system.counts_limits);
    systems.map(|system| verdict.clone().about(format!("quotas of {}", system.title))).collect()
}
