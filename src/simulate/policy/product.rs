//! Divvy's own policies, by Divvy's own code: the extender's answer for the hosts that the scheduler would ask it about, and
//! the cards of the plan that it reserves.
//!
//! An [`Index`] is filled as the webhook's is, with a report for each host and a reservation for each pod; no simulated
//! node ever reports a share, so reservations stay until their pod ends. This is how it is asked for thousands of pods too: a decision
//! takes tens of microseconds, and a layer below the index would save little of it.
//!
//! Of pods that ask for no cards the extender is asked too, as those of the published figures go by the policy. While it
//! expects nothing they are best-fitted, and the stock scheduler spreads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use divvy_api::annotation::PolicyName;
use divvy_api::gpunode::{CardStatus, GpuNode, GpuNodeSpec, GpuNodeStatus, Health};
use divvy_api::names::annotation::CARD_MODEL;
use divvy_api::{CardId, ContainerKind, ContainerSpec, Cores, GpuRequest, Memory, MemoryAmount, ResourceNames};
use divvy_index::demand::{Demand, SchedulingConfig};
use divvy_index::pod::PodView;
use divvy_index::{Index, NodeObject, NodeRef, Query, ranked};
use divvy_placement::Kind as RequestKind;
use divvy_placement::{Expected, ExpectedRequests, NodeScore};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::{Arrival, BestFit, InTree, Policy, Scheduler, Score as _, Scored};
use crate::Rng;
use crate::cluster::{Cards, Cluster, Host, Place};
use crate::target::Target;
use crate::workload::{Kind, Models, Part, Workload};

/// An index, and how the scheduler uses it.
pub struct Product {
    index: Index,
    workload: Arc<Workload>,
    /// By host; the name says the position.
    names: Vec<String>,
    without_cards: Box<dyn Policy>,
    in_tree: InTree,
    scheduler: Scheduler,
    /// The host that the stock scheduler looks at first.
    next: usize,
    /// Time of all reservations, which never expire.
    now: Instant,
}

/// Memory of every card, in MiB: the traces don't give it, only the part of it that pods ask for.
const CARD_MEMORY: Memory = Memory::mib(80 << 10);
/// The most that the weights of the expected requests add up to, about.
const WEIGHTS: f64 = 1_000_000.0;
const CONTAINER: &str = "main";

// === impl Product ===

impl Product {
    /// An index of these hosts.
    pub fn new(
        name: PolicyName,
        workload: &Arc<Workload>,
        cluster: &Cluster,
        target: &Target,
        scheduler: Scheduler,
    ) -> Self {
        let names: Vec<String> = (0..cluster.hosts().len()).map(|host| format!("n{host}")).collect();
        let index = index(name, workload, cluster, &names);
        index.expect(expected_requests(target, &workload.models));
        let (in_tree, ties) = (InTree::new(workload), scheduler.ties);
        let without_cards: Box<dyn Policy> = if scheduler.is_stock {
            Box::new(Scored::new(in_tree.clone(), ties, workload))
        } else {
            Box::new(Scored::new(BestFit, ties, workload))
        };
        let (workload, now) = (Arc::clone(workload), Instant::now());
        Self { index, workload, names, without_cards, in_tree, scheduler, next: 0, now }
    }

    /// Other requests are expected from now on.
    pub fn expect(&self, target: &Target) {
        self.index.expect(expected_requests(target, &self.workload.models));
    }

    /// Hosts that the extender is asked about: those with room beside their cards, or the first of these that are enough for
    /// the stock scheduler (`percentageOfNodesToScore` of 0), which goes on from there with the next pod.
    fn roomy(&mut self, cluster: &Cluster, kind: &Kind) -> Vec<usize> {
        let hosts = cluster.hosts();
        let suits =
            |at: &usize| !hosts[*at].cards.is_empty() && hosts[*at].cpu >= kind.cpu && hosts[*at].memory >= kind.memory;
        if !self.scheduler.is_stock {
            return (0..hosts.len()).filter(suits).collect();
        }
        let percent = 50_usize.saturating_sub(hosts.len() / 125).max(5);
        let enough = (hosts.len() * percent / 100).max(100);
        let mut looked_at = 0;
        let from_next = (0..hosts.len()).map(|at| (at + self.next) % hosts.len());
        let roomy = from_next.inspect(|_| looked_at += 1).filter(suits).take(enough).collect();
        self.next = (self.next + looked_at) % hosts.len();
        roomy
    }

    /// Where a pod goes that asks for no cards. The extender ranks nodes for it too, if the scheduler asks.
    fn place_without_cards(&mut self, cluster: &Cluster, pod: Arrival, view: &PodView, rng: &mut Rng) -> Option<Place> {
        if self.scheduler.is_stock || self.index.expected().requests.is_empty() {
            return self.without_cards.choose(cluster, pod, rng);
        }
        let (demand, kind) = (Demand::without_cards(view), self.workload.kinds[pod.kind]);
        let hosts = self.roomy(cluster, &kind);
        let names: Vec<&str> = hosts.iter().map(|host| &*self.names[*host]).collect();
        let ranking = self.index.rank(&Query::new(&demand, self.index.config()), &names, false);
        let asked = self.pick(cluster.hosts(), &hosts, &kind, ranking.fitting, rng)?;
        Some(Place { host: hosts[asked.name], cards: Cards::default() })
    }

    /// The node that the scheduler takes of those that the extender names. The extender gives its best the highest score,
    /// and the stock scheduler adds its own.
    fn pick(
        &self,
        hosts: &[Host],
        of: &[usize],
        kind: &Kind,
        mut fitting: Vec<(NodeRef, NodeScore)>,
        rng: &mut Rng,
    ) -> Option<NodeRef> {
        let Scheduler { ties, shortlist, is_stock } = self.scheduler;
        divvy_index::shortlist(&mut fitting, if shortlist == 0 { usize::MAX } else { shortlist });
        let rated = ranked(&mut fitting).map(|(asked, rank, score)| {
            let in_tree = || 10 * score + self.in_tree.rate(&hosts[of[asked.name]], kind).0;
            (if is_stock { in_tree() } else { -(rank as i64) }, *asked)
        });
        ties.best(rated, rng)
    }
}

impl Policy for Product {
    fn choose(&mut self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<Place> {
        let kind = self.workload.kinds[pod.kind];
        let view = view(pod.serial, &kind, &self.workload.models);
        if kind.cards == 0 {
            let place = self.place_without_cards(cluster, pod, &view, rng)?;
            self.index.apply_pod(&PodView { node: Some(self.names[place.host].clone()), ..view }, self.now);
            return Some(place);
        }
        let demand = Arc::new(Demand::of(&view, self.index.config()).ok()??);
        let hosts = self.roomy(cluster, &kind);
        let names: Vec<&str> = hosts.iter().map(|host| &*self.names[*host]).collect();
        let ranking = self.index.rank(&Query::new(&demand, self.index.config()), &names, self.scheduler.shortlist == 0);
        let asked = self.pick(cluster.hosts(), &hosts, &kind, ranking.fitting, rng)?;
        let planned = self.index.reserve(&demand, names[asked.name], self.now).ok()?;
        let cards = planned.containers.get(CONTAINER)?.chosen.iter().filter_map(position).collect();
        Some(Place { host: hosts[asked.name], cards })
    }

    fn ended(&mut self, pod: Arrival) {
        self.index.delete_pod(&uid(pod.serial));
    }
}

/// What the webhook knows before any pod comes.
fn index(name: PolicyName, workload: &Workload, cluster: &Cluster, names: &[String]) -> Index {
    let index = Index::new(SchedulingConfig { card_policy: name, node_policy: name, ..SchedulingConfig::default() });
    for (host, name) in cluster.hosts().iter().zip(names).filter(|(host, _)| !host.cards.is_empty()) {
        index.apply_node(name, NodeObject { allocatable_cpu: Some(host.cpu), ..NodeObject::default() });
        index.apply_gpu_node(name, &report(name, host, &workload.models));
    }
    index
}

/// What a daemon would report of the host with nobody on it.
fn report(name: &str, host: &Host, models: &[String]) -> GpuNode {
    let card = |at| {
        let uuid = card_id(name, at);
        let model = models[host.model].clone();
        CardStatus {
            uuid,
            model,
            memory: CARD_MEMORY,
            health: Health::Healthy,
            reason: None,
            numa: None,
            links: Vec::new(),
            mig: None,
            plain: false,
            utilization: None,
        }
    };
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
    let (names, request) = (ResourceNames::default(), gpu_request(kind.cards, kind.part));
    let mut limits = BTreeMap::from([(names.count.to_string(), request.cards.to_string())]);
    if let (false, MemoryAmount::Percent(percent)) = (request.is_exclusive(), request.memory) {
        limits.insert(names.memory_percentage.to_string(), percent.to_string());
        limits.insert(names.cores.to_string(), request.cores.units().to_string());
    }
    let wanted = named(kind.models, models);
    let wishes = (!wanted.is_empty()).then(|| (CARD_MODEL.to_owned(), wanted.join(",")));
    PodView {
        uid: uid(serial),
        namespace: "default".into(),
        name: uid(serial),
        annotations: wishes.into_iter().collect(),
        cpu_milli: kind.cpu,
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
        kind: RequestKind {
            request: gpu_request(request.cards, request.part),
            profile: None,
            instances: false,
            models: named(request.models, models),
            avoid_models: Vec::new(),
            cpu_milli: request.cpu,
        },
        weight: (weight / all * WEIGHTS).round() as u32,
    };
    ExpectedRequests { requests: with_cards.map(expected).collect() }
}

/// Models as pods name those that will do; none if all will.
fn named(of: Models, models: &[String]) -> Vec<String> {
    let allowed = |model: &(usize, &String)| of.contain(model.0);
    let is_picky = of != Models::ANY;
    models.iter().enumerate().filter(|_| is_picky).filter(allowed).map(|(_, model)| model.clone()).collect()
}
