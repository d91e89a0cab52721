//! A node: the kubelet's device manager and pods, and the daemon, one step at a time.

mod admission;
mod deaths;
mod kubelet;
mod pods;

use divvy_api::gpunode::Oversubscription;
use divvy_api::{Card, Health, SlotId};
use divvy_node_core::allocator::{ListRequest, Refusal};
use fake_kubelet::devices::{Devices, Ids};
use proptest::prelude::*;
use proptest::sample::Index;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

pub(crate) use self::deaths::Death;
pub(crate) use self::pods::{ListedPod, resource};
use crate::daemon::{Daemon, Disk, Shown, cards};
use crate::seen;
use crate::shapes::HOST_MEMORY;

/// All of it. The kubelet's side, the pods' and the deaths are the submodules'.
pub(crate) struct Node {
    pub(crate) disk: Disk,
    /// `None` for a moment, while it is dead.
    daemon: Option<Daemon>,
    pub(crate) cards: Vec<Card>,
    pub(crate) devices: Devices,
    pub(crate) pods: Vec<ListedPod>,
    /// The kubelet has listed all its pods.
    sources_ready: bool,
    /// All IDs of the daemon's last list.
    pub(crate) listed: Ids,
    /// A list that the daemon has asked for and that is under way.
    late: Option<(Shown, ListRequest)>,
    rng: StdRng,
    born: u32,
    /// The kubelet refuses its list.
    pub(crate) refuses_list: bool,
    /// Starts of the kubelet: connections to one are of no use for the next.
    boots: u64,
}

// === impl Node ===

impl Node {
    pub(crate) fn new(seed: u64, volume_mounts: bool, memory_scale: u32, differ: bool) -> Self {
        let oversubscription =
            (memory_scale > 100).then_some(Oversubscription { memory_scale, host_memory: HOST_MEMORY });
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk { directory, volume_mounts, oversubscription };
        let mut node = Self {
            daemon: None,
            disk,
            cards: cards(differ),
            devices: Devices::default(),
            pods: Vec::new(),
            sources_ready: true,
            listed: Ids::new(),
            late: None,
            rng: StdRng::seed_from_u64(seed),
            born: 0,
            refuses_list: false,
            boots: 1,
        };
        node.start_daemon().unwrap();
        node
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    pub(crate) fn look(&mut self) -> Result<(), TestCaseError> {
        let shown = self.shown();
        let looked = self.daemon().look(&shown);
        prop_assert!(looked.is_ok(), "{looked:?}");
        if shown.settled {
            self.nothing_leaked()?;
        }
        Ok(())
    }

    /// The daemon asks for a list, which arrives with [`Self::hear_late`].
    pub(crate) fn ask_late(&mut self) {
        let shown = self.shown();
        let request = self.daemon().allocator().begin_list();
        self.late = Some((shown, request));
    }

    pub(crate) fn hear_late(&mut self) -> Result<(), TestCaseError> {
        let Some((shown, asked)) = self.late.take() else { return Ok(()) };
        match self.daemon().look_late(&shown, asked) {
            Ok(()) => seen("late list"),
            Err(refusal) => prop_assert!(matches!(refusal, Refusal::Stale), "{refusal}"),
        }
        Ok(())
    }

    pub(crate) fn set_health(&mut self, card: Index, healthy: bool) {
        let at = card.index(self.cards.len());
        self.cards[at].health = if healthy { Health::Healthy } else { Health::unhealthy("XID 79") };
        let cards = self.cards.clone();
        self.daemon().set_cards(cards);
        self.advertise();
    }
}

fn slots(ids: &Ids) -> Vec<SlotId> {
    ids.iter().map(|id| id.parse().unwrap()).collect()
}
