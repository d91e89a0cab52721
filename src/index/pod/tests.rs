use super::*;

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
