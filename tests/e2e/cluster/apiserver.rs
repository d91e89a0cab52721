//! divvy-apiserver in the cluster, where a scenario starts it: a process behind a Service, or pods by the words of `deploy/apiserver`.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::{AggregatedApi, Cluster, PATIENCE};
use crate::pages::page;
use crate::program::Program;

const API: AggregatedApi = AggregatedApi {
    name: "v1alpha1.metrics.nvidia.com",
    namespace: "divvy-system",
    service: "divvy-apiserver",
    port_name: "https",
    port: 443,
};
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
    /// Starts it with these keys, and waits until kube-apiserver serves its API. Of its manifests all but the Deployment is applied
    /// where it is a process.
    pub async fn start_apiserver(&mut self, keys: &Value) -> anyhow::Result<Apiserver> {
        if self.installation.is_of_pods() {
            ensure!(*keys == json!({}), "pods are configured as installed");
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
        let mut all = json!({
            "version": "v1", "namespace": "divvy-system", "listenAddress": address, "metricsAddress": pages,
            "adminAddress": "127.0.0.1:0", "kubeconfig": kubeconfig, "shutdownDelay": "1s",
        });
        let all_keys = all.as_object_mut().context("keys are a map")?;
        all_keys.extend(keys.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        let config = self.files.write("divvy-apiserver.yaml", all.to_string())?.display().to_string();
        let args = vec!["--config-file".to_owned(), config];
        let path = self.binaries.apiserver.clone();
        let mut program = Program::new("divvy-apiserver", path, args, &self.files.logs()).env("NO_COLOR", "1");
        program.start()?;
        self.until("divvy-apiserver that is ready", PATIENCE, async |_| {
            let said = page(pages, "readyz").await?;
            ensure!(said.starts_with("ok\n"), "{said}");
            Ok(Some(()))
        })
        .await?;
        let service = self.serve_api(API, vec![address]).await?;
        Ok(Apiserver { address, process: Some((program, service)) })
    }

    /// Takes it out of the API server, and ends it.
    pub async fn stop_apiserver(&self, apiserver: Apiserver) -> anyhow::Result<()> {
        let Some((mut program, service)) = apiserver.process else { return self.switch_off_apiserver().await };
        self.remove_api(API, &service).await?;
        program.kill().await
    }
}
