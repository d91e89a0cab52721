//! The scheduling gate: who gets it, who keeps it, and who is freed of it.

use super::dialects::admitted;
use super::*;

const GATE: &str = "divvy.dev/placement";

fn gating() -> Settings {
    let schedulers = ["default-scheduler", "second"].map(str::to_owned).to_vec();
    Settings { planned: PlannedPods { schedulers, groups_alone: false }, ..Settings::default() }
}

fn sharing() -> Value {
    pod(json!([{ "name": "log" }, container("main", json!({ "nvidia.com/gpu": "1", "nvidia.com/gpucores": "30" }))]))
}

fn gates(pod: &Value) -> Vec<&str> {
    let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
    gates.map(|gate| gate["name"].as_str().expect("a name")).collect()
}

fn gated(mut pod: Value, names: &[&str]) -> Value {
    pod["spec"]["schedulingGates"] = names.iter().map(|name| json!({ "name": name })).collect();
    pod
}

#[test]
fn pod_that_requests_gpus_waits_for_its_plan() {
    let (after, _) = admitted(&gating(), &sharing());
    assert_eq!(after["spec"]["schedulingGates"], json!([{ "name": GATE }]));
    let (after, _) = admitted(&gating(), &gated(sharing(), &["kueue.x-k8s.io/admission"]));
    assert_eq!(gates(&after), ["kueue.x-k8s.io/admission", GATE], "beside others");
    let mut null = sharing();
    null["spec"]["schedulingGates"] = Value::Null;
    assert_eq!(gates(&admitted(&gating(), &null).0), [GATE]);
    let (after, _) = admitted(&gating(), &gated(sharing(), &[GATE]));
    assert_eq!(gates(&after), [GATE], "once");
    assert_eq!(gates(&admitted(&Settings::default(), &sharing()).0), [""; 0], "unless the leader plans");
}

#[test]
fn beside_an_extender_only_pods_of_groups_wait() {
    let mut settings = gating();
    settings.planned.groups_alone = true;
    assert_eq!(gates(&admitted(&settings, &sharing()).0), [""; 0]);
    assert_eq!(gates(&admitted(&settings, &gated(sharing(), &[GATE])).0), [""; 0], "nobody would plan it");
    let (mut labelled, mut own) = (sharing(), sharing());
    labelled["metadata"]["labels"] = json!({ "scheduling.x-k8s.io/pod-group": "train" });
    own["spec"]["schedulingGroup"] = json!({ "podGroupName": "train" });
    for pod in [labelled, own] {
        assert_eq!(gates(&admitted(&settings, &pod).0), [GATE], "{pod}");
    }
    let mut none = sharing();
    none["spec"]["schedulingGroup"] = json!({ "podGroupName": "" });
    assert_eq!(gates(&admitted(&settings, &none).0), [""; 0]);
}

#[test]
fn gate_depends_on_who_schedules_the_pod() {
    let with = |field: &str, value: &str| {
        let mut pod = sharing();
        pod["spec"][field] = value.into();
        pod
    };
    for (pod, expected) in [
        (with("schedulerName", ""), &[GATE][..]),
        (with("schedulerName", "default-scheduler"), &[GATE]),
        (with("schedulerName", "second"), &[GATE]),
        (with("schedulerName", "volcano"), &[]),
        (with("nodeName", "n1"), &[]),
        (with("nodeName", ""), &[GATE]),
    ] {
        assert_eq!(gates(&admitted(&gating(), &pod).0), expected, "{pod}");
        let copy = gated(pod.clone(), &["other", GATE]);
        let expected = [&["other"][..], expected].concat();
        assert_eq!(gates(&admitted(&gating(), &copy).0), expected, "{copy}");
    }
}

#[test]
fn gate_follows_the_scheduler_that_a_pod_is_given_to() {
    let dialects = serde_json::from_value(json!(["hami"])).expect("dialects");
    let rewrite = |to: &str| [("hami-scheduler".to_owned(), to.to_owned())].into();
    let mut pod = sharing();
    pod["spec"]["schedulerName"] = "hami-scheduler".into();
    for (to, expected) in [("default-scheduler", &[GATE][..]), ("volcano", &[])] {
        let settings = Settings { rewrite_schedulers: rewrite(to), dialects: Clone::clone(&dialects), ..gating() };
        let (after, _) = admitted(&settings, &pod);
        assert_eq!((&after["spec"]["schedulerName"], &*gates(&after)), (&json!(to), expected));
    }
}

/// `kubectl debug --copy-to` keeps gates, and anybody may write one.
#[test]
fn pod_that_requests_nothing_is_freed() {
    let idle = pod(json!([{ "name": "shell" }]));
    let zero = pod(json!([container("main", json!({ "nvidia.com/gpu": "0" }))]));
    for settings in [gating(), Settings::default()] {
        for pod in [&idle, &zero] {
            let (after, _) = admitted(&settings, &gated(pod.clone(), &[GATE, "other"]));
            assert_eq!(gates(&after), ["other"], "{pod}");
            let (after, _) = admitted(&settings, &gated(pod.clone(), &["a", GATE, "b", GATE]));
            assert_eq!(gates(&after), ["a", "b"], "{pod}");
        }
        let reply = mutate_with(&settings, &idle);
        assert!(reply.allowed && reply.patch.is_empty(), "a pod without a gate isn't touched");
    }
    let copy = gated(sharing(), &[GATE]);
    assert_eq!(gates(&admitted(&Settings::default(), &copy).0), [""; 0], "nobody plans");
}

#[test]
fn templates_of_jobs_get_no_gate() {
    for template in [sharing(), gated(sharing(), &[GATE])] {
        let job = json!({ "metadata": { "name": "train" }, "spec": { "template": template } });
        let reply = ask(Endpoint::Jobs, &gating(), &question("CREATE", "Job", job.clone(), Value::Null));
        let after = apply(&job, &reply.patch);
        assert_eq!(
            after["spec"]["template"]["spec"]["schedulingGates"],
            job["spec"]["template"]["spec"]["schedulingGates"]
        );
    }
}

#[test]
fn static_pod_and_later_changes_keep_their_gates() {
    let mut mirror = gated(pod(json!([{ "name": "main" }])), &[GATE]);
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
    assert!(mutate_with(&gating(), &mirror).patch.is_empty());
    let (waiting, _) = admitted(&gating(), &sharing());
    assert!(validate_update(&waiting, &gated(waiting.clone(), &[])).allowed, "Kueue and the leader take theirs away");
    let mut debugged = waiting.clone();
    debugged["spec"]["ephemeralContainers"] = json!([{ "name": "shell" }]);
    let mut asked = question("UPDATE", "Pod", debugged, waiting);
    asked["request"]["subResource"] = "ephemeralcontainers".into();
    let reply = ask(Endpoint::Mutate, &gating(), &asked);
    assert_eq!(lines(&reply.patch, "schedulingGates"), "");
}
