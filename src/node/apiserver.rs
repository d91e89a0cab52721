//! Publishes this node's state: amounts on its Node, its `GpuNode`, the `cards` annotation of its pods, events.
//!
//! ```text
//!                   ┌▶ gpu_node   every GPU and every share
//! state ──▶ view ───┼▶ node       amounts, devices and labels
//!          (pure)   ├▶ pods       the annotation `cards`
//!                   └▶ events     on the Node and on pods
//! ```
//!
//! Publishing follows the ledger, never leads it: while the API server is unreachable the node serves its pods as before, and
//! everything is published once it is reachable again. Only the daemon's own objects are written, and of those only fields that
//! differ from the last received state, so manual changes are reverted and an idle node writes nothing. Each writer remembers
//! what it wrote of its objects.

mod attempts;
mod bound_pods;
pub mod desired;
mod events;
mod gates;
mod gpu_node;
mod latest;
mod node;
mod pods;
mod removal;
mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use divvy_api::gpunode::{GpuNode, GpuNodeSpec, Scales};
use divvy_api::{ResourceNames, Tier};
use divvy_node_core::allocator::SharedAllocator;
use divvy_runtime::api_server::ApiServer;
use divvy_runtime::logging::WarnOnce;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::bound_pods::BoundPods;
use self::desired::Desired;
use self::events::EventWriter;
pub use self::gates::{OpenedGates, open_gates};
use self::gpu_node::GpuNodeWriter;
use self::latest::Cached;
pub use self::node::node_labels;
use self::node::{NodeView, NodeWriter};
use self::pods::PodWriter;
pub use self::removal::{Removed, remove, remove_from_all};
use self::view::{Observer, View};
use crate::kubelet::registration::RegistrationStatus;
use crate::prompt::Prompts;
use crate::states::States;

/// Interval of the rounds; each writes the Node and its `GpuNode` at most once.
const ROUND: Duration = Duration::from_secs(1);
/// Longest time after the announcement for the session with the kubelet to end.
const SESSION_END: Duration = Duration::from_secs(2);

/// Settings of the publisher.
#[derive(Clone, Debug)]
pub struct PublishSettings {
    /// Name of the Node.
    pub node_name: String,
    /// Names of the resources.
    pub names: ResourceNames,
    /// Percentages of the GPUs' memory and compute that may be allocated, unless a GPU has its own.
    pub scales: Scales,
    /// Isolation tier that the node serves.
    pub tier: Tier,
    /// Slots registered for each card that has no number of its own.
    pub slots_per_card: u32,
    /// Whether memory and compute are amounts, which the daemon writes to its Node; else it writes nothing there.
    pub writes_node: bool,
    /// Whether the utilization of the GPUs is published.
    pub utilization: bool,
    /// Directory of the saved desired state.
    pub state_dir: PathBuf,
}

/// Handle that announces the end of the daemon to the cluster.
pub struct Announcement {
    draining: watch::Sender<bool>,
    announced: watch::Receiver<bool>,
}

/// Publishes the node's state to the API server.
pub struct Publisher {
    observer: Observer,
    /// Directory of the saved desired state.
    state_dir: PathBuf,
    prompts: Prompts,
    /// Set once `draining` is published.
    announced: watch::Sender<bool>,
    node: NodeWriter,
    gpu_node: GpuNodeWriter,
    pods: PodWriter,
    events: EventWriter,
    /// View of the last round.
    last: View,
    missing_node: WarnOnce,
    stop: CancellationToken,
}

// === impl Announcement ===

impl Announcement {
    /// Publishes the announcement, and returns once it is published.
    pub async fn make(mut self) {
        self.draining.send_replace(true);
        // An error means that the publisher has ended.
        drop(self.announced.wait_for(|announced| *announced).await);
    }
}

// === impl Publisher ===

impl Publisher {
    /// A publisher that writes to this API server until `stop`, and the handle that makes it announce the daemon's end.
    pub fn new(
        settings: PublishSettings,
        api_server: &ApiServer,
        allocator: SharedAllocator,
        states: States,
        desired: watch::Sender<Desired>,
        prompts: Prompts,
        stop: CancellationToken,
    ) -> (Self, Announcement) {
        let (drain, draining) = watch::channel(false);
        let (announced, announcement) = watch::channel(false);
        let settings = Arc::new(settings);
        let publisher = Self {
            observer: Observer { allocator, states, desired, draining, names: settings.names.clone() },
            state_dir: settings.state_dir.clone(),
            prompts,
            announced,
            pods: PodWriter::new(settings.tier, api_server),
            events: EventWriter::new(&settings.node_name, api_server),
            node: NodeWriter::new(Arc::clone(&settings), api_server, &stop),
            gpu_node: GpuNodeWriter::new(settings, api_server, &stop),
            last: View::default(),
            missing_node: WarnOnce::default(),
            stop,
        };
        (publisher, Announcement { draining: drain, announced: announcement })
    }

    /// Publishes until stopped.
    pub async fn run(mut self) {
        let stop = self.stop.clone();
        let mut rounds = tokio::time::interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last: Option<Instant> = None;
        let mut draining = self.observer.draining.clone();
        while !stop.is_cancelled() {
            tokio::select! {
                _ = rounds.tick() => {}
                // A scheduler that isn't told at once sends the next pod.
                prompt = self.prompts.next() => {
                    let view = self.observer.view(&self.last);
                    self.node.write_between(&view).await;
                    self.prompts.answer(prompt);
                    continue;
                }
                Ok(()) = self.observer.states.offers.changed() => {
                    let view = self.observer.view(&self.last);
                    if view.is_full() {
                        self.node.write_between(&view).await;
                    }
                    continue;
                }
                // Amounts that somebody took away keep pods out: they are back at once.
                changed = self.node.latest.changed() => {
                    // While draining at once, too: what the kubelet brings back is taken off before a pod is sent for it.
                    let is_early = last.is_some_and(|last| last.elapsed() < ROUND / 2) && !*draining.borrow();
                    if changed.is_err() {
                        tokio::select! { _ = rounds.tick() => {}, () = stop.cancelled() => {} }
                    } else if is_early {
                        continue;
                    }
                }
                // At once: pods are sent here until it is published.
                Ok(()) = draining.changed() => {}
                () = stop.cancelled() => {}
            }
            last = Some(Instant::now());
            self.round().await;
        }
        if *draining.borrow() {
            self.leave().await;
        }
    }

    /// Takes the devices off the Node once more when the kubelet has lost them: its status of a moment ago may have brought them
    /// back, and pods would be sent here until its next one.
    async fn leave(mut self) {
        let registration = &mut self.observer.states.registration;
        let has_ended = registration.wait_for(|status| *status != RegistrationStatus::Registered);
        drop(tokio::time::timeout(SESSION_END, has_ended).await);
        self.node.leave(&self.last).await;
    }

    async fn round(&mut self) {
        let node = self.node.latest.get();
        self.follow_desired(&node);
        let view = self.observer.view(&self.last);
        let Cached::Present(node) = &node else {
            if matches!(node, Cached::Gone) {
                self.missing_node.warn(format!("Node {} doesn't exist yet", self.node.name()));
            }
            return;
        };
        self.missing_node.clear();
        // Before the Node: its change makes the scheduler ask, and what is answered comes from the `GpuNode`.
        let is_shown = self.gpu_node.write(&view, &self.last, node).await;
        self.node.write(&view, &self.last).await;
        if is_shown {
            let draining = view.draining;
            self.announced.send_if_modified(|announced| std::mem::replace(announced, draining) != draining);
        }
        if view.unplaced.len() != self.last.unplaced.len() {
            info!(
                refused = view.unplaced.len(),
                "the Node shows less than is free while requests don't fit that were refused for lack of room"
            );
        }
        self.pods.write(&view, &self.prompts).await;
        self.events.observe(&self.last, &view);
        self.last = view;
        self.events.write(&self.prompts).await;
    }

    /// Passes on the desired state, and saves it.
    fn follow_desired(&mut self, node: &Cached<NodeView>) {
        let desired = &self.observer.desired;
        let wants = wants(&desired.borrow(), node, &self.gpu_node.latest.get());
        if *desired.borrow() == wants {
            return;
        }
        wants.remember(&self.state_dir);
        desired.send_replace(wants);
    }
}

/// Desired state from the received objects; what hasn't been received stays as `before`.
fn wants(before: &Desired, node: &Cached<NodeView>, gpu_node: &Cached<GpuNode>) -> Desired {
    let mut wants = before.clone();
    if let Cached::Present(node) = node {
        wants.labels = node.metadata.labels.clone().unwrap_or_default();
    }
    match gpu_node {
        Cached::Present(gpu_node) => wants.take_spec(&gpu_node.spec),
        Cached::Gone => wants.take_spec(&GpuNodeSpec::default()),
        Cached::Unknown => {}
    }
    wants
}

#[cfg(test)]
mod tests;
