//! A cluster with a front proxy.

use fake_apiserver::ApiServer;
use fake_apiserver::pki::{self, Authority};
use rcgen::{DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use serde_json::{Value, json};

use super::client::Client;
use crate::bench;
use crate::replica::Replica;
use crate::until;

const INSTALLED: [&str; 2] = [
    include_str!("../../../../deploy/aggregated-api/roles.yaml"),
    include_str!("../../../../deploy/aggregated-api/apiservice.yaml"),
];

pub(crate) struct Bench {
    cluster: bench::Bench,
    pub(super) proxy: Authority,
}

/// A share of a pod's container `main`.
pub(super) fn share(pod: &str, uid: &str, card: &str) -> Value {
    json!({
        "podUid": uid, "namespace": "default", "pod": pod, "container": "main", "card": card, "memoryMi": 1024, "cores": 10,
    })
}

// === impl Bench ===

impl Bench {
    /// A cluster with node n1, which has the GPUs GPU-a and GPU-b and no pods.
    pub(crate) async fn new() -> Self {
        let bench = Self::without_authority().await;
        let data = Self::authentication(&[&bench.proxy]);
        let metadata = json!({ "name": "extension-apiserver-authentication", "namespace": "kube-system" });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
        bench.server().create(&map).unwrap();
        bench
    }

    /// The same cluster, before kube-apiserver has said who its front proxy is.
    pub(super) async fn without_authority() -> Self {
        let (cluster, proxy) = (bench::Bench::new().await, pki::authority("front-proxy-ca").unwrap());
        let bench = Self { cluster, proxy };
        for text in INSTALLED {
            for object in serde_saphyr::from_multiple::<Value>(text).unwrap() {
                bench.server().create(&object).unwrap();
            }
        }
        // As every cluster has it.
        let rule = json!({
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        });
        // The stand-in doesn't take the name of a list from its field selector; a real API server does.
        let named = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] });
        let metadata = json!({ "name": "extension-apiserver-authentication-reader", "namespace": "kube-system" });
        let version = "rbac.authorization.k8s.io/v1";
        let reader = json!({ "apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule, named] });
        bench.server().create(&reader).unwrap();
        bench.node("n1", &["GPU-a", "GPU-b"]);
        bench
    }

    pub(crate) fn server(&self) -> &ApiServer {
        &self.cluster.server
    }

    pub(crate) fn cluster(&self) -> &bench::Bench {
        &self.cluster
    }

    /// Data of the ConfigMap with these authorities.
    pub(super) fn authentication(authorities: &[&Authority]) -> Value {
        let bundle: String = authorities.iter().map(|authority| authority.pem()).collect();
        json!({ "requestheader-client-ca-file": bundle, "requestheader-allowed-names": "[\"front-proxy-client\"]" })
    }

    pub(super) fn node(&self, name: &str, cards: &[&str]) {
        let kind =
            json!({ "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": { "name": name }, "spec": {} });
        self.server().create(&kind).unwrap();
        let card = |id: &&str| json!({ "uuid": id, "model": "Tesla T4", "memoryMi": 15360, "health": "Healthy" });
        let cards: Vec<_> = cards.iter().map(card).collect();
        self.report(name, |status| *status = json!({ "cards": cards, "shares": [] }));
    }

    /// Changes what a node reports.
    pub(super) fn report(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.cluster.report(name, change);
    }

    pub(super) fn shares(&self, name: &str, shares: &[Value]) {
        self.report(name, |status| status["shares"] = json!(shares));
    }

    /// A replica that serves the API, in this form of watches: `on` or `legacy-watch`.
    pub(super) async fn serving(&self, name: &'static str, form: &str) -> Replica {
        let replica = self.cluster.start(name, &json!({ "aggregatedApi": form, "shutdownDelay": "1ms" }));
        let serves = async || {
            let (code, text) = replica.page("readyz").await?;
            (code == 200 && !text.contains("aggregated API")).then_some(())
        };
        until("a replica that serves the aggregated API", serves).await;
        replica
    }

    /// A replica that serves the API.
    pub(crate) async fn ready(&self) -> Replica {
        self.serving("divvy-webhook-a", "on").await
    }

    /// kube-apiserver.
    pub(crate) fn client(&self) -> Client {
        self.client_of(&self.proxy, "front-proxy-client")
    }

    /// A client with a certificate of this authority.
    pub(super) fn client_of(&self, authority: &Authority, name: &str) -> Client {
        let mut params = pki::certificate(name, &[]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        Client::new(&self.cluster.issued("ca.crt"), Some((&certificate.pem(), &key.serialize_pem())))
    }

    pub(super) fn stranger(&self) -> Client {
        Client::new(&self.cluster.issued("ca.crt"), None)
    }
}
