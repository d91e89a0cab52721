//! Webhooks, and which writes they want to hear of.

use serde_json::Value;

use super::super::conditions;
use super::super::object::{self, items, text};
use super::super::selector::Selector;
use super::super::status::{Answer, Refusal};
use super::super::store::{Key, Store};
use super::super::target::Target;
use super::super::write::Draft;
use super::review::Question;

/// An entry of a configuration's `webhooks`, as it was when the request came.
#[derive(Clone, Debug)]
pub(super) struct Hook {
    pub(super) mutating: bool,
    webhook: Value,
}

/// The webhooks of this kind of configuration whose rules and whose namespace the write matches, in order.
pub(super) fn interested(store: &Store, kind: &str, draft: &Draft) -> Vec<Hook> {
    let target = &draft.target;
    // Webhooks that could veto the configuration of webhooks could never be got rid of.
    if target.resource.group == "admissionregistration.k8s.io" {
        return Vec::new();
    }
    let Some(resource) = store.resources.of_kind(kind) else { return Vec::new() };
    let configurations = store.list(resource, None);
    let webhooks = configurations.values().flat_map(|configuration| items(configuration, "/webhooks"));
    let own = webhooks.filter(|webhook| {
        items(webhook, "/rules").iter().any(|rule| covers(rule, draft)) && in_namespace(store, webhook, draft)
    });
    own.map(|webhook| Hook { mutating: kind.starts_with("Mutating"), webhook: webhook.clone() }).collect()
}

fn covers(rule: &Value, draft: &Draft) -> bool {
    let Target { resource, subresource, .. } = &draft.target;
    let any = |field: &str, fits: &dyn Fn(&str) -> bool| {
        items(rule, field).iter().filter_map(Value::as_str).any(|own| own == "*" || fits(own))
    };
    let on_resource = |own: &str| {
        let (plural, sub) = own.split_once('/').unwrap_or((own, ""));
        (plural == "*" || plural == resource.plural) && (sub == subresource || (sub == "*" && own.contains('/')))
    };
    // A lone `*` are all resources, but none of their subresources.
    let resources = items(rule, "/resources").iter().filter_map(Value::as_str);
    let in_scope = match text(rule, "/scope") {
        "Cluster" => !resource.namespaced,
        "Namespaced" => resource.namespaced,
        _ => true,
    };
    in_scope
        && any("/operations", &|own| own == operation(draft))
        && any("/apiGroups", &|own| own == resource.group)
        && any("/apiVersions", &|own| own == resource.version)
        && resources.into_iter().any(on_resource)
}

/// What belongs to the cluster is in every namespace, but for namespaces: they are in themselves.
fn in_namespace(store: &Store, webhook: &Value, draft: &Draft) -> bool {
    let Target { resource, namespace, .. } = &draft.target;
    let Some(selector) = Selector::of_labels(&webhook["namespaceSelector"]) else { return false };
    if resource.kind == "Namespace" {
        return selector.takes(&draft.object);
    }
    let namespaces = store.resources.of_kind("Namespace").filter(|_| resource.namespaced);
    namespaces.is_none_or(|own| store.get(&Key::new(own, "", namespace)).is_some_and(|own| selector.takes(own)))
}

pub(super) fn operation(draft: &Draft) -> &'static str {
    if draft.live.is_some() { "UPDATE" } else { "CREATE" }
}

// === impl Hook ===

impl Hook {
    pub(super) fn name(&self) -> &str {
        text(&self.webhook, "/name")
    }

    pub(super) fn fails_open(&self) -> bool {
        text(&self.webhook, "/failurePolicy") == "Ignore"
    }

    pub(super) fn reinvoked(&self) -> bool {
        text(&self.webhook, "/reinvocationPolicy") == "IfNeeded"
    }

    /// Seconds.
    pub(super) fn timeout(&self) -> u64 {
        self.webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30)
    }

    pub(super) fn client_config(&self) -> &Value {
        &self.webhook["clientConfig"]
    }

    /// Whether the object's labels and the conditions say that it is to be asked.
    pub(super) fn wants(&self, draft: &Draft, question: &Question) -> Answer<bool> {
        let selector = Selector::of_labels(&self.webhook["objectSelector"]);
        let takes = |object: &Value| selector.as_ref().is_some_and(|selector| selector.takes(object));
        if !takes(&draft.object) && !draft.live.as_deref().is_some_and(takes) {
            return Ok(false);
        }
        match conditions::hold(items(&self.webhook, "/matchConditions"), &question.variables()) {
            Err(_) if self.fails_open() => Ok(false),
            Err(why) => {
                let Target { resource, .. } = &draft.target;
                Err(Refusal::forbidden(resource, object::name(&draft.object), &why))
            }
            Ok(hold) => Ok(hold),
        }
    }
}
