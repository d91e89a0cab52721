//! The way that pods take in a cluster before they reach a node: over the API server's socket and through admission, then
//! from the scheduler, with an extender, to a node.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;

use crate::cluster::PATIENCE;
use crate::control_plane::ControlPlane;
use crate::report::Reason;
use crate::webhook::Webhook;
use divvy_testkit::pods::{NAMESPACE, PodShape};
use fake_apiserver::View;
use fake_scheduler::live::Scheduler;

/// The webhook, a scheduler that asks it, and where pods are created.
pub struct Front {
    /// Both replicas.
    pub webhook: Webhook,
    /// Where pods come in.
    pub door: Door,
    _scheduler: Scheduler,
}

/// A user's client for pods.
pub struct Door(Api<Pod>);

/// Before a request is made again that failed because nobody could be asked about it.
const PAUSE: Duration = Duration::from_millis(100);

// === impl Front ===

impl Front {
    /// Starts a scheduler that asks this webhook, which is ready. Equal seeds settle its ties alike.
    pub async fn start(control_plane: &ControlPlane, webhook: Webhook, seed: u64) -> anyhow::Result<Self> {
        let kubeconfig = Kubeconfig::read_from(&control_plane.kubeconfig).context("reading the kubeconfig")?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let door = Door(Api::namespaced(Client::try_from(config)?, NAMESPACE));
        let scheduler = Scheduler::start(&control_plane.server, Some(webhook.extender()?), seed)?;
        Ok(Self { webhook, door, _scheduler: scheduler })
    }
}

// === impl Door ===

impl Door {
    /// Creates a pod as a controller does, and returns its UID; or in which words it was refused. While no webhook can be
    /// asked it tries again.
    pub async fn create(&self, shape: &PodShape) -> anyhow::Result<Result<String, Reason>> {
        let start = Instant::now();
        loop {
            match self.0.create(&PostParams::default(), &shape.unbound()).await {
                Ok(made) => return Ok(Ok(made.metadata.uid.unwrap_or_default())),
                Err(kube::Error::Api(status)) if status.code == 500 && start.elapsed() < PATIENCE => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(kube::Error::Api(status)) => return Ok(Err(Reason::admission(&status.message))),
                Err(error) => return Err(error).with_context(|| format!("creating pod {}", shape.name)),
            }
        }
    }
}

/// The node of a pod, or why the scheduler found none; nothing while neither is known.
pub fn scheduled(view: &View<'_>, name: &str) -> Option<Result<String, Reason>> {
    let Some(pod) = view.get("Pod", NAMESPACE, name) else {
        return Some(Err(Reason::unschedulable("deleted before it had a node".to_owned())));
    };
    if let Some(node) = pod["spec"]["nodeName"].as_str() {
        return Some(Ok(node.to_owned()));
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    // Errors pass, and the scheduler tries again.
    let mut refusals = conditions.filter(|own| own["type"] == "PodScheduled" && own["reason"] == "Unschedulable");
    let why = refusals.next().map(|own: &Value| own["message"].as_str().unwrap_or_default().to_owned())?;
    Some(Err(Reason::unschedulable(why)))
}
