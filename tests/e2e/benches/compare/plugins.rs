//! Device plugins that get the same work, on a node with eight GPUs of 40 GiB.

use std::path::PathBuf;

use anyhow::Context as _;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::control_plane::configure_scheduler;
use divvy_e2e::daemon::HOST;
use divvy_e2e::node::NODE;
use divvy_e2e::pods;
use divvy_e2e::program::Program;
use divvy_e2e::throwaway::Throwaway;
use divvy_testkit::outside::SLOTS_PER_CARD;
use divvy_testkit::pods::{GPU, PodShape};
use fake_nvml::Scenario;
use serde_json::{Value, json};

use crate::systems::{given, gpushare, hami};

/// The variable that names NVIDIA's device plugin.
const NVIDIA: &str = "DIVVY_COMPARE_NVIDIA";
/// The variable that names gpushare's device plugin.
const GPUSHARE: &str = "DIVVY_COMPARE_GPUSHARE_PLUGIN";
/// The variable that names the library in NVML's place: NVIDIA's own mock, whose default are these GPUs.
const NVML: &str = "DIVVY_COMPARE_NVML";
/// GPUs of the node.
const CARDS: u32 = 8;
/// Memory of each, in GiB.
const CARD_GIB: u32 = 40;
/// … in bytes.
pub(crate) const CARD_MEMORY: u64 = (CARD_GIB as u64) << 30;
/// Devices that the others offer for each GPU.
const REPLICAS: u32 = 16;

/// Who answers the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plugin {
    /// A plugin that answers at once, with nothing.
    AtOnce,
    /// NVIDIA's, with time-slicing.
    Nvidia,
    /// HAMi's, with its scheduler extender.
    Hami,
    /// gpushare's, with its scheduler extender.
    Gpushare,
    /// divvy-node over the stand-in for NVML, without the webhook.
    Divvy,
    /// The same, with reviews and the extender of divvy-webhook.
    DivvyWithExtender,
    /// divvy-node over NVIDIA's mock, without the webhook.
    DivvyOnMock,
}

/// A plugin; what was started ends with it.
pub(crate) struct Started {
    plugin: Plugin,
    program: Option<Program>,
    extender: Option<Program>,
    throwaway: Option<Throwaway>,
}

// === impl Plugin ===

impl Plugin {
    /// Those of `all` whose programs are given; a line says which aren't.
    pub(crate) fn given(all: &[Self]) -> Vec<Self> {
        let missing = |plugin: Self| plugin.needs().iter().find(|variable| std::env::var_os(variable).is_none());
        let is_given = |plugin: &&Self| match missing(**plugin) {
            Some(variable) => {
                println!("  {} is left out: {variable} isn't set", plugin.name());
                false
            }
            None => true,
        };
        all.iter().filter(is_given).copied().collect()
    }

    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::AtOnce | Self::Divvy | Self::DivvyWithExtender => &[],
            Self::Nvidia => &[NVIDIA, NVML],
            Self::Hami => &[hami::DIRECTORY, NVML],
            Self::Gpushare => &[GPUSHARE, gpushare::PROGRAM, NVML],
            Self::DivvyOnMock => &[NVML],
        }
    }

    /// Name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AtOnce => "answers at once",
            Self::Nvidia => "NVIDIA, time-slicing",
            Self::Hami => "HAMi",
            Self::Gpushare => "gpushare",
            Self::Divvy => "Divvy",
            Self::DivvyWithExtender => "Divvy with its extender",
            Self::DivvyOnMock => "Divvy on NVIDIA's mock",
        }
    }

    /// The resource that pods request, and how much of it the node has.
    pub(crate) fn offers(self) -> (&'static str, u32) {
        match self {
            Self::AtOnce | Self::Nvidia | Self::Hami => (GPU, CARDS * REPLICAS),
            Self::Gpushare => (gpushare::MEMORY, CARDS * CARD_GIB),
            Self::Divvy | Self::DivvyWithExtender | Self::DivvyOnMock => (GPU, CARDS * SLOTS_PER_CARD),
        }
    }

    /// A pod with so many MiB and percent of one GPU: gpushare is told GiB alone, two plugins that it is one.
    pub(crate) fn pod(self, name: String, memory: u32, cores: u32) -> anyhow::Result<Value> {
        if self == Self::Gpushare {
            return gpushare::pod(name, memory >> 10);
        }
        let (memory, cores) = (format!("{memory}Mi"), cores.to_string());
        let amounts: &[(&str, &str)] = match self {
            Self::AtOnce | Self::Nvidia => &[("gpu", "1")],
            _ => &[("gpu", "1"), ("gpumem", &memory), ("gpucores", &cores)],
        };
        let shape = PodShape::new(name).with(divvy_api::ContainerKind::App, "main", amounts);
        let mut pod = pods::object(shape)?;
        if matches!(self, Self::AtOnce | Self::Nvidia) {
            pod["spec"]["containers"][0]["resources"] = json!({"limits": {GPU: "1"}});
        }
        Ok(pod)
    }

    /// Whether it is one of ours.
    pub(crate) fn is_divvy(self) -> bool {
        matches!(self, Self::Divvy | Self::DivvyWithExtender | Self::DivvyOnMock)
    }

    /// Prepares its process, and starts nothing. Divvy's is the cluster's own.
    pub(crate) fn prepare(self, cluster: &mut Cluster) -> anyhow::Result<Started> {
        let program = match self {
            Self::AtOnce => None,
            Self::Nvidia => Some(nvidia(cluster)?),
            Self::Hami => Some(hami(cluster)?),
            Self::Gpushare => Some(gpushare(cluster)?),
            Self::Divvy | Self::DivvyWithExtender | Self::DivvyOnMock => {
                let cards = Scenario::uniform(CARDS, "NVIDIA A100-SXM4-40GB", CARD_MEMORY);
                cluster.change_cards(|own| *own = cards)?;
                cluster.scenario.write_sysfs(&cluster.files.at(HOST).join("sys")).context("writing sysfs")?;
                cluster.daemon.configure_anew()?;
                if self == Self::DivvyOnMock {
                    let host = cluster.files.at("mock");
                    fake_nvml::install_driver(&given(NVML, "")?, &host).context("installing the mock of NVML")?;
                    cluster.daemon.configure(&json!({"hostRoot": host}))?;
                }
                None
            }
        };
        Ok(Started { plugin: self, program, extender: None, throwaway: None })
    }

    /// Starts it beside a scheduler that asks the extender that belongs to it, and waits until the kubelet offers its devices.
    pub(crate) async fn start(self, cluster: &mut Cluster) -> anyhow::Result<Started> {
        let mut started = self.prepare(cluster)?;
        let mut entry = None;
        let extender = match self {
            Self::Hami => Some(hami::start(cluster, given(hami::DIRECTORY, "scheduler")?, false).await?),
            Self::Gpushare => Some(gpushare::start(cluster, given(gpushare::PROGRAM, "")?).await?),
            _ => None,
        };
        if let Some((extender, config)) = extender {
            (started.extender, entry) = (Some(extender), Some(config));
        }
        let (resource, devices) = self.offers();
        if let Some(program) = started.program(cluster) {
            program.start()?;
        } else {
            let ids = (0..devices).map(|number| format!("GPU-{}::{number}", number / REPLICAS));
            started.throwaway = Some(Throwaway::start(ids).await?);
        }
        if self.is_divvy() {
            cluster.daemon_ready().await?;
        }
        if self == Self::DivvyWithExtender {
            cluster.start_webhook().await?;
            entry = Some(cluster.extender().await?);
        }
        cluster.until_allocatable(resource, devices.into()).await?;
        configure_scheduler(&cluster.files, entry)?;
        cluster.control_plane.scheduler.kill().await?;
        cluster.control_plane.scheduler.start()?;
        Ok(started)
    }
}

// === impl Started ===

impl Started {
    /// Its process, if it has one.
    pub(crate) fn program<'a>(&'a mut self, cluster: &'a mut Cluster) -> Option<&'a mut Program> {
        if self.plugin.is_divvy() { Some(&mut cluster.daemon.program) } else { self.program.as_mut() }
    }

    /// Ends it.
    pub(crate) async fn stop(mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        if let Some(program) = self.program(cluster) {
            program.kill().await?;
        }
        if let Some(mut extender) = self.extender {
            extender.kill().await?;
        }
        if self.plugin == Plugin::DivvyWithExtender {
            cluster.stop_webhook().await?;
        }
        self.throwaway.map_or(Ok(()), Throwaway::stop)
    }
}

fn nvidia(cluster: &Cluster) -> anyhow::Result<Program> {
    let resources = json!([{"name": GPU, "replicas": REPLICAS}]);
    let config = json!({"version": "v1", "sharing": {"timeSlicing": {"resources": resources}}});
    let config = cluster.files.write("nvidia.json", config.to_string())?;
    let args = vec![format!("--config-file={}", config.display())];
    let program = Program::new("nvidia-device-plugin", given(NVIDIA, "")?, args, &cluster.files.logs());
    Ok(program.env("LD_LIBRARY_PATH", library_path(cluster)?.display().to_string()))
}

/// What its image puts on the node is there, and empty: no container here loads it.
fn hami(cluster: &Cluster) -> anyhow::Result<Program> {
    let hook = cluster.files.directory("hami")?;
    cluster.files.directory("hami/vgpu")?;
    for name in ["libvgpu.so", "ld.so.preload"] {
        cluster.files.write(format!("hami/vgpu/{name}"), "")?;
    }
    let devices = cluster.files.write("hami-plugin-devices.json", hami::device_config(REPLICAS).to_string())?;
    let args = vec![format!("--config-file={}", devices.display())];
    let path = given(hami::DIRECTORY, "nvidia-device-plugin")?;
    let program = Program::new("hami-device-plugin", path, args, &cluster.files.logs());
    Ok(program
        .env("KUBECONFIG", cluster.kubectl.kubeconfig().display().to_string())
        .env("NODE_NAME", NODE)
        .env("HOOK_PATH", hook.display().to_string())
        .env("LD_LIBRARY_PATH", library_path(cluster)?.display().to_string()))
}

/// Its API client finds the pods; the token is for a kubelet that it doesn't ask by default.
fn gpushare(cluster: &Cluster) -> anyhow::Result<Program> {
    let args = ["-logtostderr", "-memory-unit=GiB", "-token=none"].map(str::to_owned).to_vec();
    let program = Program::new("gpushare-device-plugin", given(GPUSHARE, "")?, args, &cluster.files.logs());
    Ok(program
        .env("KUBECONFIG", cluster.kubectl.kubeconfig().display().to_string())
        .env("NODE_NAME", NODE)
        .env("LD_LIBRARY_PATH", library_path(cluster)?.display().to_string()))
}

/// A directory with the mock under the name that programs load.
fn library_path(cluster: &Cluster) -> anyhow::Result<PathBuf> {
    let directory = cluster.files.directory("nvml")?;
    std::fs::copy(given(NVML, "")?, directory.join("libnvidia-ml.so.1")).context("copying the library of NVML")?;
    Ok(directory)
}
