//! Other systems whose pods are translated: whether the API server sends them, in what unit they count, and what counts
//! their resources in vain.

use std::collections::BTreeSet;

use divvy_api::ResourceNames;
use divvy_dialects::{Dialect, check};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde_json::Value;

use super::check::Check;
use super::facts::{Configuration, Facts, Webhook};
use crate::dialects::{WrongUnit, wrong_unit};
use crate::limits::{Limit, all_four};
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

/// Checks of the dialects that are switched on; none if there are none.
pub(super) fn dialects(facts: &Facts) -> Vec<Check> {
    let config = match &facts.webhook.config {
        Err(refused) => return vec![Check::unseen("dialects", refused)],
        Ok(config) => config.as_ref(),
    };
    let names = facts.names();
    let dialects = match configured(config).and_then(|dialects| check(&dialects, &names).map(|()| dialects)) {
        Ok(dialects) if dialects.is_empty() => return unused(&dialects, &names, facts).into_iter().collect(),
        Ok(dialects) => dialects,
        Err(problem) => {
            return vec![Check::failed(
                "dialects",
                problem,
                "correct dialects in the webhook's configuration: docs/dialects",
            )];
        }
    };
    let checks = [
        Some(reviewed(&dialects, &names, facts)),
        unused(&dialects, &names, facts),
        unit(&dialects, facts),
        quotas(&dialects, &names, facts),
        hami_quotas(&dialects, &names, facts),
    ];
    checks.into_iter().flatten().collect()
}

fn configured(config: Option<&ConfigMap>) -> Result<Vec<Dialect>, String> {
    let Some(text) = config.and_then(|config| config.data.as_ref()?.get(KEY)) else { return Ok(Vec::new()) };
    let keys = serde_saphyr::from_str::<Option<Keys>>(text);
    let keys = keys.map_err(|error| first_line(&error))?;
    Ok(keys.unwrap_or_default().dialects)
}

/// Whether the match conditions name what these dialects are recognised by.
fn reviewed(dialects: &[Dialect], names: &ResourceNames, facts: &Facts) -> Check {
    let link = "dialects";
    let on: Vec<&str> = dialects.iter().map(Dialect::name).collect();
    let lacking: Vec<(&str, Vec<String>)> = webhooks(facts)
        .filter_map(|webhook| {
            let absent = unnamed(condition(webhook)?, dialects, names);
            (!absent.is_empty()).then_some((webhook.name.as_str(), absent))
        })
        .collect();
    let Some((webhook, absent)) = lacking.first() else {
        return Check::ok(link, format!("pods of {} are translated", on.join(", ")));
    };
    Check::failed(
        link,
        format!(
            "{} on, but the match conditions of {webhook} don't name {}: such pods are not translated, and wait for ever",
            on.join(", "),
            listed(absent, MOST)
        ),
        "helm upgrade with webhook.dialects; with the manifests, add the names in webhook-configurations.yaml: docs/dialects",
    )
}

fn webhooks(facts: &Facts) -> impl Iterator<Item = &Webhook> {
    let configurations = [&facts.webhook.mutating, &facts.webhook.validating];
    let configurations = configurations.into_iter().filter_map(|configuration| configuration.as_ref().ok()?.as_ref());
    configurations.flat_map(|Configuration { webhooks }| webhooks)
}

/// Whether the match conditions name what a dialect that is off is recognised by.
fn unused(dialects: &[Dialect], names: &ResourceNames, facts: &Facts) -> Option<Check> {
    let known = Dialect::NAMES.iter().filter_map(|name| Dialect::deserialize(Value::from(*name)).ok());
    let off: Vec<Dialect> = known.filter(|known| dialects.iter().all(|on| on.name() != known.name())).collect();
    let words = |dialect: &Dialect| {
        let annotations = dialect.requesting_annotations().iter().filter_map(|key| key.texts().next());
        dialect.resources(names).into_iter().chain(annotations.map(str::to_owned)).collect::<Vec<_>>()
    };
    webhooks(facts).find_map(|webhook| {
        let expression = condition(webhook)?;
        let is_named = |word: &String| expression.contains(&format!("'{word}'"));
        let (dialect, word) = off.iter().find_map(|dialect| Some((dialect, words(dialect).into_iter().find(is_named)?)))?;
        let (webhook, name) = (&webhook.name, dialect.name());
        Some(Check::warning(
            "dialects that are off",
            format!("the match conditions of {webhook} name {word}, and {name} is off: such pods are reviewed, not translated"),
            format!("add {name} to dialects in the webhook's configuration, or remove its names: docs/dialects/{name}.md"),
        ))
    })
}

/// Whether gpushare's nodes count memory in the unit of the dialect.
fn unit(dialects: &[Dialect], facts: &Facts) -> Option<Check> {
    let WrongUnit { found, right } = wrong_unit(dialects, facts.nodes.as_ref().ok()?)?;
    let remedy = format!("set unit: {right} of gpushare in dialects of the webhook's configuration");
    Some(Check::warning("unit of gpushare", found, remedy))
}

/// What these dialects are recognised by and an expression doesn't name.
fn unnamed(expression: &str, dialects: &[Dialect], names: &ResourceNames) -> Vec<String> {
    let is_named = |text: &str| expression.contains(&format!("'{text}'"));
    let of_dialect = |dialect: &Dialect| {
        let resources = dialect.resources(names).into_iter().filter(|name| !is_named(name));
        let keys = dialect.requesting_annotations().iter().filter(|key| !key.texts().all(is_named));
        resources.chain(keys.map(ToString::to_string)).collect::<Vec<_>>()
    };
    dialects.iter().flat_map(of_dialect).collect()
}

fn condition(webhook: &Webhook) -> Option<&str> {
    let conditions = webhook.match_conditions.iter();
    conditions.filter(|condition| condition.name == CONDITION).map(|condition| condition.expression.as_str()).next()
}

/// Quota is counted after the translation.
fn quotas(dialects: &[Dialect], names: &ResourceNames, facts: &Facts) -> Option<Check> {
    let link = "quotas of other systems";
    let limits = match &facts.limits {
        Err(refused) => return Some(Check::unseen(link, refused)),
        Ok(limits) => limits,
    };
    let foreign: BTreeSet<String> = dialects.iter().flat_map(|dialect| dialect.resources(names)).collect();
    let found = limits.iter().filter(|limit| !limit.of(&foreign).is_empty());
    let found: Vec<String> =
        found.map(|limit| format!("{} {}/{}", limit.kind.to_lowercase(), limit.namespace, limit.name)).collect();
    (!found.is_empty()).then(|| {
        Check::warning(
            link,
            format!("{} count resources that no pod requests once it is translated", listed(&found, MOST)),
            format!("write them anew, in requests of {}", all_four(names)),
        )
    })
}

/// HAMi counts `limits.nvidia.com/gpumem` of a quota in its webhook; Kubernetes counts requests of such resources alone.
fn hami_quotas(dialects: &[Dialect], names: &ResourceNames, facts: &Facts) -> Option<Check> {
    let is_on = dialects.iter().any(|dialect| dialect.name() == "hami");
    let limits = facts.limits.as_ref().ok().filter(|_| is_on)?;
    let counts = |limit: &&Limit| limit.in_vain.iter().any(|name| names.is_ours(name));
    let found: Vec<String> =
        limits.iter().filter(counts).map(|limit| format!("{}/{}", limit.namespace, limit.name)).collect();
    (!found.is_empty()).then(|| {
        Check::warning(
            "quotas of HAMi",
            format!(
                "resourcequota {} counts limits of GPU resources, which nothing does any more",
                listed(&found, MOST)
            ),
            format!("write requests of {} in place of limits.…: Kubernetes counts those itself", all_four(names)),
        )
    })
}
