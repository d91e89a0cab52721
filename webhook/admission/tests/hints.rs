use std::cell::RefCell;

use divvy_api::{ContainerKind, GpuRequest};
use divvy_index::Exceeded;

use super::*;

fn ask_index(settings: &Settings, question: &Value, endpoint: Endpoint, fit: &Feasibility) -> Reply {
    reply(&review(question.to_string().as_bytes(), endpoint, settings, &|_| Some(fit.clone())).body)
}

fn created(pod: Value) -> Value {
    question("CREATE", "Pod", pod, Value::Null)
}

fn whole() -> Value {
    pod(json!([container("main", json!({ "nvidia.com/gpu": "1" }))]))
}

fn two_nodes() -> Feasibility {
    Feasibility { now: Some(true), ever: true, best: vec!["n2".into(), "n7".into()], ..Feasibility::default() }
}

fn nowhere() -> Feasibility {
    let reasons = vec![("Insufficient GPUs (1 short of memory, largest free 12Gi)".into(), 3)];
    Feasibility { now: Some(false), ever: true, nodes: 3, asked: 3, reasons, ..Feasibility::default() }
}

#[test]
fn index_is_queried_once_per_review() {
    let asked = RefCell::new(Vec::new());
    let fits = |demand: &Demand| {
        asked.borrow_mut().push(demand.clone());
        None
    };
    let mut pod = whole();
    pod["metadata"]["annotations"] = json!({ "divvy.dev/card-model": "H200" });
    review(created(pod).to_string().as_bytes(), Endpoint::Mutate, &Settings::default(), &fits);
    let asked = asked.into_inner();
    let [demand] = asked.as_slice() else { panic!("asked {} times", asked.len()) };
    assert_eq!((demand.namespace.as_str(), demand.name.as_str()), ("ml", "train"));
    assert_eq!(demand.preferences.models, ["H200"]);
    let main = &demand.containers[0];
    assert_eq!((main.kind, main.request, main.counted.count), (ContainerKind::App, Some(GpuRequest::whole(1)), 1));
    assert_eq!(main.counted.cores, 0, "scheduler and kubelet count whole cards alone");
}

#[test]
fn hints_are_written_as_annotation_and_warning() {
    let settings = Settings::default();
    let said = |fit: Feasibility| {
        let reply = ask_index(&settings, &created(whole()), Endpoint::Mutate, &fit);
        format!("{}{}", reply.operations(), reply.warnings.join("\n"))
    };
    insta::assert_snapshot!(said(two_nodes()), @r#"add /metadata/annotations {"divvy.dev/node-fit":"{\"version\":\"v1\",\"nodes\":[\"n2\",\"n7\"]}","divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":1,\"memory\":\"100%\",\"cores\":100}}}"}"#);
    insta::assert_snapshot!(said(nowhere()), @r#"
    add /metadata/annotations {"divvy.dev/node-fit":"{\"version\":\"v1\",\"nodes\":[],\"reason\":\"0/3 nodes are available: 3 Insufficient GPUs (1 short of memory, largest free 12Gi)\"}","divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":1,\"memory\":\"100%\",\"cores\":100}}}"}
    0/3 nodes are available: 3 Insufficient GPUs (1 short of memory, largest free 12Gi)
    "#);
}

#[test]
fn hinted_nodes_are_preferred_where_configured() {
    let settings = Settings { prefer_hinted_nodes: true, ..Settings::default() };
    let fit = two_nodes();
    let prefer = |pod: &Value| ask_index(&settings, &created(pod.clone()), Endpoint::Mutate, &fit);
    let affinity = |reply: &Reply| lines(&reply.patch, "ffinity");
    insta::assert_snapshot!(affinity(&prefer(&whole())), @r#"add /spec/affinity {"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["n2"]}]},"weight":100},{"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["n7"]}]},"weight":99}]}}"#);
    let again = apply(&whole(), &prefer(&whole()).patch);
    assert!(prefer(&again).patch.is_empty());
    let mut with_own = whole();
    with_own["spec"]["affinity"] = json!({ "podAffinity": {} });
    insta::assert_snapshot!(affinity(&prefer(&with_own)), @r#"add /spec/affinity/nodeAffinity {"preferredDuringSchedulingIgnoredDuringExecution":[{"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["n2"]}]},"weight":100},{"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["n7"]}]},"weight":99}]}"#);
    with_own["spec"]["affinity"] = json!({ "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": {} }],
    } });
    insta::assert_snapshot!(affinity(&prefer(&with_own)), @r#"
    add /spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/- {"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["n2"]}]},"weight":100}
    add /spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/- {"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["n7"]}]},"weight":99}
    "#);
}

#[test]
fn workload_review_warns_about_its_pod_template() {
    let settings = Settings::default();
    let advise = |kind: &str, object: Value| {
        let reply =
            ask_index(&settings, &question("CREATE", kind, object, Value::Null), Endpoint::Templates, &nowhere());
        assert!(reply.allowed && reply.patch.is_empty());
        reply.warnings.join("\n")
    };
    insta::assert_snapshot!(advise("Deployment", json!({ "spec": { "template": whole() } })), @"its pods: 0/3 nodes are available: 3 Insufficient GPUs (1 short of memory, largest free 12Gi)");
    let wrong = pod(json!([container("main", json!({ "nvidia.com/gpumem": "8G" }))]));
    insta::assert_snapshot!(advise("CronJob", json!({ "spec": { "jobTemplate": { "spec": { "template": wrong } } } })), @r#"its pods would be refused: spec.containers[0].resources.limits[nvidia.com/gpumem]: "8G" is ambiguous: did you mean "8Gi"?"#);
    insta::assert_snapshot!(advise("Job", json!({ "spec": { "template": { "spec": { "containers": 3 } } } })), @"request.object.spec.template.spec.containers: invalid type: integer `3`, expected a sequence at line 1 column 204");
    assert_eq!(advise("StatefulSet", json!({ "spec": { "template": pod(json!([{ "name": "web" }])) } })), "");
    assert_eq!(advise("DaemonSet", json!({ "spec": {} })), "");
}

#[test]
fn pod_beyond_its_quota_is_refused_with_what_is_left() {
    let settings = Settings::default();
    let reason = "exceeded GpuQuota a100, requested: gpu=1, used: gpu=4, limited: gpu=4";
    let exceeded = vec![Exceeded { model: "NVIDIA A100".into(), reason: reason.into() }];
    let reply = |fit: &Feasibility, pod: Value| ask_index(&settings, &created(pod), Endpoint::Mutate, fit);
    let everywhere = Feasibility { used_up: Some(reason.into()), ..nowhere() };
    let refused = reply(&everywhere, whole());
    assert_eq!(refused.refusal(), format!("403 Forbidden: {reason}: kubectl divvy quota shows what is held"));
    let elsewhere = Feasibility { exceeded: exceeded.clone(), ..two_nodes() };
    assert!(reply(&elsewhere, whole()).allowed, "other models are free");
    let nowhere_yet = Feasibility { exceeded, reasons: vec![(reason.into(), 3)], ..nowhere() };
    let reply_now = reply(&nowhere_yet, whole());
    assert!(reply_now.allowed, "another model may come");
    assert_eq!(reply_now.warnings, [format!("0/3 nodes are available: 3 {reason}")]);
    let mut named = whole();
    named["spec"]["nodeName"] = json!("n1");
    let refused = reply(&elsewhere, named);
    assert!(
        refused.refusal().starts_with(&format!("403 Forbidden: spec.nodeName: {reason}, and")),
        "{}",
        refused.status
    );
}
