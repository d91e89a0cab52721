//! What pods are told: their cards, and what they forgot to ask for.

use divvy_testkit::pods::GPU;
use fake_kubelet::Workload;
use serde_json::json;

use crate::bench::cluster::{amounts, events};
use crate::bench::{Bench, part, pod};

#[tokio::test]
async fn every_pod_is_annotated_with_its_gpus() {
    let bench = Bench::publishing().await;
    let part_of = bench.run(part("1000")).await;
    let both = bench.run(pod(&[(GPU, "2"), ("nvidia.com/gpumem-percentage", "50")])).await;
    for uid in [&part_of, &both] {
        let written = bench.until_annotated(uid).await;
        let told = bench.until_told("the shares", |status| status.shares.len() == 3).await;
        assert_eq!((&written["version"], &written["tier"]), (&json!("v1"), &json!("accounting")));
        assert!(written["ledgerRevision"].as_u64().unwrap() <= told.ledger_revision);
        let share =
            |card: &serde_json::Value| (card["uuid"].as_str().unwrap().to_owned(), card["memoryMi"].as_u64().unwrap());
        let cards: Vec<_> = written["containers"]["main"].as_array().unwrap().iter().map(share).collect();
        assert_eq!(cards, bench.given(uid));
    }
}

#[tokio::test]
async fn pod_of_gpushare_gets_its_annotations_too() {
    let bench = Bench::publishing().await;
    let record = json!({
        "version": "v1", "name": "gpushare", "containers": { "main": { "aliyun.com/gpu-mem": "1" } }, "outputs": ["gpushare"],
    });
    let uid = bench.run(part("1024").annotation("divvy.dev/dialect", record.to_string())).await;
    bench.until_annotated(&uid).await;
    let pod = bench.server().list("Pod").into_iter().find(|pod| pod["metadata"]["uid"] == *uid).unwrap();
    let told = |name: &str| pod["metadata"]["annotations"][format!("ALIYUN_COM_GPU_MEM_{name}")].clone();
    assert_eq!(["IDX", "POD", "DEV", "ASSIGNED"].map(told), ["0", "1", "16", "true"].map(|text| json!(text)));
    assert!(told("ASSUME_TIME").as_str().unwrap().len() >= 19, "nanoseconds");
}

#[tokio::test]
async fn restarted_daemon_writes_nothing_that_is_already_so() {
    let mut bench = Bench::publishing().await;
    let uids = [bench.run(part("1000")).await, bench.run(part("2000")).await];
    for uid in &uids {
        bench.until_annotated(uid).await;
        // The kubelet follows the API server's object.
        let pod = bench.server().list("Pod").into_iter().find(|pod| pod["metadata"]["uid"] == **uid).unwrap();
        bench.kubelet.update_pod(uid, &serde_json::from_value(pod).unwrap()).unwrap();
    }
    bench.until_shown("the pods' amounts", |view| amounts(view).filter(|[_, percent, _]| *percent < 200)).await;
    bench.kill().await;
    let before = bench.server().requests().len();
    bench.start(crate::bench::Stderr::Log).await;
    bench.registered(1).await;
    let third = bench.run(part("3000")).await;
    bench.until_annotated(&third).await;
    let written = bench.server().requests().split_off(before).into_iter().filter(|asked| asked.verb == "patch");
    let of_pods: Vec<_> = written.filter(|asked| asked.resource == "pods").map(|asked| asked.path).collect();
    assert_eq!(of_pods.len(), 1, "the third pod's alone: {of_pods:?}");
}

#[tokio::test]
async fn pod_gets_lacking_annotations_of_its_dialect_at_next_start() {
    let mut bench = Bench::publishing().await;
    let record = json!({
        "version": "v1", "name": "gpushare", "containers": { "main": { "aliyun.com/gpu-mem": "1" } }, "outputs": ["gpushare"],
    });
    let uid = bench.run(part("1024").annotation("divvy.dev/dialect", record.to_string())).await;
    let cards = bench.until_annotated(&uid).await;
    // As a daemon left it that didn't write them yet.
    let pod = bench.server().list("Pod").into_iter().find(|pod| pod["metadata"]["uid"] == *uid).unwrap();
    let (name, is_theirs) = (pod["metadata"]["name"].as_str().unwrap(), |key: &String| key.starts_with("ALIYUN_COM_"));
    let remove = |pod: &mut serde_json::Value| {
        pod["metadata"]["annotations"].as_object_mut().unwrap().retain(|key, _| !is_theirs(key));
    };
    bench.kill().await;
    let pod = bench.server().edit("Pod", "default", name, remove).unwrap();
    bench.kubelet.update_pod(&uid, &serde_json::from_value(pod).unwrap()).unwrap();
    bench.start(crate::bench::Stderr::Log).await;
    let told = bench.until_shown("all of them", |view| {
        let pod = view.get("Pod", "default", name)?;
        let annotations = pod["metadata"]["annotations"].as_object()?;
        (annotations.keys().filter(|key| is_theirs(key)).count() == 5).then(|| annotations["divvy.dev/cards"].clone())
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(told.await.as_str().unwrap()).unwrap(), cards);
}

#[tokio::test]
async fn pod_of_the_same_name_with_another_uid_is_not_annotated() {
    let bench = Bench::publishing().await;
    // The API server has forgotten the pod that still runs here, and has another one by its name elsewhere.
    let elsewhere = part("1000");
    let (here, mut namesake) = (elsewhere.clone().pod(), json!(elsewhere.pod()));
    namesake["spec"]["nodeName"] = "another".into();
    let namesake = bench.server().create(&namesake).unwrap();
    let uid = bench.kubelet.add_pod(here).unwrap();
    bench.until_told("its share", |status| status.shares.iter().any(|share| share.pod_uid == uid)).await;
    let after = bench.run(part("2000")).await;
    bench.until_annotated(&after).await;
    let answered = |view: &fake_apiserver::View<'_>| {
        let name = namesake["metadata"]["name"].as_str().unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        view.requests().iter().filter(|asked| asked.path == path).map(|asked| asked.code).collect::<Vec<_>>()
    };
    assert_eq!(bench.server().read(answered), [422], "asked once, and refused: a UID is immutable");
    let name = namesake["metadata"]["name"].as_str().unwrap();
    let found = bench.server().get("Pod", "default", name).unwrap();
    assert_eq!(found["metadata"]["annotations"]["divvy.dev/cards"], json!(null));
    assert_eq!(bench.log().matches("not published").count(), 0, "{}", bench.log());
}

#[tokio::test]
async fn pod_with_amounts_but_no_gpu_gets_one_warning() {
    let bench = Bench::publishing().await;
    bench.run(part("1000")).await;
    let forgot = Workload::new("forgot").app("main", &[("nvidia.com/gpumem", "1000")]);
    bench.run(forgot).await;
    let warned = |view: &fake_apiserver::View<'_>| Some(events(view, "NoGpuRequested")).filter(|all| !all.is_empty());
    let all = bench.until_shown("a warning", warned).await;
    let [(name, note)] = all.as_slice() else { panic!("not one: {all:#?}") };
    assert!(
        name == "forgot" && note.contains("not nvidia.com/gpu") && note.contains("install divvy-webhook"),
        "{note}"
    );
    let event = &bench.server().list("Event")[0];
    assert_eq!((&event["type"], &event["involvedObject"]["kind"]), (&json!("Warning"), &json!("Pod")));
    let next = bench.run(part("2000")).await;
    bench.until_annotated(&next).await;
    let all = bench.server().read(|view| events(view, "NoGpuRequested"));
    assert_eq!(all.len(), 1);
    assert!(bench.server().list("Event")[0]["series"].is_null(), "said once, not again and again");
}
