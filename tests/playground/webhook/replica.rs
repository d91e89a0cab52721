//! One divvy-webhook process.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;

use crate::cluster::SYSTEM;
use crate::control_plane::ControlPlane;
use divvy_testkit::binaries::Binaries;
use divvy_testkit::pages::page;
use divvy_testkit::process::{Process, Program, own_address};
use fake_apiserver::endpoints::pod_ip;

/// A replica and where it is.
#[derive(Debug)]
pub(super) struct Replica {
    /// Name of the pod.
    pub(super) name: &'static str,
    /// Where it answers the API server.
    pub(super) address: SocketAddr,
    /// Where it answers people.
    pub(super) queries: SocketAddr,
    pub(super) process: Process,
}

// === impl Replica ===

impl Replica {
    /// Starts it, with its files in `directory`.
    pub(super) fn start(
        name: &'static str,
        binaries: &Binaries,
        control_plane: &ControlPlane,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let ip = own_address();
        let [address, queries, pages, admin] = [8443, 8445, 9403, 9404].map(|port| SocketAddr::from((ip, port)));
        let keys = json!({
            "version": "v1",
            "podName": name,
            "podIp": pod_ip(ip),
            "namespace": SYSTEM,
            "kubeconfig": control_plane.webhook_kubeconfig,
            "listenAddress": address,
            "metricsAddress": pages,
            "adminAddress": admin,
            "scheduling": "extender",
            // Pods of the demo use every annotation.
            "favouredNamespaces": ["*"],
            "dialects": super::dialects(),
        });
        let program =
            Program { path: binaries.webhook.clone(), name, prefix: Vec::new(), environment: Vec::new(), pages };
        Ok(Self { name, address, queries, process: Process::start(program, directory, &keys)? })
    }

    /// Why it isn't ready to be asked, if it isn't.
    pub(super) async fn ready(&mut self) -> Result<(), String> {
        self.process.ended()?;
        page(self.process.pages(), "readyz").await.map(drop).map_err(|error| format!("{error:#}"))
    }
}
