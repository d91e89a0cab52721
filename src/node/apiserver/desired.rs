//! Desired state of this node from the API server: labels and the GpuNode's spec.
//!
//! The last state is kept on disk and stays in effect while the API server is unreachable, so a daemon that restarts doesn't
//! allocate a GPU that was cordoned.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use divvy_api::gpunode::{CORDONED, GpuNodeSpec};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tracing::warn;

use divvy_node_core::inventory::{CardHealth, CardInfo, Inventory};

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

    /// The inventory with cordoned GPUs unhealthy: they accept no new pods, and running pods keep their shares.
    pub fn cordon(&self, inventory: &Arc<Inventory>) -> Arc<Inventory> {
        let cordoned = |card: &CardInfo| self.unschedulable_cards.iter().any(|uuid| means(uuid, card));
        if !inventory.cards.iter().any(cordoned) {
            return Arc::clone(inventory);
        }
        let mut inventory = Inventory::clone(inventory);
        for card in inventory.cards.iter_mut().filter(|card| cordoned(card)) {
            let reason = match &card.health {
                CardHealth::Healthy => CORDONED.to_owned(),
                CardHealth::Unhealthy { reason } => format!("{CORDONED}; {reason}"),
            };
            card.health = CardHealth::Unhealthy { reason };
        }
        Arc::new(inventory)
    }

    /// Cordoned cards that this node doesn't have.
    pub fn unknown_cards(&self, inventory: &Inventory) -> Vec<String> {
        let known = |uuid: &str| inventory.cards.iter().any(|card| means(uuid, card));
        self.unschedulable_cards.iter().filter(|uuid| !known(uuid)).cloned().collect()
    }
}

/// Whether a UUID is the card's, or that of the GPU whose instance it is.
fn means(uuid: &str, card: &CardInfo) -> bool {
    card.id.as_str() == uuid || card.mig.as_ref().is_some_and(|mig| mig.parent.as_str() == uuid)
}

#[cfg(test)]
mod tests {
    use divvy_api::Memory;

    use super::*;
    use divvy_node_core::inventory::MigInstance;

    fn inventory() -> Arc<Inventory> {
        let card = |name: &str, health| CardInfo {
            health,
            ..CardInfo::healthy(name.parse().expect("a UUID"), Memory::mib(1024))
        };
        let sick = CardHealth::Unhealthy { reason: "XID 79".to_owned() };
        let healthy = CardHealth::Healthy;
        let cards = vec![card("GPU-a", healthy.clone()), card("GPU-b", healthy), card("GPU-c", sick)];
        Arc::new(Inventory { cards, ..Inventory::default() })
    }

    fn cordoned(cards: &[&str]) -> Desired {
        let unschedulable_cards = cards.iter().map(|card| (*card).to_owned()).collect();
        Desired { unschedulable_cards, ..Desired::default() }
    }

    #[test]
    fn cordon_makes_only_listed_gpus_unhealthy() {
        let health = |desired: &Desired| {
            let inventory = desired.cordon(&inventory());
            inventory.cards.iter().map(|card| card.health.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(health(&cordoned(&[])), ["healthy", "healthy", "unhealthy: XID 79"]);
        let both = cordoned(&["GPU-b", "GPU-c", "GPU-x"]);
        assert_eq!(health(&both), ["healthy", "unhealthy: cordoned", "unhealthy: cordoned; XID 79"]);
        assert_eq!(both.unknown_cards(&inventory()), ["GPU-x"]);
    }

    #[test]
    fn cordoned_gpu_cordons_its_instances() {
        let mut inventory = Inventory::clone(&inventory());
        let [profile, parent] = ["1g.10gb", "GPU-cut"];
        inventory.cards[1].mig = Some(MigInstance {
            profile: profile.parse().expect("a profile"),
            parent: parent.parse().expect("a UUID"),
            gi: 1,
            ci: 0,
            by_profile: true,
        });
        let inventory = Arc::new(inventory);
        let desired = cordoned(&["GPU-cut"]);
        assert_eq!(desired.cordon(&inventory).cards[1].health.to_string(), "unhealthy: cordoned");
        assert_eq!(desired.unknown_cards(&inventory), Vec::<String>::new());
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
