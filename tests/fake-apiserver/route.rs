//! What a request is about, from its path and its query.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::Method;

use super::resource::Resources;
use super::target::Target;

/// A path.
#[derive(Debug)]
pub(crate) enum Route {
    /// Discovery and what else is no resource.
    Root(Vec<String>),
    Resource(Target),
    Nowhere,
}

/// The parameters of a query; the last of several by one name counts.
#[derive(Debug, Default)]
pub(crate) struct Params(HashMap<String, String>);

// === impl Route ===

impl Route {
    pub(crate) fn parse(path: &str, resources: &Resources) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            other => return Self::Root(other.iter().map(|&part| part.to_owned()).collect()),
        };
        let (namespace, plural, rest) = match rest {
            // `/namespaces/x` and its subresources are about the namespace itself.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", "namespaces", &rest[1..]),
            ["namespaces", namespace, plural, rest @ ..] => (*namespace, *plural, rest),
            [plural, rest @ ..] => ("", *plural, rest),
            [] => return Self::Nowhere,
        };
        let (name, subresource) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            // What follows is the pod's own affair.
            [name, "proxy", ..] if plural == "pods" => (*name, "proxy"),
            [name, subresource] => (*name, *subresource),
            _ => return Self::Nowhere,
        };
        let Some(resource) = resources.find(group, version, plural) else { return Self::Nowhere };
        let scoped = resource.namespaced || namespace.is_empty();
        let placed = !resource.namespaced || !namespace.is_empty() || name.is_empty();
        let known = matches!(subresource, "" | "proxy") || resource.has(subresource);
        if !(scoped && placed && known) {
            return Self::Nowhere;
        }
        Self::Resource(Target {
            resource: Arc::clone(resource),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        })
    }

    /// The verb, in the words of RBAC; that of the HTTP method where none fits.
    pub(crate) fn verb(&self, method: &Method, params: &Params) -> &'static str {
        let all = matches!(self, Self::Resource(target) if target.name.is_empty());
        match *method {
            Method::GET if params.is("watch") && !matches!(self, Self::Root(_)) => "watch",
            Method::GET if all => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if all => "deletecollection",
            Method::DELETE => "delete",
            _ => "other",
        }
    }
}

// === impl Params ===

impl Params {
    pub(crate) fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Empty if it isn't given.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1" | "True")
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).parse().ok()
    }
}
