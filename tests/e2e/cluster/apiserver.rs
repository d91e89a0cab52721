//! divvy-apiserver in the cluster, where a scenario starts it: a process behind a Service, or pods by the words of `deploy/apiserver`.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::webhook::listen;
use super::{Cluster, PATIENCE};
use crate::pages::page;
use crate::program::Program;
use crate::webhook::serve;

const SERVICE: &str = "/api/v1/namespaces/divvy-system/services/divvy-apiserver";
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.metrics.nvidia.com";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/divvy-system/endpointslices";
const INSTALLED: &str = include_str!("../../../deploy/apiserver/divvy-apiserver.yaml");

/// A running one.
#[derive(Debug)]
pub struct Apiserver {
    /// Where it listens.
    pub address: SocketAddr,
    /// The process, and what is served in the Service's place; none if it is pods.
    process: Option<(Program, AbortHandle)>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts it, and waits until kube-apiserver serves the API. Of its manifests all but the Deployment is applied where it is a process.
    pub async fn start_apiserver(&mut self) -> anyhow::Result<Apiserver> {
        if self.installation.is_of_pods() {
            return Ok(Apiserver { address: self.switch_on_apiserver().await?, process: None });
        }
        let objects: Vec<Value> = serde_saphyr::from_multiple(INSTALLED).context("deploy/apiserver")?;
        let objects: Vec<_> = objects.into_iter().filter(|object| object["kind"] != "Deployment").collect();
        let list = json!({ "kind": "List", "apiVersion": "v1", "items": objects });
        let file = self.files.write("apiserver-objects.json", list.to_string())?.display().to_string();
        self.kubectl.run(&["apply", "--filename", &file]).await?;
        let args = ["create", "token", "divvy-apiserver", "--namespace=divvy-system", "--duration=24h"];
        let token = self.files.write("apiserver-token", self.kubectl.run(&args).await?)?;
        let text = std::fs::read_to_string(self.kubectl.kubeconfig())?;
        let mut own: Value = serde_json::from_str(&text).context("the administrator's kubeconfig")?;
        own["users"][0]["user"] = json!({ "tokenFile": token });
        let kubeconfig = self.files.write("apiserver-kubeconfig", own.to_string())?;
        let [address, pages] = [0, 1].map(|_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let [address, pages] = [address?.local_addr()?, pages?.local_addr()?];
        let keys = json!({
            "version": "v1", "namespace": "divvy-system", "listenAddress": address, "metricsAddress": pages,
            "adminAddress": "127.0.0.1:0", "kubeconfig": kubeconfig, "shutdownDelay": "1s",
        });
        let config = self.files.write("divvy-apiserver.yaml", keys.to_string())?.display().to_string();
        let args = vec!["--config-file".to_owned(), config];
        let path = self.binaries.apiserver.clone();
        let mut program = Program::new("divvy-apiserver", path, args, &self.files.logs()).env("NO_COLOR", "1");
        program.start()?;
        let served =
            serve(listen(self, SERVICE).await?, std::sync::Arc::default(), move || std::future::ready(vec![address]));
        let service = tokio::spawn(served).abort_handle();
        // An APIService whose Service has no endpoints isn't called. The address is no process's: the ClusterIP is served above.
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": "divvy-apiserver-process", "labels": { "kubernetes.io/service-name": "divvy-apiserver" } },
            "addressType": "IPv4", "endpoints": [{ "addresses": ["192.0.2.1"], "conditions": { "ready": true } }],
            "ports": [{ "name": "https", "port": 8443, "protocol": "TCP" }],
        });
        self.api.create(SLICES, &slice).await?;
        self.until("divvy-apiserver that is ready", PATIENCE, async |_| {
            let said = page(pages, "readyz").await?;
            anyhow::ensure!(said.starts_with("ok\n"), "{said}");
            Ok(Some(()))
        })
        .await?;
        self.until("an API that is available", PATIENCE, async |this| {
            let service = this.api.get(API_SERVICE).await?;
            let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let available = conditions.iter().find(|condition| condition["type"] == "Available");
            anyhow::ensure!(available.is_some_and(|it| it["status"] == "True"), "{conditions:?}");
            Ok(Some(()))
        })
        .await?;
        Ok(Apiserver { address, process: Some((program, service)) })
    }

    /// Takes it out of the API server, and ends it.
    pub async fn stop_apiserver(&self, apiserver: Apiserver) -> anyhow::Result<()> {
        let Some((mut program, service)) = apiserver.process else { return self.switch_off_apiserver().await };
        self.api.delete(API_SERVICE).await?;
        self.api.delete(&format!("{SLICES}/divvy-apiserver-process")).await?;
        program.kill().await?;
        service.abort();
        Ok(())
    }
}
