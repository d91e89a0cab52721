//! divvy-webhook as two processes, and what stands for kube-proxy in front of them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use divvy_testkit::binaries::Binaries;
use divvy_testkit::process::own_address;
use fake_apiserver::endpoints::{first_endpoint, pod_ip};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::api::Api;
use crate::certs::Pki;
use crate::figures::sample;
use crate::files::{Files, Ports};
use crate::pages::page;
use crate::program::Program;

/// The two replicas.
#[derive(Debug)]
pub struct Webhook {
    /// Either may lead.
    pub replicas: [Replica; 2],
    pub(crate) token: PathBuf,
    pub(crate) services: Vec<AbortHandle>,
    /// That came to the extender's Service until now.
    pub(crate) connections: Arc<AtomicUsize>,
}

/// One process.
#[derive(Debug)]
pub struct Replica {
    /// The process.
    pub program: Program,
    config: PathBuf,
    /// What was in it at first.
    installed: String,
    pub(crate) address: SocketAddr,
    pub(crate) aggregated_api: SocketAddr,
    pub(crate) pages: SocketAddr,
}

const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/divvy-system/endpointslices/divvy-extender";

// === impl Webhook ===

impl Webhook {
    /// Two replicas that show the token in `webhook-token` to the API server; nothing is started yet.
    pub fn new(binaries: &Binaries, files: &Files, pki: &Pki, ports: &Ports) -> anyhow::Result<Self> {
        let token = files.at("webhook-token");
        let kubeconfig = pki.token_kubeconfig("divvy-webhook", &token, ports.api)?;
        let replica = |name: &'static str| {
            let ip = own_address();
            let [address, aggregated_api, pages] = [8443, 8446, 9403].map(|port| SocketAddr::from((ip, port)));
            let keys = json!({
                "version": "v1",
                "podName": name,
                "podIp": pod_ip(ip),
                "namespace": "divvy-system",
                "listenAddress": address,
                "metricsAddress": pages,
                // Any port: nobody asks.
                "adminAddress": "127.0.0.1:0",
                "kubeconfig": kubeconfig,
                "shutdownDelay": "1s",
                "scheduling": "extender",
                "logLevel": "info,divvy_webhook=debug",
            });
            let installed = keys.to_string();
            let config = files.write(format!("{name}.yaml"), &installed)?;
            let args = vec!["--config-file".to_owned(), config.display().to_string()];
            let program = Program::new(name, binaries.webhook.clone(), args, &files.logs()).env("NO_COLOR", "1");
            anyhow::Ok(Replica { program, config, installed, address, aggregated_api, pages })
        };
        let replicas = [replica("divvy-webhook-a")?, replica("divvy-webhook-b")?];
        Ok(Self { replicas, token, services: Vec::new(), connections: Arc::default() })
    }

    /// Processes of both replicas.
    pub fn programs(&mut self) -> impl Iterator<Item = &mut Program> {
        self.replicas.iter_mut().map(|replica| &mut replica.program)
    }

    /// Ends both and starts them with these keys too.
    pub async fn configure(&mut self, keys: &Value) -> anyhow::Result<()> {
        for Replica { program, config, .. } in &mut self.replicas {
            program.kill().await?;
            let mut all: Value = serde_json::from_str(&std::fs::read_to_string(&*config)?)?;
            let own = keys.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
            all.as_object_mut().context("keys are a map")?.extend(own);
            std::fs::write(&*config, all.to_string())?;
            program.start()?;
        }
        Ok(())
    }

    /// Ends both; when they are started again, it is with the keys that they had at first.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        for Replica { program, config, installed, .. } in &mut self.replicas {
            program.kill().await?;
            std::fs::write(&*config, &*installed)?;
        }
        self.services.drain(..).for_each(|service| service.abort());
        Ok(())
    }

    /// A counter's values of both, added up, by the labels as they are written. A replica that is down has none.
    pub async fn metric(&self, name: &str) -> Vec<(String, u64)> {
        let mut sums: Vec<(String, u64)> = Vec::new();
        for replica in &self.replicas {
            let text = page(replica.pages, "metrics").await.unwrap_or_default();
            for line in text.lines().filter_map(|line| line.strip_prefix(name)) {
                let Some((labels, value)) = line.rsplit_once(' ') else { continue };
                let value = value.parse().unwrap_or_default();
                match sums.iter_mut().find(|(known, _)| known == labels) {
                    Some((_, sum)) => *sum += value,
                    None => sums.push((labels.to_owned(), value)),
                }
            }
        }
        sums
    }

    /// How many connections have come to the extender's Service until now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Which of the replicas leads.
    pub async fn leader(&self) -> Option<usize> {
        for (number, replica) in self.replicas.iter().enumerate() {
            let text = page(replica.pages, "metrics").await.unwrap_or_default();
            if text.lines().any(|line| line.strip_prefix("divvy_leader ").is_some_and(|value| value.starts_with('1'))) {
                return Some(number);
            }
        }
        None
    }
}

// === impl Replica ===

impl Replica {
    /// A gauge without labels.
    pub async fn gauge(&self, name: &str) -> anyhow::Result<f64> {
        let text = page(self.pages, "metrics").await?;
        sample(&text, name).with_context(|| format!("{name} isn't shown at {}", self.pages))
    }
}

/// Where the extender's Service leads to.
pub(crate) async fn leader(api: &Api) -> Option<SocketAddr> {
    first_endpoint(&api.get(SLICE).await.ok()?)
}

/// Passes each connection on to one of the endpoints, in turns.
pub(crate) async fn serve<F>(listener: TcpListener, connections: Arc<AtomicUsize>, endpoints: impl Fn() -> F)
where
    F: Future<Output = Vec<SocketAddr>>,
{
    while let Ok((mut client, _)) = listener.accept().await {
        let first = connections.fetch_add(1, Ordering::Relaxed);
        let endpoints = endpoints().await;
        tokio::spawn(async move {
            for at in 0..endpoints.len() {
                if let Ok(mut replica) = TcpStream::connect(endpoints[(first + at) % endpoints.len()]).await {
                    // A Service copies nothing, and so holds nothing back.
                    let _unset = (client.set_nodelay(true), replica.set_nodelay(true));
                    let _ended = tokio::io::copy_bidirectional(&mut client, &mut replica).await;
                    return;
                }
            }
        });
    }
}
