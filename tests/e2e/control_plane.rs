//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use std::fmt::Display;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::api::Api;
use crate::audit;
use crate::certs::Pki;
use crate::files::{Files, Ports, Programs};
use crate::network::Network;
use crate::program::Program;

/// The four programs.
#[derive(Debug)]
pub struct ControlPlane {
    /// Where objects are.
    pub etcd: Program,
    /// The API server.
    pub api: Program,
    /// Makes service accounts and the pods of Jobs, among others.
    pub controller_manager: Program,
    /// Binds pods.
    pub scheduler: Program,
    /// The scheduler's own pages.
    pub scheduler_pages: Api,
}

/// JSON is YAML.
pub(crate) const SCHEDULER_CONFIG: &str = "scheduler.yaml";

/// Lets kube-scheduler ask this extender from its next start on, or nobody.
pub fn configure_scheduler(files: &Files, extender: Option<Value>) -> anyhow::Result<()> {
    change_scheduler(files, |config| config["extenders"] = extender.into_iter().collect())
}

/// Gives kube-scheduler these profiles from its next start on, or its own.
pub fn set_profiles(files: &Files, profiles: Option<Value>) -> anyhow::Result<()> {
    change_scheduler(files, |config| match profiles {
        Some(profiles) => config["profiles"] = profiles,
        None => drop(config.as_object_mut().and_then(|config| config.remove("profiles"))),
    })
}

fn change_scheduler(files: &Files, change: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(files.at(SCHEDULER_CONFIG)).context("reading the scheduler's configuration")?;
    let mut config: Value = serde_json::from_str(&text)?;
    change(&mut config);
    files.write(SCHEDULER_CONFIG, config.to_string()).map(drop)
}

/// `--name=value`.
fn flag(name: &str, value: impl Display) -> String {
    format!("--{name}={value}")
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Prepares the command lines; starts nothing yet.
    pub fn new(
        programs: &Programs,
        files: &Files,
        pki: &Pki,
        ports: &Ports,
        network: &Network,
    ) -> anyhow::Result<Self> {
        let program = |name: &'static str, args| Program::new(name, programs.get(name), args, &files.logs());
        Ok(Self {
            etcd: program("etcd", etcd(files, ports)),
            api: program("kube-apiserver", api(files, pki, ports, network)?),
            controller_manager: program("kube-controller-manager", controller_manager(pki, ports)?),
            scheduler: program("kube-scheduler", scheduler(files, pki, ports)?),
            scheduler_pages: Api::new(pki, ports.scheduler)?,
        })
    }

    /// All of them.
    pub fn programs(&mut self) -> [&mut Program; 4] {
        [&mut self.etcd, &mut self.api, &mut self.controller_manager, &mut self.scheduler]
    }
}

fn etcd(files: &Files, ports: &Ports) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    vec![
        flag("data-dir", files.at("etcd").display()),
        // Pods and GpuNodes of a large cluster change faster than the API server compacts; the default is 2 GiB.
        flag("quota-backend-bytes", 8_u64 << 30),
        // Nothing outlives the run.
        flag("unsafe-no-fsync", true),
        flag("listen-client-urls", &client),
        flag("advertise-client-urls", &client),
        flag("listen-peer-urls", &peer),
        flag("initial-advertise-peer-urls", &peer),
        flag("initial-cluster", format!("default={peer}")),
    ]
}

fn api(files: &Files, pki: &Pki, ports: &Ports, network: &Network) -> anyhow::Result<Vec<String>> {
    let certificate = |flag_name, name| flag(flag_name, pki.certificate(name).display());
    let key = |flag_name, name| flag(flag_name, pki.key(name).display());
    let audited = files.write("audit.yaml", audit::policy().to_string())?;
    Ok(vec![
        flag("audit-policy-file", audited.display()),
        flag("audit-log-path", audit::path(files).display()),
        flag("etcd-servers", format!("http://127.0.0.1:{}", ports.etcd)),
        flag("bind-address", if network.is_own { "0.0.0.0" } else { "127.0.0.1" }),
        flag("advertise-address", network.node),
        flag("secure-port", ports.api),
        // A loopback address can't stand in the Endpoints of the Service kubernetes.
        flag("endpoint-reconciler-type", if network.is_own { "lease" } else { "none" }),
        flag("service-cluster-ip-range", network.services),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        // As divvy-node's DaemonSet asks for it.
        flag("allow-privileged", true),
        certificate("client-ca-file", "ca"),
        certificate("tls-cert-file", "apiserver"),
        key("tls-private-key-file", "apiserver"),
        certificate("kubelet-certificate-authority", "ca"),
        certificate("kubelet-client-certificate", "apiserver-kubelet-client"),
        key("kubelet-client-key", "apiserver-kubelet-client"),
        flag("kubelet-preferred-address-types", "Hostname"),
        flag("service-account-issuer", "https://kubernetes.default.svc"),
        flag("service-account-key-file", pki.key("sa").with_extension("pub").display()),
        key("service-account-signing-key-file", "sa"),
        certificate("requestheader-client-ca-file", "front-proxy-ca"),
        flag("requestheader-allowed-names", "front-proxy-client"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-username-headers", "X-Remote-User"),
        certificate("proxy-client-cert-file", "front-proxy-client"),
        key("proxy-client-key-file", "front-proxy-client"),
    ])
}

fn controller_manager(pki: &Pki, ports: &Ports) -> anyhow::Result<Vec<String>> {
    let kubeconfig = pki.kubeconfig("controller-manager", ports.api)?.display().to_string();
    Ok(vec![
        flag("kubeconfig", &kubeconfig),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag("secure-port", ports.controller_manager),
        flag("leader-elect", false),
        flag("use-service-account-credentials", true),
        flag("service-account-private-key-file", pki.key("sa").display()),
        flag("root-ca-file", pki.certificate("ca").display()),
        flag("kube-api-qps", 500),
        flag("kube-api-burst", 1000),
    ])
}

fn scheduler(files: &Files, pki: &Pki, ports: &Ports) -> anyhow::Result<Vec<String>> {
    let kubeconfig = pki.kubeconfig("scheduler", ports.api)?.display().to_string();
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        // Without them it binds 50 pods a second.
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 10000},
    });
    Ok(vec![
        flag("config", files.write(SCHEDULER_CONFIG, config.to_string())?.display()),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag("secure-port", ports.scheduler),
        // From the first moment on, unlike that of the API server's ConfigMap.
        flag("client-ca-file", pki.certificate("ca").display()),
        // The loopback address is in every certificate.
        flag("tls-cert-file", pki.certificate("apiserver").display()),
        flag("tls-private-key-file", pki.key("apiserver").display()),
    ])
}
