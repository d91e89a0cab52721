//! The API server goes away and comes back.

use http::StatusCode;
use serde_json::{Value, json};

use crate::bench::{Bench, about, pod, to};
use crate::until;

#[tokio::test]
async fn api_server_outage_is_bridged_from_memory() {
    let bench = Bench::with_nodes(&[("n1", 1), ("n2", 1), ("n3", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 30, 0)).await);
    let names = ["n1", "n2", "n3", "n4"];
    let filter = async || {
        let answer = https.post(replica.extender, "/filter", about(&made, &names).to_string()).await.json();
        let kept = answer["NodeNames"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
        let mut kept: Vec<String> = kept.collect();
        kept.sort();
        kept
    };
    // The first question of a kind is answered with the best of a sample; the other nodes are scored in advance then.
    let all_are_scored = async || (filter().await == ["n1", "n2", "n3"]).then_some(());
    until("every node that is as good is named", all_are_scored).await;
    bench.server.go_away().await;
    let from_memory = async || {
        let (code, text) = replica.page("readyz").await.unwrap();
        assert_eq!(code, 200, "{text}");
        let kinds =
            ["pods", "nodes", "gpunodes"].map(|kind| text.contains(&format!("\n{kind} from memory, watch failing: ")));
        kinds.iter().all(|kind| *kind).then_some(())
    };
    until("what isn't followed is named", from_memory).await;
    // It says so until the API server is back, not only between two tries.
    for _ in 0..50 {
        assert!(from_memory().await.is_some());
        tokio::time::sleep(crate::PAUSE).await;
    }
    assert_eq!(filter().await, ["n1", "n2", "n3"]);
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "operation": "CREATE",
            "namespace": "default", "object": pod("b", 30, 0),
        },
    });
    let review = https.post(replica.address, "/mutate", review.to_string()).await.json();
    assert_eq!(review["response"]["allowed"], true, "{review}");
    assert!(review["response"]["patch"].is_string());
    let asked = https.ask(http::Method::GET, (replica.queries, "/inspect"), &[("authorization", "Bearer x")], "").await;
    assert_eq!(asked.code.as_u16(), 503, "nobody can say who asks");

    for kind in ["Node", "GpuNode"] {
        bench.server.delete(kind, "", "n1", None).unwrap();
    }
    bench.report("n2", |status| status["conditions"][0]["status"] = "False".into());
    bench.node("n4", 1);
    bench.server.delete("Pod", "default", "a", None).unwrap();
    bench.server.come_back().await;
    let caught_up = async || (filter().await == ["n3", "n4"]).then_some(());
    until("what has changed meanwhile is known", caught_up).await;
    until("nothing is from memory", async || replica.page("readyz").await.filter(|(_, text)| text == "ok\n")).await;
    until("the pod is forgotten", async || (replica.metric("divvy_pending_pods", &[]).await < 0.5).then_some(())).await;
    let address = bench.server.url();
    let problems = replica.log().matches(&format!("API server {address}: ")).count();
    assert!((2..=6).contains(&problems), "logged when it begins and ends, and not at every try: {}", replica.log());
}

#[tokio::test]
async fn watches_that_end_at_once_are_failures() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let short = async || {
        bench.server.drop_watches();
        let (_, text) = replica.page("readyz").await?;
        let said = "\ngpunodes from memory, watch failing: the watch ended within 1s without an event";
        text.contains(said).then_some(())
    };
    until("watches that somebody closes are named", short).await;
    bench.report("n1", |status| status["conditions"][0]["status"] = "False".into());
    until("nothing is from memory", async || replica.page("readyz").await.filter(|(_, text)| text == "ok\n")).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 1, 0)).await);
    let filter = async || https.post(replica.extender, "/filter", about(&made, &["n1"]).to_string()).await.json();
    until("the report is seen", async || (filter().await["NodeNames"] == json!([])).then_some(())).await;
}

#[tokio::test]
async fn unreachable_api_server_is_logged_at_growing_distance() {
    let bench = Bench::new().await;
    bench.server.go_away().await;
    let replica = bench.start("divvy-webhook-a", &json!({ "logFormat": "json", "logLevel": "info" }));
    // The second line, which counts the tries since the first one.
    replica.says(" failures in 1").await;
    bench.server.come_back().await;
    replica.says("answers again after ").await;
    let log = replica.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["target"].as_str().unwrap().starts_with("divvy")), "{log}");
    let server = format!("API server {}: ", bench.server.url());
    let messages = lines.iter().filter_map(|line| line["message"].as_str()?.strip_prefix(&server));
    let messages: Vec<&str> = messages.filter(|message| !message.contains("succeeds")).collect();
    let [first, second, end] = *messages else { panic!("two failures and the end: {messages:#?}") };
    let refused = ": tcp connect error: Connection refused (os error 111); next try in ";
    assert!(first.contains(&format!(" failed{refused}")) && second.contains(refused), "{first}, {second}");
    assert!(end.starts_with("answers again after 1"), "{end}");
}

#[tokio::test]
async fn changes_during_a_dropped_watch_are_seen_after_relist() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    bench.server.drop_watches();
    bench.server.delete("GpuNode", "", "n1", None).unwrap();
    bench.server.expire();
    bench.node("n2", 1);
    until("the nodes of now", async || {
        let gone = (replica.metric("divvy_nodes", &[]).await - 1.0).abs() < 0.5;
        let https = bench.https();
        let answer = https.post(replica.extender, "/filter", about(&pod("a", 8, 0), &["n1", "n2"]).to_string()).await;
        (gone && answer.json()["NodeNames"] == json!(["n2"])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn list_of_a_watch_resumes_where_it_failed() {
    let bench = Bench::new().await;
    for number in 0..1_100 {
        bench.node(&format!("n{number}"), 1);
    }
    bench.server.be_late("list", "/gpunodes", 1);
    bench.server.fail("list", "/gpunodes", 1, StatusCode::INTERNAL_SERVER_ERROR);
    let replica = bench.start("divvy-webhook-a", &json!({}));
    until("the first page", async || (bench.asked("list", "/gpunodes") > 0).then_some(())).await;
    bench.server.answer_late();
    replica.ready().await;
    assert!((replica.metric("divvy_nodes", &[]).await - 1_100.0).abs() < 0.5);
    let requests = bench.server.requests();
    let pages = requests.iter().filter(|request| request.verb == "list" && request.path.ends_with("/gpunodes"));
    // 20 on the first page, whatever their size, then 500.
    assert_eq!(pages.map(|page| page.code).collect::<Vec<_>>(), [200, 500, 200, 200, 200]);
}

#[tokio::test]
async fn outdated_list_does_not_end_a_reservation() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let (first, second) = (bench.pod(&pod("a", 0, 0)).await, bench.pod(&pod("b", 0, 0)).await);
    replica.counts("divvy_pending_pods", &[], 2.0).await;
    let lists = bench.asked("list", "/pods");
    bench.server.be_late("list", "/pods", 1);
    bench.server.fail("watch", "/pods", 1, StatusCode::INTERNAL_SERVER_ERROR);
    bench.server.drop_watches();
    bench.server.expire();
    until("the pods are listed anew", async || (bench.asked("list", "/pods") > lists).then_some(())).await;

    let https = bench.https();
    let bind = async |pod: &Value| {
        https.post(replica.extender, "/filter", about(pod, &["n1"]).to_string()).await;
        let answer = https.post(replica.extender, "/bind", to(pod, "n1").to_string()).await.json();
        answer["Error"].as_str().unwrap().to_owned()
    };
    assert_eq!(bind(&first).await, "");
    // Nothing that is younger than the list may hide what the list does.
    bench.server.swallow("watch", "/pods", 1);
    let watches = bench.asked("watch", "/pods");
    bench.server.answer_late();
    until("they are followed again", async || (bench.asked("watch", "/pods") > watches).then_some(())).await;
    let why = bind(&second).await;
    assert!(!why.is_empty(), "its card is promised");
    assert!((replica.metric("divvy_reservations", &[]).await - 1.0).abs() < 0.5);
}
