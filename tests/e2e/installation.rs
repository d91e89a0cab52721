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

/// The version to upgrade from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Older {
    /// Root of its source.
    pub source: PathBuf,
    /// Archives of the version.
    pub images: Images,
}

/// Root of the source.
pub const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Says how Divvy is installed: `processes`, `manifests` or `chart`.
const VARIABLE: &str = "DIVVY_E2E_INSTALLATION";
/// Names the directory that `hack/image` wrote to.
const IMAGES: &str = "DIVVY_E2E_IMAGES";
/// Names the source of the version to upgrade from, with its images in `target/images`.
const OLDER: &str = "DIVVY_E2E_OLDER";

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

    /// Whether a run has to be of this installation, and isn't to be passed over for want of anything.
    pub fn is_demanded() -> bool {
        std::env::var_os(VARIABLE).is_some()
    }

    /// Images of the programs, where these are pods.
    pub fn images(&self) -> anyhow::Result<&Images> {
        match self {
            Self::Manifests(images) | Self::Chart(images, _) => Ok(images),
            Self::Processes => bail!("the programs are processes: they have no images"),
        }
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
        Self::of(&directory.with_context(|| format!("{variable} isn't set: it names the directory of hack/image"))?)
    }

    fn of(directory: &Path) -> anyhow::Result<Self> {
        let images = Self { directory: directory.canonicalize().with_context(|| directory.display().to_string())? };
        images.archives().try_for_each(|archive| {
            let found = archive.is_file();
            found.then_some(()).with_context(|| format!("no {}: hack/image writes it", archive.display()))
        })?;
        Ok(images)
    }

    /// The version to upgrade from; where none is named, this one under another name.
    pub fn older(&self) -> anyhow::Result<Older> {
        let Some(source) = std::env::var_os(OLDER).map(PathBuf::from) else {
            return Ok(Older { source: PathBuf::from(SOURCE), images: self.clone() });
        };
        let images = Self::of(&source.join("target/images"))?;
        Ok(Older { source: source.canonicalize()?, images })
    }

    /// The files of what every installation has.
    pub fn archives(&self) -> impl Iterator<Item = PathBuf> {
        ["divvy-node", "divvy-webhook"].into_iter().map(|name| self.at(name))
    }

    /// The file of divvy-mps, which is optional.
    pub fn mps(&self) -> PathBuf {
        self.at("divvy-mps")
    }

    fn at(&self, name: &str) -> PathBuf {
        let arch = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
        Path::new(&self.directory).join(format!("{name}-{arch}.tar"))
    }
}
