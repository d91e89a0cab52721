//! The stand-in as a kubelet of the contract.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use divvy_testkit::pods::PodShape;
use fake_kubelet::{Kubelet, KubeletOptions, RestartOptions, Timing};
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::net::TcpStream;

use crate::kubelet::KubeletUnderTest;

pub(crate) struct StandIn {
    kubelet: Kubelet,
    /// UIDs by name.
    uids: BTreeMap<String, String>,
}

/// The pods that a kubelet lists at `address`, whose certificate `authority` has signed.
pub(crate) async fn list(address: std::net::SocketAddr, authority: &Path, token: &str) -> Option<Vec<Pod>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).expect("a certificate")).expect("one that can be a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await.ok()?;
    let name = "127.0.0.1".try_into().expect("an address");
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let request = Request::get("/pods").header("host", "node").header("authorization", format!("Bearer {token}"));
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).expect("a request")).await.ok()?;
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some(serde_json::from_slice::<List<Pod>>(&body).ok()?.items)
}

// === impl StandIn ===

impl StandIn {
    pub(crate) async fn start(directory: &Path) -> Box<dyn KubeletUnderTest> {
        let mut options = KubeletOptions::new(directory, "node", 1);
        options.timing = Timing { admit_after_boot: Duration::from_millis(50), ..Timing::default() };
        Box::new(Self { kubelet: Kubelet::start(options).await.expect("it starts"), uids: BTreeMap::new() })
    }
}

#[tonic::async_trait]
impl KubeletUnderTest for StandIn {
    fn plugin_dir(&self) -> PathBuf {
        self.kubelet.plugin_dir().to_owned()
    }

    fn pod_resources_socket(&self) -> PathBuf {
        self.kubelet.pod_resources_socket()
    }

    async fn add(&mut self, shape: &PodShape) {
        let uid = self.kubelet.add_pod(shape.object()).expect("a pod");
        self.uids.insert(shape.name.clone(), uid);
    }

    async fn delete(&mut self, name: &str) {
        self.kubelet.delete(&self.uids[name]).expect("it is there");
    }

    async fn pods(&self) -> Vec<Pod> {
        let token = std::fs::read_to_string(self.kubelet.token_file()).expect("the token");
        list(self.kubelet.address(), &self.kubelet.ca_file(), &token).await.unwrap_or_default()
    }

    async fn restart(&mut self, lose_checkpoint: bool) {
        let options = RestartOptions { lose_checkpoint, ..RestartOptions::default() };
        self.kubelet.restart(options).await.expect("it starts again");
    }

    async fn end(self: Box<Self>) {
        self.kubelet.shutdown().await;
    }
}
