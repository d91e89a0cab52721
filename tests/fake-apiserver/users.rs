//! Who asks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Whoever presents a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `kubernetes-admin`, `system:serviceaccount:divvy-system:divvy-webhook`.
    pub name: String,
    /// Those that the name brings along not included.
    pub groups: Vec<String>,
    /// What else an authenticator says of him, such as the node that a service account's pod runs on.
    pub extra: BTreeMap<String, Vec<String>>,
}

// === impl User ===

impl From<&str> for User {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

impl User {
    /// The user as a member of one group more.
    #[must_use]
    pub fn within(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    /// All groups, as an authenticator says them: a service account is in two by its name.
    pub(crate) fn all_groups(&self) -> Vec<String> {
        let account = self.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let by_name = account.into_iter().flat_map(|(namespace, _)| {
            ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
        });
        by_name.chain(self.groups.iter().cloned()).chain(["system:authenticated".to_owned()]).collect()
    }

    /// `authentication.k8s.io/v1` `UserInfo`.
    pub(crate) fn info(&self) -> Value {
        let mut info = json!({ "username": self.name, "groups": self.all_groups() });
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}
