//! CDI specification: device nodes, mounts and hooks that the container runtime adds for each GPU (CDI 0.5, `SPEC.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use divvy_api::CardId;
use serde::Serialize;

use super::ContainerOptions;
use super::capabilities::MigMinors;
use super::driver::{CONTROL_NODE, CUDA, Driver, Numbers, SHARED_NODES};
use crate::config::AbsolutePath;
use divvy_node_core::inventory::{DeviceInfo, Inventory, MigPlace};

/// Vendor and class of every name.
const KIND: &str = "divvy.dev/gpu";

/// Name of the file in the CDI directory.
pub(super) const FILE_NAME: &str = "divvy.dev-gpu.json";

/// Qualified name of a card's CDI device.
pub(super) fn qualified(card: &CardId) -> String {
    format!("{KIND}={card}")
}

/// Content of the specification file. Runtimes refuse fields that are newer than `cdi_version`.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
    container_edits: Edits,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<DeviceNode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Mount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<Hook>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_path: Option<PathBuf>,
    /// `c`; without it the runtime looks at the node itself.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    major: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    permissions: &'static str,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: [&'static str; 5],
}

#[derive(Debug, PartialEq, Serialize)]
struct Hook {
    #[serde(rename = "hookName")]
    stage: &'static str,
    path: PathBuf,
    args: Vec<String>,
}

/// A specification, and facts about it that aren't part of the file.
#[derive(Debug)]
pub(super) struct Draft {
    pub spec: Spec,
    /// Cards that the specification names.
    pub cards: BTreeSet<CardId>,
    /// MIG instances that no container could use, and why.
    pub refused: BTreeMap<CardId, String>,
    /// What a container would lack, as far as the daemon can see.
    pub lacks: Option<String>,
}

/// The directory whose `dev` has the device nodes.
struct NodesPlace {
    /// On the host.
    host: PathBuf,
    /// In the daemon's filesystem.
    seen: PathBuf,
}

// === impl Draft ===

impl Draft {
    /// Collects the files and device nodes that containers with these cards need.
    pub(super) fn new(options: &ContainerOptions, inventory: &Inventory) -> Self {
        let seen = options.driver_root.on_host(&options.host_root);
        let driver = Driver::find(&options.driver_root, &seen);
        let place = NodesPlace::find(options, &seen);
        let minors = MigMinors::read(&options.procfs);
        let mut named = BTreeMap::new();
        let mut refused = BTreeMap::new();
        for (card, device) in inventory.each() {
            match nodes(&place, &minors, &card.id, device) {
                None => {}
                Some(Ok(nodes)) => drop(named.insert(card.id.clone(), nodes)),
                Some(Err(problem)) => drop(refused.insert(card.id.clone(), problem)),
            }
        }
        let cards = named.keys().cloned().collect();
        let devices = named.into_iter().map(|(card, device_nodes)| Device {
            name: card.to_string(),
            container_edits: Edits { device_nodes, ..Edits::default() },
        });
        let devices: Vec<Device> = devices.collect();
        let lacks = lacks(&seen, &driver, &devices);
        if driver.library_directory.is_none() {
            // Then NVIDIA's runtime delivers, which makes these nodes itself.
            refused.clear();
        }
        let spec = Spec {
            // `hostPath` of a device node came with 0.5; nothing else here is younger than 0.3.
            cdi_version: if place.host == Path::new("/") { "0.3.0" } else { "0.5.0" },
            kind: KIND,
            devices,
            container_edits: common(options, &place, &driver),
        };
        Self { spec, cards, refused, lacks }
    }
}

fn lacks(driver_root: &Path, driver: &Driver, devices: &[Device]) -> Option<String> {
    if driver.library_directory.is_none() {
        let root = driver_root.display();
        return Some(format!("{CUDA} is in none of the usual directories under {root}"));
    }
    let mut nodes = devices.iter().flat_map(|device| &device.container_edits.device_nodes).peekable();
    if nodes.peek().is_none() {
        return Some("no GPU has a known device node".to_owned());
    }
    let unseen = nodes.find(|node| node.kind.is_none())?;
    Some(format!("{} is no device node", unseen.host_path.as_ref().unwrap_or(&unseen.path).display()))
}

/// A card's nodes, if CDI can name the card: its minor number is known, and an instance in the driver's old spelling has slashes. An error says why a
/// container that is given them could not use the instance.
fn nodes(
    place: &NodesPlace,
    minors: &MigMinors,
    id: &CardId,
    device: &DeviceInfo,
) -> Option<Result<Vec<DeviceNode>, String>> {
    let gpu = device.minor.filter(|_| !id.as_str().contains('/'))?;
    let whole = DeviceNode::new(place, &format!("nvidia{gpu}"));
    let Some(MigPlace { gi, ci, .. }) = device.place else { return Some(Ok(vec![whole])) };
    let guards = minors.nodes(gpu, gi, ci).and_then(|capabilities| guards(place, capabilities));
    Some(guards.map(|guards| [whole].into_iter().chain(guards).collect()))
}

/// The nodes that guard an instance, by their names and the files for which nvidia-modprobe makes them.
fn guards(place: &NodesPlace, capabilities: [(String, String); 2]) -> Result<Vec<DeviceNode>, String> {
    let mut guards = Vec::new();
    for (name, access) in capabilities {
        let node = DeviceNode::new(place, &name);
        if node.kind.is_none() {
            let path = node.host_path.as_ref().unwrap_or(&node.path).display();
            return Err(format!("{path} is no device node: make it with nvidia-modprobe -f {access}"));
        }
        guards.push(node);
    }
    Ok(guards)
}

/// Edits of a container with any card.
fn common(options: &ContainerOptions, place: &NodesPlace, driver: &Driver) -> Edits {
    let nodes = SHARED_NODES.iter().map(|name| DeviceNode::new(place, name));
    let mounts = driver.files.iter().map(|file| Mount {
        host_path: file.host.clone(),
        container_path: file.container.clone(),
        options: ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    });
    Edits {
        // The hook of NVIDIA's runtime would otherwise add the cards that the image's own variable names.
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()],
        device_nodes: nodes.filter(|node| node.kind.is_some()).collect(),
        mounts: mounts.collect(),
        hooks: hooks(&options.nvidia_cdi_hook, driver),
    }
}

/// Many programs load `libcuda.so`, which no library's own name leads to; and the loader's cache knows no new library.
fn hooks(program: &Path, driver: &Driver) -> Vec<Hook> {
    let Some(directory) = driver.library_directory.as_ref().filter(|_| program.is_file()) else { return Vec::new() };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let hook = |verb: &str, flag: &str, value: String| Hook {
        stage: "createContainer",
        path: program.to_owned(),
        args: vec![name.to_string(), verb.to_owned(), flag.to_owned(), value],
    };
    let directory = directory.display();
    vec![
        hook("create-symlinks", "--link", format!("{CUDA}::{directory}/libcuda.so")),
        hook("update-ldcache", "--folder", directory.to_string()),
    ]
}

// === impl NodesPlace ===

impl NodesPlace {
    /// Below the driver's root where it has the node of the driver itself, as a driver container has; else the host's own.
    fn find(options: &ContainerOptions, driver_root: &AbsolutePath) -> Self {
        if Numbers::read(&driver_root.join("dev").join(CONTROL_NODE)).is_some() {
            return Self { host: options.driver_root.to_path_buf(), seen: driver_root.to_path_buf() };
        }
        Self { host: "/".into(), seen: options.host_root.to_path_buf() }
    }
}

// === impl DeviceNode ===

impl DeviceNode {
    fn new(place: &NodesPlace, name: &str) -> Self {
        let below = |root: &Path| root.join("dev").join(name);
        let host = below(&place.host);
        let path = below(Path::new("/"));
        let numbers = Numbers::read(&below(&place.seen));
        Self {
            host_path: (host != path).then_some(host),
            path,
            kind: numbers.map(|_| "c"),
            major: numbers.map(|numbers| numbers.major),
            minor: numbers.map(|numbers| numbers.minor),
            permissions: "rw",
        }
    }
}
