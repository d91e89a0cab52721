use divvy_api::{Cores, Memory};

use super::*;

#[test]
fn amounts_become_totals_and_request_annotation_is_set() {
    let reply = mutate_new(&pod(json!([container(
        "main",
        json!({ "cpu": "4", "nvidia.com/gpu": "2", "nvidia.com/gpumem": "8Gi", "nvidia.com/gpucores": "30" })
    )])));
    insta::assert_snapshot!(reply.operations(), @r#"
    add /spec/containers/0/resources/limits/nvidia.com~1gpucores "60"
    add /spec/containers/0/resources/limits/nvidia.com~1gpumem "16384"
    add /spec/containers/0/resources/requests/nvidia.com~1gpucores "60"
    add /spec/containers/0/resources/requests/nvidia.com~1gpumem "16384"
    add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":2,\"memory\":\"8Gi\",\"cores\":30}}}"}
    "#);
    assert!(reply.warnings.is_empty());
}

#[test]
fn missing_gpu_count_is_filled_in() {
    let reply = mutate_new(&pod(json!([container("main", json!({ "nvidia.com/gpucores": 30 }))])));
    insta::assert_snapshot!(reply.operations(), @r#"
    add /spec/containers/0/resources/limits/nvidia.com~1gpu "1"
    add /spec/containers/0/resources/limits/nvidia.com~1gpumem-percentage "30"
    add /spec/containers/0/resources/requests/nvidia.com~1gpu "1"
    add /spec/containers/0/resources/requests/nvidia.com~1gpumem-percentage "30"
    add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":1,\"memory\":\"30%\",\"cores\":30}}}"}
    "#);
}

#[test]
fn whole_gpus_get_no_other_resource() {
    let unmodified = mutate_new(&pod(json!([container("main", json!({ "nvidia.com/gpu": "2" }))])));
    insta::assert_snapshot!(unmodified.operations(), @r#"add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":2,\"memory\":\"100%\",\"cores\":100}}}"}"#);
    let spelled_out = json!({ "nvidia.com/gpu": "2", "nvidia.com/gpucores": "100" });
    insta::assert_snapshot!(mutate_new(&pod(json!([container("main", spelled_out)]))).operations(), @r#"
    remove /spec/containers/0/resources/limits/nvidia.com~1gpucores
    remove /spec/containers/0/resources/requests/nvidia.com~1gpucores
    add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":2,\"memory\":\"100%\",\"cores\":100}}}"}
    "#);
}

#[test]
fn whole_gpus_have_amounts_where_sums_are_counted() {
    let settings = Settings { whole_gpus_have_amounts: true, ..Settings::default() };
    let written = |limits: Value| mutate_with(&settings, &pod(json!([container("main", limits)]))).operations();
    insta::assert_snapshot!(written(json!({ "nvidia.com/gpu": "2" })), @r#"
    add /spec/containers/0/resources/limits/nvidia.com~1gpucores "200"
    add /spec/containers/0/resources/limits/nvidia.com~1gpumem-percentage "200"
    add /spec/containers/0/resources/requests/nvidia.com~1gpucores "200"
    add /spec/containers/0/resources/requests/nvidia.com~1gpumem-percentage "200"
    add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":2,\"memory\":\"100%\",\"cores\":100}}}"}
    "#);
    let spelled_out =
        json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "100", "nvidia.com/gpucores": "100" });
    insta::assert_snapshot!(written(spelled_out), @r#"add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":1,\"memory\":\"100%\",\"cores\":100}}}"}"#);
}

#[test]
fn replicas_configured_otherwise_accept_each_others_pods() {
    let new = pod(json!([container("main", json!({ "nvidia.com/gpu": "2" }))]));
    for of_one in [false, true] {
        let [one, other] = [of_one, !of_one]
            .map(|whole_gpus_have_amounts| Settings { whole_gpus_have_amounts, ..Settings::default() });
        let completed = apply(&new, &mutate_with(&one, &new).patch);
        let asked = question("CREATE", "Pod", completed, Value::Null);
        let reply = ask(Endpoint::Validate, &other, &asked);
        assert!(reply.allowed, "{}", reply.status);
    }
}

#[test]
fn all_containers_are_read_and_others_get_no_gpu() {
    let reply = mutate_new(&json!({
        "metadata": { "generateName": "train-", "annotations": { "team": "a" } },
        "spec": {
            "initContainers": [
                container("fetch", json!({ "nvidia.com/gpumem-percentage": "50" })),
                { "name": "proxy", "restartPolicy": "Always", "env": [{ "name": "A", "value": "b" }] },
            ],
            "containers": [
                container("main", json!({ "nvidia.com/mig-1g.10gb": "1", "nvidia.com/gpu": "0" })),
                { "name": "log", "env": null },
                { "name": "agent", "securityContext": { "privileged": true } },
                container("other", json!({ "nvidia.com/gpu.shared": "1" })),
                { "name": "hidden", "env": [{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "none" }] },
            ],
        },
    }));
    insta::assert_snapshot!(reply.operations(), @r#"
    add /spec/initContainers/0/resources/limits/nvidia.com~1gpu "1"
    add /spec/initContainers/0/resources/requests/nvidia.com~1gpu "1"
    remove /spec/containers/0/resources/limits/nvidia.com~1gpu
    remove /spec/containers/0/resources/requests/nvidia.com~1gpu
    add /spec/initContainers/1/env/- {"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}
    add /spec/containers/1/env [{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}]
    add /metadata/annotations/divvy.dev~1request "{\"version\":\"v1\",\"containers\":{\"fetch\":{\"cards\":1,\"memory\":\"50%\",\"cores\":0},\"main\":{\"cards\":1,\"memory\":\"100%\",\"cores\":100}}}"
    "#);
}

#[test]
fn zero_limits_are_removed_with_their_requests() {
    let zero = json!({ "nvidia.com/gpu": "0", "nvidia.com/gpumem": "0", "cpu": "1" });
    insta::assert_snapshot!(mutate_new(&pod(json!([container("main", zero)]))).operations(), @r#"
    remove /spec/containers/0/resources/limits/nvidia.com~1gpu
    remove /spec/containers/0/resources/limits/nvidia.com~1gpumem
    remove /spec/containers/0/resources/requests/nvidia.com~1gpu
    remove /spec/containers/0/resources/requests/nvidia.com~1gpumem
    add /spec/containers/0/env [{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}]
    "#);
}

#[test]
fn missing_requests_are_copied_from_limits() {
    let bare = json!([{ "name": "main", "resources": { "limits": { "nvidia.com/gpumem": "1Gi" } } }]);
    insta::assert_snapshot!(mutate_new(&pod(bare)).operations(), @r#"
    add /spec/containers/0/resources/limits/nvidia.com~1gpu "1"
    add /spec/containers/0/resources/limits/nvidia.com~1gpumem "1024"
    add /spec/containers/0/resources/requests {"nvidia.com/gpu":"1","nvidia.com/gpumem":"1024"}
    add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":1,\"memory\":\"1Gi\",\"cores\":0}}}"}
    "#);
}

#[test]
fn memory_defaults_round_up_to_the_memory_unit() {
    let names = ResourceNames::default().in_units(Memory::mib(256)).expect("a name");
    let defaults = Defaults { memory: Some("1000".parse().expect("an amount")), cores: Cores::new(5) };
    let settings = Settings { names, defaults, ..Settings::default() };
    let pod = pod(json!([
        container("a", json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem-256mi": "32" })),
        container("b", json!({ "nvidia.com/gpucores": "10" })),
    ]));
    let reply = mutate_with(&settings, &pod);
    insta::assert_snapshot!(reply.operations(), @r#"
    add /spec/containers/0/resources/limits/nvidia.com~1gpucores "10"
    add /spec/containers/0/resources/limits/nvidia.com~1gpumem-256mi "64"
    add /spec/containers/0/resources/requests/nvidia.com~1gpucores "10"
    add /spec/containers/0/resources/requests/nvidia.com~1gpumem-256mi "64"
    add /spec/containers/1/resources/limits/nvidia.com~1gpu "1"
    add /spec/containers/1/resources/limits/nvidia.com~1gpumem-256mi "4"
    add /spec/containers/1/resources/requests/nvidia.com~1gpu "1"
    add /spec/containers/1/resources/requests/nvidia.com~1gpumem-256mi "4"
    add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"a\":{\"cards\":2,\"memory\":\"8Gi\",\"cores\":5},\"b\":{\"cards\":1,\"memory\":\"1Gi\",\"cores\":10}}}"}
    "#);
    assert!(mutate_with(&settings, &apply(&pod, &reply.patch)).patch.is_empty());
}

#[test]
fn reinvocation_changes_only_containers_added_by_others() {
    let first = pod(json!([container("main", json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "40000" }))]));
    let mut again = apply(&first, &mutate_new(&first).patch);
    // The API server writes quantities in its own form between two calls.
    let resources = &mut again["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"]["nvidia.com/gpumem"], "80000");
    for list in ["limits", "requests"] {
        resources[list]["nvidia.com/gpumem"] = "80k".into();
    }
    assert!(mutate_new(&again).patch.is_empty());
    let containers = again["spec"]["containers"].as_array_mut().expect("a list");
    containers.insert(0, json!({ "name": "mesh" }));
    containers.push(container("meter", json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "100" })));
    insta::assert_snapshot!(mutate_new(&again).operations(), @r#"
    add /spec/containers/2/resources/limits/nvidia.com~1gpumem "200"
    add /spec/containers/2/resources/requests/nvidia.com~1gpumem "200"
    add /spec/containers/0/env [{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}]
    add /metadata/annotations/divvy.dev~1request "{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":2,\"memory\":\"40000Mi\",\"cores\":0},\"meter\":{\"cards\":2,\"memory\":\"100Mi\",\"cores\":0}}}"
    "#);
}

#[test]
fn copied_request_annotation_must_agree_with_limits() {
    let first = pod(json!([container("main", json!({ "nvidia.com/gpumem": "8Gi" }))]));
    let mut copy = apply(&first, &mutate_new(&first).patch);
    copy["metadata"]["annotations"]["divvy.dev/node-fit"] = "whatever".into();
    insta::assert_snapshot!(mutate_new(&copy).operations(), @"remove /metadata/annotations/divvy.dev~1node-fit");
    copy["spec"]["containers"][0] = container("main", json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "4Gi" }));
    insta::assert_snapshot!(mutate_new(&copy).refusal(), @"422 Invalid: spec.containers[0].resources.limits[nvidia.com/gpumem]: 4Gi disagrees with annotation divvy.dev/request, which requests 8192: remove the annotation");
    copy["metadata"]["annotations"]["divvy.dev/request"] = "{}".into();
    insta::assert_snapshot!(mutate_new(&copy).refusal(), @r#"422 Invalid: annotation divvy.dev/request: field "version" is missing"#);
}

#[test]
fn pods_without_gpus_are_not_patched() {
    let stranger = pod(json!([container("main", json!({ "cpu": "1" })), { "name": "b" }]));
    assert!(mutate_new(&stranger).operations().is_empty());
    let mut copy_of_static = pod(json!([container("main", json!({ "nvidia.com/gpumem": "8Gi" })), { "name": "b" }]));
    copy_of_static["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "4711" });
    assert!(mutate_new(&copy_of_static).operations().is_empty());
    let update =
        question("UPDATE", "Pod", pod(json!([container("main", json!({ "nvidia.com/gpu": "1" }))])), json!({}));
    assert!(ask(Endpoint::Mutate, &Settings::default(), &update).operations().is_empty());
}

#[test]
fn pod_without_request_sees_no_gpu_where_it_is_reviewed() {
    let privileged = json!({ "name": "agent", "securityContext": { "privileged": true } });
    let plain = pod(json!([{ "name": "main", "image": "nvidia/cuda" }, privileged]));
    insta::assert_snapshot!(hide_new(&plain).operations(), @r#"add /spec/containers/0/env [{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}]"#);
    let asks = pod(json!([{ "name": "main", "env": [{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }] }]));
    assert!(hide_with(&refusing(), &asks).refusal().contains("\"all\" selects GPUs"));
    let requests = pod(json!([container("main", json!({ "nvidia.com/gpu": "1" })), { "name": "mesh" }]));
    assert!(hide_new(&requests).patch.is_empty(), "that is for the other review");
}

#[test]
fn foreign_amount_of_zero_exempts_no_container() {
    let none = container("main", json!({ "nvidia.com/gpu.shared": "0" }));
    let some = container("other", json!({ "nvidia.com/gpu.shared": "1" }));
    let hidden = r#"add /spec/containers/0/env [{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}]"#;
    assert_eq!(hide_new(&pod(json!([none, some]))).operations().trim_end(), hidden);
    let mut asks = none.clone();
    asks["env"] = json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }]);
    assert!(hide_with(&refusing(), &pod(json!([asks]))).refusal().contains("\"all\" selects GPUs"));
    let beside = pod(json!([none, container("gpu", json!({ "nvidia.com/gpu": "1" }))]));
    assert_eq!(lines(&mutate_new(&beside).patch, "/env").trim_end(), hidden);
}

/// The reply to an ephemeral container that is added to this pod, which has an earlier one already.
fn debug(endpoint: Endpoint, pod: &Value, debugger: Value) -> Reply {
    debug_with(&Settings::default(), endpoint, pod, debugger)
}

fn debug_with(settings: &Settings, endpoint: Endpoint, pod: &Value, debugger: Value) -> Reply {
    let earlier = json!({ "name": "earlier" });
    let with = |containers: Value| {
        let mut pod = pod.clone();
        pod["spec"]["ephemeralContainers"] = containers;
        pod
    };
    let (old, new) = (with(json!([earlier])), with(json!([earlier, debugger])));
    let mut question = question("UPDATE", "Pod", new, old);
    question["request"]["subResource"] = "ephemeralcontainers".into();
    ask(endpoint, settings, &question)
}

#[test]
fn ephemeral_container_sees_no_gpu() {
    let part = pod(json!([container("main", json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "1Gi" }))]));
    let plain = pod(json!([{ "name": "main" }]));
    let warning = "spec.ephemeralContainers[1]: sees no GPU, because an ephemeral container can't request one: kubectl \
                   exec runs a command in a container that has";
    for (endpoint, pod) in [(Endpoint::Mutate, &part), (Endpoint::Hide, &plain)] {
        let reply = debug(endpoint, pod, json!({ "name": "debug", "image": "nvidia/cuda" }));
        let hidden = r#"add /spec/ephemeralContainers/1/env [{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}]"#;
        assert_eq!(reply.operations().trim_end(), hidden);
        assert_eq!(reply.warnings, [warning]);
        let all = json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }]);
        let refused = debug_with(&refusing(), endpoint, pod, json!({ "name": "debug", "env": all }));
        assert!(refused.refusal().contains("spec.ephemeralContainers[1].env[0]: \"all\" selects GPUs"));
        let overridden = debug(endpoint, pod, json!({ "name": "debug", "env": all }));
        let removed = "remove /spec/ephemeralContainers/1/env/0";
        let void = r#"add /spec/ephemeralContainers/1/env/- {"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}"#;
        assert_eq!(overridden.operations().lines().collect::<Vec<_>>(), [removed, void]);
        assert!(
            overridden.warnings[0]
                .ends_with("NVIDIA_VISIBLE_DEVICES is removed: the container sees no GPU, as its limits request none")
        );
        let privileged = debug(endpoint, pod, json!({ "name": "debug", "securityContext": { "privileged": true } }));
        assert!(privileged.operations().is_empty() && privileged.warnings.is_empty());
        let void = json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "void" }]);
        assert!(debug(endpoint, pod, json!({ "name": "debug", "env": void })).operations().is_empty());
    }
    for (endpoint, pod) in [(Endpoint::Mutate, &plain), (Endpoint::Hide, &part)] {
        let reply = debug(endpoint, pod, json!({ "name": "debug" }));
        assert!(reply.operations().is_empty(), "that is for the other review");
    }
}

#[test]
fn soft_taints_are_tolerated_unless_they_are_already() {
    let settings = Settings { tolerate_soft_taints: true, ..Settings::default() };
    let added = |tolerations: Value, limits: Value| {
        let mut pod = pod(json!([container("main", limits)]));
        pod["spec"]["tolerations"] = tolerations;
        let question = question("CREATE", "Pod", pod, Value::Null);
        let reply = reply(&review(question.to_string().as_bytes(), Endpoint::Mutate, &settings, &|_| None).body);
        lines(&reply.patch, "/spec/tolerations").trim_end().to_owned()
    };
    let gpu = || json!({ "nvidia.com/gpu": "1" });
    let [free, cpu] = ["free-gpus", "cpu-for-gpus"]
        .map(|key| format!(r#"{{"effect":"PreferNoSchedule","key":"divvy.dev/{key}","operator":"Exists"}}"#));
    assert_eq!(added(Value::Null, gpu()), format!("add /spec/tolerations [{free},{cpu}]"));
    let appended = |toleration: &str| format!("add /spec/tolerations/- {toleration}");
    assert_eq!(added(json!([{ "key": "divvy.dev/free-gpus", "operator": "Exists" }]), gpu()), appended(&cpu));
    assert_eq!(
        added(json!([{ "key": "divvy.dev/cpu-for-gpus", "effect": "PreferNoSchedule" }]), gpu()),
        appended(&free)
    );
    let other_effect = json!([{ "operator": "Exists", "effect": "NoSchedule" }]);
    assert_eq!(added(other_effect, gpu()), [appended(&free), appended(&cpu)].join("\n"));
    assert_eq!(added(json!([{ "operator": "Exists" }]), gpu()), "", "whatever comes");
    assert_eq!(added(Value::Null, json!({ "cpu": "1" })), "", "a pod without GPUs");
}
