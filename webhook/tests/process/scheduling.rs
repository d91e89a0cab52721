//! The scheduler's verbs over HTTPS, as kube-scheduler sends them.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::bench::{Bench, about, pod, to};
use crate::replica::Replica;
use crate::until;

/// kube-scheduler drops a connection after an answer in chunks.
fn of_known_length(answer: &crate::https::Answer) {
    assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()), "{:?}", answer.headers);
    assert_eq!(answer.header("transfer-encoding"), None);
}

#[tokio::test]
async fn pod_is_filtered_prioritized_and_bound_with_its_plan() {
    let bench = Bench::with_nodes(&[("n1", 1), ("n2", 2), ("small", 1)]).await;
    bench.report("small", |status| status["cards"][0]["memoryMi"] = 4096.into());
    let replica = bench.alone(&json!({})).await;
    let https = bench.https();
    let made = bench.pod(&pod("a", 8, 30)).await;
    let ask = async |path: &str, body: &Value| {
        let answer = https.post(replica.extender, path, body.to_string()).await;
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
    assert!((replica.metric("divvy_reservations", &[]).await - 1.0).abs() < 0.5);
}

#[tokio::test]
async fn preempt_answers_with_victims() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 0)).await);
    let victims = json!({ "Pod": made, "NodeNameToMetaVictims": { "n1": { "Pods": [{ "UID": "u" }] } } });
    let answer = https.post(replica.extender, "/preempt", victims.to_string()).await;
    assert!(answer.json()["NodeNameToMetaVictims"].is_object(), "{}", answer.text());
}

#[tokio::test]
async fn filter_answers_node_objects_with_node_objects() {
    let bench = Bench::with_nodes(&[("n1", 1), ("n2", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 0)).await);
    let node = json!({ "metadata": { "name": "n2", "labels": { "a": "b" } }, "spec": {}, "status": { "x": 1 } });
    let args = json!({ "Pod": made, "Nodes": { "metadata": {}, "items": [node] }, "NodeNames": null });
    let answer = https.post(replica.extender, "/filter", args.to_string()).await.json();
    assert_eq!(answer["Nodes"]["items"], json!([node]));
    assert_eq!(answer["NodeNames"], Value::Null);
}

#[tokio::test]
async fn over_http2_all_calls_share_one_connection() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let (calls, connection) = bench.https().http2(replica.extender).await;
    let body = about(&pod("a", 8, 0), &["n1"]).to_string();
    // They are all under way before the first is answered.
    let answers = futures::future::join_all((0..50).map(|_| calls.clone().send_request(filter(&replica, &body)))).await;
    for answer in answers {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["NodeNames"], json!(["n1"]));
    }
    assert!(!connection.is_finished());
}

#[tokio::test]
async fn follower_answers_503_and_closes_the_connection() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let [leader, follower] = bench.pair(&json!({})).await;
    let (https, body) = (bench.https(), about(&pod("a", 8, 0), &["n1"]).to_string());
    let refused = https.post(follower.extender, "/filter", body.clone()).await;
    assert_eq!((refused.code.as_u16(), refused.header("connection")), (503, Some("close")));
    assert_eq!(refused.text(), "not the leader, which is divvy-webhook-a: try again\n");
    let (mut calls, connection) = https.http2(follower.extender).await;
    assert_eq!(calls.send_request(filter(&follower, &body)).await.unwrap().status(), 503);
    until("the end of a connection of HTTP/2", async || connection.is_finished().then_some(())).await;
    let answer = https.post(leader.extender, "/filter", body).await;
    assert_eq!((answer.code.as_u16(), answer.header("connection")), (200, None));
}

fn filter(replica: &Replica, body: &str) -> Request<Full<Bytes>> {
    let request = Request::post(format!("https://{}/filter", replica.extender));
    request.header("content-type", "application/json").body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}
