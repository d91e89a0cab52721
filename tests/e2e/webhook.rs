//! divvy-webhook as two processes, and what stands for kube-proxy in front of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use divvy_testkit::binaries::Binaries;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::api::Api;
use crate::certs::Pki;
use crate::cluster::{Cluster, PATIENCE};
use crate::control_plane::configure_scheduler;
use crate::files::{Files, Ports};
use crate::install;
use crate::pages::page;
use crate::program::Program;

/// The two replicas.
#[derive(Debug)]
pub struct Webhook {
    /// Either may lead.
    pub replicas: [Replica; 2],
    token: PathBuf,
    services: Vec<AbortHandle>,
    /// That came to the extender's Service until now.
    connections: Arc<AtomicUsize>,
}

/// One process.
#[derive(Debug)]
pub struct Replica {
    /// The process.
    pub program: Program,
    config: PathBuf,
    address: SocketAddr,
    pages: SocketAddr,
}

const SERVICE: &str = "/api/v1/namespaces/divvy-system/services/divvy-webhook";
const EXTENDER: &str = "/api/v1/namespaces/divvy-system/services/divvy-extender";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/divvy-system/endpointslices/divvy-extender";
const SECRET: &str = "/api/v1/namespaces/divvy-system/secrets/divvy-webhook-tls";
/// What it takes of a scheduler's configuration.
const SCHEDULER: &str = include_str!("../../deploy/scheduler/kube-scheduler.yaml");

// === impl Webhook ===

impl Webhook {
    /// Two replicas that show the token in `webhook-token` to the API server; nothing is started yet.
    pub fn new(binaries: &Binaries, files: &Files, pki: &Pki, ports: &Ports) -> anyhow::Result<Self> {
        let token = files.at("webhook-token");
        let kubeconfig = pki.token_kubeconfig("divvy-webhook", &token, ports.api)?;
        let replica = |name: &'static str, (port, pages): (u16, u16)| {
            let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let keys = json!({
                "version": "v1",
                "podName": name,
                "podIp": "127.0.0.1",
                "namespace": "divvy-system",
                "listenAddress": at(port),
                "metricsAddress": at(pages),
                "kubeconfig": kubeconfig,
                "shutdownDelay": "1s",
                "extender": "on",
                "logLevel": "info,divvy_webhook=debug",
            });
            let config = files.write(format!("{name}.yaml"), keys.to_string())?;
            let args = vec!["--config-file".to_owned(), config.display().to_string()];
            let program = Program::new(name, binaries.webhook.clone(), args, &files.logs()).env("NO_COLOR", "1");
            anyhow::Ok(Replica { program, config, address: at(port), pages: at(pages) })
        };
        let [one, other] = ports.webhook;
        let replicas = [replica("divvy-webhook-a", one)?, replica("divvy-webhook-b", other)?];
        Ok(Self { replicas, token, services: Vec::new(), connections: Arc::default() })
    }

    /// Its processes.
    pub fn programs(&mut self) -> impl Iterator<Item = &mut Program> {
        self.replicas.iter_mut().map(|replica| &mut replica.program)
    }

    /// Starts both, serves them at their Services' ClusterIPs, and waits until the API server asks them.
    pub async fn start(cluster: &mut Cluster) -> anyhow::Result<()> {
        let args = ["create", "token", "divvy-webhook", "--namespace=divvy-system", "--duration=24h"];
        let token = cluster.kubectl.run(&args).await?;
        std::fs::write(&cluster.webhook.token, token).context("writing the webhook's token")?;
        cluster.webhook.programs().try_for_each(Program::start_if_down)?;
        let replicas = cluster.webhook.replicas.each_ref().map(|replica| replica.address);
        let connections = Arc::clone(&cluster.webhook.connections);
        let reviews =
            serve(listen(cluster, SERVICE).await?, Arc::default(), move || std::future::ready(replicas.to_vec()));
        let api = cluster.api.clone();
        let leader = move || {
            let api = api.clone();
            async move { leader(&api).await.into_iter().collect() }
        };
        let extender = serve(listen(cluster, EXTENDER).await?, connections, leader);
        cluster.webhook.services = vec![tokio::spawn(reviews).abort_handle(), tokio::spawn(extender).abort_handle()];
        Self::ready(cluster).await?;
        install::apply(cluster, &["webhook-configurations"]).await?;
        Self::asked(cluster).await
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

    /// Waits until both are ready.
    pub async fn ready(cluster: &mut Cluster) -> anyhow::Result<()> {
        cluster
            .until("two replicas of divvy-webhook that are ready", PATIENCE, async |this| {
                for replica in &this.webhook.replicas {
                    let said = page(replica.pages, "readyz").await?;
                    anyhow::ensure!(said.starts_with("ok\n"), "{said}");
                }
                Ok(Some(()))
            })
            .await
    }

    /// Waits until the API server has a GPU pod completed.
    pub async fn asked(cluster: &mut Cluster) -> anyhow::Result<()> {
        let container = json!({"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"}, "spec": {"containers": [container]},
        });
        cluster
            .until("answer of divvy-webhook", PATIENCE, async |this| {
                let pod = this.api.create("/api/v1/namespaces/default/pods?dryRun=All", &pod).await?;
                Ok(pod["metadata"]["annotations"]["divvy.dev/request"].as_str().map(drop))
            })
            .await
    }

    /// Takes them out of the API server.
    pub async fn unasked(cluster: &Cluster) -> anyhow::Result<()> {
        for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            cluster.api.delete(&format!("/apis/admissionregistration.k8s.io/v1/{kind}/divvy-webhook")).await?;
        }
        Ok(())
    }

    /// Ends both, and takes them out of the API server and the scheduler.
    pub async fn end(cluster: &mut Cluster) -> anyhow::Result<()> {
        Self::unasked(cluster).await?;
        for program in cluster.webhook.programs() {
            program.kill().await?;
        }
        cluster.webhook.services.drain(..).for_each(|service| service.abort());
        Self::schedule(cluster, false).await
    }

    /// Starts kube-scheduler anew, with the extender or without.
    pub async fn schedule(cluster: &mut Cluster, with_extender: bool) -> anyhow::Result<()> {
        let extender = if with_extender { Some(extender(cluster).await?) } else { None };
        configure_scheduler(&cluster.files, extender)?;
        cluster.control_plane.scheduler.kill().await?;
        cluster.control_plane.scheduler.start()
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

async fn listen(cluster: &Cluster, service: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind((cluster_ip(cluster, service).await?, 443)).await.context("listening at a ClusterIP")
}

/// Where the extender's Service leads to.
async fn leader(api: &Api) -> Option<SocketAddr> {
    let slice = api.get(SLICE).await.ok()?;
    let ip = slice["endpoints"][0]["addresses"][0].as_str()?;
    format!("{ip}:{}", slice["ports"][0]["port"]).parse().ok()
}

async fn cluster_ip(cluster: &Cluster, service: &str) -> anyhow::Result<IpAddr> {
    let service = cluster.api.get(service).await?;
    let address = service["spec"]["clusterIP"].as_str().context("the Service has no ClusterIP")?;
    Ok(address.parse()?)
}

/// The entry that our manifests show, with what an administrator fills in.
async fn extender(cluster: &Cluster) -> anyhow::Result<Value> {
    let secret = cluster.api.get(SECRET).await?;
    let authority = secret["data"]["ca.crt"].as_str().context("the Secret has no ca.crt")?;
    let authority = cluster.files.write("webhook-ca.crt", BASE64_STANDARD.decode(authority)?)?;
    let config: Value = serde_saphyr::from_str(SCHEDULER).context("deploy/scheduler/kube-scheduler.yaml")?;
    let mut extender = config["extenders"][0].clone();
    extender["urlPrefix"] = json!(format!("https://{}", cluster_ip(cluster, EXTENDER).await?));
    extender["tlsConfig"]["caFile"] = json!(authority);
    Ok(extender)
}

/// Passes each connection on to one of the endpoints, in turns.
async fn serve<F>(listener: TcpListener, connections: Arc<AtomicUsize>, endpoints: impl Fn() -> F)
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
