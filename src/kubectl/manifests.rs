//! Files of manifests, and the pods in them.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use anyhow::anyhow;
use serde_json::{Value, json};
use serde_saphyr::Spanned;

use crate::text::first_line;

/// Text of a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    if path == Path::new("-") { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) }
}

/// Objects of a text of one or more documents, those of a List one by one.
pub(crate) fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    Ok(objects(text)?.into_iter().map(|(_, object)| object).collect())
}

/// The same, each with the line on which its document begins.
pub(crate) fn objects(text: &str) -> anyhow::Result<Vec<(u64, Value)>> {
    // The parser refuses many comments in a row, unless it may forget them. 010 is 8 for kubectl. A List of a cluster's
    // workloads has any number of nodes; depth and aliases stay limited.
    let unlimited = usize::MAX;
    let options = serde_saphyr::options! {
        emit_comments: false,
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! {
            max_documents: unlimited, max_events: unlimited, max_nodes: unlimited, max_total_scalar_bytes: unlimited,
        },
    };
    let documents: Vec<Spanned<Value>> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| anyhow!(first_line(&error)))?;
    let objects = documents.into_iter().flat_map(|Spanned { value, referenced, .. }| {
        items(value).into_iter().map(move |object| (referenced.line(), object))
    });
    Ok(objects.collect())
}

/// The object, or those of a List.
fn items(mut object: Value) -> Vec<Value> {
    let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match object.get_mut("items") {
        Some(Value::Array(items)) if is_list => std::mem::take(items),
        _ => vec![object],
    }
}

/// The object itself, if it is a pod, or its only pod template.
pub(crate) fn template(object: &Value) -> Option<Cow<'_, Value>> {
    let mut templates = templates(object).into_iter();
    templates.next().filter(|_| templates.next().is_none()).map(|(_, template)| template)
}

/// Pod templates of an object of whatever kind, with their paths: `spec.tasks[1].template`. A pod is its own, without a path;
/// what stands alone, such as KServe's `spec.predictor`, is the `spec` of one.
pub(crate) fn templates(object: &Value) -> Vec<(String, Cow<'_, Value>)> {
    let mut found = Vec::new();
    if object["kind"] == "Pod" {
        found.push((String::new(), Cow::Borrowed(object)));
    } else {
        find(object, "", &mut found);
    }
    found
}

/// Goes as deep as documents do, which is 64 levels: the parser refuses more.
fn find<'o>(value: &'o Value, path: &str, found: &mut Vec<(String, Cow<'o, Value>)>) {
    let has_containers =
        |spec: &Value| spec["containers"].as_array().is_some_and(|containers| containers.iter().all(Value::is_object));
    if has_containers(&value["spec"]) {
        found.push((path.to_owned(), Cow::Borrowed(value)));
    }
    match value {
        Value::Object(fields) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (key, field) in fields {
                let path = format!("{path}{dot}{key}");
                if key != "spec" && has_containers(field) {
                    found.push((path.clone(), Cow::Owned(json!({ "spec": field }))));
                }
                find(field, &path, found);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| find(item, &format!("{path}[{at}]"), found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of all pod templates, and the names of their first containers.
    fn found(text: &str) -> Vec<String> {
        let objects = documents(text).expect("valid YAML");
        let templates = objects.iter().flat_map(templates);
        templates.map(|(path, template)| format!("{path} {}", template["spec"]["containers"][0]["name"])).collect()
    }

    #[test]
    fn pod_templates_of_every_kind_are_found() {
        let of = |name: &str| format!("{{spec: {{containers: [{{name: {name}}}]}}}}");
        let job = format!("{{kind: Job, spec: {{tasks: [{{template: {}}}, {{template: {}}}]}}}}", of("a"), of("b"));
        assert_eq!(found(&job), [r#"spec.tasks[0].template "a""#, r#"spec.tasks[1].template "b""#]);
        let ray = format!("{{kind: RayCluster, spec: {{headGroupSpec: {{template: {}}}}}}}", of("head"));
        assert_eq!(found(&ray), [r#"spec.headGroupSpec.template "head""#]);
        assert_eq!(found(&format!("{{kind: List, items: [{ray}, {job}]}}")).len(), 3);
        let predictor = "{kind: InferenceService, spec: {predictor: {containers: [{name: a}]}}}";
        assert_eq!(found(predictor), [r#"spec.predictor "a""#]);
        let nested = format!("{{kind: A, spec: {{containers: [{{name: a}}], worker: {}}}}}", of("b"));
        assert_eq!(found(&nested), [r#" "a""#, r#"spec.worker "b""#]);
        assert_eq!(found("{kind: Pod, spec: 3}"), [" null"]);
        for other in ["{kind: A, spec: {containers: [main]}}", "{kind: A, spec: {containers: {a: 1}}}", "[1]", "a"] {
            assert_eq!(found(other), [""; 0], "{other}");
        }
    }

    #[test]
    fn which_of_several_templates_is_not_guessed() {
        let template_of = |text: &str| template(&documents(text).expect("valid YAML")[0]).map(Cow::into_owned);
        let one = "{spec: {containers: [{name: a}]}}";
        assert!(template_of(&format!("{{kind: PyTorchJob, spec: {{Master: {one}}}}}")).is_some());
        assert!(template_of(&format!("{{kind: PyTorchJob, spec: {{Master: {one}, Worker: {one}}}}}")).is_none());
    }

    #[test]
    fn objects_are_told_with_the_lines_of_their_documents() {
        let text = "# a\n---\nkind: A\n---\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n";
        let lines: Vec<(u64, Value)> = objects(text).expect("valid YAML");
        let lines: Vec<(u64, &str)> =
            lines.iter().map(|(line, of)| (*line, of["kind"].as_str().expect("one"))).collect();
        assert_eq!(lines, [(3, "A"), (6, "B"), (6, "C")]);
    }

    #[test]
    fn numbers_are_read_as_kubectl_reads_them() {
        assert_eq!(documents("{a: 010, b: 10}").expect("valid YAML"), [json!({ "a": 8, "b": 10 })]);
    }

    #[test]
    fn list_of_all_workloads_of_a_cluster_is_read_whole() {
        let object = format!("- {{kind: A, spec: {{replicas: [{}]}}}}\n", "1, ".repeat(30));
        let list = format!("kind: List\nitems:\n{}", object.repeat(10_000));
        assert_eq!(documents(&list).expect("valid YAML").len(), 10_000);
        assert_eq!(documents(&"---\nkind: A\n".repeat(2000)).expect("valid YAML").len(), 2000);
    }

    #[test]
    fn many_comments_in_a_row_are_no_matter() {
        let comments = "# a\n".repeat(1000);
        let text = format!("{comments}kind: A\nspec:\n{comments}  a:\n{comments}  - 1\n  b: |\n    # c\n    d\n");
        let read = documents(&text).expect("valid YAML");
        assert_eq!(read, [serde_json::json!({ "kind": "A", "spec": { "a": [1], "b": "# c\nd\n" } })]);
    }
}
