//! Divvy's extender, by Divvy's own code: which of some hosts it names for a pod, and the cards of the plan that it
//! reserves.
//!
//! An [`Index`] is filled as the webhook's is, with a report for each host and a reservation for each pod; no simulated
//! node ever reports a share, so reservations stay until their pod ends. This is how it is asked for thousands of pods
//! too: a decision takes tens of microseconds, and a layer below the index would save little of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use divvy_api::annotation::PolicyName;
use divvy_api::gpunode::{CardStatus, GpuNode, GpuNodeSpec, GpuNodeStatus};
use divvy_api::names::annotation::CARD_MODEL;
use divvy_api::pod::wire::Resources;
use divvy_api::{CardId, ContainerKind, ContainerSpec, Cores, GpuRequest, Memory, MemoryAmount, ResourceNames};
use divvy_index::demand::{Demand, SchedulingConfig};
use divvy_index::pod::PodView;
use divvy_index::{Index, NodeObject, Query, ranked};
use divvy_placement::Kind as RequestKind;
use divvy_placement::{Expected, ExpectedRequests};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::cluster::{Cards, Cluster, Host};
use crate::target::Target;
use crate::workload::{Arrival, Kind, Models, Part, Workload};

/// An index that knows every pod that was placed.
pub struct Extender {
    index: Index,
    workload: Arc<Workload>,
    /// By host; the name says the position.
    names: Vec<String>,
    /// Time of all reservations, which never expire.
    now: Instant,
}

/// A host that the extender names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Position of the host.
    pub host: usize,
    /// Hosts that are better, up to equals.
    pub rank: usize,
    /// From 1 to 10, the best.
    pub score: i64,
}

/// Memory of every card, in MiB: the traces don't give it, only the part of it that pods ask for.
const CARD_MEMORY: Memory = Memory::mib(80 << 10);
/// The most that the weights of the expected requests add up to, about.
const WEIGHTS: f64 = 1_000_000.0;
const CONTAINER: &str = "main";

// === impl Extender ===

impl Extender {
    /// An index of these hosts.
    pub fn new(name: PolicyName, workload: &Arc<Workload>, cluster: &Cluster, target: &Target) -> Self {
        let names: Vec<String> = (0..cluster.hosts().len()).map(|host| format!("n{host}")).collect();
        let index = index(name, workload, cluster, &names);
        index.expect(expected_requests(target, &workload.models));
        Self { index, workload: Arc::clone(workload), names, now: Instant::now() }
    }

    /// Other requests are expected from now on.
    pub fn expect(&self, target: &Target) {
        self.index.expect(expected_requests(target, &self.workload.models));
    }

    /// Whether no requests are expected.
    pub fn expects_nothing(&self) -> bool {
        self.index.snapshot().expected().requests.is_empty()
    }

    /// Those of the hosts that it names for a pod, at most `shortlist`; 0: all that are as good as the best.
    pub fn filter(&self, pod: Arrival, hosts: &[usize], shortlist: usize) -> Vec<Named> {
        let view = self.view(pod);
        let demand = match self.workload.kinds[pod.kind].cards {
            0 => Some(Demand::without_cards(&view)),
            _ => Demand::read(&view, self.index.config()).ok().flatten(),
        };
        let Some(demand) = demand else { return Vec::new() };
        let names: Vec<&str> = hosts.iter().map(|host| &*self.names[*host]).collect();
        let mut fitting = self
            .index
            .snapshot_for(&demand)
            .rank(&Query::new(&demand, self.index.config()), &names, shortlist == 0)
            .fitting;
        divvy_index::shortlist(&mut fitting, if shortlist == 0 { usize::MAX } else { shortlist });
        ranked(&mut fitting).map(|(asked, rank, score)| Named { host: hosts[asked.name], rank, score }).collect()
    }

    /// Takes the host for a pod with cards. The cards of the plan; `None` if it doesn't fit any more.
    pub fn bind(&self, pod: Arrival, host: usize) -> Option<Cards> {
        let demand = Arc::new(Demand::read(&self.view(pod), self.index.config()).ok()??);
        let planned = self.index.reserve(&demand, &self.names[host], self.now).ok()?;
        Some(planned.containers.get(CONTAINER)?.chosen.iter().filter_map(position).collect())
    }

    /// Hears of a pod without cards that is on the host.
    pub fn watch(&self, pod: Arrival, host: usize) {
        self.index.apply_pod(&PodView { node: Some(self.names[host].clone()), ..self.view(pod) }, self.now);
    }

    /// Soft taints that the host is to have.
    pub fn soft_taints(&self, host: usize) -> u32 {
        self.index.snapshot().soft_taints(&self.names[host]).unwrap_or(0)
    }

    /// Hears of the pod's end.
    pub fn ended(&self, pod: Arrival) {
        self.index.delete_pod(&uid(pod.serial));
    }

    fn view(&self, pod: Arrival) -> PodView {
        view(pod.serial, &self.workload.kinds[pod.kind], &self.workload.models)
    }
}

/// What the webhook knows before any pod comes.
fn index(name: PolicyName, workload: &Workload, cluster: &Cluster, names: &[String]) -> Index {
    let index = Index::new(SchedulingConfig { card_policy: name, node_policy: name, ..SchedulingConfig::default() });
    for (host, name) in cluster.hosts().iter().zip(names).filter(|(host, _)| !host.cards.is_empty()) {
        index.apply_node(name, NodeObject { allocatable: Some(Resources::of_cpu(host.cpu)), ..NodeObject::default() });
        index.apply_gpu_node(name, &report(name, host, &workload.models));
    }
    index
}

/// What a daemon would report of the host with nobody on it.
fn report(name: &str, host: &Host, models: &[String]) -> GpuNode {
    let card = |at| CardStatus::healthy(card_id(name, at), models[host.model].clone(), CARD_MEMORY);
    let ready = Condition {
        type_: "Ready".into(),
        status: "True".into(),
        reason: "Registered".into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    };
    let status = GpuNodeStatus {
        cards: (0..host.cards.len()).map(card).collect(),
        conditions: vec![ready],
        ..GpuNodeStatus::default()
    };
    GpuNode { status: Some(status), ..GpuNode::new(name, GpuNodeSpec::default()) }
}

fn card_id(host: &str, card: usize) -> CardId {
    format!("GPU-{host}-{card}").parse().expect("letters, digits and dashes name a card")
}

/// The position that [`card_id`] was made of.
fn position(card: &CardId) -> Option<usize> {
    card.as_str().rsplit('-').next()?.parse().ok()
}

fn uid(serial: u64) -> String {
    format!("pod-{serial}")
}

/// The pod as the API server has it.
fn view(serial: u64, kind: &Kind, models: &[String]) -> PodView {
    let names = ResourceNames::default();
    let request = gpu_request(kind.cards, kind.part);
    let mut limits = BTreeMap::from([(names.count.to_string(), request.cards.to_string())]);
    if let (false, MemoryAmount::Percent(percent)) = (request.is_exclusive(), request.memory) {
        limits.insert(names.memory_percentage.to_string(), percent.to_string());
        if request.cores.units() > 0 {
            limits.insert(names.cores.to_string(), request.cores.units().to_string());
        }
    }
    let wanted = named(kind.models, models);
    let wishes = (!wanted.is_empty()).then(|| (CARD_MODEL.to_owned(), wanted.join(",")));
    PodView {
        uid: uid(serial),
        namespace: "default".into(),
        name: uid(serial),
        annotations: wishes.into_iter().collect(),
        requests: Resources::of_cpu(kind.cpu),
        containers: vec![ContainerSpec { name: CONTAINER.into(), kind: ContainerKind::App, index: 0, limits }],
        ..PodView::default()
    }
}

/// Shares are whole percents, so that what was asked for may grow by less than one; up to all compute it is a whole card.
fn gpu_request(cards: u32, part: Part) -> GpuRequest {
    let [cores, memory] = [part.cores, part.memory].map(|thousandths| thousandths.div_ceil(10));
    let share = GpuRequest { cards, memory: MemoryAmount::Percent(memory), cores: Cores::new(cores) };
    if share.is_exclusive() { GpuRequest::whole(cards) } else { share }
}

/// The target as least fragmentation is told it: without pods that ask for no cards.
fn expected_requests(target: &Target, models: &[String]) -> ExpectedRequests {
    let all: f64 = target.all.iter().map(|(_, weight)| weight).sum();
    let with_cards = target.all.iter().filter(|(request, _)| request.cards > 0);
    let expected = |(request, weight): &(Kind, f64)| Expected {
        kind: request_kind(request, models),
        weight: (weight / all * WEIGHTS).round() as u32,
    };
    let counted: f64 = with_cards.clone().map(|(_, weight)| weight).sum();
    ExpectedRequests { requests: with_cards.map(expected).collect(), counted: counted as u32 }
}

/// A kind of pods as what they ask of cards.
fn request_kind(kind: &Kind, models: &[String]) -> RequestKind {
    RequestKind {
        request: gpu_request(kind.cards, kind.part),
        profile: None,
        instances: false,
        models: named(kind.models, models),
        avoid_models: Vec::new(),
        cpu_milli: kind.cpu,
    }
}

/// Models as pods name those that will do; none if all will.
fn named(of: Models, models: &[String]) -> Vec<String> {
    let allowed = |model: &(usize, &String)| of.contain(model.0);
    let is_picky = of != Models::ANY;
    models.iter().enumerate().filter(|_| is_picky).filter(allowed).map(|(_, model)| model.clone()).collect()
}
