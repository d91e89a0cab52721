//! Which nodes an entry of `overrides` is for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

/// A LabelSelector as Kubernetes has it: all of it must hold. An empty one holds for every node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

// === impl Selector ===

impl Selector {
    /// Whether it holds for a node with these labels.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(equal) && self.match_expressions.iter().all(|required| required.holds(labels))
    }

    /// The rule that it breaks, as the API server would say.
    pub(super) fn check(&self) -> Result<(), String> {
        self.match_expressions.iter().try_for_each(Requirement::check)
    }
}

impl fmt::Display for Selector {
    /// As `kubectl --selector` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equal = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let parts: Vec<String> = equal.chain(self.match_expressions.iter().map(Requirement::to_string)).collect();
        if parts.is_empty() { f.write_str("every node") } else { f.write_str(&parts.join(",")) }
    }
}

// === impl Requirement ===

impl Requirement {
    /// A label that isn't there has no value, and so is in no set.
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_in = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => is_in,
            Operator::NotIn => !is_in,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let Self { key, operator, values } = self;
        let wants_values = matches!(operator, Operator::In | Operator::NotIn);
        match (wants_values, values.is_empty()) {
            (true, true) => Err(format!("selector: {key}: operator {operator:?} needs values")),
            (false, false) => Err(format!("selector: {key}: operator {operator:?} takes no values")),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        match self.operator {
            Operator::In => write!(f, "{} in ({values})", self.key),
            Operator::NotIn => write!(f, "{} notin ({values})", self.key),
            Operator::Exists => f.write_str(&self.key),
            Operator::DoesNotExist => write!(f, "!{}", self.key),
        }
    }
}
