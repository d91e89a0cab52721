//! Refusals, in the words of a real server.

use serde_json::{Value, json};

use crate::{Bench, config_map, pod};

#[tokio::test]
async fn refusals_have_kube_apiservers_reasons_and_messages() {
    let bench = Bench::new().await;
    bench.server.create(&config_map("a", &json!({}))).unwrap();
    bench.server.create(&pod("a")).unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut elsewhere = config_map("b", &json!({}));
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    let mut other_uid = config_map("a", &json!({}));
    other_uid["metadata"]["resourceVersion"] = "1".into();
    let asks = [
        ("GET", format!("{maps}/b"), Value::Null),
        ("GET", "/apis/apps/v1/namespaces/default/daemonsets/b".to_owned(), Value::Null),
        ("GET", "/api/v1/pods?fieldSelector=spec.color%3Dred".to_owned(), Value::Null),
        ("GET", "/api/v1/pods?labelSelector=a%20in%20b".to_owned(), Value::Null),
        ("POST", maps.to_owned(), config_map("a", &json!({}))),
        ("POST", maps.to_owned(), elsewhere),
        ("POST", maps.to_owned(), config_map("Not_A_Name", &json!({}))),
        ("POST", maps.to_owned(), json!({})),
        ("POST", maps.to_owned(), pod("b")),
        ("POST", "/api/v1/namespaces/none/configmaps".to_owned(), json!({ "metadata": { "name": "b" } })),
        ("PUT", format!("{maps}/a"), other_uid),
        ("PUT", format!("{maps}/a"), config_map("b", &json!({}))),
        ("POST", format!("{maps}/a"), config_map("a", &json!({}))),
        ("GET", "/api/v1/namespaces/default/pods/a/binding".to_owned(), Value::Null),
    ];
    let mut answers = Vec::new();
    for (method, path, body) in asks {
        let (code, mut status) = bench.ask(method, &path, &[("content-type", "application/json")], &body).await;
        assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")));
        assert_eq!(status["code"], code.as_u16());
        let (reason, message, details) = (status["reason"].take(), status["message"].take(), status["details"].take());
        answers.push(format!("{method} {path}\n{code} {reason}: {}\n{details}", message.as_str().unwrap()));
    }
    insta::assert_snapshot!(answers.join("\n\n"));
}

#[tokio::test]
async fn other_encodings_and_unknown_paths_are_refused() {
    let bench = Bench::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let protobuf = "application/vnd.kubernetes.protobuf";
    let (code, status) = bench.ask("GET", maps, &[("accept", protobuf)], &Value::Null).await;
    assert_eq!((code.as_u16(), status["reason"].as_str()), (406, Some("NotAcceptable")));
    let either = format!("{protobuf},application/json");
    assert_eq!(bench.ask("GET", maps, &[("accept", &either)], &Value::Null).await.0.as_u16(), 200);
    let (code, status) = bench.ask("POST", maps, &[("content-type", protobuf)], &config_map("a", &json!({}))).await;
    assert_eq!((code.as_u16(), status["reason"].as_str()), (415, Some("UnsupportedMediaType")));
    for path in ["/apis/unknown.io/v1/things", "/nothing", "/api/v1/namespaces/default/gadgets", "/api/v1/pods/a"] {
        let (code, text) = bench.text("GET", path, &[], &Value::Null).await;
        assert_eq!((code.as_u16(), text.as_str()), (404, "404 page not found\n"), "{path}");
    }
    for body in ["{", "[]", "7", "\"\""] {
        let request = hyper::Request::post(maps).body(kube::client::Body::from(body.as_bytes().to_vec())).unwrap();
        assert_eq!(bench.client.send(request).await.unwrap().status().as_u16(), 400, "{body}");
    }
}
