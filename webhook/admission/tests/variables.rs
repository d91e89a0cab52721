//! Variables that say something else than the limits, where these win.

use super::*;

fn with_variables(limits: Value, variables: Value) -> Value {
    let mut main = container("main", limits);
    main["env"] = variables;
    pod(json!([main, container("asks", json!({ "nvidia.com/gpu": "1" }))]))
}

fn all() -> Value {
    json!([{ "name": "A", "value": "1" }, { "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }, { "name": "B" },
           { "name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": { "configMapKeyRef": { "name": "c", "key": "k" } } }])
}

#[test]
fn limits_win_over_variables_that_select_gpus() {
    let requests = with_variables(json!({ "nvidia.com/gpu": "1" }), all());
    let reply = mutate_new(&requests);
    assert_eq!(lines(&reply.patch, "/env"), "remove /spec/containers/0/env/3\nremove /spec/containers/0/env/1\n");
    let removed = "NVIDIA_VISIBLE_DEVICES is removed: the container sees those that its limits request";
    assert_eq!(reply.warnings, [1, 3].map(|at| format!("spec.containers[0].env[{at}]: {removed}")));
    let after = apply(&requests, &reply.patch);
    assert_eq!(after["spec"]["containers"][0]["env"], json!([{ "name": "A", "value": "1" }, { "name": "B" }]));
    assert!(mutate_new(&after).patch.is_empty() && validate_new(&after).allowed);

    let without = with_variables(json!({}), all());
    let reply = mutate_new(&without);
    let void = r#"add /spec/containers/0/env/- {"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}"#;
    let operations = lines(&reply.patch, "/env");
    assert_eq!(operations.lines().collect::<Vec<_>>()[2..], [void]);
    assert!(reply.warnings[0].ends_with("the container sees no GPU, as its limits request none"));
    let after = apply(&without, &reply.patch);
    assert!(mutate_new(&after).patch.is_empty() && validate_new(&after).allowed);
}

/// A webhook that comes after ours, and isn't asked about again.
#[test]
fn variable_that_comes_later_is_refused() {
    let asked = pod(json!([container("main", json!({ "nvidia.com/gpu": "1" }))]));
    let mut after = apply(&asked, &mutate_new(&asked).patch);
    after["spec"]["containers"][0]["env"] = all();
    assert!(
        validate_new(&after)
            .refusal()
            .starts_with("422 Invalid: /spec/containers/0/env/3: Divvy's mutating webhook would")
    );
}

#[test]
fn preloads_are_admitted_with_a_warning() {
    let preload = json!([{ "name": "LD_PRELOAD", "value": "/usr/lib/libjemalloc.so.2" }]);
    let reply = mutate_new(&with_variables(json!({ "nvidia.com/gpumem": "8Gi" }), preload.clone()));
    assert!(reply.allowed && lines(&reply.patch, "/env").is_empty());
    assert_eq!(
        reply.warnings,
        [
            "spec.containers[0].env[0]: LD_PRELOAD loads code ahead of what keeps the container to its share: an allocator does \
          no harm, other hooks of CUDA do"
        ]
    );
    let whole = mutate_new(&with_variables(json!({ "nvidia.com/gpu": "1" }), preload));
    assert!(whole.warnings.is_empty(), "a whole GPU has no share to be kept to");
}
