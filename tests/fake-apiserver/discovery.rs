//! What is served, for clients that ask first.

use serde_json::{Value, json};

use super::resource::{Resource, Resources};
use super::reviews;

/// The answer at a path outside of all resources.
pub(crate) fn answer(path: &[String], resources: &Resources) -> Option<Value> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["version"] => Some(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "2026-04-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
        })),
        ["api"] => Some(json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })),
        ["apis"] => {
            let groups: Vec<Value> = groups(resources).iter().map(|name| group(name, resources)).collect();
            Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["api", version] => of_version("", version, resources),
        ["apis", name] => groups(resources).contains(name).then(|| group(name, resources)),
        ["apis", group, version] => of_version(group, version, resources),
        ["openapi", "v3"] => Some(openapi(resources)),
        ["openapi", "v3", "api", version] => schema("", version, resources),
        ["openapi", "v3", "apis", group, version] => schema(group, version, resources),
        _ => None,
    }
}

/// Named groups, in the order of the table.
fn groups(resources: &Resources) -> Vec<&str> {
    let mut groups = Vec::new();
    for resource in resources.iter().filter(|own| !own.group.is_empty()) {
        if !groups.contains(&resource.group.as_str()) {
            groups.push(resource.group.as_str());
        }
    }
    groups
}

fn versions<'a>(group: &str, resources: &'a Resources) -> Vec<&'a str> {
    let mut versions: Vec<&str> =
        resources.iter().filter(|own| own.group == group).map(|own| own.version.as_str()).collect();
    versions.dedup();
    versions
}

fn group(name: &str, resources: &Resources) -> Value {
    let version = |version: &&str| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let versions: Vec<Value> = versions(name, resources).iter().map(version).collect();
    json!({ "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions[0] })
}

fn of_version(group: &str, version: &str, resources: &Resources) -> Option<Value> {
    let own: Vec<Value> = within(group, version, resources).flat_map(entries).collect();
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let list = json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": own });
    (!own.is_empty()).then_some(list)
}

fn within<'a>(group: &str, version: &str, resources: &'a Resources) -> impl Iterator<Item = &'a Resource> {
    resources.iter().map(AsRef::as_ref).filter(move |own: &&Resource| own.group == group && own.version == version)
}

/// The resource and its subresources.
fn entries(resource: &Resource) -> Vec<Value> {
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let verbs = if reviews::is_question(resource) { &all[..1] } else { &all[..] };
    let mut own = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs,
    });
    for (field, names) in [("shortNames", &resource.short), ("categories", &resource.categories)] {
        if !names.is_empty() {
            own[field] = names.iter().map(String::as_str).collect();
        }
    }
    let sub = resource.subresources.iter().map(|subresource| {
        let name = format!("{}/{subresource}", resource.plural);
        let mut entry = json!({ "name": name, "singularName": "", "namespaced": resource.namespaced });
        let (kind, verbs): (_, &[&str]) = match subresource.as_str() {
            "binding" => ("Binding", &["create"]),
            "eviction" => ("Eviction", &["create"]),
            "log" => ("Pod", &["get"]),
            "portforward" => ("PodPortForwardOptions", &["create", "get"]),
            "scale" => ("Scale", &["get", "patch", "update"]),
            _ => (resource.kind.as_str(), &["get", "patch", "update"]),
        };
        entry["kind"] = kind.into();
        entry["verbs"] = verbs.iter().copied().collect();
        let of_another_group = match kind {
            "Eviction" => Some("policy"),
            "Scale" => Some("autoscaling"),
            _ => None,
        };
        if let Some(group) = of_another_group {
            entry["group"] = group.into();
            entry["version"] = "v1".into();
        }
        entry
    });
    [own].into_iter().chain(sub).collect()
}

fn openapi(resources: &Resources) -> Value {
    let mut paths = json!({});
    for resource in resources.iter() {
        let (version, prefix) = (resource.api_version(), if resource.group.is_empty() { "api" } else { "apis" });
        paths[format!("{prefix}/{version}")] =
            json!({ "serverRelativeURL": format!("/openapi/v3/{prefix}/{version}") });
    }
    json!({ "paths": paths })
}

/// As much of a schema as tells kubectl that fields are validated here, so that it doesn't try to by itself.
fn schema(group: &str, version: &str, resources: &Resources) -> Option<Value> {
    let mut paths = json!({});
    for resource in within(group, version, resources) {
        let prefix = if group.is_empty() { "/api" } else { "/apis" };
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let path = format!("{prefix}/{}{scope}/{}/{{name}}", resource.api_version(), resource.plural);
        let parameter = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
        paths[path]["patch"] = json!({
            "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": { "group": group, "kind": resource.kind, "version": version },
        });
    }
    let any = paths.as_object().is_some_and(|paths| !paths.is_empty());
    let info = json!({ "title": "Kubernetes", "version": "v1.36.0" });
    any.then(|| json!({ "openapi": "3.0.0", "info": info, "paths": paths }))
}
