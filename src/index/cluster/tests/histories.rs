//! I5: whatever happens, pods with a reservation all fit, in whatever order their node admits them.
//!
//! Nodes play by the daemon's rules: `planned` where it still fits, else a plan of their own; the kubelet draws at random.

use std::collections::{BTreeMap, HashSet};

use divvy_api::gpunode::{Oversubscription, Scales};
use divvy_api::pod::peak;
use divvy_api::request::Sharing;
use divvy_api::{Card, CardId, ContainerKind, Share, Tier};
use divvy_placement::{ContainerPlan, Held, NodeState, Plan, PodRequest, Policy, plan, verify};
use proptest::prelude::*;
use proptest::sample::Index as Pick;

use super::*;
use crate::fixture::{container, cut};

const NODES: [&str; 2] = ["n1", "n2"];
const OVERSUBSCRIPTION: Oversubscription = Oversubscription { memory_scale: 150, host_memory: Memory::mib(20 << 10) };

/// The cluster as it is, of which the index hears late.
struct Truth {
    pods: BTreeMap<String, Life>,
    /// As the API server has them.
    reports: BTreeMap<&'static str, GpuNode>,
    index: Index,
    now: Instant,
    luck: u64,
}

/// A pod, its node's decisions included.
#[derive(Clone)]
struct Life {
    pod: PodView,
    demand: Arc<Demand>,
    planned: Option<Planned>,
    /// Cards of the containers that were admitted.
    settled: Vec<Vec<usize>>,
}

#[derive(Clone, Debug)]
enum Event {
    Bind { pod: Box<PodView>, node: usize, fails: bool },
    TellPod(Pick),
    Admit(usize, Pick),
    Report(usize),
    End(Pick),
    Restart(bool),
    Expire,
}

/// The first node has two GPUs and two instances, which are shared, each in its way, and oversubscribes memory; the second has
/// instances alone, and gives them whole.
fn machine(name: &str) -> GpuNode {
    let mut machine = node(name, 4);
    if name == NODES[0] {
        cut(&mut machine, &[10, 20]);
        status(&mut machine).tier = Tier::Accounting;
        for card in &mut status(&mut machine).cards[..3] {
            card.tier = Some(Tier::Shim);
        }
        status(&mut machine).slots_per_card = Some(4);
        status(&mut machine).cards[2].slots = Some(2);
        status(&mut machine).cards[3].scales = Some(Scales { memory: 75, cores: 150 });
        status(&mut machine).oversubscription = Some(OVERSUBSCRIPTION);
    } else {
        cut(&mut machine, &[10, 20, 20, 40]);
        status(&mut machine).tier = Tier::Mig;
    }
    machine
}

// === impl Life ===

impl Life {
    fn request<'a>(&'a self, settled: &'a [Vec<usize>]) -> PodRequest<'a> {
        PodRequest { allocated: settled, ..self.demand.request() }
    }

    /// The second node serves whole instances and nothing else.
    fn sharing(&self) -> Sharing {
        match &self.demand.preferences {
            wishes if wishes.wants_instances() || self.pod.node.as_deref() == Some(NODES[1]) => Sharing::Whole,
            wishes if wishes.oversubscribe => Sharing::Oversubscribed(OVERSUBSCRIPTION.memory_scale),
            _ => Sharing::Part,
        }
    }

    fn is_admitted(&self) -> bool {
        self.settled.len() == self.demand.containers.len()
    }

    /// What it holds of a card at its peak.
    fn share(&self, card: usize, memory: Memory) -> Option<Share> {
        let shares = self.demand.containers.iter().zip(&self.settled).filter(|(_, cards)| cards.contains(&card));
        let sharing = self.sharing();
        let shares =
            shares.filter_map(|(container, _)| Some((container.kind, container.request?.share_of(memory, sharing))));
        let shares: Vec<_> = shares.collect();
        (!shares.is_empty()).then(|| peak(shares))
    }

    /// Admits its next container. `None`: what was planned doesn't fit.
    fn admit(&mut self, state: &NodeState, luck: &mut u64, strictly: bool) -> Option<()> {
        let at = self.settled.len();
        let position = |id: &CardId| state.node.position(id);
        let told = |name: &String| self.planned.as_ref()?.containers.get(name);
        let chosen = |name| told(name).map_or_else(Vec::new, |told| told.chosen.iter().filter_map(position).collect());
        let containers = self.demand.containers.iter().enumerate().map(|(number, container)| ContainerPlan {
            chosen: self.settled.get(number).cloned().unwrap_or_else(|| chosen(&container.name)),
            ..ContainerPlan::default()
        });
        let made = Plan { containers: containers.collect() };
        let request = self.request(&self.settled);
        let own = plan(state, &request, &Policy::default());
        let (chosen, pool) = match verify(state, &request, &made) {
            Ok(()) => (made.containers[at].chosen.clone(), own.ok()?.containers[at].clone()),
            Err(_) if strictly => return None,
            Err(_) => {
                let own = own.ok()?.containers[at].clone();
                (own.chosen.clone(), own)
            }
        };
        let mut drawn = pool.reused;
        while drawn.len() > pool.drawn {
            *luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            drawn.remove((*luck >> 33) as usize % drawn.len());
        }
        self.settled.push([chosen, drawn].concat());
        Some(())
    }
}

// === impl Truth ===

impl Truth {
    fn new(luck: u64) -> Self {
        let reports: BTreeMap<_, _> = NODES.into_iter().map(|name| (name, machine(name))).collect();
        let index = index(&reports.values().collect::<Vec<_>>());
        Self { pods: BTreeMap::new(), reports, index, now: Instant::now(), luck }
    }

    fn on<'a>(pods: &'a BTreeMap<String, Life>, node: &'a str) -> impl Iterator<Item = &'a Life> {
        pods.values().filter(move |life| life.pod.node.as_deref() == Some(node) && !life.pod.ended)
    }

    /// The node with what every other pod holds.
    fn state(pods: &BTreeMap<String, Life>, node: &str, except: &str) -> NodeState {
        let empty = index(&[&machine(node)]).snapshot().node(node).expect("it is known").state.clone();
        let held = |at: usize, card: &Card| {
            let others = Self::on(pods, node).filter(|life| life.pod.uid != except);
            others.filter_map(|life| life.share(at, card.memory)).fold(Held::default(), |held, share| held.with(&share))
        };
        let held = empty.cards().iter().enumerate().map(|(at, card)| held(at, card)).collect();
        NodeState { held, ..empty }
    }

    /// Admits the rest of the pod that a node is about to admit.
    fn finish(&mut self, node: &'static str) {
        let begun = |life: &Life| !life.is_admitted() && !life.settled.is_empty();
        let next = |pods: &BTreeMap<String, Life>| Some(Self::on(pods, node).find(|life| begun(life))?.pod.uid.clone());
        while let Some(uid) = next(&self.pods) {
            self.admit_next(node, &uid);
        }
    }

    fn admit(&mut self, node: &'static str, which: Pick) {
        let waiting = |life: &&Life| !life.is_admitted();
        let begun = Self::on(&self.pods, node).filter(waiting).find(|life| !life.settled.is_empty());
        let waiting: Vec<&Life> = Self::on(&self.pods, node).filter(waiting).collect();
        let next = begun.or_else(|| (!waiting.is_empty()).then(|| waiting[which.index(waiting.len())]));
        if let Some(uid) = next.map(|life| life.pod.uid.clone()) {
            self.admit_next(node, &uid);
        }
    }

    fn admit_next(&mut self, node: &str, uid: &str) {
        let mut life = self.pods[uid].clone();
        let state = Self::state(&self.pods, node, uid);
        if life.admit(&state, &mut self.luck, false).is_none() {
            life.pod.ended = true;
        }
        self.pods.insert(life.pod.uid.clone(), life);
    }

    fn report(&mut self, name: &'static str) {
        let mut report = machine(name);
        for life in Self::on(&self.pods, name) {
            let sharing = life.sharing();
            for (container, cards) in life.demand.containers.iter().zip(&life.settled) {
                for card in cards {
                    let known = share(&report, &life.pod.uid, *card, 0, 0);
                    let memory = status(&mut report).cards[*card].memory;
                    let Some(request) = container.request else { continue };
                    let (name, kind, part) =
                        (container.name.clone(), container.kind, request.share_of(memory, sharing));
                    let known = divvy_api::gpunode::ShareStatus { container: name, kind, share: part, ..known };
                    status(&mut report).shares.push(known);
                }
            }
        }
        self.index.apply_gpu_node(name, &report);
        self.reports.insert(name, report);
    }

    fn bind(&mut self, mut pod: PodView, node: &str, fails: bool) {
        if self.pods.contains_key(&pod.uid) {
            return;
        }
        let demand = demand(&pod);
        let Ok(planned) = self.index.reserve(&demand, node, self.now) else { return };
        if fails {
            self.index.failed(&pod.uid);
            return;
        }
        pod = bound(pod, &planned);
        let life = Life { pod, demand, planned: Some(planned), settled: Vec::new() };
        self.pods.insert(life.pod.uid.clone(), life);
    }

    fn pick(&self, which: Pick) -> Option<String> {
        let uids: Vec<&String> = self.pods.keys().collect();
        (!uids.is_empty()).then(|| uids[which.index(uids.len())].clone())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Bind { pod, node, fails } => self.bind(*pod, NODES[node], fails),
            Event::TellPod(which) => {
                if let Some(uid) = self.pick(which) {
                    let life = &self.pods[&uid];
                    self.index.apply_pod(&life.pod, self.now);
                    if life.pod.ended {
                        self.pods.remove(&uid);
                    }
                }
            }
            Event::Admit(node, which) => self.admit(NODES[node], which),
            Event::Report(node) => self.report(NODES[node]),
            Event::End(which) => {
                if let Some(life) = self.pick(which).and_then(|uid| self.pods.get_mut(&uid)) {
                    life.pod.ended = true;
                }
            }
            Event::Restart(pods_first) => {
                self.index = Index::new(SchedulingConfig::default());
                let pods = || self.pods.values().for_each(|life| self.index.apply_pod(&life.pod, self.now));
                let nodes = || self.reports.iter().for_each(|(name, node)| self.index.apply_gpu_node(name, node));
                if pods_first {
                    (pods(), nodes())
                } else {
                    (nodes(), pods())
                };
            }
            Event::Expire => {
                // A pod whose admission has begun is through with it long before, and reported.
                for node in NODES {
                    self.finish(node);
                    self.report(node);
                }
                self.index.expire(self.now + AGES);
                self.pods.retain(|_, life| life.is_admitted() || life.pod.ended);
            }
        }
    }

    /// Every node admits what was reserved there, in some order.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let reserved: HashSet<Arc<str>> = self.index.reserved().into_iter().map(|(uid, _)| uid).collect();
        for node in NODES {
            let mut pods = self.pods.clone();
            let due = |life: &&Life| {
                !life.is_admitted() && (reserved.contains(life.pod.uid.as_str()) || !life.settled.is_empty())
            };
            let mut order: Vec<String> = Self::on(&pods, node).filter(due).map(|life| life.pod.uid.clone()).collect();
            let turn = if order.is_empty() { 0 } else { (self.luck >> 20) as usize % order.len() };
            order.rotate_left(turn);
            order.sort_by_key(|uid| pods[uid].settled.is_empty());
            for uid in order {
                let mut life = pods[&uid].clone();
                let state = Self::state(&pods, node, &uid);
                while !life.is_admitted() {
                    let admitted = life.admit(&state, &mut self.luck, true);
                    prop_assert!(admitted.is_some(), "{uid} doesn't fit where it was told to on {node}: {state:#?}");
                }
                pods.insert(uid, life);
            }
            let state = Self::state(&pods, node, "");
            for (card, held) in state.each() {
                prop_assert!(
                    held.memory <= card.memory_capacity() && held.cores <= card.cores_capacity(),
                    "{card:?} {held:?}"
                );
                prop_assert!(!held.exclusive || held.pods == 1, "{card:?} {held:?}");
            }
            let host: Memory = state.held.iter().map(|held| held.host).sum();
            prop_assert!(host <= OVERSUBSCRIPTION.host_memory, "{host} of host memory on {node}");
        }
        Ok(())
    }
}

fn pods() -> impl Strategy<Value = PodView> {
    let kinds = prop::sample::select(vec![ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::App]);
    let cores = prop::sample::select(vec![0u32, 0, 30, 60, 100]);
    let containers = prop::collection::vec((kinds, 1u32..=2, 1u64..24, cores), 1..=3);
    let wish = prop::sample::select(vec![None, None, Some((TIER, "mig")), Some((OVERSUBSCRIBE, "true"))]);
    (0..40u32, containers, wish).prop_map(|(name, mut containers, wish)| {
        containers.sort_by_key(|(kind, ..)| *kind == ContainerKind::App);
        let of = |(at, (kind, cards, gib, cores)): (usize, (ContainerKind, u32, u64, u32))| {
            container(&format!("c{at}"), kind, cards, gib, cores)
        };
        let wish = wish.map(|(key, value)| (key.to_owned(), value.to_owned()));
        PodView {
            annotations: wish.into_iter().collect(),
            containers: containers.into_iter().enumerate().map(of).collect(),
            ..pod(&format!("p{name}"), 1, 1, 0)
        }
    })
}

fn events() -> impl Strategy<Value = Event> {
    let bind = (pods(), 0..2usize, prop::bool::weighted(0.1)).prop_map(|(pod, node, fails)| Event::Bind {
        pod: Box::new(pod),
        node,
        fails,
    });
    prop_oneof![
        8 => bind,
        5 => any::<Pick>().prop_map(Event::TellPod),
        8 => (0..2usize, any::<Pick>()).prop_map(|(node, which)| Event::Admit(node, which)),
        4 => (0..2usize).prop_map(Event::Report),
        3 => any::<Pick>().prop_map(Event::End),
        1 => any::<bool>().prop_map(Event::Restart),
        1 => Just(Event::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reservations_never_overfill_a_gpu(events in prop::collection::vec(events(), 1..60), luck in any::<u64>()) {
        let mut truth = Truth::new(luck);
        for event in events {
            truth.happen(event.clone());
            truth.check().map_err(|error| TestCaseError::fail(format!("after {event:?}: {error}")))?;
        }
    }
}
