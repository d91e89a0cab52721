//! Webhook configurations: what they leave open, and what a server refuses in them
//! (`pkg/apis/admissionregistration/{v1/defaults,validation}`).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::conditions;
use super::super::object::{self, Object, items, text};
use super::super::resource::Resource;
use super::super::status::{Answer, Fault, Refusal};

/// Seconds that a webhook may take.
const TIMEOUTS: std::ops::RangeInclusive<i64> = 1..=30;

/// Fills in the defaults and looks for faults.
pub(super) fn complete(resource: &Resource, configuration: &mut Object) -> Answer<()> {
    let mutating = resource.kind.starts_with("Mutating");
    for webhook in configuration.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        fill_in(webhook, mutating);
    }
    let mut names = BTreeSet::new();
    let webhooks = items(configuration, "/webhooks").iter().enumerate();
    let faults = webhooks.flat_map(|(at, webhook)| {
        let path = format!("webhooks[{at}]");
        let name = text(webhook, "/name");
        let again = (!names.insert(name)).then(|| Fault::duplicate(&format!("{path}.name"), name));
        faults(&path, webhook).into_iter().chain(again)
    });
    match faults.collect::<Vec<_>>().as_slice() {
        [] => Ok(()),
        faults => Err(Refusal::invalid(resource, object::name(configuration), faults)),
    }
}

fn fill_in(webhook: &mut Value, mutating: bool) {
    for (field, value) in [
        ("failurePolicy", json!("Fail")),
        ("matchPolicy", json!("Equivalent")),
        ("namespaceSelector", json!({})),
        ("objectSelector", json!({})),
        ("timeoutSeconds", json!(10)),
    ] {
        object::map(webhook).entry(field).or_insert(value);
    }
    if mutating {
        object::map(webhook).entry("reinvocationPolicy").or_insert_with(|| "Never".into());
    }
    if let Some(Value::Object(service)) = webhook.pointer_mut("/clientConfig/service") {
        service.entry("port").or_insert_with(|| 443.into());
    }
    for rule in webhook.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
        object::map(rule).entry("scope").or_insert_with(|| "*".into());
    }
}

fn faults(path: &str, webhook: &Value) -> Vec<Fault> {
    let at = |field: &str| format!("{path}.{field}");
    let mut faults = Vec::new();
    if text(webhook, "/name").split('.').filter(|segment| !segment.is_empty()).count() < 3 {
        let message = "should be a domain with at least three segments separated by dots";
        faults.push(Fault::invalid(&at("name"), &webhook["name"], message));
    }
    if !matches!(text(webhook, "/sideEffects"), "None" | "NoneOnDryRun") {
        faults.push(Fault::required(&at("sideEffects"), "must specify one of None, NoneOnDryRun"));
    }
    if !items(webhook, "/admissionReviewVersions").contains(&json!("v1")) {
        faults.push(Fault::required(&at("admissionReviewVersions"), "must specify one of v1, v1beta1"));
    }
    if !webhook["timeoutSeconds"].as_i64().is_some_and(|seconds| TIMEOUTS.contains(&seconds)) {
        let message = "the timeout value must be between 1 and 30 seconds";
        faults.push(Fault::invalid(&at("timeoutSeconds"), &webhook["timeoutSeconds"], message));
    }
    let config = &webhook["clientConfig"];
    if config["url"].is_null() == config["service"].is_null() {
        faults.push(Fault::required(&at("clientConfig"), "exactly one of url or service is required"));
    }
    for (number, condition) in items(webhook, "/matchConditions").iter().enumerate() {
        let expression = text(condition, "/expression");
        if let Err(why) = conditions::check(expression) {
            let field = at(&format!("matchConditions[{number}].expression"));
            faults.push(Fault::invalid(&field, &expression.into(), &why));
        }
    }
    faults
}
