//! Publishes this node's state: amounts on its Node, its `GpuNode`, the `cards` annotation of its pods, events.
//!
//! Publishing follows the ledger, never leads it: while the API server is unreachable the node serves its pods as before, and
//! everything is published once it is reachable again. Only the daemon's own objects are written, and of those only fields that
//! differ from the last received state, so manual changes are reverted and an idle node writes nothing.

mod bound_pods;
mod cluster;
pub mod desired;
mod events;
mod findings;
mod gates;
mod labels;
mod latest;
mod load;
mod node;
mod pod_annotation;
mod pruned;
mod removal;
mod status;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use divvy_api::annotation::{self, Cards};
use divvy_api::gpunode::{GpuNode, GpuNodeSpec, Scales};
use divvy_api::names::annotation::{CARDS, PLANNED};
use divvy_api::request::Totals;
use divvy_api::usage::NodeUsage;
use divvy_api::{ResourceName, ResourceNames, Tier};
use divvy_node_core::allocator::{ForeignPod, SharedAllocator, lock};
use divvy_runtime::api_server::{ApiServer, within_deadline};
use divvy_runtime::logging::WarnOnce;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::bound_pods::BoundPods;
pub use self::cluster::node_labels;
use self::cluster::{Attempt, Attempts, Cluster, concerns_one_object};
use self::desired::Desired;
use self::events::PendingEvent;
use self::findings::ReportedViolations;
pub use self::gates::{OpenedGates, open_gates};
use self::latest::{Cached, Latest};
use self::load::UtilizationWrites;
use self::node::{NodeFacts, NodeView};
use self::pruned::Pruned;
use self::removal::Removal;
pub use self::removal::{Removed, remove, remove_from_all};
use crate::config::Advertise;
use crate::kubelet::registration::RegistrationStatus;
use crate::prompt::Prompts;
use crate::states::States;
use divvy_node_core::amounts::allocatable;
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::Allocations;
use divvy_node_core::pod::{Pod, PodRef};
use divvy_node_core::serving::ServingProblem;

/// Interval of the rounds; each writes the Node and its `GpuNode` at most once.
const ROUND: Duration = Duration::from_secs(1);
/// Time for which an amount on the Node may stay above what is free, once shares in other forms were allocated: most of these
/// changes are then part of another write. The daemon itself goes by its ledger.
const SHRINK_DELAY: Duration = Duration::from_secs(10);
/// [`SHRINK_DELAY`] of a node where the extender has placed all pods: schedulers that ask it don't rely on the amounts, and
/// most changes are part of another write before that.
const PLANNED_SHRINK_DELAY: Duration = Duration::from_secs(600);
/// Requests that are made for several objects.
const PATCH_PODS: &str = "patch pods/status";
const CREATE_EVENTS: &str = "create events";
const PATCH_NODE: &str = "patch nodes/status";
const PATCH_GPU_NODE: &str = "patch gpunodes/status";
/// Not with the amounts: a policy of before (`deploy/manifests/policy.yaml`) refuses devices.
const PATCH_DEVICES: &str = "patch devices in nodes/status";
/// Longest time after the announcement for the session with the kubelet to end.
const SESSION_END: Duration = Duration::from_secs(2);
/// Most events that wait to be written; beyond that the oldest are dropped.
const PENDING: usize = 100;

/// Snapshot of the node's state, published after the allocator is unlocked.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Revision of the ledger.
    pub revision: u64,
    /// All allocations.
    pub allocations: Arc<Allocations>,
    /// GPUs of the node.
    pub inventory: Arc<Inventory>,
    /// Pods as the kubelet last listed them.
    pub listed: Vec<Arc<Pod>>,
    /// Those of them that request memory or compute without a GPU.
    pub unasked: Vec<PodRef>,
    /// Pods that another system's device plugin has served, or that name its resources.
    pub foreign: Vec<ForeignPod>,
    /// Whether the device plugin is registered with the kubelet.
    pub registered: bool,
    /// Evidence of another device plugin that serves the same GPUs.
    pub conflict: Option<String>,
    /// Why no pod can be served now.
    pub serving: Option<ServingProblem>,
    /// Why the node's tier can't be served now.
    pub tier_problem: Option<String>,
    /// UUIDs of cordoned GPUs that this node doesn't have.
    pub unknown_cards: Vec<String>,
    /// Measured use of the containers.
    pub usage: Arc<NodeUsage>,
    /// Whether the daemon is about to stop.
    pub draining: bool,
    /// What the scheduler counts for each pod that was refused for lack of room and still doesn't fit.
    pub unplaced: Vec<Totals>,
    /// Devices that the kubelet may allocate, by resource; none where the daemon says nothing of them on its Node.
    pub devices: BTreeMap<String, u64>,
}

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
    /// How memory and compute are advertised; with devices nothing is written to the Node.
    pub advertise: Advertise,
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
    settings: PublishSettings,
    allocator: SharedAllocator,
    states: States,
    /// Desired state from the API server.
    desired: watch::Sender<Desired>,
    prompts: Prompts,
    draining: watch::Receiver<bool>,
    /// Set once `draining` is published.
    announced: watch::Sender<bool>,
    cluster: Cluster,
    /// View of the last round.
    last: View,
    /// Events that haven't been written yet.
    pending: VecDeque<PendingEvent>,
    findings: ReportedViolations,
    pruned: Pruned,
    utilization_writes: UtilizationWrites,
    /// Annotations by pod UID.
    annotated: HashMap<String, Annotated>,
    /// Amounts that the Node last had from this daemon.
    offered: BTreeMap<String, u64>,
    /// Amounts that the node had then with nothing allocated.
    capacity: BTreeMap<String, u64>,
    /// Time since which the Node offers more than is free.
    shrunk: Option<Instant>,
    /// Whether the daemon has ever been registered: before, nothing may be sent to the node.
    has_registered: bool,
    /// Whether the Node has yet to offer the devices: the kubelet's next status, which has them too, takes up to 10 s.
    are_devices_due: bool,
    attempts: Attempts,
    missing_node: WarnOnce,
}

/// State of one pod's annotation.
#[derive(Default)]
struct Annotated {
    /// Value last written.
    cards: Option<Cards>,
    /// Attempts to write another value, which may be refused for this pod alone.
    attempt: Attempt,
}

// === impl View ===

impl View {
    /// Whether every healthy device is held, so that the kubelet refuses whatever comes.
    fn is_full(&self) -> bool {
        let healthy: u64 = self.devices.values().sum();
        let held: BTreeSet<_> = self.allocations.slots_on_record().map(|(slot, _)| slot).collect();
        healthy > 0 && healthy <= held.len() as u64
    }

    /// Whether the extender has placed every pod that holds a share.
    fn is_planned(&self) -> bool {
        let planned = self.listed.iter().filter(|pod| pod.annotations.contains_key(PLANNED));
        let planned: HashSet<&str> = planned.map(|pod| &*pod.uid).collect();
        self.allocations.pods().all(|entry| planned.contains(&*entry.pod.uid))
    }
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
    /// A publisher that writes to this API server, and the handle that makes it announce the daemon's end.
    pub fn new(
        settings: PublishSettings,
        api_server: ApiServer,
        allocator: SharedAllocator,
        states: States,
        desired: watch::Sender<Desired>,
        prompts: Prompts,
    ) -> (Self, Announcement) {
        let (drain, draining) = watch::channel(false);
        let (announced, announcement) = watch::channel(false);
        let publisher = Self {
            cluster: Cluster::new(api_server.client, &settings.node_name),
            settings,
            allocator,
            states,
            desired,
            prompts,
            draining,
            announced,
            last: View::default(),
            pending: VecDeque::new(),
            findings: ReportedViolations::default(),
            pruned: Pruned::default(),
            utilization_writes: UtilizationWrites::default(),
            annotated: HashMap::new(),
            offered: BTreeMap::new(),
            capacity: BTreeMap::new(),
            shrunk: None,
            has_registered: false,
            are_devices_due: false,
            attempts: Attempts::new(api_server.requests),
            missing_node: WarnOnce::default(),
        };
        (publisher, Announcement { draining: drain, announced: announcement })
    }

    /// Publishes until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let name = &self.settings.node_name;
        let requests = self.attempts.requests();
        let mut node = latest::watch(self.cluster.nodes.clone(), "nodes", name, requests, &stop);
        let mut gpu_node = latest::watch(self.cluster.gpu_nodes.clone(), "gpunodes", name, requests, &stop);
        let mut rounds = tokio::time::interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut draining) = (None, self.draining.clone());
        while !stop.is_cancelled() {
            tokio::select! {
                _ = rounds.tick() => {}
                // A scheduler that isn't told at once sends the next pod.
                prompt = self.prompts.next() => {
                    let view = self.view();
                    self.write_node_alone(&view, &mut node).await;
                    self.prompts.answer(prompt);
                    continue;
                }
                Ok(()) = self.states.offers.changed() => {
                    let view = self.view();
                    if view.is_full() {
                        self.write_node_alone(&view, &mut node).await;
                    }
                    continue;
                }
                // Amounts that somebody took away keep pods out: they are back at once.
                changed = node.changed() => {
                    // While draining at once, too: what the kubelet brings back is taken off before a pod is sent for it.
                    let is_early = last.is_some_and(|last: Instant| last.elapsed() < ROUND / 2) && !*draining.borrow();
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
            self.round(&mut node, &mut gpu_node).await;
        }
        if *draining.borrow() {
            self.leave().await;
        }
    }

    /// Takes the devices off the Node once more when the kubelet has lost them: its status of a moment ago may have brought them
    /// back, and pods would be sent here until its next one.
    async fn leave(mut self) {
        let has_ended = self.states.registration.wait_for(|status| *status != RegistrationStatus::Registered);
        drop(tokio::time::timeout(SESSION_END, has_ended).await);
        let devices: BTreeMap<&str, Option<u64>> = self.last.devices.keys().map(|name| (name.as_str(), None)).collect();
        if !devices.is_empty() {
            let patch = json!({ "status": { "allocatable": devices } });
            self.attempts.make(PATCH_DEVICES, self.cluster.patch_node(&patch)).await;
        }
    }

    async fn round(&mut self, latest_node: &mut Latest<NodeView>, latest_gpu_node: &mut Latest<GpuNode>) {
        let (node, gpu_node) = (latest_node.get(), latest_gpu_node.get());
        self.follow_desired(&node, &gpu_node);
        let view = self.view();
        let Cached::Present(node) = &node else {
            if matches!(node, Cached::Gone) {
                self.missing_node.warn(format!("Node {} doesn't exist yet", self.settings.node_name));
            }
            return;
        };
        self.missing_node.clear();
        // Before the Node: its change makes the scheduler ask, and what is answered comes from the `GpuNode`.
        let (is_shown, answer) = self.write_gpu_node(&view, node, &gpu_node).await;
        latest_gpu_node.answered(answer);
        self.has_registered |= view.registered;
        // The kubelet's next status would say the same, up to 10 s later.
        self.are_devices_due |= view.registered && !self.last.registered;
        self.are_devices_due |= view.serving.is_some() || self.last.serving.is_some();
        self.are_devices_due |= view.is_full() != self.last.is_full();
        if view.draining {
            latest_node.answered(self.withdraw(&view, node).await);
        } else {
            latest_node.answered(self.show_devices(&view, node).await);
            latest_node.answered(self.write_node(&view, node).await);
        }
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
        self.annotate(&view).await;
        self.pending.extend(events::between(&self.last, &view));
        self.pending.extend(self.findings.news(&view.usage.findings, Instant::now()));
        self.last = view;
        self.record(node).await;
    }

    /// A round of the Node alone. One of a daemon that ends offers nothing, and stays so.
    async fn write_node_alone(&mut self, view: &View, latest: &mut Latest<NodeView>) {
        if view.draining {
            return;
        }
        self.are_devices_due |= view.is_full();
        if let Cached::Present(node) = latest.get() {
            latest.answered(self.show_devices(view, &node).await);
        }
        if let Cached::Present(node) = latest.get() {
            latest.answered(self.write_node(view, &node).await);
        }
    }

    /// Passes on the desired state, and saves it.
    fn follow_desired(&self, node: &Cached<NodeView>, gpu_node: &Cached<GpuNode>) {
        let wants = wants(&self.desired.borrow(), node, gpu_node);
        if *self.desired.borrow() == wants {
            return;
        }
        wants.remember(&self.settings.state_dir);
        self.desired.send_replace(wants);
    }

    fn view(&self) -> View {
        let (registered, conflict) = match &*self.states.registration.borrow() {
            RegistrationStatus::Unregistered => (false, None),
            RegistrationStatus::Registered => (true, None),
            RegistrationStatus::Conflict(conflict) => (false, Some(conflict.clone())),
        };
        let draining = *self.draining.borrow();
        // Where memory and compute are devices too, the daemon may not write to its Node.
        let offers = self.states.offers.borrow().clone();
        let offers = offers.iter().filter(|_| self.settings.advertise == Advertise::Amounts);
        let devices = offers.map(|offer| (offer.resource.to_string(), offer.healthy())).collect();
        let mut allocator = lock(&self.allocator);
        let unplaced = allocator.unplaced();
        let (ledger, inventory) = (allocator.ledger(), Arc::clone(allocator.inventory()));
        let listed = allocator.listed().to_vec();
        let tier_problem = allocator.containers().problem();
        let foreign = allocator.foreign_pods();
        // Before all cards are known, any may be among those to come.
        let is_whole = inventory.problem.is_none();
        let unknown_cards = if is_whole { self.desired.borrow().unknown_cards(&inventory) } else { Vec::new() };
        let revision = ledger.revision();
        let unchanged = revision == self.last.revision;
        let allocations =
            if unchanged { Arc::clone(&self.last.allocations) } else { Arc::new(ledger.allocations().clone()) };
        drop(allocator);
        let is_unasked = |pod: &&Arc<Pod>| !pod.has_ended() && pod.asks_for_amounts_alone(&self.settings.names);
        let unasked = listed.iter().filter(is_unasked).map(|pod| pod.reference()).collect();
        let usage = Arc::clone(&self.states.usage.borrow());
        View {
            revision,
            allocations,
            inventory,
            listed,
            unasked,
            foreign,
            registered,
            conflict,
            serving: self.states.serving.borrow().clone(),
            tier_problem,
            unknown_cards,
            usage,
            draining,
            unplaced,
            devices,
        }
    }

    /// Takes everything that pods request here off the Node; returns the answer. Nothing is sent from then on, and the kubelet
    /// admits what was sent (`run/drain.rs` says why).
    async fn withdraw(&mut self, view: &View, node: &NodeView) -> Cached<NodeView> {
        if self.settings.advertise == Advertise::Devices {
            return Cached::Unknown;
        }
        if !self.last.draining {
            self.attempts.forget(PATCH_NODE);
        }
        // Every pod requests devices, so they are what counts; the kubelet brings them back with each status, and no amounts.
        let devices: Vec<&str> = view.devices.keys().map(String::as_str).collect();
        let answer = self.patch_node(PATCH_DEVICES, node.without_devices(&devices)).await;
        let names = &self.settings.names;
        let amounts = [&names.memory, &names.memory_percentage, &names.cores].map(ResourceName::as_str);
        match self.patch_node(PATCH_NODE, node.without_amounts(&amounts)).await {
            Cached::Unknown => answer,
            later => later,
        }
    }

    /// Offers the devices on the Node, where the kubelet has them by now but has yet to say so; returns the answer.
    async fn show_devices(&mut self, view: &View, node: &NodeView) -> Cached<NodeView> {
        if !(self.are_devices_due && view.registered) {
            return Cached::Unknown;
        }
        let patch = node.with_devices(&view.devices);
        let is_shown = patch.is_none();
        let answer = self.patch_node(PATCH_DEVICES, patch).await;
        self.are_devices_due = !is_shown && matches!(answer, Cached::Unknown);
        answer
    }

    /// Makes the patch, if there is one; returns the answer.
    async fn patch_node(&mut self, request: &'static str, patch: Option<Value>) -> Cached<NodeView> {
        let Some(patch) = patch else { return Cached::Unknown };
        let answer = self.attempts.make(request, self.cluster.patch_node(&patch)).await;
        answer.map_or(Cached::Unknown, |answer| Cached::Present(Box::new(answer)))
    }

    /// Writes the Node, if it should say anything else; returns the answer.
    async fn write_node(&mut self, view: &View, node: &NodeView) -> Cached<NodeView> {
        let facts = self.node_facts(view, node);
        let patch = match &facts {
            Some(facts) => facts.patch(node),
            None => self.stale_amounts(node),
        };
        let capacity = self.amounts(&Allocations::default(), &view.inventory, &[]);
        let Some(patch) = patch else {
            self.remember_offered(facts, capacity);
            return Cached::Unknown;
        };
        // Pods that there is nothing for come as soon as the Node shows more than is free.
        let may_wait = view.serving.is_none() && view.unplaced.is_empty();
        if may_wait && facts.as_ref().is_some_and(|facts| facts.only_shrink(node, &self.offered)) {
            let is_planned = self.capacity == capacity && view.is_planned();
            let delay = if is_planned { PLANNED_SHRINK_DELAY } else { SHRINK_DELAY };
            if self.shrunk.get_or_insert_with(Instant::now).elapsed() < delay {
                return Cached::Unknown;
            }
        }
        let written = self.cluster.patch_node(&patch);
        let Some(answer) = self.attempts.make(PATCH_NODE, written).await else { return Cached::Unknown };
        self.remember_offered(facts, capacity);
        Cached::Present(Box::new(answer))
    }

    fn remember_offered(&mut self, facts: Option<NodeFacts>, capacity: BTreeMap<String, u64>) {
        self.shrunk = None;
        self.offered = facts.unwrap_or_default().amounts;
        self.capacity = capacity;
    }

    fn amounts(&self, allocations: &Allocations, inventory: &Inventory, unplaced: &[Totals]) -> BTreeMap<String, u64> {
        let amounts = allocatable(allocations, &inventory.node, unplaced, &self.settings.names);
        amounts.map(|(name, amount)| (name.to_owned(), amount)).into()
    }

    /// Removal of amounts that a daemon wrote that was configured otherwise. Compute is the kubelet's own by now.
    fn stale_amounts(&self, node: &NodeView) -> Option<Value> {
        let names = &self.settings.names;
        let removal = Removal::new(node, &[&names.memory, &names.memory_percentage]);
        (node.is_marked() && !removal.what.is_empty()).then_some(removal.patch)
    }

    /// What the Node should say; `None` where it says nothing.
    fn node_facts(&self, view: &View, node: &NodeView) -> Option<NodeFacts> {
        if self.settings.advertise == Advertise::Devices {
            return None;
        }
        // Nothing is free where no pod can be served.
        let nothing = Inventory::default();
        let inventory = if view.serving.is_some() { &nothing } else { &*view.inventory };
        let mut amounts = self.amounts(&view.allocations, inventory, &view.unplaced);
        // What an earlier daemon took off the Node stays off until pods can be served. What it left there is kept right.
        amounts.retain(|name, _| self.has_registered || node.status.capacity.contains_key(name));
        Some(NodeFacts { amounts, labels: labels::labels(&view.inventory) })
    }

    /// Writes the `GpuNode`; returns whether it shows the view, and the answer; `Unknown` if nothing was written.
    async fn write_gpu_node(
        &mut self,
        view: &View,
        node: &NodeView,
        gpu_node: &Cached<GpuNode>,
    ) -> (bool, Cached<GpuNode>) {
        let Cached::Present(there) = gpu_node else {
            if matches!(gpu_node, Cached::Unknown) {
                return (false, Cached::Unknown);
            }
            let made = self.cluster.create_gpu_node(node);
            let made = self.attempts.make("create gpunodes", made).await;
            return (false, made.map_or(Cached::Unknown, |made| Cached::Present(Box::new(made))));
        };
        let PublishSettings { utilization, .. } = self.settings;
        let shown = there.status.as_ref();
        let mut status = status::status(view, &self.settings, shown, Timestamp::now());
        if utilization {
            load::show(&mut status, &view.inventory.node);
        }
        let mut answer = Cached::Unknown;
        // A daemon that ends has few seconds to say so: a pause after overload would outlast it.
        if view.draining && !self.last.draining {
            self.attempts.forget(PATCH_GPU_NODE);
        }
        let differs = shown != Some(&status) && !self.pruned.explains(&status, shown);
        if differs && self.utilization_writes.are_due(&status, shown, Instant::now()) {
            let written = self.cluster.write_gpu_node(&status);
            match self.attempts.make(PATCH_GPU_NODE, written).await {
                Some(Cached::Present(written)) => {
                    if let Some(kept) = &written.status {
                        self.pruned.compare(status, kept.clone());
                    }
                    answer = Cached::Present(written);
                }
                // Deleted a moment ago: the next round makes it again.
                Some(answer) => return (false, answer),
                None => return (false, Cached::Unknown),
            }
        }
        (true, answer)
    }

    async fn annotate(&mut self, view: &View) {
        let live: HashSet<&str> = view.allocations.pods().map(|entry| entry.pod.uid.as_str()).collect();
        self.annotated.retain(|uid, _| live.contains(uid.as_str()));
        let wanted = pod_annotation::annotations(view, self.settings.tier);
        let missing: BTreeMap<&str, (&PodRef, Cards)> = wanted
            .filter(|(pod, cards)| match self.annotated.get(&pod.uid).and_then(|known| known.cards.as_ref()) {
                Some(written) => written != cards,
                None => !pod_annotation::is_listed(view, pod, cards),
            })
            .map(|(pod, cards)| (pod.uid.as_str(), (pod, cards)))
            .collect();
        for (uid, (pod, cards)) in missing {
            // Calls that wait go first; the next round goes on.
            if self.prompts.are_waiting() {
                return;
            }
            let annotated = self.annotated.entry(uid.to_owned()).or_default();
            if !annotated.attempt.is_due() || !self.attempts.are_due(PATCH_PODS) {
                continue;
            }
            let request = format!("{PATCH_PODS} of {}/{}", pod.namespace, pod.name);
            let mut annotations = pod_annotation::of_dialect(view, pod, Timestamp::now());
            annotations.insert(CARDS.to_owned(), annotation::encode(&cards));
            match within_deadline(self.cluster.annotate(pod, &annotations)).await {
                Err(error) if concerns_one_object(&error) => {
                    self.attempts.requests().failed(&request, &error, annotated.attempt.failed(&error));
                }
                Err(error) => self.attempts.failed(PATCH_PODS, &error),
                Ok(()) => {
                    *annotated = Annotated { cards: Some(cards), attempt: Attempt::default() };
                    self.attempts.succeeded(PATCH_PODS);
                    self.attempts.requests().succeeded(&request);
                }
            }
        }
    }

    /// Writes the events that are pending, in order.
    async fn record(&mut self, node: &NodeView) {
        self.pending.drain(..self.pending.len().saturating_sub(PENDING));
        while let Some(event) = self.pending.front().filter(|_| self.attempts.are_due(CREATE_EVENTS)) {
            if self.prompts.are_waiting() {
                return;
            }
            match within_deadline(self.cluster.record(event, node)).await {
                Ok(()) => self.attempts.succeeded(CREATE_EVENTS),
                // It won't go better next time; the others may.
                Err(error) if concerns_one_object(&error) => {
                    self.attempts.requests().failed(CREATE_EVENTS, &error, ROUND);
                }
                Err(error) => return self.attempts.failed(CREATE_EVENTS, &error),
            }
            self.pending.pop_front();
        }
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
