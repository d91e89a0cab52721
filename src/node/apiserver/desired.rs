//! Desired state of this node from the API server: labels and the GpuNode's spec.
//!
//! The last state is kept on disk and stays in effect while the API server is unreachable, so a daemon that restarts doesn't
//! allocate a GPU that was cordoned.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use divvy_api::gpunode::GpuNodeSpec;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tracing::warn;

use divvy_node_core::inventory::Inventory;

/// Labels of the Node and spec of the GpuNode, as last received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Desired {
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// UUIDs of GPUs that accept no new pods, as users wrote them: they may be wrong.
    pub unschedulable_cards: BTreeSet<String>,
    /// `spec.releaseDriver` of the `GpuNode`.
    pub release_driver: bool,
}

/// Labels by which NVIDIA's managers evict the pods that have the driver open, and the values that they set: the driver manager
/// (NVIDIA/k8s-driver-manager, `maybeSetPaused`) and the MIG manager (NVIDIA/mig-parted, `maybeSetPaused`). Of both the newer
/// versions also set that of `client`, which is for programs such as this one.
const DEPLOY_LABELS: &str = "nvidia.com/gpu.deploy.";
const PAUSED: [&str; 2] = ["paused-for-driver-upgrade", "paused-for-mig-change"];

/// Name of the file in the state directory.
pub(crate) const FILE: &str = "desired.json";

// === impl Desired ===

impl Desired {
    /// Reads the state saved last; the default if it can't be read.
    pub fn load(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE);
        let read = fs::read_to_string(&path).and_then(|text| Ok(serde_json::from_str(&text)?));
        read.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                warn!(path = %path.display(), %error, "reading the remembered GpuNode spec and labels failed");
            }
            Self::default()
        })
    }

    /// Saves the state. After a failure it stays in effect until the daemon exits.
    pub fn remember(&self, state_dir: &Path) {
        if let Err(error) = self.save(state_dir) {
            let path = state_dir.display();
            warn!(%path, %error, "saving the GpuNode spec and labels failed");
        }
    }

    /// Synced: a cordon outlives a loss of power.
    fn save(&self, state_dir: &Path) -> io::Result<()> {
        let mut file = NamedTempFile::new_in(state_dir)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.as_file().sync_all()?;
        file.persist(state_dir.join(FILE))?;
        Ok(())
    }

    /// Takes over the spec of a `GpuNode`.
    pub fn take_spec(&mut self, spec: &GpuNodeSpec) {
        let GpuNodeSpec { unschedulable_cards, release_driver } = spec;
        self.unschedulable_cards = unschedulable_cards.iter().cloned().collect();
        self.release_driver = *release_driver;
    }

    /// Reason to release the driver, if it is requested.
    pub fn driver_release(&self) -> Option<String> {
        let is_paused = |(key, value): &(&String, &String)| {
            key.starts_with(DEPLOY_LABELS) && PAUSED.iter().any(|paused| value.contains(paused))
        };
        let paused = || self.labels.iter().find(is_paused).map(|(key, value)| format!("{key}={value}"));
        if self.release_driver { Some("spec.releaseDriver".to_owned()) } else { paused() }
    }

    /// The inventory with cordoned cards: they accept no new pods, and running pods keep their shares.
    #[must_use]
    pub fn apply(&self, mut inventory: Inventory) -> Inventory {
        if self.unschedulable_cards.is_empty() {
            return inventory;
        }
        let node = Arc::make_mut(&mut inventory.node);
        for (card, device) in node.cards.iter_mut().zip(&inventory.devices) {
            if self.unschedulable_cards.iter().any(|uuid| device.is_or_is_of(card, uuid)) {
                card.health = mem::take(&mut card.health).cordoned();
            }
        }
        inventory
    }

    /// Cordoned cards that this node doesn't have.
    pub fn unknown_cards(&self, inventory: &Inventory) -> Vec<String> {
        let is_known = |uuid: &str| inventory.each().any(|(card, device)| device.is_or_is_of(card, uuid));
        self.unschedulable_cards.iter().filter(|uuid| !is_known(uuid)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::{Card, Health, Links, Memory};
    use divvy_node_core::inventory::{DeviceInfo, MigPlace};

    use super::*;

    fn inventory() -> Inventory {
        let card = |name: &str| Card::healthy(name.parse().expect("a UUID"), Memory::mib(1024));
        let gpu = |name: &str| (card(name), DeviceInfo::default());
        let sick = Card { health: Health::unhealthy("XID 79"), ..card("GPU-c") };
        let place = MigPlace { gpu: "GPU-cut".parse().expect("a UUID"), gi: 1, ci: 0 };
        let instance = (card("MIG-d"), DeviceInfo { place: Some(place), ..DeviceInfo::default() });
        Inventory::new([gpu("GPU-a"), gpu("GPU-b"), (sick, DeviceInfo::default()), instance], Links::default())
    }

    fn cordoned(cards: &[&str]) -> Desired {
        let unschedulable_cards = cards.iter().map(|card| (*card).to_owned()).collect();
        Desired { unschedulable_cards, ..Desired::default() }
    }

    fn health(desired: &Desired) -> Vec<String> {
        let inventory = desired.apply(inventory());
        inventory.cards().iter().map(|card| card.health.to_string()).collect()
    }

    #[test]
    fn only_listed_gpus_are_cordoned() {
        assert_eq!(health(&cordoned(&[])), ["healthy", "healthy", "unhealthy: XID 79", "healthy"]);
        let both = cordoned(&["GPU-b", "GPU-c", "GPU-x"]);
        assert_eq!(health(&both), ["healthy", "cordoned", "cordoned; XID 79", "healthy"]);
        assert_eq!(both.unknown_cards(&inventory()), ["GPU-x"]);
    }

    #[test]
    fn cordoned_gpu_cordons_its_instances() {
        let desired = cordoned(&["GPU-cut"]);
        assert_eq!(health(&desired), ["healthy", "healthy", "unhealthy: XID 79", "cordoned"]);
        assert_eq!(desired.unknown_cards(&inventory()), Vec::<String>::new());
    }

    #[test]
    fn driver_is_released_by_spec_or_driver_manager_label() {
        let labelled = |key: &str, value: &str| {
            let labels = [(key.to_owned(), value.to_owned())].into();
            Desired { labels, ..Desired::default() }.driver_release()
        };
        let paused = "nvidia.com/gpu.deploy.device-plugin";
        assert_eq!(labelled(paused, "true"), None);
        assert_eq!(labelled("example.com/state", "paused-for-driver-upgrade"), None);
        for value in ["paused-for-driver-upgrade", "custom_paused-for-driver-upgrade", "paused-for-mig-change"] {
            assert_eq!(labelled(paused, value), Some(format!("{paused}={value}")));
        }
        let client = "nvidia.com/gpu.deploy.client";
        assert_eq!(labelled(client, "paused-for-mig-change"), Some(format!("{client}=paused-for-mig-change")));
        let spec = Desired { release_driver: true, ..Desired::default() };
        assert_eq!(spec.driver_release().as_deref(), Some("spec.releaseDriver"));
    }

    #[test]
    fn desired_state_survives_a_restart() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(Desired::load(directory.path()), Desired::default(), "nothing was said yet");
        let labels = [("pool".to_owned(), "a".to_owned())].into();
        let desired = Desired { labels, release_driver: true, ..cordoned(&["GPU-a", "not a UUID"]) };
        desired.remember(directory.path());
        assert_eq!(Desired::load(directory.path()), desired);
        fs::write(directory.path().join(FILE), "{\"labels\":").expect("written");
        assert_eq!(Desired::load(directory.path()), Desired::default(), "a torn file says nothing");
    }
}
