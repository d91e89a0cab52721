//! How Divvy comes into the cluster: as processes beside the kubelet, or as users install it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::files::Programs;
use crate::network::Network;

/// How Divvy is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installation {
    /// Processes of the test, which can be killed at any point. The rest of the manifests is applied.
    Processes,
    /// Pods, by `kubectl apply -f deploy/manifests/`.
    Manifests(Images),
    /// Pods, by this `helm install` with the chart.
    Chart(Images, PathBuf),
}

/// Archives of `hack/image`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    directory: PathBuf,
}

/// Says how Divvy is installed: `processes`, `manifests` or `chart`.
const VARIABLE: &str = "DIVVY_E2E_INSTALLATION";
/// Names the directory that `hack/image` wrote to.
const IMAGES: &str = "DIVVY_E2E_IMAGES";
/// Names one with images of an older version, to upgrade from; without it, the same images are taken for another version.
const OLD_IMAGES: &str = "DIVVY_E2E_OLD_IMAGES";

// === impl Installation ===

impl Installation {
    /// By the environment; the error says what is missing.
    pub fn find(programs: &Programs) -> anyhow::Result<Self> {
        let chosen = std::env::var(VARIABLE).unwrap_or_else(|_| "processes".to_owned());
        let installation = match &*chosen {
            "processes" => Self::Processes,
            "manifests" => Self::Manifests(Images::find(IMAGES)?),
            "chart" => Self::Chart(Images::find(IMAGES)?, helm()?),
            other => bail!("{VARIABLE} {other:?}: expected processes, manifests or chart"),
        };
        installation.network().check(programs)?;
        Ok(installation)
    }

    /// Whether the programs are pods.
    pub fn is_of_pods(&self) -> bool {
        *self != Self::Processes
    }

    /// Network that it takes.
    pub fn network(&self) -> Network {
        if self.is_of_pods() { Network::OWN } else { Network::LOOPBACK }
    }
}

fn helm() -> anyhow::Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || std::env::split_paths(&paths).map(|place| place.join("helm")).find(|program| program.is_file());
    std::env::var_os("HELM").map(PathBuf::from).or_else(in_path).context("no helm: HELM names it, or PATH has it")
}

// === impl Images ===

impl Images {
    fn find(variable: &str) -> anyhow::Result<Self> {
        let directory = std::env::var_os(variable).map(PathBuf::from);
        let directory =
            directory.with_context(|| format!("{variable} isn't set: it names the directory of hack/image"))?;
        let images = Self { directory: directory.canonicalize().with_context(|| directory.display().to_string())? };
        images.archives().try_for_each(|archive| {
            let found = archive.is_file();
            found.then_some(()).with_context(|| format!("no {}: hack/image writes it", archive.display()))
        })?;
        Ok(images)
    }

    /// Those of another version.
    pub fn of_another_version(&self) -> anyhow::Result<Self> {
        if std::env::var_os(OLD_IMAGES).is_some() { Self::find(OLD_IMAGES) } else { Ok(self.clone()) }
    }

    /// The files of what every installation has.
    pub fn archives(&self) -> impl Iterator<Item = PathBuf> {
        ["divvy-node", "divvy-webhook"].into_iter().map(|name| self.at(name))
    }

    /// The file of divvy-apiserver, which is optional.
    pub fn apiserver(&self) -> PathBuf {
        self.at("divvy-apiserver")
    }

    fn at(&self, name: &str) -> PathBuf {
        let arch = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
        Path::new(&self.directory).join(format!("{name}-{arch}.tar"))
    }
}
