//! divvy-apiserver in the cluster, where a scenario starts it: a process behind a Service, or pods by the words of `deploy/apiserver`.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::webhook::listen;
use super::{Cluster, PATIENCE};
use crate::pages::page;
use crate::program::Program;
use crate::webhook::serve;

const SERVICE: &str = "/api/v1/namespaces/divvy-system/services/divvy-apiserver";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const OBJECTS: &str = "v1alpha1.metrics.nvidia.com";
const CUSTOM_METRICS: &str = "v1beta2.custom.metrics.k8s.io";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/divvy-system/endpointslices";
const INSTALLED: &str = include_str!("../../../deploy/apiserver/divvy-apiserver.yaml");
const WITH_CUSTOM_METRICS: &str = include_str!("../../../deploy/apiserver/custom-metrics.yaml");

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
    /// Starts it with these keys, and waits until kube-apiserver serves its APIs. Of its manifests all but the Deployment is applied
    /// where it is a process.
    pub async fn start_apiserver(&mut self, keys: &Value) -> anyhow::Result<Apiserver> {
        if self.installation.is_of_pods() {
            ensure!(*keys == json!({}), "pods are configured as installed");
            return Ok(Apiserver { address: self.switch_on_apiserver().await?, process: None });
        }
        let has_custom_metrics = keys["customMetrics"] == "on";
        let services = if has_custom_metrics { &[OBJECTS, CUSTOM_METRICS][..] } else { &[OBJECTS] };
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(INSTALLED).context("deploy/apiserver")?;
        if has_custom_metrics {
            objects.extend(serde_saphyr::from_multiple::<Value>(WITH_CUSTOM_METRICS).context("deploy/apiserver")?);
        }
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
            ensure!(said.starts_with("ok\n"), "{said}");
            Ok(Some(()))
        })
        .await?;
        for name in services {
            self.until("an API that is available", PATIENCE, async |this| {
                let service = this.api.get(&format!("{API_SERVICES}/{name}")).await?;
                let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let available = conditions.iter().find(|condition| condition["type"] == "Available");
                ensure!(available.is_some_and(|it| it["status"] == "True"), "{conditions:?}");
                Ok(Some(()))
            })
            .await?;
        }
        Ok(Apiserver { address, process: Some((program, service)) })
    }

    /// Takes it out of the API server, and ends it.
    pub async fn stop_apiserver(&self, apiserver: Apiserver) -> anyhow::Result<()> {
        let Some((mut program, service)) = apiserver.process else { return self.switch_off_apiserver().await };
        for name in [OBJECTS, CUSTOM_METRICS] {
            self.api.delete(&format!("{API_SERVICES}/{name}")).await?;
        }
        self.api.delete(&format!("{SLICES}/divvy-apiserver-process")).await?;
        program.kill().await?;
        service.abort();
        Ok(())
    }
}
