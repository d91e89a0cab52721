//! divvy-webhook in the cluster: started, asked by the API server and the scheduler, and ended.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Cluster, PATIENCE};
use crate::control_plane::configure_scheduler;
use crate::pages::page;
use crate::program::Program;
use crate::webhook::{leader, serve};

const SERVICE: &str = "/api/v1/namespaces/divvy-system/services/divvy-webhook";
const EXTENDER: &str = "/api/v1/namespaces/divvy-system/services/divvy-extender";
const SECRET: &str = "/api/v1/namespaces/divvy-system/secrets/divvy-webhook-tls";
/// What it takes of a scheduler's configuration.
const SCHEDULER: &str = include_str!("../../../deploy/scheduler/kube-scheduler.yaml");

// === impl Cluster ===

impl Cluster {
    /// Starts both, serves them at their Services' ClusterIPs, and waits until the API server asks them. Where they are pods
    /// they stay from the beginning to the end, and so does the scheduler's configuration.
    pub async fn start_webhook(&mut self) -> anyhow::Result<()> {
        if self.installation.is_of_pods() {
            return self.webhook_called().await;
        }
        let args = ["create", "token", "divvy-webhook", "--namespace=divvy-system", "--duration=24h"];
        let token = self.kubectl.run(&args).await?;
        std::fs::write(&self.webhook.token, token).context("writing the webhook's token")?;
        self.webhook.programs().try_for_each(Program::start_if_down)?;
        let replicas = self.webhook.replicas.each_ref().map(|replica| replica.address);
        let connections = Arc::clone(&self.webhook.connections);
        let reviews =
            serve(listen(self, SERVICE, 443).await?, Arc::default(), move || std::future::ready(replicas.to_vec()));
        let api = self.api.clone();
        let leader = move || {
            let api = api.clone();
            async move { leader(&api).await.into_iter().collect() }
        };
        let extender = serve(listen(self, EXTENDER, 443).await?, connections, leader);
        self.webhook.services = vec![tokio::spawn(reviews).abort_handle(), tokio::spawn(extender).abort_handle()];
        self.webhook_ready().await?;
        self.apply(&["webhook-configurations"]).await?;
        self.webhook_called().await
    }

    /// Serves a program's webhooks at the ClusterIP of its Service, until [`Self::stop_webhook`].
    pub async fn serve_at(&mut self, service: &str, address: SocketAddr) -> anyhow::Result<()> {
        let serving =
            serve(listen(self, service, 443).await?, Arc::default(), move || std::future::ready(vec![address]));
        self.webhook.services.push(tokio::spawn(serving).abort_handle());
        Ok(())
    }

    /// Changes keys of both replicas' configuration.
    pub async fn configure_webhook(&mut self, keys: &Value) -> anyhow::Result<()> {
        if self.installation.is_of_pods() {
            return self.configure_pods(keys).await;
        }
        self.webhook.configure(keys).await?;
        self.webhook_ready().await
    }

    /// Waits until both are ready.
    pub async fn webhook_ready(&mut self) -> anyhow::Result<()> {
        self.until("two replicas of divvy-webhook that are ready", PATIENCE, async |this| {
            for replica in &this.webhook.replicas {
                let said = page(replica.pages, "readyz").await?;
                anyhow::ensure!(said.starts_with("ok\n"), "{said}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the API server has a GPU pod completed.
    pub async fn webhook_called(&mut self) -> anyhow::Result<()> {
        let container = json!({"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"}, "spec": {"containers": [container]},
        });
        self.until("answer of divvy-webhook", PATIENCE, async |this| {
            let pod = this.api.create("/api/v1/namespaces/default/pods?dryRun=All", &pod).await?;
            Ok(pod["metadata"]["annotations"]["divvy.dev/request"].as_str().map(drop))
        })
        .await
    }

    /// Takes them out of the API server.
    pub async fn unregister_webhook(&self) -> anyhow::Result<()> {
        for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            self.api.delete(&format!("/apis/admissionregistration.k8s.io/v1/{kind}/divvy-webhook")).await?;
        }
        Ok(())
    }

    /// Ends both, and takes them out of the API server and the scheduler. What a scenario has configured ends with them.
    pub async fn stop_webhook(&mut self) -> anyhow::Result<()> {
        if self.installation.is_of_pods() {
            return Ok(());
        }
        self.unregister_webhook().await?;
        self.webhook.stop().await?;
        self.restart_scheduler(false).await
    }

    /// Starts kube-scheduler anew, with the extender or without.
    pub async fn restart_scheduler(&mut self, with_extender: bool) -> anyhow::Result<()> {
        if self.installation.is_of_pods() {
            return Ok(());
        }
        let extender = if with_extender { Some(self.extender().await?) } else { None };
        configure_scheduler(&self.files, extender)?;
        self.control_plane.scheduler.kill().await?;
        self.control_plane.scheduler.start()
    }

    /// The entry of a scheduler's configuration that our manifests show, with what an administrator fills in.
    pub async fn extender(&self) -> anyhow::Result<Value> {
        let secret = self.api.get(SECRET).await?;
        let file = |name: &str| {
            let text = secret["data"][name].as_str().with_context(|| format!("the Secret has no {name}"))?;
            self.files.write(format!("webhook-{name}"), BASE64_STANDARD.decode(text)?)
        };
        let config: Value = serde_saphyr::from_str(SCHEDULER).context("deploy/scheduler/kube-scheduler.yaml")?;
        let mut extender = config["extenders"][0].clone();
        extender["urlPrefix"] = json!(format!("https://{}", cluster_ip(self, EXTENDER).await?));
        for (key, name) in [("caFile", "ca.crt"), ("certFile", "client.crt"), ("keyFile", "client.key")] {
            extender["tlsConfig"][key] = json!(file(name)?);
        }
        Ok(extender)
    }
}

pub(super) async fn listen(cluster: &Cluster, service: &str, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((cluster_ip(cluster, service).await?, port)).await.context("listening at a ClusterIP")
}

async fn cluster_ip(cluster: &Cluster, service: &str) -> anyhow::Result<IpAddr> {
    let service = cluster.api.get(service).await?;
    let address = service["spec"]["clusterIP"].as_str().context("the Service has no ClusterIP")?;
    Ok(address.parse()?)
}
