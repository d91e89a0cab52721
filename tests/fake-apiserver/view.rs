//! What a test or the playground may look at.

use std::sync::Arc;

use serde_json::Value;

use super::core::State;
use super::log::Request;
use super::object::{self, text};
use super::resource::Resource;
use super::status::{Answer, Refusal};
use super::store::Key;
use super::target::Target;

/// An API server at one instant.
pub struct View<'a>(&'a State);

// === impl View ===

impl<'a> View<'a> {
    pub(crate) fn of(state: &'a State) -> Self {
        Self(state)
    }

    /// An object; the namespace of what belongs to the cluster is empty.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.0.store.resources.of_kind(kind)?;
        Some(resource.show(self.0.store.get(&Key::new(resource, namespace, name))?))
    }

    /// The object as it is kept, which for most kinds is as it is shown.
    pub fn kept(&self, kind: &str, namespace: &str, name: &str) -> Option<&'a Value> {
        let resource = self.0.store.resources.of_kind(kind)?;
        Some(&**self.0.store.get(&Key::new(resource, namespace, name))?)
    }

    /// All objects of a kind, by namespace and name.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let Some(resource) = self.0.store.resources.of_kind(kind) else { return Vec::new() };
        self.0.store.list(resource, None).values().map(|object| resource.show(object)).collect()
    }

    /// The same, as they are kept.
    pub fn all_kept(&self, kind: &str) -> Vec<Arc<Value>> {
        let resource = self.0.store.resources.of_kind(kind);
        resource.map(|resource| self.0.store.list(resource, None).into_values().collect()).unwrap_or_default()
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> &'a [Request] {
        &self.0.log
    }
}

/// Where an object of this kind and name is.
pub(crate) fn target(state: &State, kind: &str, namespace: &str, name: &str) -> Answer<Target> {
    let resource = state.store.resources.of_kind(kind).ok_or_else(Refusal::no_resource)?;
    Ok(place(resource, namespace, name))
}

/// Where this object belongs.
pub(crate) fn target_of(state: &State, object: &Value) -> Answer<Target> {
    let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
    let mut served = state.store.resources.iter();
    let resource = served.find(|own| own.kind == kind && own.api_version() == version);
    let namespace = Some(object::namespace(object)).filter(|own| !own.is_empty()).unwrap_or("default");
    Ok(place(resource.ok_or_else(Refusal::no_resource)?, namespace, object::name(object)))
}

fn place(resource: &Arc<Resource>, namespace: &str, name: &str) -> Target {
    Target {
        resource: Arc::clone(resource),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
    }
}
