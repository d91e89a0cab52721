//! The scheduler's verbs over HTTPS, as kube-scheduler sends them.

use serde_json::{Value, json};

use crate::bench::{Bench, about, patient, pod, to};

/// kube-scheduler drops a connection after an answer in chunks.
fn of_known_length(answer: &crate::https::Answer) {
    assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()), "{:?}", answer.headers);
    assert_eq!(answer.header("transfer-encoding"), None);
}

#[tokio::test]
async fn a_pod_is_filtered_ranked_and_bound_with_its_plan_in_the_binding() {
    let bench = Bench::with_nodes(&[("n1", 1), ("n2", 2), ("small", 1)]).await;
    bench.report("small", |status| status["cards"][0]["memoryMi"] = 4096.into());
    let replica = bench.alone(&json!({})).await;
    let https = bench.https();
    let made = bench.pod(&pod("a", 8, 30)).await;
    let ask = async |path: &str, body: &Value| {
        let answer = https.post(replica.address, path, body.to_string()).await;
        of_known_length(&answer);
        answer.json()
    };
    let names = ["n1", "n2", "small", "stranger"];
    let filtered = ask("/filter", &about(&made, &names)).await;
    let kept = filtered["NodeNames"].as_array().unwrap();
    assert!(!kept.is_empty() && kept.iter().all(|name| name == "n1" || name == "n2"), "{filtered}");
    let scores = ask("/prioritize", &about(&made, &names)).await;
    let scores: Vec<(&str, i64)> = (scores.as_array().unwrap().iter())
        .map(|score| (score["Host"].as_str().unwrap(), score["Score"].as_i64().unwrap()))
        .collect();
    assert_eq!(scores.iter().map(|(host, _)| *host).collect::<Vec<_>>(), names);
    assert!(scores.iter().any(|(_, score)| *score == 10) && scores[2].1 == 0 && scores[3].1 == 0, "{scores:?}");
    let node = kept[0].as_str().unwrap();
    assert_eq!(ask("/bind", &to(&made, node)).await, json!({ "Error": "" }));
    let planned = bench.planned("a").unwrap();
    assert_eq!(planned.node, node);
    assert_eq!(planned.containers["main"].chosen.len(), 1);
    // The scheduler's own time was over before the answer came: it asks again.
    assert_eq!(ask("/bind", &to(&made, node)).await, json!({ "Error": "" }));
    assert_eq!(bench.planned("a").unwrap(), planned);
    assert!((replica.metric("divvy_promises", &[]).await - 1.0).abs() < 0.5);
}

#[tokio::test]
async fn all_verbs_answer_at_the_paths_of_the_systems_that_came_before() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 0)).await);
    for path in ["/filter", "/gpushare-scheduler/filter", "/scheduler/filter"] {
        let answer = https.post(replica.address, path, about(&made, &["n1"]).to_string()).await.json();
        assert_eq!(answer["NodeNames"], json!(["n1"]), "{path}");
    }
    let victims = json!({ "Pod": made, "NodeNameToMetaVictims": { "n1": { "Pods": [{ "UID": "u" }] } } });
    let answer = https.post(replica.address, "/preempt", victims.to_string()).await;
    assert!(answer.json()["NodeNameToMetaVictims"].is_object(), "{}", answer.text());
}

#[tokio::test]
async fn whole_nodes_come_back_whole() {
    let bench = Bench::with_nodes(&[("n1", 1), ("n2", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 0)).await);
    let node = json!({ "metadata": { "name": "n2", "labels": { "a": "b" } }, "spec": {}, "status": { "x": 1 } });
    let args = json!({ "Pod": made, "Nodes": { "metadata": {}, "items": [node] }, "NodeNames": null });
    let answer = https.post(replica.address, "/filter", args.to_string()).await.json();
    assert_eq!(answer["Nodes"]["items"], json!([node]));
    assert_eq!(answer["NodeNames"], Value::Null);
}

#[tokio::test]
async fn the_follower_passes_calls_on_and_the_answers_are_the_same() {
    let bench = Bench::with_nodes(&[("n1", 1), ("n2", 2)]).await;
    let [leader, follower] = bench.pair(&patient()).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 30)).await);
    let large = pod("large", 80, 0);
    for (path, body) in [
        ("/filter", about(&made, &["n1", "n2", "stranger"])),
        ("/filter", about(&large, &["n1", "n2"])),
        ("/prioritize", about(&made, &["n1", "n2"])),
        ("/bind", to(&made, "n2")),
        ("/bind", to(&made, "n2")),
    ] {
        let passed_on = https.post(follower.address, path, body.to_string()).await;
        of_known_length(&passed_on);
        let own = https.post(leader.address, path, body.to_string()).await;
        assert_eq!(passed_on.json(), own.json(), "{path}");
    }
    assert_eq!(bench.planned("a").unwrap().node, "n2");
    let refused =
        [https.post(follower.address, "/filter", "{").await, https.post(leader.address, "/filter", "{").await];
    assert_eq!(refused.each_ref().map(|answer| answer.code.as_u16()), [400, 400]);
    assert_eq!(refused[0].text(), refused[1].text());
    assert_eq!(refused[0].header("content-type"), refused[1].header("content-type"));
    assert!((follower.metric("divvy_extender_forwarded_total", &[]).await - 6.0).abs() < 0.5);
    assert!(leader.metric("divvy_extender_forwarded_total", &[]).await < 0.5);
}

#[tokio::test]
async fn a_call_that_was_passed_on_already_is_not_passed_on_again() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let [leader, follower] = bench.pair(&patient()).await;
    let (https, body) = (bench.https(), about(&pod("a", 8, 0), &["n1"]).to_string());
    for (replica, code) in [(&follower, 503), (&leader, 200)] {
        let headers = [("content-type", "application/json"), ("divvy-forwarded", "divvy-webhook-c")];
        let answer = https.ask(http::Method::POST, (replica.address, "/filter"), &headers, body.clone()).await;
        assert_eq!(answer.code.as_u16(), code, "{}", answer.text());
    }
}
