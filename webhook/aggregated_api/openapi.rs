//! What the objects consist of, for `kubectl explain` and for kube-apiserver, which asks every API that it aggregates.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::objects::{
    API_VERSION, GROUP, GpuInfoSpec, GpuInfoStatus, PodResourceSpec, PodResourceStatus, ServedKind, VERSION,
};

/// Paths and what is there.
pub(super) fn documents() -> [(String, Value); 3] {
    let path = format!("/openapi/v3/apis/{API_VERSION}");
    [("/openapi/v2".to_owned(), v2()), ("/openapi/v3".to_owned(), v3_index(&path)), (path, v3())]
}

/// kube-apiserver reads it from every API, and clients of today the third version. So nothing is in it.
fn v2() -> Value {
    json!({ "swagger": "2.0", "info": info(), "paths": {}, "definitions": {} })
}

/// Where the document is.
fn v3_index(path: &str) -> Value {
    let url = format!("{path}?hash={}", env!("CARGO_PKG_VERSION"));
    json!({ "paths": { (format!("apis/{API_VERSION}")): { "serverRelativeURL": url } } })
}

fn v3() -> Value {
    let mut schemas = json!({});
    let mut paths = json!({});
    for kind in ServedKind::ALL {
        let name = kind.as_str();
        let list = format!("{}List", kind.as_str());
        schemas[name] = object(kind);
        schemas[&list] = list_of(kind);
        let path = format!("/apis/{API_VERSION}/{}", kind.plural());
        paths[&path] = operation(kind, "list", &list);
        let mut one = operation(kind, "get", name);
        one["parameters"] = json!([{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }]);
        paths[format!("{path}/{{name}}")] = one;
    }
    json!({ "openapi": "3.0.0", "info": info(), "paths": paths, "components": { "schemas": schemas } })
}

fn operation(kind: ServedKind, action: &str, schema: &str) -> Value {
    let content = json!({ "application/json": { "schema": reference(schema) } });
    json!({ "get": {
        "responses": { "200": { "description": "OK", "content": content } },
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": identity(kind.as_str()),
    } })
}

fn object(kind: ServedKind) -> Value {
    let (description, spec, status) = match kind {
        ServedKind::PodResource => {
            ("A pod and the GPUs that its containers hold", schema::<PodResourceSpec>(), schema::<PodResourceStatus>())
        }
        ServedKind::GpuInfo => ("A node and its GPUs", schema::<GpuInfoSpec>(), schema::<GpuInfoStatus>()),
    };
    json!({
        "type": "object", "description": description,
        "properties": {
            "apiVersion": { "type": "string", "description": API_VERSION },
            "kind": { "type": "string", "description": kind.as_str() },
            "metadata": { "type": "object", "description": "Name, UID and resourceVersion" },
            "spec": spec, "status": status,
        },
        "x-kubernetes-group-version-kind": [identity(kind.as_str())],
    })
}

fn list_of(kind: ServedKind) -> Value {
    json!({
        "type": "object", "description": format!("{}s", kind.as_str()), "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string" }, "kind": { "type": "string" }, "metadata": { "type": "object" },
            "items": { "type": "array", "items": reference(kind.as_str()) },
        },
        "x-kubernetes-group-version-kind": [identity(&format!("{}List", kind.as_str()))],
    })
}

/// Schema of a part of an object; its descriptions are the documentation of the type's fields.
fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    schema.into()
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn info() -> Value {
    json!({ "title": divvy_api::installation::WEBHOOK, "version": env!("CARGO_PKG_VERSION") })
}

fn identity(kind: &str) -> Value {
    json!({ "group": GROUP, "version": VERSION, "kind": kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_of_fields_is_what_kubectl_explains() {
        let schemas = v3()["components"]["schemas"].take();
        let properties = |kind: &str, part: &str| schemas[kind]["properties"][part]["properties"].clone();
        let containers = properties("PodResource", "spec")["containers_device"].clone();
        assert_eq!(containers["description"], "Containers that hold GPUs");
        let devices = &containers["items"]["properties"]["device_info"];
        assert_eq!(devices["description"], "GPUs that it holds shares of");
        let health =
            json!({ "type": "string", "description": "Condition Ready of the GpuNode: True, False or UnKnow" });
        assert_eq!(properties("GpuInfo", "status")["node_health"], health);
    }
}
