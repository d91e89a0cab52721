//! Whatever anybody sends. (No replica's log may tell of a panic: see `Replica`.)

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bench::{Bench, about, pod, to};
use crate::until;

fn review(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "operation": "CREATE",
            "namespace": "default", "object": object,
        },
    })
}

#[tokio::test]
async fn malformed_review_is_answered_with_a_review() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let https = bench.https();
    let good = review(&pod("a", 8, 0));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut review = good.clone();
        change(&mut review);
        review.to_string()
    };
    let cases = [
        (String::new(), ""),
        ("{".to_owned(), ""),
        ("null".to_owned(), ""),
        ("[]".to_owned(), ""),
        ("\"\u{0}\"".to_owned(), ""),
        ("[".repeat(100_000), ""),
        (good.to_string()[..200].to_owned(), ""),
        (with(&|review| review["apiVersion"] = "admission.k8s.io/v2".into()), "u"),
        (with(&|review| review["apiVersion"] = Value::Null), "u"),
        (with(&|review| review["kind"] = "Pod".into()), "u"),
        (with(&|review| review["request"] = Value::Null), ""),
        (with(&|review| review["request"]["operation"] = "LOOK".into()), "u"),
        (with(&|review| review["request"]["uid"] = 7.into()), ""),
        (with(&|review| review["request"]["object"]["spec"] = "text".into()), "u"),
        (with(&|review| review["request"]["object"]["spec"]["containers"] = json!({ "a": 1 })), "u"),
        (with(&|review| review["request"]["object"]["metadata"]["annotations"] = json!([1])), "u"),
    ];
    // Fields that a Job has in its template.
    let of_pods = &cases[cases.len() - 2..];
    for case @ (body, uid) in &cases {
        for path in ["/mutate", "/validate", "/jobs", "/templates"] {
            let answer = https.post(replica.address, path, body.clone()).await.json();
            let response = &answer["response"];
            assert_eq!(
                (&answer["kind"], &response["uid"]),
                (&json!("AdmissionReview"), &json!(uid)),
                "{path} {body:.300}"
            );
            let ignored = path == "/templates" || (path == "/jobs" && of_pods.contains(case));
            assert_eq!(response["allowed"], ignored, "{path} {body:.300}: {answer}");
        }
    }
    let templates =
        [json!("text"), json!({ "spec": { "containers": { "a": 1 } } }), json!({ "metadata": { "annotations": [1] } })];
    for template in templates {
        let body = with(&|review| review["request"]["object"]["spec"]["template"] = template.clone());
        let answer = https.post(replica.address, "/jobs", body).await.json();
        let response = &answer["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("u"), &json!(false)), "{template}: {answer}");
    }
    let whole = " ".repeat((8 << 20) + 1);
    for path in ["/mutate", "/validate", "/jobs", "/templates"] {
        assert_eq!(https.post(replica.address, path, whole.clone()).await.code.as_u16(), 413, "{path}");
    }
    let malformed = replica.metric("divvy_admission_reviews_total", &["malformed"]).await;
    assert!(malformed > 2.0 * 15.5, "{malformed}");
}

#[tokio::test]
async fn extender_calls_may_name_any_nodes() {
    let bench = Bench::with_nodes(&[("n1", 1), ("n2", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 0)).await);
    let strangers: Vec<String> = (0..5000).map(|number| format!("stranger-{number}")).collect();
    let strangers: Vec<&str> = strangers.iter().map(String::as_str).collect();
    let with_strangers: Vec<&str> = strangers[1..].iter().copied().chain(["n2"]).collect();
    let (none, kept) = (json!([]), json!(["n1"]));
    for (body, names, failed) in [
        (about(&made, &["n1"]), &kept, 0),
        (about(&made, &["nobody"]), &none, 1),
        (about(&made, &strangers), &none, 5000),
        (about(&made, &with_strangers), &json!(["n2"]), 0),
        (about(&made, &["nobody", "nobody", ""]), &none, 2),
        (json!({ "Pod": made, "Nodes": null, "NodeNames": null }), &none, 0),
        (json!({ "Pod": made }), &none, 0),
        (json!({ "pod": made, "nodenames": ["n1"] }), &kept, 0),
        (json!({ "POD": made, "NODENAMES": ["n1"], "Else": [1] }), &kept, 0),
        (json!({ "Pod": made, "Nodes": { "items": null } }), &none, 0),
    ] {
        let answer = https.post(replica.extender, "/filter", body.to_string()).await.json();
        let body = body.to_string();
        assert_eq!(&answer["NodeNames"], names, "{body:.600}: {answer}");
        let reasons = answer["FailedAndUnresolvableNodes"].as_object().map_or(0, serde_json::Map::len);
        assert_eq!(reasons, failed, "{body:.600}: {answer}");
        let scores = https.post(replica.extender, "/prioritize", body).await.json();
        assert!(scores.is_array(), "{scores}");
    }
    let twice = https.post(replica.extender, "/filter", about(&made, &["n1", "n1"]).to_string()).await.json();
    assert!(twice["NodeNames"].as_array().unwrap().iter().all(|name| name == "n1"), "{twice}");
    let nobody = https.post(replica.extender, "/filter", json!({ "NodeNames": ["n1"] }).to_string()).await.json();
    assert_eq!(nobody["Error"], "Pod is missing");
    for (verb, body) in [
        ("filter", String::new()),
        ("filter", "{".to_owned()),
        ("filter", "[]".to_owned()),
        ("filter", json!({ "Pod": "a" }).to_string()),
        ("filter", json!({ "Pod": made, "NodeNames": "n1" }).to_string()),
        ("filter", json!({ "Pod": made, "NodeNames": [1] }).to_string()),
        ("filter", json!({ "Pod": made, "Nodes": { "items": [{}] } }).to_string()),
        ("prioritize", "null".to_owned()),
        ("bind", json!({ "PodUID": 7 }).to_string()),
        ("preempt", json!({ "Pod": made, "NodeNameToVictims": [] }).to_string()),
    ] {
        let answer = https.post(replica.extender, &format!("/{verb}"), body.clone()).await;
        assert_eq!(answer.code.as_u16(), 400, "{verb} {body}: {}", answer.text());
        assert!(answer.text().starts_with(&format!("invalid arguments of {verb}: ")), "{}", answer.text());
    }
    let with = |field: &str, value: &str| {
        let mut body = to(&made, "n1");
        body[field] = value.into();
        body
    };
    for body in [
        json!({}),
        json!({ "PodUID": "no-such", "Node": "n1" }),
        to(&made, "nobody"),
        to(&made, "../n1"),
        with("PodUID", ""),
        with("PodName", "b"),
        with("PodName", "a/../b"),
        with("PodName", "a?dryRun=All"),
        with("PodNamespace", "kube-system"),
        with("PodNamespace", ""),
    ] {
        let answer = https.post(replica.extender, "/bind", body.to_string()).await.json();
        assert_ne!(answer["Error"], "", "{body}");
    }
    assert_eq!(bench.planned("a"), None);
}

#[tokio::test]
async fn unreadable_gpu_node_is_named_and_others_serve() {
    let bench = Bench::with_nodes(&[("good", 1), ("garbled", 1), ("liar", 1), ("twice", 2), ("silent", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    bench.report("garbled", |status| status["cards"] = "many".into());
    bench.report("liar", |status| status["cards"][0]["memoryMi"] = 0.into());
    bench.report("twice", |status| status["cards"][1]["uuid"] = status["cards"][0]["uuid"].clone());
    bench.server.edit("GpuNode", "", "silent", |node| node["status"] = Value::Null).unwrap();
    let (https, names) = (bench.https(), ["good", "garbled", "liar", "twice", "silent"]);
    let (fits, large) = (bench.pod(&pod("fits", 8, 0)).await, bench.pod(&pod("large", 80, 0)).await);
    let filter =
        async |pod: &Value| https.post(replica.extender, "/filter", about(pod, &names).to_string()).await.json();
    let reasons = async || {
        let answer = filter(&large).await;
        let reasons = answer["FailedAndUnresolvableNodes"].as_object()?.clone();
        let said = |name: &str, text: &str| reasons[name].as_str().unwrap().contains(text);
        let all = said("garbled", "can't be decoded")
            && said("liar", "0 MiB of memory")
            && said("twice", "twice")
            && said("silent", "no status")
            && said("good", "40");
        all.then_some(())
    };
    until("a reason for each", reasons).await;
    assert_eq!(filter(&fits).await["NodeNames"], json!(["good"]));
    assert_eq!(https.post(replica.extender, "/bind", to(&fits, "good").to_string()).await.json()["Error"], "");
    replica.ready().await;
    bench.report("garbled", |status| status["cards"] = json!([]));
    until("the garbled one is read again", async || {
        let answer = filter(&large).await;
        (!answer["FailedAndUnresolvableNodes"]["garbled"].as_str()?.contains("can't be decoded")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let https = bench.https();
    for (method, path, code) in [
        (Method::GET, "/mutate", 405),
        (Method::GET, "/filter", 405),
        (Method::DELETE, "/inspect", 405),
        (Method::POST, "/inspect", 405),
        (Method::POST, "/", 404),
        (Method::GET, "/metrics", 404),
        (Method::GET, "/readyz", 404),
        (Method::POST, "/mutate/", 404),
        (Method::POST, "/MUTATE", 404),
        (Method::GET, "/..%2f..%2fetc", 404),
    ] {
        let to = match path {
            "/filter" => replica.extender,
            "/inspect" => replica.queries,
            _ => replica.address,
        };
        let answer = https.ask(method.clone(), (to, path), &[], "").await;
        assert_eq!(answer.code.as_u16(), code, "{method} {path}: {}", answer.text());
    }
    assert_eq!(replica.page("filter").await.unwrap().0, 404);
}

#[tokio::test]
async fn bytes_that_are_not_http_disturb_no_other_client() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let https = bench.https();
    let mut plain = TcpStream::connect(replica.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _cut = plain.read_to_end(&mut rest).await;
    let mut stalled = Vec::new();
    for start in [&b"\x00\xff\x16\x03"[..], b"POST /filter HTTP/1.1\r\nContent-Length: 9\r\n\r\n{", b"POST /mutate HT"]
    {
        let mut connection = https.open(replica.address).await;
        connection.write_all(start).await.unwrap();
        connection.flush().await.unwrap();
        stalled.push(connection);
    }
    bench.pod(&pod("a", 8, 0)).await;
    drop(stalled);
    bench.pod(&pod("b", 8, 0)).await;
    replica.ready().await;
}
