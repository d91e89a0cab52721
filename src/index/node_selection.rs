//! What keeps a pod off Nodes apart from resources: its node selector and affinity, and the Nodes' taints.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use serde::Serialize;

/// The part of a pod's spec that says which Nodes it may run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeSelection {
    labels: BTreeMap<String, String>,
    /// Terms of the required node affinity, of which one has to match; `None`: there is none.
    terms: Option<Vec<NodeSelectorTerm>>,
    tolerations: Vec<Toleration>,
    /// Whether there are too many of these to be kept, for each pod that waits, and compared with each node.
    is_too_large: bool,
}

/// Most entries of a pod's node selector, node affinity and tolerations, and most bytes of them.
const MOST_ENTRIES: usize = 1024;
const MOST_BYTES: usize = 64 << 10;

/// What keeps a pod off a Node.
enum Obstacle<'a> {
    Label { key: &'a str, wanted: &'a str, present: Option<&'a String> },
    Affinity,
    Taint(&'a Taint),
}

const CORDON: &str = "node.kubernetes.io/unschedulable";
/// Taints that repeat what a Node's `spec.unschedulable` and its condition Ready say (the node lifecycle controller's).
const OF_CONDITIONS: [&str; 3] = [CORDON, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Whether a pod with these tolerations is let in.
pub fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// `ToleratesTaint` of `k8s.io/component-helpers`, without the comparisons of numbers, which are off by default.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let set = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
    set(&toleration.effect).is_none_or(|effect| effect == taint.effect)
        && set(&toleration.key).is_none_or(|key| key == taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => set(&toleration.value) == set(&taint.value),
            Some(_) => false,
        }
}

// === impl NodeSelection ===

impl NodeSelection {
    /// Reads `spec.nodeSelector`, `spec.affinity` and `spec.tolerations`.
    pub fn new(
        labels: Option<BTreeMap<String, String>>,
        affinity: Option<Affinity>,
        tolerations: Option<Vec<Toleration>>,
    ) -> Self {
        let of_nodes = affinity.and_then(|affinity| affinity.node_affinity);
        let required = of_nodes.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        let selection = Self {
            labels: labels.unwrap_or_default(),
            terms: required.map(|required| required.node_selector_terms),
            tolerations: tolerations.unwrap_or_default(),
            is_too_large: false,
        };
        let (entries, bytes) = selection.size();
        if entries > MOST_ENTRIES || bytes > MOST_BYTES {
            return Self { is_too_large: true, ..Self::default() };
        }
        selection
    }

    /// Entries and their bytes.
    fn size(&self) -> (usize, usize) {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len());
        let terms = || self.terms.iter().flatten();
        let all = terms().flat_map(|term| [&term.match_expressions, &term.match_fields]).flatten().flatten();
        let requirements = all.flat_map(|requirement| {
            let values = requirement.values.iter().flatten().map(String::len);
            values.chain([requirement.key.len() + requirement.operator.len()])
        });
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let tolerations = self.tolerations.iter().map(|Toleration { key, value, effect, operator, .. }| {
            [key, value, effect, operator].map(length).iter().sum::<usize>()
        });
        let lengths = labels.chain(terms().map(|_| 0)).chain(requirements).chain(tolerations);
        lengths.fold((0, 0), |(entries, bytes), length| (entries + 1, bytes + length))
    }

    /// Whether a pod has more of these than are kept: it isn't planned.
    pub(crate) fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Whether it tolerates a cordon, as a `DaemonSet`'s pods do.
    pub fn tolerates_cordon(&self) -> bool {
        let cordon = Taint { key: CORDON.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        is_tolerated(&cordon, &self.tolerations)
    }

    /// Why the pod may not run on a Node with this name, these labels and these taints; `None` if it may. A cordon, and
    /// whether the Node is ready, aren't considered.
    pub fn mismatch(&self, name: &str, labels: &BTreeMap<String, String>, taints: &[Taint]) -> Option<String> {
        self.obstacle(name, labels, taints).map(|obstacle| obstacle.to_string())
    }

    /// Obstacle in kube-scheduler's words, alike for many Nodes.
    pub(crate) fn reason(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        taints: &[Taint],
    ) -> Option<&'static str> {
        self.obstacle(name, labels, taints).map(|obstacle| match obstacle {
            Obstacle::Label { .. } | Obstacle::Affinity => "node(s) didn't match Pod's node affinity/selector",
            Obstacle::Taint(_) => "node(s) had untolerated taint(s)",
        })
    }

    /// Whether the pod may run on such a Node.
    pub(crate) fn matches(&self, name: &str, labels: &BTreeMap<String, String>, taints: &[Taint]) -> bool {
        self.obstacle(name, labels, taints).is_none()
    }

    fn obstacle<'a>(
        &'a self,
        name: &str,
        labels: &'a BTreeMap<String, String>,
        taints: &'a [Taint],
    ) -> Option<Obstacle<'a>> {
        if let Some((key, value)) = self.labels.iter().find(|(key, value)| labels.get(*key) != Some(*value)) {
            return Some(Obstacle::Label { key, wanted: value, present: labels.get(key) });
        }
        let matches = |term: &NodeSelectorTerm| term_matches(term, name, labels);
        if self.terms.as_ref().is_some_and(|terms| !terms.iter().any(matches)) {
            return Some(Obstacle::Affinity);
        }
        let hard = taints.iter().filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"));
        let mut hard = hard.filter(|taint| !OF_CONDITIONS.contains(&&*taint.key));
        hard.find(|taint| !is_tolerated(taint, &self.tolerations)).map(Obstacle::Taint)
    }
}

// === impl Obstacle ===

impl fmt::Display for Obstacle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { key, wanted, present: Some(other) } => {
                write!(f, "the pod's nodeSelector asks for {key}={wanted}, the node has {key}={other}")
            }
            Self::Label { key, wanted, present: None } => {
                write!(f, "the pod's nodeSelector asks for {key}={wanted}, the node has no label {key}")
            }
            Self::Affinity => f.write_str("the node's labels don't match the pod's required node affinity"),
            Self::Taint(Taint { key, value, effect, .. }) => {
                let value = value.as_deref().filter(|value| !value.is_empty());
                let value = value.map(|value| format!("={value}")).unwrap_or_default();
                write!(f, "the pod doesn't tolerate the node's taint {key}{value}:{effect}")
            }
        }
    }
}

/// `nodeaffinity.NewNodeSelector` of `k8s.io/component-helpers`: a term without requirements matches nothing.
fn term_matches(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |wanted: &NodeSelectorRequirement| holds(wanted, labels.get(&wanted.key).map(String::as_str));
    let field = |wanted: &NodeSelectorRequirement| holds(wanted, (wanted.key == "metadata.name").then_some(name));
    !(expressions.is_empty() && fields.is_empty()) && expressions.iter().all(label) && fields.iter().all(field)
}

/// Whether a label with this value, or none, fulfils a requirement.
fn holds(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let is_among = || value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match &*wanted.operator {
        "In" => is_among(),
        "NotIn" => !is_among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::PodView;

    fn mismatch(spec: &Value, labels: &[(&str, &str)], taints: &Value) -> Option<String> {
        let pod: PodView = serde_json::from_value(json!({ "spec": spec })).expect("a pod");
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let taints: Vec<Taint> = serde_json::from_value(taints.clone()).expect("taints");
        pod.scheduling.selection.mismatch("n1", &labels, &taints)
    }

    fn affinity(requirement: &Value) -> Value {
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [requirement] }] });
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
    }

    #[test]
    fn selector_affinity_and_taints_keep_a_pod_off() {
        assert_eq!(mismatch(&json!({}), &[], &json!([])), None);
        let selector = json!({ "nodeSelector": { "pool": "a" } });
        assert_eq!(mismatch(&selector, &[("pool", "a")], &json!([])), None);
        let other = mismatch(&selector, &[("pool", "b")], &json!([])).expect("another value");
        assert_eq!(other, "the pod's nodeSelector asks for pool=a, the node has pool=b");
        assert!(mismatch(&selector, &[], &json!([])).expect("no label").ends_with("the node has no label pool"));

        let taint = json!([{ "key": "team", "value": "ml", "effect": "NoSchedule" }]);
        assert!(mismatch(&json!({}), &[], &taint).expect("tainted").ends_with("taint team=ml:NoSchedule"));
        let tolerant = json!({ "tolerations": [{ "key": "team", "operator": "Exists" }] });
        assert_eq!(mismatch(&tolerant, &[], &taint), None);
        let soft = json!([{ "key": "team", "effect": "PreferNoSchedule" }]);
        let cordon = json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }]);
        assert_eq!((mismatch(&json!({}), &[], &soft), mismatch(&json!({}), &[], &cordon)), (None, None));
    }

    #[test]
    fn every_operator_of_node_affinity_is_known() {
        let cases = [
            (json!({ "key": "pool", "operator": "In", "values": ["a", "b"] }), true),
            (json!({ "key": "pool", "operator": "NotIn", "values": ["a"] }), false),
            (json!({ "key": "absent", "operator": "NotIn", "values": ["a"] }), true),
            (json!({ "key": "pool", "operator": "Exists" }), true),
            (json!({ "key": "pool", "operator": "DoesNotExist" }), false),
            (json!({ "key": "memory", "operator": "Gt", "values": ["40"] }), true),
            (json!({ "key": "memory", "operator": "Lt", "values": ["40"] }), false),
            (json!({ "key": "pool", "operator": "Gt", "values": ["40"] }), false),
            (json!({ "key": "pool", "operator": "Later", "values": ["a"] }), false),
        ];
        for (requirement, matches) in cases {
            let why = mismatch(&affinity(&requirement), &[("pool", "a"), ("memory", "80")], &json!([]));
            assert_eq!(why.is_none(), matches, "{requirement}");
        }
        let none = json!({ "nodeSelectorTerms": [{}] });
        let none =
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": none } } });
        assert!(mismatch(&none, &[], &json!([])).is_some(), "an empty term matches nothing");
    }
    #[test]
    fn taints_are_tolerated_as_by_the_scheduler() {
        let taint = |value: Option<&str>| Taint {
            key: "dedicated".into(),
            value: value.map(Into::into),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        let cases = [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "dedicated", "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "key": "dedicated", "value": "research" }), true),
            (json!({ "key": "dedicated", "value": "research", "effect": "NoSchedule" }), true),
            (json!({ "key": "dedicated", "value": "web" }), false),
            (json!({ "key": "dedicated" }), false),
            (json!({ "key": "other", "operator": "Exists" }), false),
            (json!({ "key": "dedicated", "operator": "Gt", "value": "1" }), false),
        ];
        for (toleration, is_let_in) in cases {
            let tolerations = [serde_json::from_value(toleration.clone()).expect("a toleration")];
            assert_eq!(is_tolerated(&taint(Some("research")), &tolerations), is_let_in, "{toleration}");
        }
        assert!(!is_tolerated(&taint(None), &[]));
    }
}
