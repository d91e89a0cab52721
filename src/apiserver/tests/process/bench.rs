//! A cluster with a front proxy, and a replica.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use divvy_api::gpunode::GpuNode;
use divvy_testkit::process::resident;
use fake_apiserver::ApiServer;
use fake_apiserver::pki::{self, Authority};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::ByteString;
use kube::CustomResourceExt as _;
use rcgen::{DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};

use crate::client::Client;
use crate::{until, within};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_divvy-apiserver");
const INSTALLED: &str = include_str!("../../../../deploy/apiserver/divvy-apiserver.yaml");
const TOKEN: &str = "of-the-apiserver";
const ACCOUNT: &str = "system:serviceaccount:divvy-system:divvy-apiserver";

pub(crate) struct Bench {
    pub(crate) server: ApiServer,
    pub(crate) proxy: Authority,
    home: TempDir,
}

/// A running replica; killed when dropped. Its log is shown with a test that fails, and must tell of no panic.
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    pages: SocketAddr,
    /// `/config` and `/debug`.
    admin: SocketAddr,
    child: Child,
    log: PathBuf,
    /// Bound but never listening: they keep our ports from other tests.
    _ports: [TcpSocket; 3],
}

/// A share of a pod's container `main`.
pub(crate) fn share(pod: &str, uid: &str, card: &str) -> Value {
    json!({
        "podUid": uid, "namespace": "default", "pod": pod, "container": "main", "card": card, "memoryMi": 1024, "cores": 10,
    })
}

// === impl Bench ===

impl Bench {
    /// A cluster with node n1, which has the GPUs GPU-a and GPU-b and no pods.
    pub(crate) async fn new() -> Self {
        let server = ApiServer::start(&[(TOKEN, ACCOUNT)]).await.unwrap();
        server.create(&json!(GpuNode::crd())).unwrap();
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "divvy-system" } });
        server.create(&namespace).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(INSTALLED).unwrap() {
            server.create(&object).unwrap();
        }
        let (proxy, home) = (pki::authority("front-proxy-ca").unwrap(), tempfile::tempdir().unwrap());
        let version = "rbac.authorization.k8s.io/v1";
        // As every cluster has it.
        let rule = json!({
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        });
        // The stand-in doesn't take the name of a list from its field selector; a real API server does.
        let named = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] });
        let metadata = json!({ "name": "extension-apiserver-authentication-reader", "namespace": "kube-system" });
        server
            .create(&json!({ "apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule, named] }))
            .unwrap();
        std::fs::write(home.path().join("kubeconfig"), server.kubeconfig(TOKEN)).unwrap();
        let bench = Self { server, proxy, home };
        let data = Self::authentication(&[&bench.proxy]);
        let metadata = json!({ "name": "extension-apiserver-authentication", "namespace": "kube-system" });
        bench
            .server
            .create(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }))
            .unwrap();
        bench.node("n1", &["GPU-a", "GPU-b"]);
        bench.server.guard();
        bench
    }

    /// Data of the ConfigMap with these authorities.
    pub(crate) fn authentication(authorities: &[&Authority]) -> Value {
        let bundle: String = authorities.iter().map(|authority| authority.pem()).collect();
        json!({ "requestheader-client-ca-file": bundle, "requestheader-allowed-names": "[\"front-proxy-client\"]" })
    }

    pub(crate) fn node(&self, name: &str, cards: &[&str]) {
        let kind =
            json!({ "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": { "name": name }, "spec": {} });
        self.server.create(&kind).unwrap();
        let card = |id: &&str| json!({ "uuid": id, "model": "Tesla T4", "memoryMi": 15360, "health": "Healthy" });
        let cards: Vec<_> = cards.iter().map(card).collect();
        self.report(name, |status| *status = json!({ "cards": cards, "shares": [] }));
    }

    /// Changes what a node reports.
    pub(crate) fn report(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.server.edit("GpuNode", "", name, |node| change(&mut node["status"])).unwrap();
    }

    pub(crate) fn shares(&self, name: &str, shares: &[Value]) {
        self.report(name, |status| status["shares"] = json!(shares));
    }

    /// A replica that is ready.
    pub(crate) async fn ready(&self, keys: &Value) -> Replica {
        let replica = self.start(keys);
        replica.ready().await;
        replica
    }

    pub(crate) fn start(&self, keys: &Value) -> Replica {
        let ports = [(); 3].map(|()| reserve());
        let [address, pages, admin] = ports.each_ref().map(|port| port.local_addr().unwrap());
        let mut all = json!({
            "version": "v1", "namespace": "divvy-system", "listenAddress": address, "metricsAddress": pages,
            "adminAddress": admin, "kubeconfig": self.home.path().join("kubeconfig"), "shutdownDelay": "1ms",
            "logLevel": "info,divvy_serving=debug",
        });
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let name = address.port();
        let (config, log) =
            (self.home.path().join(format!("{name}.yaml")), self.home.path().join(format!("{name}.log")));
        std::fs::write(&config, all.to_string()).unwrap();
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("--config-file").arg(config).env_clear().env("NO_COLOR", "1").env("RUST_BACKTRACE", "1");
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).kill_on_drop(true);
        Replica { address, pages, admin, child: command.spawn().unwrap(), log, _ports: ports }
    }

    /// PEM.
    fn authority(&self) -> String {
        let secret = self.server.get("Secret", "divvy-system", "divvy-apiserver-tls").unwrap();
        let data: ByteString = serde_json::from_value(secret["data"]["ca.crt"].clone()).unwrap();
        String::from_utf8(data.0).unwrap()
    }

    /// kube-apiserver.
    pub(crate) fn client(&self) -> Client {
        self.client_of(&self.proxy, "front-proxy-client")
    }

    /// A client with a certificate of this authority.
    pub(crate) fn client_of(&self, authority: &Authority, name: &str) -> Client {
        let mut params = pki::certificate(name, &[]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        Client::new(&self.authority(), Some((&certificate.pem(), &key.serialize_pem())))
    }

    pub(crate) fn stranger(&self) -> Client {
        Client::new(&self.authority(), None)
    }
}

// === impl Replica ===

impl Replica {
    pub(crate) async fn page(&self, path: &str) -> Option<(u16, String)> {
        page(self.pages, path).await
    }

    pub(crate) async fn admin_page(&self, path: &str) -> Option<(u16, String)> {
        page(self.admin, path).await
    }

    pub(crate) async fn ready(&self) {
        until("ready", async || self.page("readyz").await.filter(|(code, _)| *code == 200)).await;
    }

    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        within("the end", self.child.wait()).await.unwrap()
    }

    /// Resident memory in MiB, now and at most.
    pub(crate) fn resident(&self) -> [u64; 2] {
        resident(self.child.id().expect("it runs")).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        } else {
            assert!(!self.log().contains("panicked"), "{}", self.log());
        }
    }
}

async fn page(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let client: hyper_util::client::legacy::Client<_, Empty<Bytes>> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
    let answer = client.get(format!("http://{address}/{path}").parse().unwrap()).await.ok()?;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some((code, String::from_utf8_lossy(&body).into_owned()))
}

fn reserve() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    socket
}
