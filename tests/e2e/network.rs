//! Where programs listen: at the machine's loopback address, or in a network of the run's own, with a bridge for pods and with
//! kube-proxy, as on a node.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::files::{Files, Programs};
use crate::program::Program;
use crate::program::execute;

/// Addresses of the node and of Services.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Address of the node.
    pub node: Ipv4Addr,
    /// Addresses of Services, as a CIDR.
    pub services: &'static str,
    /// Service `kubernetes`.
    pub api: Ipv4Addr,
    /// Whether it is a network namespace of the run's own.
    pub is_own: bool,
}

/// Addresses of pods.
const PODS: &str = "10.13.0.0/16";
/// Where Debian has CNI's plugins (`containernetworking-plugins`).
const PLUGINS: &str = "/usr/lib/cni";
/// Interface with the node's address.
const INTERFACE: &str = "node0";

// === impl Network ===

impl Network {
    /// The machine's loopback interface. It has all addresses of 127.0.0.0/8: a Service is served at its ClusterIP without
    /// kube-proxy.
    pub const LOOPBACK: Self =
        Self { node: Ipv4Addr::LOCALHOST, services: "127.96.0.0/16", api: Ipv4Addr::new(127, 96, 0, 1), is_own: false };
    /// A network namespace.
    pub const OWN: Self = Self {
        node: Ipv4Addr::new(10, 11, 0, 1),
        services: "10.12.0.0/16",
        api: Ipv4Addr::new(10, 12, 0, 1),
        is_own: true,
    };

    /// Says what is missing for it.
    pub fn check(&self, programs: &Programs) -> anyhow::Result<()> {
        if self.is_own {
            for plugin in ["bridge", "host-local", "loopback", "portmap"] {
                let plugin = Path::new(PLUGINS).join(plugin);
                ensure!(plugin.is_file(), "no {}: install containernetworking-plugins", plugin.display());
            }
            ensure!(programs.get("kube-proxy").is_file(), "KUBE_BIN_DIR has no kube-proxy");
            execute("iptables", &["--version"]).context("kube-proxy needs iptables")?;
        }
        Ok(())
    }

    /// Gives the node its address, in the network namespace that this process is in.
    pub fn create(&self) -> anyhow::Result<()> {
        if !self.is_own {
            return Ok(());
        }
        let address = format!("{}/24", self.node);
        for line in [
            &["link", "set", "lo", "up"] as &[&str],
            &["link", "add", INTERFACE, "type", "bridge"],
            &["address", "add", &address, "dev", INTERFACE],
            &["link", "set", INTERFACE, "up"],
            // What is sent to a Service needs a route before kube-proxy's rules send it elsewhere.
            &["route", "add", "default", "dev", INTERFACE],
        ] {
            execute("ip", line)?;
        }
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("switching forwarding on")
    }

    /// Where containerd finds CNI's plugins.
    pub fn plugins(&self, files: &Files) -> PathBuf {
        if self.is_own { PLUGINS.into() } else { files.at("cni/bin") }
    }

    /// How pods get an address.
    pub fn pods(&self, files: &Files) -> Value {
        if !self.is_own {
            // All pods use the host's network; the plugin that this names is never run.
            return json!({"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]});
        }
        let ranges = json!([[{"subnet": PODS}]]);
        let addresses = json!({
            "type": "host-local", "dataDir": files.at("cni/addresses"), "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}],
        });
        let bridge = json!({
            "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": addresses,
        });
        let ports = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]})
    }

    /// kube-proxy of the node with this name, by whoever this kubeconfig is for.
    pub fn proxy(&self, programs: &Programs, files: &Files, kubeconfig: &Path, node: &str) -> anyhow::Result<Program> {
        let config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig},
            "hostnameOverride": node,
            "bindAddress": "0.0.0.0",
            "mode": "iptables",
            "clusterCIDR": PODS,
            // Pods reach one another by the bridge, which passes the answers by these rules otherwise.
            "iptables": {"masqueradeAll": true, "syncPeriod": "5s", "minSyncPeriod": "200ms"},
            // These limits are the machine's.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        });
        let config = files.write("kube-proxy.yaml", config.to_string())?;
        let args = vec![format!("--config={}", config.display())];
        Ok(Program::new("kube-proxy", programs.get("kube-proxy"), args, &files.logs()))
    }
}
