//! Pods that are made from running ones: by `kubectl replace --force`, `kubectl debug --copy-to`, or out of a backup.

use super::dialects::admitted;
use super::*;

const REMOVED: &str = "removed: it is about the pod that this one, or its template, was copied from";

/// A pod of two GPUs as the API server has it once it runs.
fn running() -> Value {
    let limits = json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "8Gi", "nvidia.com/gpucores": "30" });
    let (mut pod, _) = admitted(&Settings::default(), &pod(json!([container("main", limits), { "name": "log" }])));
    pod["spec"]["nodeName"] = "n1".into();
    mark(&mut pod);
    pod
}

/// Writes on a pod what extender and daemon write.
fn mark(pod: &mut Value) {
    let annotations = &mut pod["metadata"]["annotations"];
    annotations["divvy.dev/planned"] =
        r#"{"version":"v1","node":"n1","containers":{"main":{"chosen":["GPU-a","GPU-b"]}}}"#.into();
    annotations["divvy.dev/cards"] = r#"{"version":"v1","ledgerRevision":7,"tier":"shim","containers":{}}"#.into();
}

fn unmarked(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let annotations = pod["metadata"]["annotations"].as_object_mut().expect("annotations");
    annotations.retain(|key, _| !["divvy.dev/planned", "divvy.dev/cards"].contains(&&**key));
    pod
}

#[test]
fn copy_loses_what_tells_of_the_original_and_nothing_else() {
    let (after, warnings) = admitted(&Settings::default(), &running());
    assert_eq!(after, unmarked(&running()));
    assert_eq!(
        warnings,
        ["cards", "planned"].map(|key| format!("annotation divvy.dev/{key}: {REMOVED}")),
        "each is named"
    );
    let again = validate_update(&running(), &running());
    assert!(again.allowed && again.warnings.is_empty(), "the original itself, applied again");
}

#[test]
fn copy_without_gpus_loses_outputs_too() {
    let mut copy = pod(json!([{ "name": "main" }]));
    copy["metadata"]["annotations"] = json!({});
    mark(&mut copy);
    let (after, warnings) = admitted(&Settings::default(), &copy);
    assert_eq!((after["metadata"]["annotations"].clone(), warnings.len()), (json!({}), 2));
}

#[test]
fn copy_for_debugging_requests_what_its_containers_have() {
    let request = |pod: &Value| pod["metadata"]["annotations"]["divvy.dev/request"].clone();
    let debugger = json!({ "name": "debugger-x7k2p", "image": "busybox", "stdin": true });
    let mut beside = running();
    beside["spec"]["containers"].as_array_mut().expect("a list").push(debugger.clone());
    let (after, _) = admitted(&Settings::default(), &beside);
    assert_eq!(request(&after), request(&running()));
    assert_eq!(after["spec"]["containers"][0], running()["spec"]["containers"][0]);
    assert_eq!(after["spec"]["containers"][2]["env"], json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "void" }]));

    let mut renamed = running();
    renamed["spec"]["containers"][0] = container("shell", json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "1Gi" }));
    let (after, _) = admitted(&Settings::default(), &renamed);
    assert_eq!(
        request(&after),
        r#"{"version":"v1","containers":{"shell":{"cards":1,"memory":"1Gi","cores":0}}}"#,
        "that of the container that is gone is gone"
    );

    let mut without = running();
    without["spec"]["containers"][0] = debugger;
    let (after, _) = admitted(&Settings::default(), &without);
    assert_eq!(request(&after), Value::Null);
}

#[test]
fn copy_of_a_translated_pod_is_translated_no_more() {
    let dialects = serde_json::from_value(json!([{ "name": "gpushare", "outputs": true }])).expect("dialects");
    let settings = Settings { dialects, ..Settings::default() };
    let (original, _) = admitted(&settings, &pod(json!([container("main", json!({ "aliyun.com/gpu-mem": "3" }))])));
    let mut copy = original.clone();
    mark(&mut copy);
    copy["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] = "1".into();
    copy["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_ASSIGNED"] = "true".into();
    for settings in [&settings, &Settings::default()] {
        let (after, warnings) = admitted(settings, &copy);
        assert_eq!((&after, warnings.len()), (&original, 4), "{warnings:?}");
    }
    let mut own = pod(json!([container("main", json!({ "nvidia.com/gpu": "1" }))]));
    own["metadata"]["annotations"] = json!({ "ALIYUN_COM_GPU_MEM_IDX": "1" });
    assert_eq!(mutate_new(&own).warnings, [""; 0], "nothing says that we wrote it");
}

#[test]
fn forged_outputs_fail_the_validation() {
    for key in ["divvy.dev/planned", "divvy.dev/cards"] {
        let mut forged = unmarked(&running());
        forged["metadata"]["annotations"][key] = running()["metadata"]["annotations"][key].clone();
        let refusal = validate_new(&forged).refusal().to_owned();
        let pointer = format!("/metadata/annotations/{}", key.replace('/', "~1"));
        assert!(refusal.starts_with(&format!("422 Invalid: {pointer}: Divvy's mutating webhook would")), "{refusal}");
        assert!(mutate_new(&forged).allowed, "called once more, it removes the annotation");
    }
    let mut forged = unmarked(&running());
    forged["metadata"]["annotations"]["divvy.dev/request"] =
        r#"{"version":"v1","containers":{"main":{"cards":2,"memory":"1Gi","cores":1}}}"#.into();
    assert!(validate_new(&forged).refusal().contains("disagrees with annotation divvy.dev/request"));
    assert!(mutate_new(&forged).refusal().contains("disagrees with annotation divvy.dev/request"));
}

#[test]
fn template_copied_from_a_pod_is_warned_of() {
    let deployment = json!({ "spec": { "template": running() } });
    let advice =
        ask(Endpoint::Templates, &Settings::default(), &question("CREATE", "Deployment", deployment, Value::Null));
    assert_eq!(
        advice.warnings,
        ["cards", "planned"].map(|key| format!("its pods: annotation divvy.dev/{key}: {REMOVED}"))
    );
}

#[test]
fn job_copied_from_a_pod_is_completed_once() {
    let job = |template: Value| json!({ "metadata": { "name": "train" }, "spec": { "template": template } });
    let ask_job = |operation: &str, old: Value| {
        ask(Endpoint::Jobs, &Settings::default(), &question(operation, "Job", job(running()), old))
    };
    let new = ask_job("CREATE", Value::Null);
    assert_eq!(apply(&job(running()), &new.patch), job(unmarked(&running())));
    assert!(ask_job("UPDATE", job(running())).operations().is_empty(), "its template can't be changed any more");
}
