use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::ConnectInfo;
use axum::routing::post;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::*;
use crate::tls::tests::{issue, known, serve, service};
use crate::tls::{Caller, Shown};

/// The leader's side: tells what it sees of the caller, and refuses what is no JSON.
fn leader() -> Router {
    let echo = async |ConnectInfo(caller): ConnectInfo<Caller>, headers: HeaderMap, Json(body): Json<Value>| {
        let by = headers[FORWARDED].to_str().unwrap().to_owned();
        Json(
            json!({ "by": by, "replica": caller.shown == Shown::Replica, "port": caller.address.port(), "body": body }),
        )
    };
    Router::new().route("/filter", post(echo))
}

fn forwarder(identity: Identity) -> Forwarder {
    Forwarder::new("divvy-webhook-b", &service(), identity).unwrap()
}

async fn ask(forwarder: &Forwarder, to: SocketAddr) -> Value {
    let answer = forwarder.send(to, "/filter", Bytes::from_static(b"{\"Pod\":1}")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    serde_json::from_slice(answer.body()).unwrap()
}

#[tokio::test]
async fn the_leader_knows_the_other_replica_and_its_connection_is_kept_over_rotations() {
    let identity = known(issue());
    let (to, _stop) = serve(leader(), identity.clone(), None).await;
    let forwarder = forwarder(identity.clone());
    let first = ask(&forwarder, to).await;
    assert_eq!(first["by"], "divvy-webhook-b");
    assert_eq!((&first["replica"], &first["body"]), (&json!(true), &json!({ "Pod": 1 })));
    identity.show(issue());
    assert_eq!(ask(&forwarder, to).await, first, "on the same connection");
    let anew = ask(&self::forwarder(identity), to).await;
    assert_eq!(anew["replica"], json!(true));
    assert_ne!(anew["port"], first["port"]);
}

#[tokio::test]
async fn what_the_leader_refuses_is_its_answer() {
    let identity = known(issue());
    let (to, _stop) = serve(leader(), identity.clone(), None).await;
    let refused = forwarder(identity.clone()).send(to, "/filter", Bytes::from_static(b"{")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let refused = forwarder(identity).send(to, "/nothing", Bytes::new()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_stranger_at_the_leaders_address_is_told_nothing() {
    let asked: &'static AtomicUsize = Box::leak(Box::default());
    let router = Router::new().route("/filter", post(async || asked.fetch_add(1, Ordering::SeqCst).to_string()));
    let (to, _stop) = serve(router, known(issue()), None).await;
    let error = forwarder(known(issue())).send(to, "/filter", Bytes::new()).await.unwrap_err();
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    let error = forwarder(Identity::unknown()).send(to, "/filter", Bytes::new()).await.unwrap_err();
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_leader_that_hangs_or_is_gone_is_given_up() {
    let identity = known(issue());
    let router = Router::new().route("/filter", post(async || std::future::pending::<String>().await));
    let (to, stop) = serve(router, identity.clone(), None).await;
    let forwarder = forwarder(identity);
    let error = forwarder.send(to, "/filter", Bytes::new()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the leader at {to} didn't answer within 4s"));
    drop(stop);
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = forwarder.send(nobody, "/filter", Bytes::new()).await.unwrap_err();
    assert!(matches!(error, ForwardError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}
