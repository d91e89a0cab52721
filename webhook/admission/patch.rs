//! A JSON patch (RFC 6902) of exactly what changes, so that fields which nobody here knows survive.

use std::collections::BTreeMap;

use divvy_api::quantity::parse_count;
use serde::Serialize;
use serde_json::Value;

use super::pod::Amounts;

/// Operations in the order in which they apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Patch(Vec<Operation>);

/// `add` also replaces a member that is there, so no other way to write is needed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Operation {
    Add { path: String, value: Value },
    Remove { path: String },
}

/// Members of an object that change: to a value, or to nothing.
pub(super) type Changes = BTreeMap<String, Option<Value>>;

// === impl Patch ===

impl Patch {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the changes of another patch after these.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Moves the changes to an object that lies at `path` in another one.
    pub(super) fn within(self, path: &str) -> Self {
        Self(self.0.into_iter().map(|operation| operation.within(path)).collect())
    }

    /// Where the first change is.
    pub(super) fn first(&self) -> Option<&str> {
        self.0.first().map(|operation| match operation {
            Operation::Add { path, .. } | Operation::Remove { path } => path.as_str(),
        })
    }

    /// Changes members of the object at `path`, which is made if it isn't there. Only members that are there may be
    /// removed.
    pub(super) fn change(&mut self, path: &str, exists: bool, changes: Changes) {
        if exists {
            self.0.extend(changes.into_iter().map(|(member, value)| {
                let path = format!("{path}/{}", token(&member));
                value.map_or(Operation::Remove { path: path.clone() }, |value| Operation::Add { path, value })
            }));
        } else if !changes.is_empty() {
            self.add(path, changes.into_iter().collect());
        }
    }

    /// Appends to the list at `path`, which is made if it isn't there.
    pub(super) fn append(&mut self, path: &str, exists: bool, items: Vec<Value>) {
        if exists {
            self.0.extend(items.into_iter().map(|value| Operation::Add { path: format!("{path}/-"), value }));
        } else if !items.is_empty() {
            self.add(path, items.into());
        }
    }

    /// Removes the items at these positions of the list at `path`.
    pub(super) fn remove(&mut self, path: &str, mut positions: Vec<usize>) {
        // Those behind an item move up when it goes.
        positions.sort_unstable_by(|a, b| b.cmp(a));
        self.0.extend(positions.into_iter().map(|position| Operation::Remove { path: format!("{path}/{position}") }));
    }

    /// Sets the value at `path`; what holds it must be there.
    pub(super) fn add(&mut self, path: &str, value: Value) {
        self.0.push(Operation::Add { path: path.to_owned(), value });
    }
}

// === impl Operation ===

impl Operation {
    fn within(self, outer: &str) -> Self {
        match self {
            Self::Add { path, value } => Self::Add { path: format!("{outer}{path}"), value },
            Self::Remove { path } => Self::Remove { path: format!("{outer}{path}") },
        }
    }
}

/// How a list of amounts has to change to have these, and no other of the resources that are meant. An amount that Kubernetes
/// already reads as the same number stays as it is written: the API server writes 80000 as `80k`.
pub(super) fn amounts(
    present: Option<&Amounts>,
    wanted: &BTreeMap<String, String>,
    is_meant: impl Fn(&str) -> bool,
) -> Changes {
    let text = |name: &str| present.and_then(|amounts| amounts.get(name)).map(|amount| amount.0.as_str());
    let surplus = present.into_iter().flat_map(BTreeMap::keys);
    let surplus = surplus.filter(|name| is_meant(name) && !wanted.contains_key(*name));
    let is_there = |name: &str, amount: &str| text(name).map(parse_count) == Some(parse_count(amount));
    let missing = wanted.iter().filter(|(name, amount)| !is_there(name, amount));
    let missing = missing.map(|(name, amount)| (name.clone(), Some(amount.as_str().into())));
    surplus.map(|name| (name.clone(), None)).chain(missing).collect()
}

/// Changes members of a map of texts as [`Patch::change`] does those of the object.
pub(super) fn apply<T>(changes: &Changes, members: &mut BTreeMap<String, T>, value: impl Fn(&str) -> T) {
    for (member, change) in changes {
        match change.as_ref().and_then(Value::as_str) {
            Some(text) => drop(members.insert(member.clone(), value(text))),
            None => drop(members.remove(member)),
        }
    }
}

/// A member's name as part of a JSON pointer (RFC 6901).
fn token(member: &str) -> String {
    member.replace('~', "~0").replace('/', "~1")
}
