//! `/pods` over HTTPS and PodResources over gRPC, with their refusals.

use std::time::{Duration, Instant};

use divvy_proto::podresources as pr;
use divvy_proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use fake_kubelet::{Kubelet, KubeletOptions, PodsFault, Serving, Workload};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::net::TcpStream;
use tonic::Code;

use crate::plugin::{options, slots, unix};
use crate::{Bench, GPU, gpus, pod};

/// A kept connection that trusts one certificate file.
struct Client {
    sender: SendRequest<Empty<Bytes>>,
    token: String,
}

impl Client {
    async fn connect(kubelet: &Kubelet, trusted: &std::path::Path) -> std::io::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(trusted).expect("a certificate")).expect("one that can be a root");
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(kubelet.address()).await?;
        let name = "127.0.0.1".try_into().expect("an address");
        let stream = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        Ok(Self { sender, token: std::fs::read_to_string(kubelet.token_file())? })
    }

    async fn get(&mut self, path: &str, token: Option<&str>) -> hyper::Result<(StatusCode, Bytes)> {
        let mut request = Request::get(path).header("host", "node");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request.body(Empty::new()).expect("a request")).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    async fn pods(&mut self) -> hyper::Result<(StatusCode, Bytes)> {
        let token = self.token.clone();
        self.get("/pods", Some(&token)).await
    }

    /// Asks until these pods are listed in these phases.
    async fn until_phases(&mut self, wanted: &[(&str, &str)]) {
        let asking = async {
            loop {
                let pods = items(&self.pods().await.unwrap().1);
                let phase = |name: &str| {
                    let pod = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name));
                    pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref())
                };
                if wanted.iter().all(|(name, wanted)| phase(name) == Some(wanted)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asking)
            .await
            .unwrap_or_else(|_| panic!("waiting for {wanted:?}"));
    }
}

fn items(body: &Bytes) -> Vec<Pod> {
    serde_json::from_slice::<List<Pod>>(body).expect("a PodList").items
}

async fn lister(bench: &Bench) -> PodResourcesListerClient<tonic::transport::Channel> {
    PodResourcesListerClient::new(unix(bench.kubelet.pod_resources_socket()).await)
}

#[tokio::test]
async fn pods_are_listed_with_their_specs_and_states() {
    let bench = Bench::new(options(false, false)).await;
    let workload = Workload::new("worker").namespace("team").annotation("divvy.dev/tier", "shim");
    let uid = bench.admit(workload.init("load", &gpus("1")).sidecar("log", &[]).app("main", &gpus("2"))).await;
    bench.running(&uid).await;
    let mut client = Client::connect(&bench.kubelet, &bench.kubelet.ca_file()).await.expect("the CA vouches for it");
    let (status, body) = client.pods().await.unwrap();
    assert_eq!(status, StatusCode::OK);
    let [pod] = &items(&body)[..] else { panic!("not one pod: {body:?}") };
    assert_eq!((pod.metadata.uid.as_ref(), pod.metadata.namespace.as_deref()), (Some(&uid), Some("team")));
    assert_eq!(pod.metadata.annotations.as_ref().unwrap()["divvy.dev/tier"], "shim");
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.containers[0].resources.as_ref().unwrap().limits.as_ref().unwrap()[GPU].0, "2");
    assert_eq!(spec.init_containers.as_ref().unwrap()[1].restart_policy.as_deref(), Some("Always"));
    let status = pod.status.as_ref().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let init = status.init_container_statuses.as_ref().unwrap();
    assert!(init[0].state.as_ref().unwrap().terminated.is_some());
    assert!(init[1].state.as_ref().unwrap().running.is_some());
    assert_eq!(status.container_statuses.as_ref().unwrap()[0].started, Some(true));
    assert!((3_000..7_000).contains(&body.len()), "{} bytes, unlike a real pod", body.len());
}

#[tokio::test]
async fn a_rejected_and_a_deleted_pod_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = KubeletOptions::new(directory.path(), "node", 1);
    // The deleted pod outlives the test.
    kubelet.timing.stop = Duration::from_secs(3600);
    let bench = Bench::with(kubelet, directory, options(false, false)).await;
    bench.rejected(pod("big", "33")).await;
    let uid = bench.admit(pod("deleted", "1")).await;
    bench.running(&uid).await;
    let mut client = Client::connect(&bench.kubelet, &bench.kubelet.ca_file()).await.unwrap();
    bench.kubelet.delete(&uid).unwrap();
    client.until_phases(&[("big", "Failed")]).await;
    let mut pods = items(&client.pods().await.unwrap().1);
    pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let status = pods[0].status.as_ref().unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert!(pods[1].metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn pod_list_needs_the_token_and_shows_injected_faults() {
    let bench = Bench::new(options(false, false)).await;
    bench.admit(pod("one", "1")).await;
    let mut client = Client::connect(&bench.kubelet, &bench.kubelet.ca_file()).await.unwrap();
    assert_eq!(client.get("/pods", None).await.unwrap().0, StatusCode::UNAUTHORIZED);
    assert_eq!(client.get("/pods", Some("wrong")).await.unwrap().0, StatusCode::UNAUTHORIZED);
    for status in [StatusCode::FORBIDDEN, StatusCode::INTERNAL_SERVER_ERROR] {
        bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Status(status));
        assert_eq!(client.pods().await.unwrap().0, status);
    }
    let delay = Duration::from_millis(30);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Slow(delay));
    let started = Instant::now();
    assert_eq!(client.pods().await.unwrap().0, StatusCode::OK);
    assert!(started.elapsed() >= delay);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
    assert_eq!(items(&client.pods().await.unwrap().1).len(), 1);
}

#[tokio::test]
async fn an_answer_can_be_cut_short_and_a_connection_refused() {
    let bench = Bench::new(options(false, false)).await;
    bench.admit(pod("one", "1")).await;
    let ca = bench.kubelet.ca_file();
    let mut client = Client::connect(&bench.kubelet, &ca).await.unwrap();
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::CutShort);
    assert!(client.pods().await.is_err(), "the body ends before its announced length");
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
    let mut kept = Client::connect(&bench.kubelet, &ca).await.unwrap();
    assert_eq!(kept.pods().await.unwrap().0, StatusCode::OK);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Refused);
    while kept.pods().await.is_ok() {}
    let refused = Client::connect(&bench.kubelet, &ca).await.err().expect("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
    let mut again = Client::connect(&bench.kubelet, &ca).await;
    while again.is_err() {
        tokio::task::yield_now().await;
        again = Client::connect(&bench.kubelet, &ca).await;
    }
    assert_eq!(again.unwrap().pods().await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn a_self_signed_certificate_is_vouched_for_by_its_file_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = KubeletOptions::new(directory.path(), "node", 1);
    options.serving = Serving::SelfSigned;
    let kubelet = Kubelet::start(options).await.unwrap();
    let mut client = Client::connect(&kubelet, &kubelet.certificate_file()).await;
    while client.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
        tokio::task::yield_now().await;
        client = Client::connect(&kubelet, &kubelet.certificate_file()).await;
    }
    assert_eq!(client.unwrap().pods().await.unwrap().0, StatusCode::OK);
    assert!(Client::connect(&kubelet, &kubelet.ca_file()).await.is_err());
}

#[tokio::test]
async fn pod_resources_gets_one_pod_by_name_and_all_healthy_ids() {
    let bench = Bench::new(options(false, false)).await;
    bench.admit(pod("one", "1")).await;
    let mut lister = lister(&bench).await;
    let request = |name: &str| pr::GetPodResourcesRequest { pod_name: name.into(), pod_namespace: "default".into() };
    let got = lister.get(request("one")).await.unwrap().into_inner().pod_resources.unwrap();
    assert_eq!(got.containers[0].devices[0].resource_name, GPU);
    assert_eq!(lister.get(request("two")).await.unwrap_err().code(), Code::Unknown);
    let all = lister.get_allocatable_resources(pr::AllocatableResourcesRequest {}).await.unwrap().into_inner();
    let ids = all.devices.into_iter().flat_map(|entry| entry.device_ids);
    assert_eq!(ids.collect::<std::collections::BTreeSet<_>>(), slots(), "those allocated too");
}

#[tokio::test]
async fn pod_resources_refuses_more_than_a_burst_and_recovers() {
    let bench = Bench::new(options(false, false)).await;
    let mut lister = lister(&bench).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let mut lister = lister.clone();
        calls.spawn(async move { lister.list(pr::ListPodResourcesRequest {}).await.map_err(|status| status.code()) });
    }
    let answers = calls.join_all().await;
    assert!(answers.iter().filter(|answer| answer.is_ok()).count() >= 10, "the burst");
    assert!(answers.iter().any(|answer| answer.as_ref().is_err_and(|code| *code == Code::ResourceExhausted)));
    while lister.list(pr::ListPodResourcesRequest {}).await.is_err() {}
}

#[tokio::test]
async fn rejected_pod_looks_pending_until_its_status_has_come_back() {
    let bench = Bench::new(options(false, false)).await;
    let mut client = Client::connect(&bench.kubelet, &bench.kubelet.ca_file()).await.expect("the CA vouches for it");
    let mut lister = lister(&bench).await;
    bench.script.allocates.forget_permits(usize::MAX);
    // In one batch, so that the sync loop hears nothing between them.
    bench.kubelet.add_pod(pod("rejected", "1").sysctl("kernel.msgmax", "65536").pod()).unwrap();
    bench.kubelet.add_pod(pod("next", "1").pod()).unwrap();
    bench.script.allocated.subscribe().wait_for(|all| all.len() == 1).await.unwrap();
    client.until_phases(&[("rejected", "Pending"), ("next", "Pending")]).await;
    let get = pr::GetPodResourcesRequest { pod_name: "rejected".to_owned(), pod_namespace: "default".to_owned() };
    let status = lister.get(get).await.unwrap_err();
    assert!(status.message().contains("not found"), "{status:?}");
    bench.script.allocates.add_permits(1);
    // It is heard of once the loop is idle.
    client.until_phases(&[("rejected", "Failed"), ("next", "Running")]).await;
}
