//! What goes wrong on a real cluster, done to a node on purpose.

use std::time::Duration;

use fake_nvml::{Call, CardState};
use hyper::StatusCode;
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::cluster::Node;
use fake_kubelet::{Faults, PodsFault, RestartOptions};

/// An XID that says that the card has fallen off the bus.
const OFF_THE_BUS: u64 = 79;
/// Bursts of pods after which a lasting fault is ended.
const LASTS: u32 = 6;

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The daemon is killed (`SIGKILL`) and started again.
    DaemonKilled,
    /// The kubelet is killed and started again.
    KubeletRestarted,
    /// The same, and its checkpoint is gone.
    CheckpointLost,
    /// A card answers `GPU_IS_LOST` for a while.
    CardLost,
    /// A card reports XID 79.
    Xid,
    /// NVML doesn't answer for a while.
    NvmlHangs,
    /// The pod list takes longer than the daemon waits.
    PodListSlow,
    /// The pod list is refused with 403.
    PodListForbidden,
    /// The pod list ends in the middle.
    PodListCut,
    /// The kubelet hands out IDs that live pods hold.
    HandedOutTwice,
    /// The topology manager rejects pods before the daemon is asked for them.
    RejectedBeforeAllocate,
    /// A later admit handler rejects pods that have their devices.
    RejectedAfterAllocate,
}

/// A fault that lasts.
#[derive(Debug)]
pub struct Affliction {
    /// Position of its node.
    pub node: usize,
    /// Number of the burst after which it ends.
    until: u32,
}

/// Every kind.
pub const ALL: [Event; 12] = [
    Event::DaemonKilled,
    Event::KubeletRestarted,
    Event::CheckpointLost,
    Event::CardLost,
    Event::Xid,
    Event::NvmlHangs,
    Event::PodListSlow,
    Event::PodListForbidden,
    Event::PodListCut,
    Event::HandedOutTwice,
    Event::RejectedBeforeAllocate,
    Event::RejectedAfterAllocate,
];

// === impl Event ===

impl Event {
    /// The `turn`th trouble: each kind once, and then at random, daemons and kubelets more often.
    pub fn draw(turn: usize, rng: &mut StdRng) -> Self {
        let often = [Self::DaemonKilled, Self::DaemonKilled, Self::KubeletRestarted, Self::CheckpointLost];
        match ALL.get(turn) {
            Some(event) => *event,
            None if rng.random_bool(0.5) => *often.choose(rng).expect("four of them"),
            None => *ALL.choose(rng).expect("twelve of them"),
        }
    }

    /// As lines and report name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::DaemonKilled => "daemon killed",
            Self::KubeletRestarted => "kubelet restarted",
            Self::CheckpointLost => "checkpoint lost",
            Self::CardLost => "card lost",
            Self::Xid => "XID 79",
            Self::NvmlHangs => "NVML hangs",
            Self::PodListSlow => "pod list slow",
            Self::PodListForbidden => "pod list forbidden",
            Self::PodListCut => "pod list cut",
            Self::HandedOutTwice => "IDs handed out twice",
            Self::RejectedBeforeAllocate => "rejected before Allocate",
            Self::RejectedAfterAllocate => "rejected after Allocate",
        }
    }

    /// Begins a fault that lasts; `None` for one that [`strike`](Self::strike)s.
    pub fn afflict(
        self,
        node: &mut Node,
        at: usize,
        burst: u32,
        rng: &mut StdRng,
    ) -> anyhow::Result<Option<Affliction>> {
        let card = rng.random_range(0..node.scenario.cards.len());
        let faults = match self {
            Self::DaemonKilled | Self::KubeletRestarted | Self::CheckpointLost => return Ok(None),
            Self::CardLost => {
                node.change_scenario(|scenario| scenario.cards[card].state = CardState::Lost)?;
                Faults::default()
            }
            Self::Xid => {
                let uuid = node.scenario.cards[card].uuid.clone();
                node.change_scenario(|scenario| scenario.push_xid(Some(&uuid), OFF_THE_BUS))?;
                Faults::default()
            }
            Self::NvmlHangs => {
                let call = Call::any("nvmlDeviceGetMemoryInfo");
                node.change_scenario(|scenario| scenario.hangs.extend([(call, 3000)]))?;
                Faults::default()
            }
            Self::PodListSlow => pods(PodsFault::Slow(Duration::from_millis(600))),
            Self::PodListForbidden => pods(PodsFault::Status(StatusCode::FORBIDDEN)),
            Self::PodListCut => pods(PodsFault::CutShort),
            Self::HandedOutTwice => Faults { hand_out_twice: 0.7, ..Faults::default() },
            Self::RejectedBeforeAllocate => Faults { reject_before_allocate: 0.5, ..Faults::default() },
            Self::RejectedAfterAllocate => Faults { reject_after_allocate: 0.7, ..Faults::default() },
        };
        node.kubelet.set_faults(|now| *now = faults);
        Ok(Some(Affliction { node: at, until: burst + LASTS }))
    }

    /// Kills and restarts, and waits until the node serves again.
    pub async fn strike(self, node: &mut Node, after: Duration) -> anyhow::Result<()> {
        let before = node.registrations();
        // Somewhere in the middle of an admission.
        tokio::time::sleep(after).await;
        match self {
            Self::DaemonKilled => {
                node.daemon.kill().await?;
                node.daemon.start_again()?;
            }
            Self::KubeletRestarted | Self::CheckpointLost => {
                let lose_checkpoint = self == Self::CheckpointLost;
                node.view.forgot |= lose_checkpoint;
                let down_for = Duration::from_millis(20);
                node.kubelet.restart(RestartOptions { down_for, lose_checkpoint }).await?;
            }
            _ => return Ok(()),
        }
        node.registered(before).await
    }
}

fn pods(pods: PodsFault) -> Faults {
    Faults { pods, ..Faults::default() }
}

// === impl Affliction ===

impl Affliction {
    /// Whether it is over.
    pub fn is_over(&self, burst: u32) -> bool {
        burst > self.until
    }

    /// Ends every fault of its node.
    pub fn cure(&self, nodes: &mut [Node]) -> anyhow::Result<()> {
        let node = &mut nodes[self.node];
        node.kubelet.set_faults(|now| *now = Faults::default());
        node.change_scenario(|scenario| {
            scenario.hangs.clear();
            scenario.cards.iter_mut().for_each(|card| card.state = CardState::Present);
        })
    }
}
