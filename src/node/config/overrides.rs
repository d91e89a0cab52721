//! Selectors of `overrides`: which nodes an entry is for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::core::{Expression, SelectorExt as _};
use serde::Deserialize;

/// A LabelSelector of Kubernetes in which an unknown key is an error. An empty one matches every node.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "LabelSelector")]
pub(super) struct Selector(kube::core::Selector);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct LabelSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Deserialize)]
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
    /// Whether it matches a node with these labels.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.matches(labels)
    }
}

impl TryFrom<LabelSelector> for Selector {
    type Error = String;

    fn try_from(selector: LabelSelector) -> Result<Self, String> {
        let labels = selector.match_labels.into_iter().map(|(key, value)| Ok(Expression::Equal(key, value)));
        let requirements = selector.match_expressions.into_iter().map(Expression::try_from);
        labels.chain(requirements).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Selector {
    /// Writes it as `kubectl --selector` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.selects_all() { f.write_str("every node") } else { self.0.fmt(f) }
    }
}

impl TryFrom<Requirement> for Expression {
    type Error = String;

    fn try_from(Requirement { key, operator, values }: Requirement) -> Result<Self, String> {
        match (operator, values.is_empty()) {
            (Operator::In, false) => Ok(Self::In(key, values)),
            (Operator::NotIn, false) => Ok(Self::NotIn(key, values)),
            (Operator::Exists, true) => Ok(Self::Exists(key)),
            (Operator::DoesNotExist, true) => Ok(Self::DoesNotExist(key)),
            (Operator::In | Operator::NotIn, true) => Err(format!("{key}: operator {operator:?} needs values")),
            (_, false) => Err(format!("{key}: operator {operator:?} takes no values")),
        }
    }
}
