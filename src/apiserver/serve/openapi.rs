//! What the objects consist of, for `kubectl explain` and for kube-apiserver, which asks every API that it aggregates.

use serde_json::{Value, json};

use crate::objects::{API_VERSION, GROUP, Kind, VERSION};

/// Paths and what is there.
pub fn documents() -> [(String, Value); 3] {
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
    for kind in Kind::ALL {
        let (name, list) = (kind.as_str().to_owned(), format!("{}List", kind.as_str()));
        schemas[&name] = schema(kind);
        schemas[&list] = json!({
            "type": "object", "description": format!("{name}s"), "required": ["items"],
            "properties": {
                "apiVersion": { "type": "string" }, "kind": { "type": "string" }, "metadata": { "type": "object" },
                "items": { "type": "array", "items": reference(&name) },
            },
            "x-kubernetes-group-version-kind": [identity(&list)],
        });
        let answer = |schema: &str| {
            let content = json!({ "application/json": { "schema": reference(schema) } });
            json!({ "200": { "description": "OK", "content": content } })
        };
        let operation = |action: &str, schema: &str| {
            json!({ "get": {
                "responses": answer(schema), "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": identity(kind.as_str()),
            } })
        };
        let path = format!("/apis/{API_VERSION}/{}", kind.plural());
        paths[&path] = operation("list", &list);
        let mut one = operation("get", &name);
        one["parameters"] = json!([{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }]);
        paths[format!("{path}/{{name}}")] = one;
    }
    json!({ "openapi": "3.0.0", "info": info(), "paths": paths, "components": { "schemas": schemas } })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn info() -> Value {
    json!({ "title": "divvy-apiserver", "version": env!("CARGO_PKG_VERSION") })
}

fn identity(kind: &str) -> Value {
    json!({ "group": GROUP, "version": VERSION, "kind": kind })
}

fn schema(kind: Kind) -> Value {
    let (description, spec, status) = match kind {
        Kind::PodResource => (
            "A pod and the GPUs that its containers hold",
            pod_resource(),
            json!({
                "last_changed_time": text("When its node reported the GPUs; after a restart of the server, the node's latest report"),
            }),
        ),
        Kind::GpuInfo => (
            "A node and its GPUs",
            gpu_info(),
            json!({
                "node_health": text("Condition Ready of the GpuNode: True, False or UnKnow"),
                "node_last_health_time": text("Since when that is so"),
            }),
        ),
    };
    json!({
        "type": "object", "description": description,
        "properties": {
            "apiVersion": text("metrics.nvidia.com/v1alpha1"), "kind": text(kind.as_str()),
            "metadata": { "type": "object", "description": "Name, UID and resourceVersion" },
            "spec": object("What is reported", &spec), "status": object("How current it is", &status),
        },
        "x-kubernetes-group-version-kind": [identity(kind.as_str())],
    })
}

fn pod_resource() -> Value {
    let container = json!({
        "container_name": text("Name of the container"),
        "device_info": array("GPUs that it holds shares of", &device()),
    });
    json!({
        "pod_name": text("Name of the pod"), "pod_namespace": text("Namespace of the pod"),
        "containers_device": array("Containers that hold GPUs", &object("A container", &container)),
    })
}

fn gpu_info() -> Value {
    let ids = array("UUIDs", &text("UUID"));
    json!({
        "device_node": text("Name of the node"),
        "device_infos": { "type": "object", "description": "GPUs by UUID", "additionalProperties": device() },
        "device_models": { "type": "object", "description": "UUIDs by model in lower case", "additionalProperties": ids },
        "report_time": text("When the GpuNode was written last"),
        "device_busy": array("GPUs of which a container holds a share", &text("UUID")),
    })
}

fn device() -> Value {
    object(
        "A GPU",
        &json!({
            "device_id": text("UUID"), "device_model": text("Product name as NVML gives it"),
            "device_node": text("Name of the node"),
            "device_problem": text("Unhealthy, or NotReported if a container holds it and the node doesn't report it"),
        }),
    )
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn array(description: &str, items: &Value) -> Value {
    json!({ "type": "array", "description": description, "items": items })
}

fn object(description: &str, properties: &Value) -> Value {
    json!({ "type": "object", "description": description, "properties": properties })
}
