//! containerd, the kubelet, and what they have to offer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use divvy_testkit::outside::SLOTS_PER_CARD;
use divvy_testkit::pods::GPU;
use fake_nvml::Scenario;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use crate::certs::Pki;
use crate::files::{Files, Ports, Programs};
use crate::image::{self, FileOfImage};
use crate::network::Network;
use crate::program::Program;

/// Name of the one node.
pub const NODE: &str = "node-a";
/// Cards of the node.
pub const CARDS: u32 = 16;
/// Bytes of each.
pub const CARD_MEMORY: u64 = 80 << 30;
/// Pods that it runs at most.
const MOST_PODS: u32 = 250;
/// JSON is YAML.
const KUBELET_CONFIG: &str = "kubelet.yaml";
/// How long the kubelet trusts a review of a token, or of what its owner may do. Short, so that an API server that is
/// away for seconds is to the kubelet's clients what one away for an hour is; its own default is 2 and 5 minutes.
const REVIEWS_HOLD: &str = "10s";

/// All that the node has to offer, by resource.
pub fn whole() -> [(&'static str, u64); 4] {
    of_cards(CARDS.into(), u64::from(CARDS) * (CARD_MEMORY >> 20))
}

/// All that a node with these cards has to offer, by resource.
pub(crate) fn whole_of(scenario: &Scenario) -> [(&'static str, u64); 4] {
    let memory = scenario.cards.iter().map(|card| card.memory_total >> 20).sum();
    of_cards(scenario.cards.len() as u64, memory)
}

/// What a node with so many cards has to offer, which have so many MiB together.
pub fn of_cards(cards: u64, mib: u64) -> [(&'static str, u64); 4] {
    [
        (GPU, cards * u64::from(SLOTS_PER_CARD)),
        ("nvidia.com/gpumem", mib),
        ("nvidia.com/gpumem-percentage", cards * 100),
        ("nvidia.com/gpucores", cards * 100),
    ]
}

/// containerd with its images.
#[derive(Debug)]
pub struct Containerd {
    /// The process.
    pub program: Program,
    ctr: PathBuf,
    socket: PathBuf,
}

// === impl Containerd ===

impl Containerd {
    /// Writes its configuration.
    pub fn new(programs: &Programs, files: &Files, network: &Network) -> anyhow::Result<Self> {
        files.directory("cni/bin")?;
        files.directory("cni/net.d")?;
        files.write("cni/net.d/10-pods.conflist", network.pods(files).to_string())?;
        let config = files.write("containerd.toml", configuration(programs, files, &network.plugins(files)))?;
        let args = vec!["--config".to_owned(), config.display().to_string()];
        let program = Program::new("containerd", programs.get("containerd"), args, &files.logs());
        // It finds its shims in PATH.
        let program = program.env("PATH", programs.path());
        Ok(Self { program, ctr: programs.get("ctr"), socket: files.at("containerd.sock") })
    }

    /// Whether it answers.
    pub async fn answers(&self) -> bool {
        self.ctr(&["version"]).await.is_ok()
    }

    /// Makes the two images and imports them.
    pub async fn import_images(&self, programs: &Programs, files: &Files) -> anyhow::Result<()> {
        let sleep = ["/bin/busybox", "sleep", "2147483647"];
        self.import(programs, files, image::WORK, &["/bin/busybox", "sh"], &[]).await?;
        self.import(programs, files, image::SANDBOX, &sleep, &[]).await
    }

    /// Makes an image with these files beside busybox, and imports it.
    pub async fn import(
        &self,
        programs: &Programs,
        files: &Files,
        name: &str,
        entrypoint: &[&str],
        content: &[FileOfImage],
    ) -> anyhow::Result<()> {
        let archive = image::archive(&programs.get("busybox"), name, entrypoint, content)?;
        self.import_archive(&files.write("image.tar", archive)?).await
    }

    /// Imports the images of an archive.
    pub async fn import_archive(&self, archive: &Path) -> anyhow::Result<()> {
        self.ctr(&["-n", "k8s.io", "images", "import", "--local", &archive.display().to_string()]).await
    }

    /// Gives an image another name, both without a registry.
    pub async fn tag(&self, image: &str, name: &str) -> anyhow::Result<()> {
        let [image, name] = [image, name].map(|name| format!("docker.io/library/{name}"));
        self.ctr(&["-n", "k8s.io", "images", "tag", "--force", &image, &name]).await
    }

    async fn ctr(&self, args: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.ctr);
        command.arg("-a").arg(&self.socket).args(args).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await.context("ctr hangs")??;
        if !output.status.success() {
            bail!("ctr {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

fn configuration(programs: &Programs, files: &Files, plugins: &Path) -> String {
    let path = |name: &str| files.at(name).display().to_string();
    let (root, state, socket) = (path("containerd-root"), path("containerd-state"), path("containerd.sock"));
    let (cdi, bin, net) = (path("cdi"), plugins.display(), path("cni/net.d"));
    let (runc, sandbox) = (programs.runc.display(), image::SANDBOX);
    format!(
        r#"version = 3
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]

[grpc]
  address = "{socket}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{sandbox}"

[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["{cdi}"]
  disable_apparmor = true
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{bin}"]
  conf_dir = "{net}"

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false
"#
    )
}

/// Sets these keys of the kubelet's configuration from its next start on.
pub fn configure_kubelet(files: &Files, keys: &Value) -> anyhow::Result<()> {
    let text = std::fs::read(files.at(KUBELET_CONFIG)).context("reading the kubelet's configuration")?;
    let mut config: Map<String, Value> = serde_json::from_slice(&text)?;
    config.extend(keys.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    files.write(KUBELET_CONFIG, Value::from(config).to_string()).map(drop)
}

/// The kubelet. Its pods live below `cgroup`.
pub fn kubelet(
    programs: &Programs,
    files: &Files,
    pki: &Pki,
    ports: &Ports,
    network: &Network,
    cgroup: &str,
) -> anyhow::Result<Program> {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node,
        "port": ports.kubelet,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "containerRuntimeEndpoint": format!("unix://{}", files.at("containerd.sock").display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": false,
        "failSwapOn": false,
        // The test must not fail for a full disk, and nothing here uses the network.
        "evictionHard": {},
        "localStorageCapacityIsolation": false,
        "resolvConf": "",
        "registryPullQPS": 0,
        "serializeImagePulls": false,
        "maxPods": MOST_PODS,
        "podLogsDir": files.directory("pod-logs")?,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true, "cacheTTL": REVIEWS_HOLD},
            "x509": {"clientCAFile": pki.certificate("ca")},
        },
        "authorization": {
            "mode": "Webhook",
            "webhook": {"cacheAuthorizedTTL": REVIEWS_HOLD, "cacheUnauthorizedTTL": "1s"},
        },
        "tlsCertFile": pki.certificate("kubelet-server"),
        "tlsPrivateKeyFile": pki.key("kubelet-server"),
        "nodeStatusUpdateFrequency": "2s",
    });
    let config = files.write(KUBELET_CONFIG, config.to_string())?;
    let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
    let mut args = vec![
        flag("config", config),
        flag("kubeconfig", pki.kubeconfig("node", ports.api)?),
        flag("cert-dir", files.directory("pki/kubelet")?),
        "--root-dir=/var/lib/kubelet".to_owned(),
        format!("--hostname-override={NODE}"),
    ];
    if network.is_own {
        args.push(format!("--node-ip={}", network.node));
    }
    let kubelet = Program::new("kubelet", programs.get("kubelet"), args, &files.logs());
    Ok(kubelet.env("PATH", programs.path()))
}
