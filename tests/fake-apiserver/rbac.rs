//! Who may do what, from the roles and bindings that are stored (`pkg/registry/rbac/validation` and
//! `plugin/pkg/auth/authorizer/rbac`). Roles that aggregate others aren't filled in: no controller does that here.

use serde_json::Value;

use super::object::{self, items, text};
use super::store::{Key, Store};

/// Who asks, as an authorizer knows him.
pub(crate) struct Subject<'a> {
    pub(crate) user: &'a str,
    pub(crate) groups: &'a [String],
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Action<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    /// Empty for a path that is no resource.
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    /// Empty for all of them.
    pub(crate) name: &'a str,
    /// Empty for what belongs to the cluster, and for all namespaces.
    pub(crate) namespace: &'a str,
    /// Path of what is no resource.
    pub(crate) path: &'a str,
}

/// The one group that needs no role.
const MASTERS: &str = "system:masters";

/// Why the action is allowed, if it is.
pub(crate) fn allows(store: &Store, subject: &Subject<'_>, action: &Action<'_>) -> Option<String> {
    if subject.groups.iter().any(|group| group == MASTERS) {
        return Some(String::new());
    }
    let everywhere = store.resources.of_kind("ClusterRoleBinding").map(|own| store.list(own, None));
    let here = Some(action.namespace).filter(|namespace| !namespace.is_empty());
    let here = here.and_then(|here| Some(store.list(store.resources.of_kind("RoleBinding")?, Some(here))));
    let mut bindings = everywhere.into_iter().chain(here).flat_map(std::collections::BTreeMap::into_values);
    bindings.find_map(|binding| {
        let member = items(&binding, "/subjects").iter().find(|member| subject.is(member))?;
        let role = role_of(store, &binding)?;
        let allowed = items(role, "/rules").iter().any(|rule| action.is_in(rule));
        allowed.then(|| {
            let (kind, name) = (text(&binding, "/kind"), object::name(&binding));
            let (role_kind, role) = (text(&binding, "/roleRef/kind"), text(&binding, "/roleRef/name"));
            let (member_kind, member) = (text(member, "/kind"), text(member, "/name"));
            format!("RBAC: allowed by {kind} {name:?} of {role_kind} {role:?} to {member_kind} {member:?}")
        })
    })
}

fn role_of<'a>(store: &'a Store, binding: &Value) -> Option<&'a Value> {
    let resource = store.resources.of_kind(text(binding, "/roleRef/kind"))?;
    let key = Key::new(resource, object::namespace(binding), text(binding, "/roleRef/name"));
    store.get(&key).map(|role| &**role)
}

// === impl Subject ===

impl Subject<'_> {
    fn is(&self, member: &Value) -> bool {
        let name = text(member, "/name");
        match text(member, "/kind") {
            "User" => name == self.user,
            "Group" => self.groups.iter().any(|group| group == name),
            "ServiceAccount" => self.user == format!("system:serviceaccount:{}:{name}", text(member, "/namespace")),
            _ => false,
        }
    }
}

// === impl Action ===

impl Action<'_> {
    fn is_in(&self, rule: &Value) -> bool {
        let any = |field: &str, wanted: &[&str]| {
            let mut given = items(rule, field).iter().filter_map(Value::as_str);
            given.any(|own| own == "*" || wanted.contains(&own))
        };
        if !any("/verbs", &[self.verb]) {
            return false;
        }
        if self.resource.is_empty() {
            let mut paths = items(rule, "/nonResourceURLs").iter().filter_map(Value::as_str);
            return paths.any(|own| match own.strip_suffix('*') {
                Some(start) => self.path.starts_with(start),
                None => own == self.path,
            });
        }
        let names = items(rule, "/resourceNames");
        let chosen = names.is_empty() || (!self.name.is_empty() && names.iter().any(|name| name == self.name));
        let resource = if self.subresource.is_empty() {
            any("/resources", &[self.resource])
        } else {
            let whole = format!("{}/{}", self.resource, self.subresource);
            any("/resources", &[&whole, &format!("*/{}", self.subresource)])
        };
        chosen && resource && any("/apiGroups", &[self.group])
    }
}
