use super::*;
use crate::pod_group::PodGroupApi;

#[test]
fn pod_view_keeps_only_what_decides_gpus() {
    let pod: PodView = serde_json::from_str(
        r#"{"metadata":{"uid":"u","namespace":"n","name":"p","annotations":{"divvy.dev/numa":"strict","other":"x"}},
            "spec":{"priority":7,"nodeName":"","schedulerName":"s",
                "initContainers":[{"name":"a","resources":{}},{"name":"b","restartPolicy":"Always"}],
                "containers":[{"name":"c","resources":{"limits":{"cpu":"1","nvidia.com/gpu":1}}}]},
            "status":{"phase":"Failed","conditions":[]}}"#,
    )
    .expect("a pod");
    insta::assert_debug_snapshot!(pod);
}

#[test]
fn pod_view_reads_null_as_absent() {
    for text in ["{}", r#"{"metadata":null,"spec":null,"status":null}"#, r#"{"spec":{"containers":null}}"#] {
        assert_eq!(serde_json::from_str::<PodView>(text).expect("a pod"), PodView::default());
    }
}

#[test]
fn end_of_a_pod_is_told_by_its_own_object() {
    let end = |metadata: &str, spec: &str, status: &str| {
        let pod = format!(r#"{{"metadata":{{{metadata}}},"spec":{{{spec}}},"status":{{{status}}}}}"#);
        serde_json::from_str::<PodView>(&pod).expect("a pod").end
    };
    let at = |text: &str| text.parse().expect("a time");
    let started = r#""startTime":"2026-01-01T00:00:00Z""#;
    let deadline = r#""restartPolicy":"Never","activeDeadlineSeconds":3600"#;
    assert_eq!(end("", "", ""), PodEnd::Unknown);
    assert_eq!(end("", r#""restartPolicy":"Always""#, started), PodEnd::Open);
    for policy in ["Never", "OnFailure"] {
        assert_eq!(end("", &format!(r#""restartPolicy":"{policy}""#), started), PodEnd::Completes);
    }
    assert_eq!(end("", deadline, started), PodEnd::Deadline { at: at("2026-01-01T01:00:00Z") });
    assert_eq!(end("", deadline, ""), PodEnd::Completes, "it hasn't started");
    let deleted = r#""deletionTimestamp":"2026-01-01T00:30:00Z""#;
    assert_eq!(end(deleted, deadline, started), PodEnd::Deleted { at: at("2026-01-01T00:30:00Z") });
    let beyond = r#""restartPolicy":"Always","activeDeadlineSeconds":9223372036854775807"#;
    assert_eq!(end(r#""deletionTimestamp":"soon""#, beyond, r#""startTime":"long ago""#), PodEnd::Open);
    assert!(matches!(end("", beyond, started), PodEnd::Deadline { .. } | PodEnd::Open), "no clock ends there");
}

#[test]
fn group_of_a_pod_is_its_own_field_or_the_label() {
    let group = |pod: &str| {
        let pod = serde_json::from_str::<PodView>(pod).expect("a pod");
        (
            pod.group.map(|group| (group.api, group.namespace.clone(), group.name.clone())),
            !pod.scheduling.gates.is_empty(),
        )
    };
    let of = |api, name: &str| Some((api, "n".to_owned(), name.to_owned()));
    let labels = r#""labels":{"app":"x","scheduling.x-k8s.io/pod-group":"train"}"#;
    let labelled =
        format!(r#"{{"metadata":{{"namespace":"n",{labels}}},"spec":{{"schedulingGates":[{{"name":"g"}}]}}}}"#);
    assert_eq!(group(&labelled), (of(PodGroupApi::Coscheduling, "train"), true));
    let own = r#""schedulingGroup":{"podGroupName":"gang"},"schedulingGates":[]"#;
    let both = format!(r#"{{"metadata":{{"namespace":"n",{labels}}},"spec":{{{own}}}}}"#);
    assert_eq!(group(&both), (of(PodGroupApi::Kubernetes, "gang"), false), "kube-scheduler's own goes first");
    for none in ["null", "{}", r#"{"podGroupName":null}"#, r#"{"podGroupName":""}"#] {
        assert_eq!(group(&format!(r#"{{"spec":{{"schedulingGroup":{none}}}}}"#)), (None, false));
    }
}

#[test]
fn requests_of_the_whole_pod_replace_those_of_containers() {
    let requests = |of_pod: &str, overhead: &str| {
        let containers = r#"[{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]"#;
        let pod = format!(r#"{{"spec":{{"containers":{containers},"resources":{of_pod},"overhead":{overhead}}}}}"#);
        let Resources { cpu_milli, others } = serde_json::from_str::<PodView>(&pod).expect("a pod").requests;
        (cpu_milli, others["memory"] >> 30)
    };
    assert_eq!(requests("null", "null"), (1000, 1));
    assert_eq!(requests(r#"{"requests":{"cpu":"60"}}"#, "null"), (60_000, 1));
    assert_eq!(requests(r#"{"requests":{"cpu":"2","memory":"4Gi"}}"#, r#"{"cpu":"500m","memory":"1Gi"}"#), (2500, 5));
    assert_eq!(requests(r#"{"limits":{"cpu":"2"}}"#, "{}"), (1000, 1), "the API server fills requests in");
}

#[test]
fn conditions_say_what_scheduler_and_planner_found() {
    let conditions = |conditions: &str| {
        let pod = format!(r#"{{"status":{{"conditions":{conditions}}}}}"#);
        let pod = serde_json::from_str::<PodView>(&pod).expect("a pod");
        (pod.is_unschedulable, pod.is_placed)
    };
    let both = r#"[{"type":"PodScheduled","status":"False","reason":"Unschedulable"},{"type":"divvy.dev/Placed","status":"True"}]"#;
    assert_eq!(conditions(both), (true, true));
    let neither = r#"[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"},{"type":"divvy.dev/Placed","status":"False"}]"#;
    assert_eq!(conditions(neither), (false, false));
    assert_eq!(conditions(r#"[{},{"type":null}]"#), (false, false));
}
