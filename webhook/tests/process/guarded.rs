//! Extender verbs for those alone who show a certificate of the scheduler's authority.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::bench::{Bench, about, pod};
use crate::https::Https;
use crate::within;

/// An authority, and a client's certificate of it with its key; PEM.
fn authority() -> (String, [String; 2]) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["kube-scheduler".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    (authority.pem(), [own.pem(), key.serialize_pem()])
}

#[tokio::test]
async fn scheduler_needs_a_client_certificate_api_server_does_not() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let (trusted, [certificate, key]) = authority();
    let (_, [strangers_certificate, strangers_key]) = authority();
    let file = bench.home.path().join("scheduler-ca.crt");
    std::fs::write(&file, trusted).unwrap();
    let mut keys = json!({});
    keys["schedulerClientCa"] = json!(file);
    let [leader, follower] = bench.pair(&keys).await;
    let made = bench.pod(&pod("a", 8, 0)).await;
    let callers = [
        ("nobody", None, 401),
        ("a stranger", Some((&*strangers_certificate, &*strangers_key)), 401),
        ("the scheduler", Some((&*certificate, &*key)), 200),
    ];
    for (who, identity, code) in callers {
        let https = Https::new(&bench.authority(), identity);
        // The follower tells nobody but the scheduler that it doesn't lead.
        for (replica, code) in [(&leader, code), (&follower, if code == 200 { 503 } else { code })] {
            for path in ["/filter", "/prioritize"] {
                let answer = https.post(replica.address, path, about(&made, &["n1"]).to_string()).await;
                assert_eq!(answer.code.as_u16(), code, "{who} {path} {}: {}", replica.name, answer.text());
            }
            let review = https.post(replica.address, "/mutate", "{}").await.json();
            assert_eq!(review["kind"], "AdmissionReview", "{who}");
        }
    }
}

#[tokio::test]
async fn call_without_certificate_is_refused_before_its_body() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let file = bench.home.path().join("scheduler-ca.crt");
    std::fs::write(&file, authority().0).unwrap();
    let replica = bench.alone(&json!({ "schedulerClientCa": file })).await;
    let mut connection = bench.https().open(replica.address).await;
    connection.write_all(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n{").await.unwrap();
    let mut start = [0; 12];
    within("an answer", connection.read_exact(&mut start)).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 401");
}
