//! One divvy-webhook process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::json;

use crate::cluster::SYSTEM;
use crate::control_plane::ControlPlane;
use divvy_testkit::binaries::Binaries;
use divvy_testkit::pages::page;
use divvy_testkit::process::{Process, Program, own_address};

/// A replica and where it is.
#[derive(Debug)]
pub(super) struct Replica {
    /// Name of the pod.
    pub(super) name: &'static str,
    /// Where it answers API server and scheduler.
    pub(super) address: SocketAddr,
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
        let (address, pages) = (SocketAddr::from((ip, 8443)), SocketAddr::from((ip, 9403)));
        let keys = json!({
            "version": "v1",
            "podName": name,
            "podIp": in_slice(ip),
            "namespace": SYSTEM,
            "kubeconfig": control_plane.webhook_kubeconfig,
            "listenAddress": address,
            "metricsAddress": pages,
            "extender": "on",
        });
        let program = Program { path: binaries.webhook.clone(), name, environment: Vec::new(), pages };
        Ok(Self { name, address, process: Process::start(program, directory, &keys)? })
    }

    /// Why it isn't ready to be asked, if it isn't.
    pub(super) async fn ready(&mut self) -> Result<(), String> {
        self.process.ended()?;
        page(self.process.pages(), "readyz").await.map(drop).map_err(|error| format!("{error:#}"))
    }
}

/// Address in the EndpointSlice of a replica that listens at a loopback address, which the API server refuses there.
fn in_slice(listening: Ipv4Addr) -> Ipv4Addr {
    let [_, rest @ ..] = listening.octets();
    Ipv4Addr::from([10, rest[0], rest[1], rest[2]])
}

/// Listening address of the replica with this address in the EndpointSlice.
pub(super) fn listening(in_slice: Ipv4Addr) -> Ipv4Addr {
    let [_, rest @ ..] = in_slice.octets();
    Ipv4Addr::from([127, rest[0], rest[1], rest[2]])
}
