//! Which nodes a pod may and would rather run on, by what they are called: selectors, affinity, taints.

use serde_json::Value;

use fake_apiserver::object::{items, name, text};

/// Whether the pod's `nodeSelector` and required node affinity take the node (`NodeAffinity`).
pub(crate) fn admits(pod: &Value, node: &Value) -> bool {
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
    let labelled = |(key, value): (&String, &Value)| node["metadata"]["labels"].get(key) == Some(value);
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = pod.pointer(required).and_then(Value::as_array);
    selector.into_iter().flatten().all(labelled)
        && terms.is_none_or(|terms| terms.iter().any(|term| term_holds(term, node)))
}

/// The sum of the weights of preferred terms that take the node.
pub(crate) fn preference(pod: &Value, node: &Value) -> i64 {
    let preferred = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let terms = items(pod, preferred).iter().filter(|term| term_holds(&term["preference"], node));
    terms.filter_map(|term| term["weight"].as_i64()).sum()
}

/// A term without any requirement takes nothing.
fn term_holds(term: &Value, node: &Value) -> bool {
    let (expressions, fields) = (items(term, "/matchExpressions"), items(term, "/matchFields"));
    let label = |key: &str| node["metadata"]["labels"].get(key).and_then(Value::as_str);
    let field = |key: &str| (key == "metadata.name").then(|| name(node));
    (expressions.len() + fields.len() > 0)
        && expressions.iter().all(|own| requirement_holds(own, label(text(own, "/key"))))
        && fields.iter().all(|own| requirement_holds(own, field(text(own, "/key"))))
}

fn requirement_holds(requirement: &Value, value: Option<&str>) -> bool {
    let among = || items(requirement, "/values").iter().any(|own| own.as_str() == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = || items(requirement, "/values").first().and_then(Value::as_str).and_then(number);
    match text(requirement, "/operator") {
        "In" => value.is_some() && among(),
        "NotIn" => value.is_none() || !among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number).zip(bound()).is_some_and(|(value, bound)| value > bound),
        "Lt" => value.and_then(number).zip(bound()).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// The first taint that keeps the pod away (`TaintToleration`).
pub(crate) fn untolerated<'n>(pod: &Value, node: &'n Value) -> Option<&'n Value> {
    let keeps_away = |taint: &&Value| matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute");
    let tolerates = |toleration: &Value, taint: &Value| {
        let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
        let equal = text(toleration, "/value") == text(taint, "/value");
        (effect.is_empty() || effect == text(taint, "/effect"))
            && (key.is_empty() || key == text(taint, "/key"))
            && (text(toleration, "/operator") == "Exists" || (!key.is_empty() && equal))
    };
    let tolerations = items(pod, "/spec/tolerations");
    let taints = items(node, "/spec/taints").iter().filter(keeps_away);
    taints.into_iter().find(|taint| !tolerations.iter().any(|own| tolerates(own, taint)))
}
