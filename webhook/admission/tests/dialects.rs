//! Pods in other systems' words, as the API server gets them back.

use super::*;

fn settings(dialects: Value) -> Settings {
    let dialects = serde_json::from_value(dialects).expect("dialects");
    let rewrite_schedulers = [("volcano".to_owned(), "default-scheduler".to_owned())].into();
    Settings { dialects, rewrite_schedulers, ..Settings::default() }
}

/// The pod after the review, which a second review and the validation leave as it is.
pub(super) fn admitted(settings: &Settings, asked: &Value) -> (Value, Vec<String>) {
    let reply = mutate_with(settings, asked);
    assert!(reply.allowed, "{}", reply.status);
    let after = apply(asked, &reply.patch);
    let again = mutate_with(settings, &after);
    assert!(again.allowed && again.patch.is_empty(), "{} {:?}", again.status, again.patch);
    let validated = ask(Endpoint::Validate, settings, &question("CREATE", "Pod", after.clone(), Value::Null));
    assert!(validated.allowed, "{}", validated.status);
    (after, reply.warnings)
}

fn nano() -> Value {
    pod(json!([container("main", json!({ "nano-gpu.io/gpu-core": "20", "nano-gpu.io/gpu-memory": "1", "cpu": "2" }))]))
}

#[test]
fn pod_comes_back_in_our_words() {
    let settings = settings(json!([{ "name": "nano-gpu", "memoryUnit": "1Gi" }]));
    let mut asked = nano();
    asked["spec"]["schedulerName"] = "volcano".into();
    asked["metadata"]["annotations"] = json!({ "nano-gpu.io/gpu-main": "3", "note": "kept" });
    let (after, warnings) = admitted(&settings, &asked);
    assert!(warnings.is_empty(), "{warnings:?}");
    let amounts =
        json!({ "cpu": "2", "nvidia.com/gpu": "1", "nvidia.com/gpucores": "20", "nvidia.com/gpumem": "1024" });
    assert_eq!(after["spec"]["containers"][0]["resources"], json!({ "limits": amounts, "requests": amounts }));
    assert_eq!(after["spec"]["schedulerName"], "default-scheduler");
    let annotations = &after["metadata"]["annotations"];
    assert_eq!(
        annotations["divvy.dev/dialect"],
        r#"{"version":"v1","name":"nano-gpu","containers":{"main":{"nano-gpu.io/gpu-core":"20","nano-gpu.io/gpu-memory":"1"}},"annotations":{"nano-gpu.io/gpu-main":"3"}}"#
    );
    assert_eq!((&annotations["nano-gpu.io/gpu-main"], &annotations["note"]), (&Value::Null, &json!("kept")));
    assert!(annotations["divvy.dev/request"].as_str().expect("a request").contains(r#""memory":"1Gi","cores":20"#));
}

#[test]
fn scheduler_of_another_system_that_stays_is_told() {
    let settings = settings(json!([{ "name": "nano-gpu", "memoryUnit": "1Gi" }]));
    for (scheduler, told) in [("hami-scheduler", 1), ("volcano", 0), ("my-scheduler", 0), ("", 0)] {
        let mut asked = nano();
        asked["spec"]["schedulerName"] = scheduler.into();
        let warnings = mutate_with(&settings, &asked).warnings;
        assert_eq!(warnings.len(), told, "{warnings:?}");
        assert!(
            warnings.iter().all(|text| text.starts_with("spec.schedulerName: hami-scheduler stays")),
            "{warnings:?}"
        );
    }
}

#[test]
fn pod_that_hami_wrote_in_our_words_is_rescheduled_too() {
    let mut settings = settings(json!([{ "name": "hami", "limitVariables": false, "compute": "cap" }]));
    let mut asked = pod(json!([container("main", json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000" }))]));
    asked["spec"]["schedulerName"] = "hami-scheduler".into();
    let told = mutate_with(&settings, &asked).warnings;
    assert!(told[0].starts_with("spec.schedulerName: hami-scheduler stays"), "{told:?}");
    settings.rewrite_schedulers.insert("hami-scheduler".to_owned(), "default-scheduler".to_owned());
    let (after, warnings) = admitted(&settings, &asked);
    assert_eq!((&after["spec"]["schedulerName"], warnings.len()), (&json!("default-scheduler"), 0));
    settings.dialects.clear();
    let reply = mutate_with(&settings, &asked);
    assert!(apply(&asked, &reply.patch)["spec"]["schedulerName"] == "hami-scheduler" && reply.warnings.is_empty());
}

#[test]
fn pod_translated_once_is_ours_once_the_dialect_is_off() {
    let asked = pod(json!([container("main", json!({ "aliyun.com/gpu-mem": "3" }))]));
    let (after, _) = admitted(&settings(json!(["gpushare"])), &asked);
    let off = mutate_new(&after);
    assert!(off.allowed && off.patch.is_empty() && off.warnings.is_empty(), "{}", off.status);
    let question = question("CREATE", "Pod", after, Value::Null);
    assert!(ask(Endpoint::Validate, &Settings::default(), &question).allowed);
}

#[test]
fn sidecar_of_a_second_system_is_refused() {
    let settings = settings(json!(["gpushare", { "name": "nano-gpu", "memoryUnit": "1Gi" }]));
    let (mut after, _) = admitted(&settings, &pod(json!([container("main", json!({ "aliyun.com/gpu-mem": "3" }))])));
    let sidecar = container("mesh", json!({ "nano-gpu.io/gpu-core": "20" }));
    after["spec"]["containers"].as_array_mut().expect("a list").push(sidecar);
    let reply = mutate_with(&settings, &after);
    let refusal = reply.refusal();
    assert!(
        refusal.starts_with("422 Invalid: annotation divvy.dev/dialect is of gpushare and the pod of nano-gpu:"),
        "{refusal}"
    );
}

#[test]
fn pod_of_a_dialect_that_is_off_is_nobodys() {
    let reply = mutate_new(&nano());
    assert!(reply.allowed && reply.patch.is_empty() && reply.warnings.is_empty());
}

#[test]
fn sidecar_that_comes_later_is_translated_too() {
    let settings = settings(json!(["gpushare"]));
    let (mut after, _) = admitted(&settings, &pod(json!([container("main", json!({ "aliyun.com/gpu-mem": "3" }))])));
    after["spec"]["containers"]
        .as_array_mut()
        .expect("a list")
        .push(container("mesh", json!({ "aliyun.com/gpu-mem": "1" })));
    let (twice, _) = admitted(&settings, &after);
    assert_eq!(twice["spec"]["containers"][1]["resources"]["limits"]["nvidia.com/gpumem"], "1024");
    assert_eq!(twice["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"], "3072");
    let record = twice["metadata"]["annotations"]["divvy.dev/dialect"].as_str().expect("a record");
    assert!(
        record.contains(r#""main":{"aliyun.com/gpu-mem":"3"}"#)
            && record.contains(r#""mesh":{"aliyun.com/gpu-mem":"1"}"#)
    );
}

#[test]
fn untranslated_pod_fails_the_validation() {
    let settings = settings(json!(["nano-gpu"]));
    let reply = ask(Endpoint::Validate, &settings, &question("CREATE", "Pod", nano(), Value::Null));
    assert!(
        reply
            .refusal()
            .contains("/spec/containers/0/resources/limits/nano-gpu.io~1gpu-core: Divvy's mutating webhook would")
    );
}

#[test]
fn annotations_alone_request_a_gpu() {
    let settings = settings(json!(["kai"]));
    let mut asked = pod(json!([{ "name": "main" }]));
    for (key, value, memory, amount) in [
        ("gpu-fraction", "0.5", "nvidia.com/gpumem-percentage", "50"),
        ("nvidia.com/container.main.gpu-memory.request", "1Gi", "nvidia.com/gpumem", "1024"),
        ("nvidia.cdi.k8s.io/main.gpu-memory.limit", "1Gi", "nvidia.com/gpumem", "1024"),
    ] {
        asked["metadata"]["annotations"] = json!({ key: value });
        let (after, _) = admitted(&settings, &asked);
        let amounts = json!({ "nvidia.com/gpu": "1", memory: amount });
        assert_eq!(after["spec"]["containers"][0]["resources"], json!({ "limits": amounts, "requests": amounts }));
        let annotations = &after["metadata"]["annotations"];
        assert_eq!(annotations.get(key), None, "{annotations}");
        let record =
            json!({ "version": "v1", "name": "kai", "containers": { "main": {} }, "annotations": { key: value } });
        let written = annotations["divvy.dev/dialect"].as_str().expect("a record");
        assert_eq!(serde_json::from_str::<Value>(written).expect("JSON"), record);
    }
}

#[test]
fn totals_are_written_over_all_gpus_once() {
    let settings = settings(json!([{ "name": "hami", "coresAlone": "100%" }]));
    let (after, _) = admitted(
        &settings,
        &pod(json!([container("main", json!({ "nvidia.com/gpu": "2", "nvidia.com/gpucores": "30" }))])),
    );
    let amounts = json!({ "nvidia.com/gpu": "2", "nvidia.com/gpucores": "60", "nvidia.com/gpumem-percentage": "200" });
    assert_eq!(after["spec"]["containers"][0]["resources"]["limits"], amounts);
}

#[test]
fn refusals_and_warnings_are_those_of_the_dialect() {
    let settings = settings(json!(["hami", "gpu-manager"]));
    let mixed = pod(json!([
        container("a", json!({ "tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "1" })),
        container("b", json!({ "nvidia.com/gpu": "1", "nvidia.com/priority": "0" })),
    ]));
    assert!(
        mutate_with(&settings, &mixed)
            .refusal()
            .starts_with("422 Invalid: spec.containers[1].resources.limits[nvidia.com/priority] is of hami and")
    );
    let alone = pod(json!([container("a", json!({ "tencent.com/vcuda-memory": "1" }))]));
    let (after, warnings) = admitted(&settings, &alone);
    assert!(warnings[0].contains("requests no GPU without tencent.com/vcuda-core"));
    assert_eq!(after["spec"]["containers"][0]["resources"]["limits"], json!({}));
    let template = json!({ "spec": { "template": mixed } });
    let advice = ask(Endpoint::Templates, &settings, &question("CREATE", "Deployment", template, Value::Null));
    assert!(advice.warnings[0].starts_with("its pods would be refused: spec.containers[1]"));
}

#[test]
fn same_card_needs_one_gpu_in_each_container() {
    let mut asked = pod(json!([container("main", json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "1Gi" }))]));
    asked["metadata"]["annotations"] = json!({ "divvy.dev/same-card": "true" });
    assert!(
        mutate_new(&asked).refusal().contains("annotation divvy.dev/same-card: container \"main\" requests 2 GPUs")
    );
}
