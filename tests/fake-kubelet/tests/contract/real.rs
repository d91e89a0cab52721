//! The real kubelet beside a real containerd, without an API server: pods come as files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use divvy_e2e::certs::Pki;
use divvy_e2e::daemon::{PLUGIN_DIRECTORY, POD_RESOURCES};
use divvy_e2e::files::{Files, Ports, Programs};
use divvy_e2e::network::Network;
use divvy_e2e::node::{self, Containerd, NODE};
use divvy_e2e::program::Program;
use divvy_e2e::{namespace, pods, view};
use divvy_testkit::pods::PodShape;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::kubelet::KubeletUnderTest;
use crate::stand_in;

pub(crate) struct Real {
    files: Files,
    ports: Ports,
    pki: Pki,
    kubelet: Program,
    containerd: Containerd,
}

// === impl Real ===

impl Real {
    /// Starts both; `_directory` is for kubelets whose directories can be moved.
    pub(crate) async fn start(files: Files, _directory: &Path) -> Box<dyn KubeletUnderTest> {
        let programs = Programs::find().expect("the outer process has found them");
        files.directory("logs").expect("a directory");
        let first = !files.at("containerd.toml").exists();
        if first {
            namespace::mount(&files, NODE, &Network::LOOPBACK).expect("mounts");
        }
        let cgroup = format!("/{}", files.at("").file_name().unwrap_or_default().to_string_lossy());
        let (ports, pki) =
            (Ports::free().expect("ports"), Pki::create(&files, NODE, &Network::LOOPBACK).expect("certificates"));
        let mut containerd = Containerd::new(&programs, &files, &Network::LOOPBACK).expect("a configuration");
        containerd.program.start().expect("containerd starts");
        while !containerd.answers().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if first {
            containerd.import_images(&programs, &files).await.expect("images");
        }
        let kubelet = kubelet(&programs, &files, &pki, &ports, &cgroup).expect("a configuration");
        let mut real = Self { files, ports, pki, kubelet, containerd };
        real.clear();
        real.kubelet.start().expect("the kubelet starts");
        real.is_up().await;
        Box::new(real)
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.files.at(format!("static-pods/{name}.json"))
    }

    /// Removes what the last kubelet knew.
    fn clear(&self) {
        for directory in [self.files.at("static-pods"), PLUGIN_DIRECTORY.into()] {
            std::fs::remove_dir_all(&directory).unwrap_or_default();
            std::fs::create_dir_all(&directory).expect("a directory");
        }
    }

    async fn is_up(&self) {
        let socket = self.plugin_dir().join("kubelet.sock");
        while tokio::net::UnixStream::connect(&socket).await.is_err() || self.list().await.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn list(&self) -> Option<Vec<Pod>> {
        stand_in::list(([127, 0, 0, 1], self.ports.kubelet).into(), &self.pki.certificate("ca"), "").await
    }
}

/// A kubelet that runs what lies in a directory, and lets everybody ask.
fn kubelet(programs: &Programs, files: &Files, pki: &Pki, ports: &Ports, cgroup: &str) -> anyhow::Result<Program> {
    drop(node::kubelet(programs, files, pki, ports, &Network::LOOPBACK, cgroup)?);
    let manifests = files.directory("static-pods")?;
    node::configure_kubelet(
        files,
        &json!({
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "fileCheckFrequency": "1s",
            "staticPodPath": manifests,
        }),
    )?;
    let args = vec![
        format!("--config={}", files.at("kubelet.yaml").display()),
        format!("--cert-dir={}", files.directory("pki/kubelet")?.display()),
        "--root-dir=/var/lib/kubelet".to_owned(),
        format!("--hostname-override={NODE}"),
    ];
    let kubelet = Program::new("kubelet", programs.get("kubelet"), args, &files.logs());
    Ok(kubelet.env("PATH", programs.path()))
}

#[tonic::async_trait]
impl KubeletUnderTest for Real {
    fn plugin_dir(&self) -> PathBuf {
        PLUGIN_DIRECTORY.into()
    }

    fn pod_resources_socket(&self) -> PathBuf {
        POD_RESOURCES.into()
    }

    fn minor_version(&self) -> u32 {
        let programs = Programs::find().expect("the outer process has found them");
        let said = std::process::Command::new(programs.get("kubelet")).arg("--version").output().expect("it starts");
        let said = String::from_utf8(said.stdout).expect("text");
        view::minor_version(said.trim().trim_start_matches("Kubernetes ")).expect("a version")
    }

    async fn add(&mut self, shape: &PodShape) {
        let mut pod = pods::plain(shape);
        pod["metadata"]["namespace"] = json!("default");
        // In one step, or the kubelet would read half a file.
        let draft = self.files.write(format!("{}.draft", shape.name), pod.to_string()).expect("a manifest");
        std::fs::rename(draft, self.manifest(&shape.name)).expect("a manifest");
    }

    async fn delete(&mut self, name: &str) {
        std::fs::remove_file(self.manifest(name)).expect("it is there");
    }

    async fn pods(&self) -> Vec<Pod> {
        let mut pods = self.list().await.unwrap_or_default();
        for name in pods.iter_mut().filter_map(|pod| pod.metadata.name.as_mut()) {
            *name = name.trim_end_matches(&format!("-{NODE}")).to_owned();
        }
        pods
    }

    fn own_name(&self, name: &str) -> String {
        format!("{name}-{NODE}")
    }

    async fn restart(&mut self, lose_checkpoint: bool) {
        self.kubelet.kill().await.expect("it runs");
        if lose_checkpoint {
            std::fs::remove_file(self.plugin_dir().join("kubelet_internal_checkpoint")).expect("it is there");
        }
        self.kubelet.start().expect("it starts again");
        self.is_up().await;
    }

    async fn end(mut self: Box<Self>) {
        for entry in std::fs::read_dir(self.files.at("static-pods")).expect("a directory").flatten() {
            std::fs::remove_file(entry.path()).unwrap_or_default();
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while self.list().await.is_none_or(|pods| !pods.is_empty()) && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.kubelet.kill().await.expect("it runs");
        self.containerd.program.kill().await.expect("it runs");
    }
}
