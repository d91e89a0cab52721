use divvy_api::annotation::{self, RequestAnnotation};
use divvy_api::limits::pod_requests;
use divvy_api::names::annotation::{OUTPUTS, REQUEST};
use divvy_api::names::taint;
use proptest::prelude::*;

use super::*;

/// Limits that are mostly right.
fn limits() -> impl Strategy<Value = Value> {
    let count = prop_oneof![Just(None), Just(Some("0")), Just(Some("1")), Just(Some("2")), Just(Some("3k"))];
    let memory =
        prop_oneof![3 => Just(None), 1 => Just(Some("8Gi")), 1 => Just(Some("80k")), 1 => Just(Some("1025Ki"))];
    let percent = prop_oneof![4 => Just(None), 1 => Just(Some("50"))];
    let cores = prop_oneof![2 => Just(None), 1 => Just(Some("30")), 1 => Just(Some("100")), 1 => Just(Some("0"))];
    let profile = prop_oneof![6 => Just(None), 1 => Just(Some("1")), 1 => Just(Some("0"))];
    (count, memory, percent, cores, profile).prop_map(|(count, memory, percent, cores, profile)| {
        let amounts = [
            ("gpu", count),
            ("gpumem", memory),
            ("gpumem-percentage", percent),
            ("gpucores", cores),
            ("mig-1g.10gb", profile),
        ];
        let amounts =
            amounts.into_iter().filter_map(|(name, amount)| Some((format!("nvidia.com/{name}"), amount?.into())));
        Value::Object(amounts.chain([("cpu".to_owned(), "1".into())]).collect())
    })
}

fn containers(prefix: &'static str, most: usize) -> impl Strategy<Value = Vec<Value>> {
    let extras = prop_oneof![
        Just(json!({})),
        Just(json!({ "restartPolicy": "Always" })),
        Just(json!({ "env": [{ "name": "A", "value": "b", "new": [1.5] }], "stdin": true })),
        Just(json!({ "env": null, "unknown": { "deep": [null, { "x": 18_446_744_073_709_551_615_u64 }] } })),
        Just(json!({ "resources": {} })),
    ];
    prop::collection::vec((limits(), extras), 0..=most).prop_map(move |all| {
        let made = all.into_iter().enumerate().map(|(at, (limits, extras))| {
            let mut made = container(&format!("{prefix}{at}"), limits);
            made.as_object_mut().expect("an object").extend(extras.as_object().expect("an object").clone());
            made
        });
        made.collect()
    })
}

fn pods() -> impl Strategy<Value = Value> {
    let annotations = prop_oneof![
        Just(json!({})),
        Just(Value::Null),
        Just(json!({ "divvy.dev/numa": "strict", "a/b~c": "d" })),
        Just(json!({ "divvy.dev/node-fit": "stale" })),
        Just(json!({ "divvy.dev/planned": "{}", "divvy.dev/cards": "of another pod", "a": "b" })),
    ];
    let tolerations = prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!([{ "key": "divvy.dev/free-gpus", "value": "x", "effect": "PreferNoSchedule" }])),
        Just(json!([{ "key": "a", "operator": "Exists" }, { "operator": "Exists" }])),
    ];
    (containers("i", 2), containers("c", 3), annotations, tolerations).prop_map(
        |(init, apps, annotations, tolerations)| {
            json!({
                "metadata": { "name": "p", "annotations": annotations, "future": { "x": 1e300 } },
                "spec": { "initContainers": init, "containers": apps, "tolerations": tolerations, "futures": ["ü"] },
            })
        },
    )
}

fn hinted(pod: &Value) -> Reply {
    let settings = Settings {
        prefer_hinted_nodes: true,
        tolerate_soft_taints: true,
        whole_gpus_have_amounts: true,
        ..Settings::default()
    };
    let fits = |_: &Demand| {
        let best = vec!["n1".into(), "n2".into()];
        Some(Feasibility { now: Some(true), ever: true, best, ..Feasibility::default() })
    };
    let question = question("CREATE", "Pod", pod.clone(), Value::Null);
    reply(&review(question.to_string().as_bytes(), Endpoint::Mutate, &settings, &fits).body)
}

/// Tolerations of all soft taints.
fn tolerate_all() -> [Value; 2] {
    taint::SOFT.map(|key| json!({ "key": key, "operator": "Exists", "effect": "PreferNoSchedule" }))
}

/// The pod without anything that we may write.
fn stripped(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let remove = |object: Option<&mut Value>, ours: &dyn Fn(&str) -> bool| {
        if let Some(Value::Object(members)) = object {
            members.retain(|name, _| !ours(name));
        }
    };
    if pod["metadata"]["annotations"].is_null() {
        pod["metadata"]["annotations"] = json!({});
    }
    remove(pod.pointer_mut("/metadata/annotations"), &|key| OUTPUTS.contains(&key));
    remove(pod.pointer_mut("/spec"), &|key| key == "affinity");
    let tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let ours = tolerate_all();
    pod["spec"]["tolerations"] = tolerations.into_iter().filter(|toleration| !ours.contains(toleration)).collect();
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().expect("a list") {
            for amounts in ["/resources/limits", "/resources/requests"] {
                remove(container.pointer_mut(amounts), &|name| name.starts_with("nvidia.com/"));
            }
            let variables = container.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
            container["env"] =
                variables.into_iter().filter(|variable| variable["name"] != "NVIDIA_VISIBLE_DEVICES").collect();
        }
    }
    pod
}

proptest! {
    #[test]
    fn patch_is_idempotent_and_keeps_other_fields(pod in pods()) {
        let first = hinted(&pod);
        prop_assume!(first.allowed);
        let patched = apply(&pod, &first.patch);
        let again = hinted(&patched);
        prop_assert!(again.allowed, "{}", again.status);
        prop_assert_eq!(again.patch, Vec::<Value>::new());
        prop_assert_eq!(stripped(&patched), stripped(&pod));
        prop_assert!(validate_new(&patched).allowed);
    }

    #[test]
    fn node_reads_patched_pod_as_requested(pod in pods()) {
        let first = mutate_new(&pod);
        prop_assume!(first.allowed);
        let names = ResourceNames::default();
        let patched = apply(&pod, &first.patch);
        let specs = |pod: &Value| {
            let read: Pod = serde_json::from_value(pod.clone()).expect("a pod");
            read.containers().map(|place| place.spec(&names)).collect::<Vec<_>>()
        };
        let request = patched["metadata"]["annotations"].get(REQUEST).and_then(Value::as_str);
        let request: Option<RequestAnnotation> = request.map(|text| annotation::decode(text).expect("our own"));
        let before = pod_requests(&names, Defaults::default(), None, &specs(&pod)).expect("it was allowed");
        let after = pod_requests(&names, Defaults::default(), request.as_ref(), &specs(&patched)).expect("it agrees");
        for (before, after) in before.iter().zip(&after) {
            prop_assert_eq!(before.request, after.request);
            prop_assert!(after.request.is_none() || before.profile == after.profile);
            let totals = after.request.map(|request| request.totals()).unwrap_or_default();
            prop_assert_eq!(after.counted.count, totals.count);
            prop_assert!(after.counted.memory == totals.memory);
        }
        for (spec, read) in specs(&patched).iter().zip(&after) {
            let texts = spec.limits.values().all(|text| text.parse::<u64>().is_ok_and(|n| n > 0) || text == "80k" || text == "3k");
            prop_assert!(texts, "{:?}", spec.limits);
            prop_assert_eq!(spec.limits.is_empty(), read.request.is_none());
        }
    }

    #[test]
    fn added_container_leaves_the_others_unchanged(pod in pods(), requests: bool, at in 0usize..4) {
        let first = mutate_new(&pod);
        prop_assume!(first.allowed && !first.patch.is_empty());
        let alone = apply(&pod, &first.patch);
        let mut joined = alone.clone();
        let limits = if requests { json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "8Gi" }) } else { json!({}) };
        let list = joined["spec"]["containers"].as_array_mut().expect("a list");
        let at = at.min(list.len());
        list.insert(at, container("added", limits));
        let again = mutate_new(&joined);
        prop_assert!(again.allowed, "{}", again.status);
        let mut settled = apply(&joined, &again.patch);
        prop_assert!(mutate_new(&settled).patch.is_empty() && validate_new(&settled).allowed);
        settled["spec"]["containers"].as_array_mut().expect("a list").remove(at);
        prop_assert_eq!(&settled["spec"], &alone["spec"]);
    }

    #[test]
    fn review_of_any_bytes_does_not_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        for endpoint in [Endpoint::Mutate, Endpoint::Hide, Endpoint::Validate, Endpoint::Jobs, Endpoint::Templates] {
            reply(&review(&body, endpoint, &Settings::default(), &nothing_known).body);
        }
    }

    #[test]
    fn review_of_any_object_does_not_panic(object in values(), old in values(), asked in 0..3_usize) {
        let (operation, sub_resource) = [("CREATE", ""), ("UPDATE", ""), ("UPDATE", "ephemeralcontainers")][asked];
        for (endpoint, kind) in
            [(Endpoint::Mutate, "Pod"), (Endpoint::Hide, "Pod"), (Endpoint::Validate, "Pod"), (Endpoint::Jobs, "Job"), (Endpoint::Templates, "Job")]
        {
            let mut question = question(operation, kind, object.clone(), old.clone());
            question["request"]["subResource"] = sub_resource.into();
            ask(endpoint, &Settings::default(), &question);
        }
    }
}

/// JSON that has the names of a pod's fields in any places.
fn values() -> impl Strategy<Value = Value> {
    let keys = [
        "metadata",
        "annotations",
        "spec",
        "template",
        "containers",
        "initContainers",
        "ephemeralContainers",
        "name",
        "resources",
        "limits",
        "requests",
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "divvy.dev/request",
        "env",
        "value",
        "volumes",
        "hostPath",
        "volumeMounts",
        "mountPath",
        "affinity",
        "nodeAffinity",
        "securityContext",
        "privileged",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[0-9.kMGi/-]{0,6}|\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(keys.to_vec()).prop_map(str::to_owned), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
