//! What the cluster is told of this node: amounts on its Node, its `GpuNode`, the `cards` annotation of its pods, events.
//!
//! Follows the books, never leads them: a node whose API server is away serves its pods as before, and what was missed is
//! made up for when it is back. Only the daemon's own objects are written, and of those only what differs from what the
//! API server last showed, so that a change by hand heals and a quiet node writes nothing.

mod cards;
mod cluster;
pub mod desired;
mod events;
mod findings;
mod labels;
mod load;
mod node;
mod pruned;
mod removal;
mod status;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use divvy_api::gpunode::{GpuNode, GpuNodeSpec, Scales};
use divvy_api::usage::NodeUsage;
use divvy_api::{ResourceNames, Tier};
use divvy_node_core::allocator::{SharedAllocator, lock};
use divvy_runtime::api_server::errors::describe;
use divvy_runtime::api_server::within_deadline;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

pub use self::cluster::node_labels;
use self::cluster::{Attempt, Attempts, Cluster, Seen, concerns_one_object};
use self::desired::Desired;
use self::events::Happening;
use self::findings::ToldFindings;
use self::load::LoadWrites;
use self::node::{NodeFacts, NodeView};
use self::pruned::Pruned;
use self::removal::Removal;
pub use self::removal::remove;
use crate::amounts::Amounts;
use crate::kubelet::registration::Standing;
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::Book;
use divvy_node_core::pod::PodRef;

/// Between two rounds: each writes the Node and its `GpuNode` once at most.
const ROUND: Duration = Duration::from_secs(1);
/// Events that wait for an API server; the oldest go first.
const PENDING: usize = 100;

/// One moment of books and cards, to be told once the allocator is let go.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Revision of the ledger.
    pub revision: u64,
    /// Who holds what.
    pub book: Arc<Book>,
    /// The cards.
    pub inventory: Arc<Inventory>,
    /// Pods with amounts that asked for no card, as the kubelet last listed them.
    pub unasked: Vec<PodRef>,
    /// The kubelet has us registered.
    pub registered: bool,
    /// Another device plugin serves our cards.
    pub rival: Option<String>,
    /// Why the node's tier can't be served now.
    pub tier_problem: Option<String>,
    /// Cordoned cards that this node doesn't have.
    pub unknown_cards: Vec<String>,
    /// What containers really use.
    pub usage: Arc<NodeUsage>,
    /// The daemon is about to stop.
    pub draining: bool,
}

/// What of the configuration decides what is told.
#[derive(Clone, Debug)]
pub struct PublishSettings {
    /// This node.
    pub node_name: String,
    /// Names of the resources.
    pub names: ResourceNames,
    /// How much of the cards is promised.
    pub scales: Scales,
    /// How shares are enforced.
    pub tier: Tier,
    /// Slots registered for each card.
    pub slots_per_card: u32,
    /// Memory and compute are amounts of the Node; otherwise nothing is written there.
    pub amounts: bool,
    /// How busy the cards are is told too.
    pub utilization: bool,
    /// Where it is remembered what the cluster wants.
    pub state_dir: PathBuf,
}

/// The means to tell the cluster that this daemon is about to stop.
pub struct Announcement {
    draining: watch::Sender<bool>,
    announced: watch::Receiver<bool>,
}

/// Tells the cluster.
pub struct Publisher {
    settings: PublishSettings,
    allocator: SharedAllocator,
    standing: watch::Receiver<Standing>,
    usage: watch::Receiver<Arc<NodeUsage>>,
    /// What the cluster wants of this node.
    desired: watch::Sender<Desired>,
    draining: watch::Receiver<bool>,
    /// That the cluster has been told of `draining`.
    announced: watch::Sender<bool>,
    cluster: Cluster,
    /// The last round's.
    last: View,
    /// Events that haven't been written yet.
    pending: VecDeque<Happening>,
    findings: ToldFindings,
    pruned: Pruned,
    load_writes: LoadWrites,
    /// By pod UID.
    annotated: HashMap<String, Annotated>,
    /// What the annotation `generation` should be at least: the ledger's revision at the last release, or more.
    generation: u64,
    /// Shares were released that no `generation` tells of yet.
    released: bool,
    attempts: Attempts,
}

/// What is known of one pod's annotation.
#[derive(Default)]
struct Annotated {
    /// The text that stands.
    text: Option<String>,
    /// At writing another one, which this pod alone is refused.
    attempt: Attempt,
}

// === impl Announcement ===

impl Announcement {
    /// Tells the cluster, and returns once it knows.
    pub async fn make(mut self) {
        self.draining.send_replace(true);
        // An error: the publisher has ended, and nobody else will tell.
        drop(self.announced.wait_for(|announced| *announced).await);
    }
}

// === impl Publisher ===

impl Publisher {
    /// A publisher that writes with `client`, and the means to make it announce the daemon's end.
    pub fn new(
        settings: PublishSettings,
        client: Client,
        allocator: SharedAllocator,
        standing: watch::Receiver<Standing>,
        usage: watch::Receiver<Arc<NodeUsage>>,
        desired: watch::Sender<Desired>,
    ) -> (Self, Announcement) {
        let (drain, draining) = watch::channel(false);
        let (announced, announcement) = watch::channel(false);
        let publisher = Self {
            cluster: Cluster::new(client, &settings.node_name),
            settings,
            allocator,
            standing,
            usage,
            desired,
            draining,
            announced,
            last: View::default(),
            pending: VecDeque::new(),
            findings: ToldFindings::default(),
            pruned: Pruned::default(),
            load_writes: LoadWrites::default(),
            annotated: HashMap::new(),
            generation: 0,
            released: false,
            attempts: Attempts::default(),
        };
        (publisher, Announcement { draining: drain, announced: announcement })
    }

    /// Publishes until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut node = cluster::watch::<NodeView>(self.cluster.nodes.clone(), &self.settings.node_name, &stop);
        let mut gpu_node = cluster::watch::<GpuNode>(self.cluster.gpu_nodes.clone(), &self.settings.node_name, &stop);
        let mut rounds = tokio::time::interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        while !stop.is_cancelled() {
            tokio::select! {
                _ = rounds.tick() => {}
                // Amounts that somebody took away keep pods out: they are back at once.
                changed = node.changed() => {
                    if changed.is_err() || last.is_some_and(|last: Instant| last.elapsed() < ROUND / 2) {
                        tokio::select! { _ = rounds.tick() => {}, () = stop.cancelled() => {} }
                    }
                }
                () = stop.cancelled() => {}
            }
            last = Some(Instant::now());
            let (node, gpu_node) = (node.borrow_and_update().clone(), gpu_node.borrow_and_update().clone());
            self.round(&node, &gpu_node).await;
        }
    }

    async fn round(&mut self, node: &Seen<NodeView>, gpu_node: &Seen<GpuNode>) {
        self.hear(node, gpu_node);
        let view = self.view();
        let Seen::There(node) = node else {
            if matches!(node, Seen::Gone) {
                let missing = format!("Node {} doesn't exist yet", self.settings.node_name);
                self.attempts.of("node").problem("node", &missing);
            }
            return;
        };
        self.released |= has_released(&self.last.book, &view.book);
        // Before the Node: its change makes the scheduler ask, and what is answered comes from the `GpuNode`.
        let is_shown = self.write_gpu_node(&view, node, gpu_node).await;
        if let Some(patch) = self.node_patch(&view, node) {
            let written = self.cluster.patch_node(&patch);
            self.attempts.make("node", written).await;
        }
        if is_shown && std::mem::take(&mut self.released) {
            // Written with the next round, when everybody who follows the `GpuNode` has seen it: a pod that is tried again
            // too early waits for the next release. Books that were lost begin anew, far below what an earlier daemon wrote.
            let beyond = self.generation.max(node.generation()).saturating_add(1);
            self.generation = view.revision.max(beyond);
        }
        self.annotate(&view).await;
        self.pending.extend(events::between(&self.last, &view));
        self.pending.extend(self.findings.news(&view.usage.findings, Instant::now()));
        self.last = view;
        self.tell(node).await;
    }

    /// Passes on what the cluster wants, and remembers it.
    fn hear(&self, node: &Seen<NodeView>, gpu_node: &Seen<GpuNode>) {
        let wants = wants(&self.desired.borrow(), node, gpu_node);
        if *self.desired.borrow() == wants {
            return;
        }
        wants.remember(&self.settings.state_dir);
        self.desired.send_replace(wants);
    }

    fn view(&self) -> View {
        let (registered, rival) = match &*self.standing.borrow() {
            Standing::Unregistered => (false, None),
            Standing::Registered => (true, None),
            Standing::Rivalled(rival) => (false, Some(rival.clone())),
        };
        let draining = *self.draining.borrow();
        let allocator = lock(&self.allocator);
        let (ledger, inventory) = (allocator.ledger(), Arc::clone(allocator.inventory()));
        let unasked = allocator.unasked().to_vec();
        let tier_problem = allocator.containers().problem();
        // Before all cards are known, any may be among those to come.
        let is_whole = inventory.problem.is_none();
        let unknown_cards = if is_whole { self.desired.borrow().unknown_cards(&inventory) } else { Vec::new() };
        let revision = ledger.revision();
        let unchanged = revision == self.last.revision;
        let book = if unchanged { Arc::clone(&self.last.book) } else { Arc::new(ledger.book().clone()) };
        let usage = Arc::clone(&self.usage.borrow());
        View { revision, book, inventory, unasked, registered, rival, tier_problem, unknown_cards, usage, draining }
    }

    fn node_patch(&self, view: &View, node: &NodeView) -> Option<Value> {
        let PublishSettings { names, scales, slots_per_card, amounts, .. } = &self.settings;
        if !amounts {
            // What a daemon wrote that was configured otherwise. Compute is the kubelet's own by now.
            let removal = Removal::new(node, &[&names.memory, &names.memory_percentage]);
            return (node.is_marked() && !removal.what.is_empty()).then_some(removal.patch);
        }
        let amounts = Amounts::of(&view.book, &view.inventory, *scales).named(names);
        let facts = NodeFacts {
            amounts: amounts.map(|(name, amount)| (name.to_owned(), amount)).into(),
            labels: labels::labels(&view.inventory, *slots_per_card),
            // What an earlier daemon wrote stands until there is something new to say.
            generation: self.generation.max(node.generation()),
        };
        facts.patch(node)
    }

    /// Whether the `GpuNode` shows what is to be seen.
    async fn write_gpu_node(&mut self, view: &View, node: &NodeView, gpu_node: &Seen<GpuNode>) -> bool {
        let Seen::There(there) = gpu_node else {
            if matches!(gpu_node, Seen::Gone) {
                let made = self.cluster.create_gpu_node(node);
                self.attempts.make("gpunode", made).await;
            }
            return false;
        };
        let PublishSettings { scales, tier, utilization, .. } = self.settings;
        let shown = there.status.as_ref();
        let mut status = status::status(view, scales, tier, shown, Timestamp::now());
        if utilization {
            load::show(&mut status, &view.inventory);
        }
        let differs = shown != Some(&status) && !self.pruned.explains(&status, shown);
        if differs && self.load_writes.are_due(&status, shown, Instant::now()) {
            let written = self.cluster.write_gpu_node(&status);
            match self.attempts.make("gpunode", written).await {
                Some(Some(kept)) => self.pruned.compare(status, kept),
                Some(None) | None => return false,
            }
        }
        self.announced.send_if_modified(|announced| std::mem::replace(announced, view.draining) != view.draining);
        true
    }

    async fn annotate(&mut self, view: &View) {
        let live: HashSet<&str> = view.book.pods().map(|entry| entry.pod.uid.as_str()).collect();
        self.annotated.retain(|uid, _| live.contains(uid.as_str()));
        let wanted = cards::annotations(view, self.settings.tier);
        let missing: BTreeMap<&str, (&PodRef, String)> = wanted
            .filter(|(pod, text)| self.annotated.get(&pod.uid).is_none_or(|known| known.text.as_ref() != Some(text)))
            .map(|(pod, text)| (pod.uid.as_str(), (pod, text)))
            .collect();
        for (uid, (pod, text)) in missing {
            let annotated = self.annotated.entry(uid.to_owned()).or_default();
            if !annotated.attempt.is_due() || !self.attempts.of("pods").is_due() {
                continue;
            }
            match within_deadline(self.cluster.annotate(pod, &text)).await {
                Err(error) if concerns_one_object(&error) => {
                    annotated.attempt.failed(&format!("pod {}/{}", pod.namespace, pod.name), &error);
                }
                Err(error) => self.attempts.of("pods").failed("pods", &error),
                Ok(()) => {
                    *annotated = Annotated { text: Some(text), attempt: Attempt::default() };
                    self.attempts.of("pods").succeeded();
                }
            }
        }
    }

    /// Writes the events that are pending, in order.
    async fn tell(&mut self, node: &NodeView) {
        self.pending.drain(..self.pending.len().saturating_sub(PENDING));
        while let Some(happening) = self.pending.front().filter(|_| self.attempts.of("events").is_due()) {
            match within_deadline(self.cluster.tell(happening, node)).await {
                Ok(()) => self.attempts.of("events").succeeded(),
                // It won't go better next time; the others may.
                Err(error) if concerns_one_object(&error) => {
                    self.attempts.of("events").problem("events", &describe(&error));
                }
                Err(error) => return self.attempts.of("events").failed("events", &error),
            }
            self.pending.pop_front();
        }
    }
}

/// What the cluster wants, given what it wanted `before`: what the API server doesn't show stays as it was.
fn wants(before: &Desired, node: &Seen<NodeView>, gpu_node: &Seen<GpuNode>) -> Desired {
    let mut wants = before.clone();
    if let Seen::There(node) = node {
        wants.labels = node.metadata.labels.clone().unwrap_or_default();
    }
    match gpu_node {
        Seen::There(gpu_node) => wants.take_spec(&gpu_node.spec),
        Seen::Gone => wants.take_spec(&GpuNodeSpec::default()),
        Seen::Unknown => {}
    }
    wants
}

/// Whether anybody holds less than before.
fn has_released(before: &Book, after: &Book) -> bool {
    let still = |entry: &divvy_node_core::ledger::PodEntry| {
        let now = after.pod(&entry.pod.uid);
        entry.holdings().all(|(name, _)| now.is_some_and(|now| now.holding(name).is_some()))
    };
    !before.pods().all(still)
}

#[cfg(test)]
mod tests;
