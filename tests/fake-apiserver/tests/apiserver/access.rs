//! Who is let in, and a server that fails in the ways of a real one.

use hyper::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::{Bench, TOKEN, client, config_map, pod};

#[tokio::test]
async fn only_known_tokens_are_let_in_until_they_are_refused() {
    let bench = Bench::new().await;
    let maps = |client| Api::<ConfigMap>::namespaced(client, "default");
    let stranger = client(&bench.server, "guessed").await;
    let refused = maps(stranger).list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));

    bench.server.allow("of-the-node", "system:node:node-1");
    let node = client(&bench.server, "of-the-node").await;
    maps(node.clone()).list(&ListParams::default()).await.unwrap();
    bench.server.refuse("of-the-node");
    maps(node).list(&ListParams::default()).await.unwrap_err();
    let users: Vec<_> = bench.server.requests().into_iter().map(|asked| (asked.user, asked.code)).collect();
    let node = "system:node:node-1".to_owned();
    assert_eq!(users, [(String::new(), 401), (node, 200), (String::new(), 401)]);
}

#[tokio::test]
async fn restarted_server_keeps_port_and_state() {
    let bench = Bench::new().await;
    bench.server.create(&config_map("a", &json!({}))).unwrap();
    let maps = Api::<ConfigMap>::namespaced(bench.client.clone(), "default");
    maps.get("a").await.unwrap();
    bench.server.go_away().await;
    // Who is connected is cut off, and who isn't finds nobody.
    let gone = maps.get("a").await.unwrap_err();
    assert!(matches!(gone, kube::Error::HyperError(_) | kube::Error::Service(_)), "{gone:?}");
    bench.server.come_back().await;
    maps.get("a").await.unwrap();
}

#[tokio::test]
async fn requests_fail_as_often_as_asked_for() {
    let bench = Bench::new().await;
    let path = "/api/v1/namespaces/default/pods";
    bench.server.fail("list", "/pods", 1, StatusCode::INTERNAL_SERVER_ERROR);
    bench.server.fail("create", "", 2, StatusCode::CONFLICT);
    let get = async || bench.ask("GET", path, &[], &Value::Null).await;
    let (code, status) = get().await;
    assert_eq!((code.as_u16(), status["reason"].as_str()), (500, Some("InternalError")));
    assert_eq!(get().await.0, StatusCode::OK);
    for wanted in [409, 409, 201] {
        assert_eq!(bench.post(path, &pod("a")).await.0.as_u16(), wanted);
    }
    bench.server.fail("", "/pods/a", 1, StatusCode::TOO_MANY_REQUESTS);
    // kube-rs waits as long as Retry-After says and asks again.
    Api::<Pod>::namespaced(bench.client.clone(), "default").get("a").await.unwrap();
    let tried = bench.server.requests().into_iter().filter(|asked| asked.path.ends_with("/pods/a"));
    assert_eq!(tried.map(|asked| asked.code).collect::<Vec<_>>(), [429, 200]);
}

#[tokio::test]
async fn the_log_tells_status_writes_from_others() {
    let bench = Bench::new().await;
    bench.server.create(&pod("a")).unwrap();
    let path = "/api/v1/namespaces/default/pods/a";
    bench.patch("merge-patch+json", &format!("{path}/status"), &json!({ "status": { "phase": "Running" } })).await;
    bench.patch("merge-patch+json", path, &json!({ "metadata": { "labels": { "x": "y" } } })).await;
    let log: Vec<_> =
        bench.server.requests().into_iter().map(|own| (own.verb, own.resource, own.subresource)).collect();
    let entry = |subresource: &str| ("patch".to_owned(), "pods".to_owned(), subresource.to_owned());
    assert_eq!(log, [entry("status"), entry("")]);
    assert!(bench.server.kubeconfig(TOKEN).contains(&bench.server.url()));
    assert!(bench.server.ca().starts_with("-----BEGIN CERTIFICATE-----"));
}

#[tokio::test]
async fn a_request_may_stay_without_an_answer_carried_out_or_not() {
    let bench = Bench::new().await;
    bench.server.create(&pod("a")).unwrap();
    let binding = json!({ "target": { "kind": "Node", "name": "n" } });
    let bind = async || {
        let path = "/api/v1/namespaces/default/pods/a/binding";
        let answer = bench.post(path, &binding);
        tokio::select! {
            biased;
            (code, _) = answer => Some(code.as_u16()),
            () = bench.server.wait_for(|view| view.requests().last().filter(|last| last.code == 0).map(drop)) => None,
        }
    };
    let node = || bench.server.get("Pod", "default", "a").unwrap()["spec"]["nodeName"].clone();
    bench.server.swallow("create", "/binding", 1);
    assert_eq!((bind().await, node()), (None, Value::Null));
    bench.get("/api/v1/namespaces/default/pods/a").await;
    bench.server.lose_answers("create", "/binding", 1);
    assert_eq!((bind().await, node()), (None, json!("n")));
    bench.get("/api/v1/namespaces/default/pods/a").await;
    assert_eq!(bind().await, Some(409));
}
