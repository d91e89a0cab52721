use super::*;

fn mutated(pod: &Value) -> Value {
    apply(pod, &mutate_new(pod).patch)
}

fn claiming() -> Value {
    pod(json!([container("main", json!({ "nvidia.com/gpumem": "8Gi" })), { "name": "log" }]))
}

#[test]
fn mutated_pod_passes_validation() {
    assert!(validate_new(&mutated(&claiming())).allowed);
    insta::assert_snapshot!(validate_new(&claiming()).refusal(), @"422 Invalid: /spec/containers/0/resources/limits/nvidia.com~1gpu: Divvy's mutating webhook would change this: either it wasn't called, or another webhook came after it and it wasn't called again, which its reinvocationPolicy IfNeeded asks for");
    let mut tampered = mutated(&claiming());
    tampered["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1".into();
    assert!(validate_new(&tampered).allowed, "other resources are none of ours");
    let injected = container("late", json!({ "nvidia.com/gpu": "1" }));
    tampered["spec"]["containers"].as_array_mut().expect("a list").push(injected);
    insta::assert_snapshot!(validate_new(&tampered).refusal(), @"422 Invalid: /metadata/annotations/divvy.dev~1request: Divvy's mutating webhook would change this: either it wasn't called, or another webhook came after it and it wasn't called again, which its reinvocationPolicy IfNeeded asks for");
    tampered["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "4096".into();
    insta::assert_snapshot!(validate_new(&tampered).refusal(), @"422 Invalid: spec.containers[0].resources.requests[nvidia.com/gpumem]: 8192 is not the limit, which is 4096: leave the request out, and it follows the limit; spec.containers[0].resources.limits[nvidia.com/gpumem]: 4096 disagrees with annotation divvy.dev/request, which requests 8192: remove the annotation");
}

#[test]
fn outputs_are_immutable_and_inputs_once_the_pod_is_bound() {
    let mut old = mutated(&claiming());
    old["metadata"]["annotations"]["divvy.dev/planned"] = "{}".into();
    let annotated = |key: &str, value: Value| {
        let mut new = old.clone();
        new["metadata"]["annotations"][key] = value;
        new
    };
    assert!(validate_update(&old, &old).allowed);
    assert!(validate_update(&old, &annotated("team", "b".into())).allowed);
    assert!(validate_update(&old, &annotated("divvy.dev/numa", "strict".into())).allowed);
    let mut stripped = old.clone();
    stripped["metadata"]["annotations"] = Value::Null;
    let mut bound = annotated("divvy.dev/numa", "strict".into());
    bound["spec"]["nodeName"] = "n1".into();
    let refusals = [
        validate_update(&old, &annotated("divvy.dev/numa", "maybe".into())),
        validate_update(&old, &annotated("divvy.dev/cards", "{}".into())),
        validate_update(&old, &stripped),
        validate_update(&old, &bound),
    ];
    let refusals: Vec<_> = refusals.iter().map(Reply::refusal).collect();
    insta::assert_snapshot!(refusals.join("\n"), @r#"
    422 Invalid: annotation divvy.dev/numa: "maybe" is not allowed: expected strict or prefer
    403 Forbidden: annotation divvy.dev/cards: only Divvy writes it: leave it as it is
    403 Forbidden: annotation divvy.dev/request: only Divvy writes it: leave it as it is; annotation divvy.dev/planned: only Divvy writes it: leave it as it is
    422 Invalid: annotation divvy.dev/numa: the pod has its node and GPUs: delete the pod, and create it with the new value
    "#);
}

#[test]
fn update_of_an_older_pod_is_not_held_to_new_rules() {
    let mut old = claiming();
    old["spec"]["containers"][0]["env"] = json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }]);
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    assert!(validate_update(&old, &new).allowed);
}

#[test]
fn ephemeral_containers_may_not_request_or_select_gpus() {
    let old = mutated(&claiming());
    let debugged = |settings: &Settings, debugger: Value| {
        let mut new = old.clone();
        new["spec"]["ephemeralContainers"] = json!([debugger]);
        let mut question = question("UPDATE", "Pod", new, old.clone());
        question["request"]["subResource"] = "ephemeralcontainers".into();
        ask(Endpoint::Validate, settings, &question)
    };
    let plain = Settings::default();
    let chooses = json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }]);
    assert!(debugged(&plain, json!({ "name": "debug" })).allowed);
    assert!(
        debugged(&plain, json!({ "name": "debug", "env": chooses, "securityContext": { "privileged": true } })).allowed
    );
    let mut before = old.clone();
    before["spec"]["ephemeralContainers"] = json!([{ "name": "earlier", "env": chooses }]);
    let mut question = question("UPDATE", "Pod", before.clone(), before);
    question["request"]["subResource"] = "ephemeralcontainers".into();
    assert!(ask(Endpoint::Validate, &Settings::default(), &question).allowed, "it has been there for long");
    let refusals = [
        debugged(&plain, container("debug", json!({ "nvidia.com/gpu": "1" }))),
        debugged(&refusing(), json!({ "name": "debug", "env": chooses })),
        debugged(&plain, json!({ "name": "debug", "env": chooses })),
    ];
    let refusals: Vec<_> = refusals.iter().map(Reply::refusal).collect();
    insta::assert_snapshot!(refusals.join("\n"), @r#"
    422 Invalid: spec.ephemeralContainers[0].resources[nvidia.com/gpu]: an ephemeral container can't request GPUs: request them in spec.containers
    403 Forbidden: spec.ephemeralContainers[0].env[0]: "all" selects GPUs, but a container sees those that its limits request: remove the variable; CUDA_VISIBLE_DEVICES can choose among them
    422 Invalid: /spec/ephemeralContainers/0/env/0: Divvy's mutating webhook would change this: either it wasn't called, or another webhook came after it and it wasn't called again, which its reinvocationPolicy IfNeeded asks for
    "#);
}
