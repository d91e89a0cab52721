//! What a request is about: an object, a subresource or a list.

use std::sync::Arc;

use super::object::Object;
use super::resource::Resource;
use super::status::{Answer, Refusal};
use super::store::{Key, Store};

/// What a request is about.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    /// Empty for all namespaces, and for what belongs to the cluster.
    pub(crate) namespace: String,
    /// Empty for all objects.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

// === impl Target ===

impl Target {
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.resource, &self.namespace, &self.name)
    }

    pub(crate) fn live<'a>(&self, store: &'a Store) -> Answer<&'a Arc<Object>> {
        store.get(&self.key()).ok_or_else(|| Refusal::not_found(&self.resource, &self.name))
    }

    /// Returns the refusal of a write to an object of another UID (`storage.Preconditions`).
    pub(crate) fn other_uid(&self, given: &str, uid: &str) -> Refusal {
        let Self { resource, namespace, name, .. } = self;
        let within = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{within}{name}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {uid}",
            resource.plural
        );
        Refusal::conflict(resource, "", name, &why)
    }

    /// Returns the refusal of a request that no role allows.
    pub(crate) fn forbidden_to(&self, user: &str, verb: &str) -> Refusal {
        let Self { resource, namespace, name, subresource } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let what = format!("resource \"{}{slash}{subresource}\" in API group \"{}\"", resource.plural, resource.group);
        let place = match namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        Refusal::forbidden(resource, name, &format!("User \"{user}\" cannot {verb} {what} {place}"))
    }
}
