//! The extender's door: who may call it, and what a caller can bind.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::json;
use tokio::net::TcpStream;

use crate::bench::{Bench, about, pod, to};
use crate::https::Https;

/// A client's certificate of some other authority, with its key; PEM.
fn strangers() -> [String; 2] {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(vec!["divvy-scheduler".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    [params.signed_by(&key, &authority).unwrap().pem(), key.serialize_pem()]
}

#[tokio::test]
async fn extender_lets_in_the_issued_certificate_alone() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let [leader, follower] = bench.pair(&json!({})).await;
    let made = bench.pod(&pod("a", 8, 0)).await;
    let [strange, strange_key] = strangers();
    let [serving, serving_key] = ["tls.crt", "tls.key"].map(|name| bench.issued(name));
    let authority = bench.issued("ca.crt");
    let callers = [None, Some((&*strange, &*strange_key)), Some((&*serving, &*serving_key))];
    for (number, identity) in callers.into_iter().enumerate() {
        let https = Https::new(&authority, identity);
        for replica in [&leader, &follower] {
            for path in ["/filter", "/prioritize", "/bind", "/preempt"] {
                let refused = https.try_post(replica.extender, path, about(&made, &["n1"]).to_string()).await;
                let why = refused.expect_err("it is let in");
                assert!(why.contains("alert") || why.contains("reset"), "{number} {path} {}: {why}", replica.name);
                // Nothing of the extender is to be had at the other doors.
                for address in [replica.address, replica.queries] {
                    assert_eq!(https.post(address, path, "{}").await.code.as_u16(), 404, "{path}");
                }
            }
            assert_eq!(replica.page("filter").await.unwrap().0, 404);
            let review = https.post(replica.address, "/mutate", "{}").await.json();
            assert_eq!(review["kind"], "AdmissionReview");
        }
    }
    let answer = bench.https().post(leader.extender, "/filter", about(&made, &["n1"]).to_string()).await;
    assert_eq!(answer.json()["NodeNames"], json!(["n1"]));
}

#[tokio::test]
async fn extender_that_is_off_has_no_door() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.start("divvy-webhook-a", &json!({ "scheduling": "node" }));
    replica.ready().await;
    let refused = TcpStream::connect(replica.extender).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    for address in [replica.address, replica.queries] {
        for path in ["/filter", "/bind"] {
            assert_eq!(bench.https().post(address, path, "{}").await.code.as_u16(), 404, "{path}");
        }
    }
}

#[tokio::test]
async fn going_without_a_certificate_has_to_be_asked_for() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({ "allowUnauthenticatedScheduler": "on" })).await;
    let made = bench.pod(&pod("a", 8, 0)).await;
    let https = Https::new(&bench.issued("ca.crt"), None);
    let answer = https.post(replica.extender, "/filter", about(&made, &["n1"]).to_string()).await.json();
    assert_eq!(answer["NodeNames"], json!(["n1"]));
    replica.says("any client that reaches").await;
}

/// Two calls of anybody once bound a pod that belonged to another scheduler and asked for no GPU.
#[tokio::test]
async fn forged_filter_and_bind_leave_the_victim_alone() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({ "allowUnauthenticatedScheduler": "on" })).await;
    let https = bench.https();
    let container = json!({ "name": "main", "image": "x" });
    let victim = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "victim", "namespace": "default" },
        "spec": { "containers": [container], "schedulerName": "another" },
    });
    let victim = bench.pod(&victim).await;
    for uid in [json!(""), json!(null), json!("forged"), victim["metadata"]["uid"].clone()] {
        let mut forged = pod("victim", 8, 0);
        forged["metadata"]["uid"] = uid.clone();
        let fits = https.post(replica.extender, "/filter", about(&forged, &["n1"]).to_string()).await;
        let mut call = to(&victim, "n1");
        if !uid.is_null() {
            call["PodUID"] = uid.clone();
        }
        let answer = https.post(replica.extender, "/bind", call.to_string()).await.json();
        assert_ne!(answer["Error"], "", "{uid}: {}", fits.text());
    }
    let now = bench.server.get("Pod", "default", "victim").unwrap();
    assert_eq!(now["spec"]["nodeName"], json!(null));
    assert_eq!(bench.asked("create", "/binding"), 0, "nothing is posted");
    assert!(replica.metric("divvy_reservations", &[]).await < 0.5);
}
