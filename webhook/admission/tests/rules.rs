use super::*;

/// What is said of a container with these fields and limits.
fn refusal(limits: Value, fields: Value) -> String {
    let mut main = container("main", limits);
    main.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    let asks = container("asks", json!({ "nvidia.com/gpu": "1" }));
    mutate_with(&refusing(), &pod(json!([main, asks]))).refusal().to_owned()
}

fn part() -> Value {
    json!({ "nvidia.com/gpumem": "8Gi" })
}

#[test]
fn refusal_names_field_value_and_range() {
    let refused =
        |resources: Value| mutate_new(&pod(json!([{ "name": "a", "resources": resources }]))).refusal().to_owned();
    let limits = |limits: Value| refused(json!({ "limits": limits }));
    let cases = [
        limits(json!({ "nvidia.com/gpumem": "8G" })),
        limits(json!({ "nvidia.com/gpumem": "8Gi", "nvidia.com/gpumem-percentage": "10" })),
        limits(json!({ "nvidia.com/gpucores": "101" })),
        limits(json!({ "nvidia.com/gpu": "1", "nvidia.com/gpucores": "0" })),
        limits(json!({ "nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1" })),
        limits(json!({ "nvidia.com/gpu": "500m" })),
        refused(json!({ "requests": { "nvidia.com/gpu": "1" } })),
        refused(json!({ "limits": { "nvidia.com/gpu": "2" }, "requests": { "nvidia.com/gpu": "1" } })),
        refused(json!({ "limits": { "nvidia.com/gpumem": "8Gi" }, "requests": { "nvidia.com/gpumem": "8192M" } })),
    ];
    insta::assert_snapshot!(cases.join("\n"), @r#"
    422 Invalid: spec.containers[0].resources.limits[nvidia.com/gpumem]: "8G" is ambiguous: did you mean "8Gi"?
    422 Invalid: spec.containers[0].resources.limits[nvidia.com/gpumem-percentage]: excludes nvidia.com/gpumem in the same container: set one of them
    422 Invalid: spec.containers[0].resources.limits[nvidia.com/gpucores]: 101 is out of range: allowed are 1 to 100 percent of each GPU
    422 Invalid: spec.containers[0].resources.limits[nvidia.com/gpucores]: 0 is out of range: allowed are 1 to 100 percent of each GPU
    422 Invalid: spec.containers[0].resources.limits[nvidia.com/mig-1g.10gb]: excludes nvidia.com/gpu in the same container: set one of them, or use a container for each
    422 Invalid: spec.containers[0].resources.limits[nvidia.com/gpu]: "500m" is not a whole number
    422 Invalid: spec.containers[0].resources.requests[nvidia.com/gpu]: 1 without a limit: set the limit, and the request follows it
    422 Invalid: spec.containers[0].resources.requests[nvidia.com/gpu]: 1 is not the limit, which is 2: leave the request out, and it follows the limit
    422 Invalid: spec.containers[0].resources.requests[nvidia.com/gpumem]: 8192M is not the limit, which is 8Gi: leave the request out, and it follows the limit
    "#);
}

#[test]
fn requests_equal_to_limits_are_allowed() {
    let same = json!([{ "name": "a", "resources": {
        "limits": { "nvidia.com/gpumem": "8Gi" }, "requests": { "nvidia.com/gpumem": "8192Mi", "nvidia.com/gpu": "0" },
    } }]);
    insta::assert_snapshot!(mutate_new(&pod(same)).operations(), @r#"
    add /spec/containers/0/resources/limits/nvidia.com~1gpu "1"
    add /spec/containers/0/resources/limits/nvidia.com~1gpumem "8192"
    add /spec/containers/0/resources/requests/nvidia.com~1gpu "1"
    add /spec/containers/0/resources/requests/nvidia.com~1gpumem "8192"
    add /metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"a\":{\"cards\":1,\"memory\":\"8Gi\",\"cores\":0}}}"}
    "#);
}

#[test]
fn all_problems_are_reported_at_once() {
    let mut pod = pod(json!([
        container("a", json!({ "nvidia.com/gpucores": "101" })),
        container("a", json!({ "nvidia.com/gpu": "-1" })),
    ]));
    pod["metadata"]["annotations"] = json!({ "divvy.dev/numa": "maybe" });
    pod["spec"]["ephemeralContainers"] = json!([container("debug", json!({ "nvidia.com/gpu": "1" }))]);
    insta::assert_snapshot!(mutate_new(&pod).refusal().replace("; ", "\n"), @r#"
    422 Invalid: spec.ephemeralContainers[0].resources[nvidia.com/gpu]: an ephemeral container can't request GPUs: request them in spec.containers
    annotation divvy.dev/numa: "maybe" is not allowed: expected strict or prefer
    spec.containers[0].resources.limits[nvidia.com/gpucores]: 101 is out of range: allowed are 1 to 100 percent of each GPU
    spec.containers[1].name: "a" is the name of another container too, and requests are kept by name
    spec.containers[1].resources.limits[nvidia.com/gpu]: "-1" is out of range
    "#);
}

#[test]
fn gpus_selected_by_variable_or_mount_are_refused() {
    let variable = |value: &str| json!({ "env": [{ "name": "NVIDIA_VISIBLE_DEVICES", "value": value }] });
    let reference = json!({ "env": [
        { "name": "NVIDIA_VISIBLE_DEVICES", "value": "void" },
        { "name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": { "configMapKeyRef": { "name": "c", "key": "k" } } },
    ] });
    let mount = |path: &str| json!({ "volumeMounts": [{ "name": "v", "mountPath": path }] });
    let cases = [
        refusal(json!({}), variable("all")),
        refusal(json!({}), variable("$(CARDS)")),
        refusal(json!({}), reference),
        refusal(part(), variable("void")),
        refusal(json!({}), mount("/var/run/nvidia-container-devices/all")),
    ];
    insta::assert_snapshot!(cases.join("\n"), @r#"
    403 Forbidden: spec.containers[0].env[0]: "all" selects GPUs, but a container sees those that its limits request: remove the variable; CUDA_VISIBLE_DEVICES can choose among them
    403 Forbidden: spec.containers[0].env[0]: "$(CARDS)" selects GPUs, but a container sees those that its limits request: remove the variable; CUDA_VISIBLE_DEVICES can choose among them
    403 Forbidden: spec.containers[0].env[1]: a reference selects GPUs, but a container sees those that its limits request: remove the variable; CUDA_VISIBLE_DEVICES can choose among them
    403 Forbidden: spec.containers[0].env[0]: "void" selects GPUs, but a container sees those that its limits request: remove the variable; CUDA_VISIBLE_DEVICES can choose among them
    403 Forbidden: spec.containers[0].volumeMounts[0].mountPath: Divvy mounts /var/run/nvidia-container-devices/all: choose another path
    "#);
}

#[test]
fn preloads_and_mounts_that_bypass_limits_are_refused() {
    let mount = |path: &str| json!({ "volumeMounts": [{ "name": "a", "mountPath": "/a" }, { "name": "v", "mountPath": path }] });
    let variable = |name: &str| json!({ "env": [{ "name": name, "value": "/x.so" }] });
    let cases = [
        refusal(part(), variable("LD_PRELOAD")),
        refusal(part(), variable("LD_AUDIT")),
        refusal(part(), mount("/etc/ld.so.preload")),
        refusal(part(), mount("/var/run/divvy/limits")),
        refusal(json!({ "nvidia.com/gpu": "1" }), mount("/run//divvy/./a/../region/slots")),
    ];
    insta::assert_snapshot!(cases.join("\n"), @r#"
    403 Forbidden: spec.containers[0].env[0]: LD_PRELOAD loads code ahead of what keeps the container to its share of a GPU: remove the variable, or request whole GPUs
    403 Forbidden: spec.containers[0].env[0]: LD_AUDIT loads code ahead of what keeps the container to its share of a GPU: remove the variable, or request whole GPUs
    403 Forbidden: spec.containers[0].volumeMounts[1].mountPath: Divvy mounts /etc/ld.so.preload: choose another path
    403 Forbidden: spec.containers[0].volumeMounts[1].mountPath: Divvy mounts /var/run/divvy/limits: choose another path
    403 Forbidden: spec.containers[0].volumeMounts[1].mountPath: Divvy mounts /run//divvy/./a/../region/slots: choose another path
    "#);
}

#[test]
fn harmless_pods_are_allowed() {
    let allowed = |limits: Value, fields: Value| {
        let mut main = container("main", limits);
        main.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let asks = container("asks", json!({ "nvidia.com/gpu": "1" }));
        let reply = mutate_new(&pod(json!([main, asks])));
        assert!(reply.allowed, "{}", reply.status);
    };
    let whole = json!({ "nvidia.com/gpu": "1" });
    let variable = |name: &str, value: &str| json!({ "env": [{ "name": name, "value": value }] });
    let mount = |path: &str| json!({ "volumeMounts": [{ "name": "v", "mountPath": path }] });
    allowed(part(), variable("CUDA_VISIBLE_DEVICES", "1"));
    allowed(part(), variable("LD_LIBRARY_PATH", "/opt"));
    allowed(whole.clone(), variable("LD_PRELOAD", "libtcmalloc.so"));
    allowed(whole, mount("/etc/ld.so.preload"));
    allowed(part(), mount("/var/run"));
    allowed(part(), mount("/var/run/divvy-of-mine"));
    allowed(json!({}), variable("LD_PRELOAD", "libtcmalloc.so"));
    allowed(json!({}), variable("NVIDIA_VISIBLE_DEVICES", ""));
    let privileged = json!({ "securityContext": { "privileged": true } });
    let mut monitor = variable("NVIDIA_VISIBLE_DEVICES", "all");
    monitor.as_object_mut().expect("an object").extend(privileged.as_object().expect("an object").clone());
    allowed(json!({}), monitor);
}

#[test]
fn likely_mistakes_are_warned_about() {
    let mut suspect = pod(json!([container("main", part())]));
    suspect["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
    suspect["spec"]["volumes"] = json!([
        { "name": "a", "emptyDir": {} },
        { "name": "b", "hostPath": { "path": "/dev/nvidia0" } },
        { "name": "c", "hostPath": { "path": "/dev/shm" } },
        { "name": "d", "hostPath": { "path": "/" } },
    ]);
    suspect["metadata"]["annotations"] = json!({ "divvy.dev/card-modell": "H200" });
    let idle = json!({ "metadata": { "annotations": { "divvy.dev/numa": "strict" } }, "spec": { "containers": [] } });
    let warnings = [mutate_new(&suspect).warnings, mutate_new(&idle).warnings].concat();
    insta::assert_snapshot!(warnings.join("\n"), @r#"
    annotation divvy.dev/card-modell: unknown to Divvy, has no effect
    spec.containers[0].securityContext.privileged: it can open every GPU of its node, whatever its limits
    spec.volumes[1].hostPath.path: /dev/nvidia0 exposes GPUs to containers beyond their limits
    spec.volumes[3].hostPath.path: / exposes GPUs to containers beyond their limits
    annotation divvy.dev/numa: has no effect: no container requests a GPU
    "#);
}

#[test]
fn taking_from_others_needs_a_favoured_namespace() {
    let asking = |annotations: Value| {
        let mut pod = pod(json!([container("main", part())]));
        pod["metadata"]["annotations"] = annotations;
        pod
    };
    let asks = asking(
        json!({ "divvy.dev/priority": "high", "divvy.dev/compute": "burst", "divvy.dev/oversubscribe": "true" }),
    );
    let with = |favoured_namespaces| mutate_with(&Settings { favoured_namespaces, ..Settings::default() }, &asks);
    let only = |namespace: &str| with(FavouredNamespaces::Named([namespace.to_owned()].into()));
    assert!(only("ml").allowed);
    assert!(with(FavouredNamespaces::All).allowed);
    assert!(!mutate_new(&asks).allowed, "by default nobody may");
    let refused = only("other");
    let refusal = refused.refusal();
    for (key, value) in [("priority", "high"), ("compute", "burst"), ("oversubscribe", "true")] {
        let why = format!(
            "annotation divvy.dev/{key}: pods of namespace \"ml\" may not use \"{value}\": an administrator can add"
        );
        assert!(refusal.contains(&why), "{refusal}");
    }
    let modest = json!({ "divvy.dev/priority": "low", "divvy.dev/compute": "cap", "divvy.dev/oversubscribe": "false" });
    assert!(mutate_new(&asking(modest)).allowed, "that takes from nobody");
}

#[test]
fn compute_limit_is_favoured_and_not_below_the_guarantee() {
    let with = |limit: &str, settings: &Settings| {
        let limits = json!({ "nvidia.com/gpumem": "8Gi", "nvidia.com/gpucores": "30" });
        let mut pod = pod(json!([container("main", limits)]));
        pod["metadata"]["annotations"] = json!({ "divvy.dev/compute-limit": limit });
        mutate_with(settings, &pod)
    };
    let favoured = Settings { favoured_namespaces: FavouredNamespaces::All, ..Settings::default() };
    assert!(with("30", &favoured).allowed && with("100", &favoured).allowed);
    let refused = with("60", &Settings::default());
    assert!(refused.refusal().contains("annotation divvy.dev/compute-limit: pods of namespace \"ml\" may not use"));
    assert_eq!(
        with("29", &favoured).refusal(),
        "422 Invalid: annotation divvy.dev/compute-limit: 29 is less than the 30 cores of container \"main\": set 30 to 100"
    );
}

#[test]
fn oversubscription_needs_an_amount_of_memory() {
    let asking = |limits: Value| {
        let mut pod = pod(json!([container("main", limits)]));
        pod["metadata"]["annotations"] = json!({ "divvy.dev/oversubscribe": "true" });
        mutate_with(&Settings { favoured_namespaces: FavouredNamespaces::All, ..Settings::default() }, &pod)
    };
    assert!(asking(part()).allowed);
    assert!(asking(json!({ "nvidia.com/gpumem-percentage": "30" })).allowed);
    let whole = asking(json!({ "nvidia.com/gpu": "2" }));
    let cores = asking(json!({ "nvidia.com/gpumem": "8Gi", "nvidia.com/gpucores": "100" }));
    assert_eq!(whole.refusal(), cores.refusal());
    insta::assert_snapshot!(whole.refusal(), @"422 Invalid: annotation divvy.dev/oversubscribe: needs an amount of memory, of which a part can be in host memory, and all GPUs are requested whole: set nvidia.com/gpumem or nvidia.com/gpumem-percentage, and nvidia.com/gpucores below 100, or remove the annotation");
}
