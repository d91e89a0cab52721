//! Whatever happens to writes, watches, schedulers, nodes and leaders: no GPU is promised twice, quotas hold, groups start
//! together, and once all is quiet every pod that fits has a place, and a new leader would find nothing more to do.
//!
//! The API server has the truth; the index hears of it late, and of its own writes too. Schedulers bind nominated pods where they
//! are nominated, or elsewhere, or by themselves; nodes admit by the plan, or else as it fits.

use std::collections::{BTreeMap, VecDeque};

use divvy_api::gpuquota::GpuQuotaSpec;
use divvy_placement::plan;
use proptest::prelude::*;
use proptest::sample::Index as Pick;
use serde_json::Value;

use super::*;
use crate::nodes::Node;
use crate::state::REPORTED_WITHIN;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
const GROUPS: [&str; 2] = ["a", "b"];
const T4: &str = "Tesla T4";
/// GiB of a card.
const CARD: u64 = 40;

#[derive(Clone, Debug)]
enum Event {
    Create(New),
    /// A pod without GPUs comes to a node.
    Other(usize),
    OtherGateGoes(Pick),
    Plan(usize),
    Write(Pick, Outcome),
    Show(usize),
    Schedule(Pick, Decision),
    /// A pod is deleted, and stays: it has a finalizer.
    Delete(Pick),
    Report(usize),
    End(Pick),
    Cordon(usize),
    Taint(usize),
    Relabel(usize),
    Resize(usize, u32),
    Quota(Option<u64>, Option<u64>),
    /// A `PodGroup` comes, with so many pods that start together, or is deleted.
    Group(usize, Option<usize>),
    Failover(bool),
    Seconds(u64),
}

#[derive(Clone, Debug)]
struct New {
    cards: u32,
    gib: u64,
    cpu_milli: u32,
    priority: i32,
    gates: &'static [&'static str],
    group: Option<usize>,
    pool: Option<&'static str>,
}

/// What comes of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Made,
    /// Refused after so many of its requests were answered.
    Refused(usize),
    /// So many of its requests were made, and nobody knows.
    Unknown(usize),
}

/// What a scheduler does with a pod.
#[derive(Clone, Copy, Debug)]
enum Decision {
    /// It follows the nomination.
    Bind,
    BindTo(usize),
    Clear,
    Nominate(usize),
}

/// A node as it is: what its pods hold of each card, in GiB.
struct Machine {
    shares: Vec<(String, usize, u64)>,
    object: NodeObject,
}

struct Cluster {
    index: Index,
    preempts: bool,
    /// Whether the pods of a group are equal. Among others the first one may take what only the next one could have used, and
    /// then it depends on chance whether a group fits.
    are_equal: bool,
    /// Pods as the API server has them.
    pods: BTreeMap<String, PodView>,
    created: i64,
    /// Groups of all pods that have ever been.
    groups: BTreeMap<String, usize>,
    /// What the watch of pods hasn't shown yet.
    unseen: VecDeque<PodView>,
    machines: Vec<Machine>,
    specs: [Option<PodGroupSpec>; 2],
    limits: [Option<u64>; 2],
    /// What the namespace held of all GPUs, and of T4s, at the last check.
    used: [u64; 2],
    /// Steps that are being written.
    busy: Vec<Step>,
    /// Whether a scheduler has bound a pod elsewhere than planned: what follows is the nodes' affair.
    is_wild: bool,
    now: Instant,
    passed: u64,
}

fn group(at: usize) -> PodGroup {
    PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: GROUPS[at].into() }
}

/// The first node has two GPUs, the second one, the third one of another model.
fn machine(at: usize) -> GpuNode {
    let mut machine = node(NAMES[at], [2, 1, 1][at]);
    if at == 2 {
        status(&mut machine).cards[0].model = T4.into();
    }
    machine
}

fn labels(pool: &str) -> BTreeMap<String, String> {
    [("pool".to_owned(), pool.to_owned())].into()
}

// === impl Machine ===

impl Machine {
    fn new() -> Self {
        let resources = Resources { cpu_milli: 4000, others: [("pods".into(), 6)].into() };
        let object = NodeObject { allocatable: Some(resources), labels: labels("x"), ..NodeObject::default() };
        Self { shares: Vec::new(), object }
    }

    fn held(&self, card: usize) -> u64 {
        self.shares.iter().filter(|(_, on, _)| *on == card).map(|(.., gib)| gib).sum()
    }
}

// === impl Cluster ===

impl Cluster {
    fn new(preempts: bool, are_equal: bool) -> Self {
        let mut cluster = Self {
            index: Index::new(SchedulingConfig::default()),
            preempts,
            are_equal,
            pods: BTreeMap::new(),
            created: 0,
            groups: BTreeMap::new(),
            unseen: VecDeque::new(),
            machines: NAMES.iter().map(|_| Machine::new()).collect(),
            specs: [None, None],
            limits: [None, None],
            used: [0, 0],
            busy: Vec::new(),
            is_wild: false,
            now: Instant::now(),
            passed: 0,
        };
        cluster.index = cluster.leader(false);
        cluster
    }

    /// A new leader, which reads all that the API server has.
    fn leader(&self, pods_first: bool) -> Index {
        let planned = ours();
        let index = Index::new(SchedulingConfig { planned, preempts: self.preempts, ..SchedulingConfig::default() });
        let show_pods = || self.pods.values().for_each(|pod| index.apply_pod(pod, self.now));
        if pods_first {
            show_pods();
        }
        for (at, name) in NAMES.iter().enumerate() {
            index.apply_node(name, self.machines[at].object.clone());
            index.apply_gpu_node(name, &self.report(at));
        }
        index.keep_nodes(&NAMES.iter().map(|name| (*name).to_owned()).collect());
        (0..2).for_each(|at| self.tell_quota(&index, at));
        for (at, spec) in self.specs.iter().enumerate() {
            if let Some(spec) = spec {
                index.apply_pod_group(group(at), *spec);
            }
        }
        if !pods_first {
            show_pods();
        }
        index.begin_list();
        self.pods.values().for_each(|pod| index.apply_listed(pod, self.now));
        index.end_list();
        index
    }

    fn report(&self, at: usize) -> GpuNode {
        let mut machine = machine(at);
        let shares = self.machines[at].shares.iter();
        let shares = shares.map(|(pod, card, gib)| share(&machine, pod, *card, *gib, 0)).collect();
        status(&mut machine).shares = shares;
        machine
    }

    fn tell_quota(&self, index: &Index, at: usize) {
        let name = ["all", "some"][at];
        let spec = |gpus: u64| -> Value {
            let models = [json!([]), json!([format!("={T4}")])];
            json!({ "models": models[at], "hard": { "gpu": gpus } })
        };
        match self.limits[at] {
            Some(gpus) => {
                let spec: GpuQuotaSpec = serde_json::from_value(spec(gpus)).expect("a quota");
                index.apply_quota("default", name, Ok(&spec));
            }
            None => index.delete_quota("default", name),
        }
    }

    /// Changes a pod in the API server.
    fn write(&mut self, uid: &str, change: impl FnOnce(&mut PodView)) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let before = pod.clone();
        change(pod);
        if *pod != before {
            self.unseen.push_back(pod.clone());
        }
    }

    fn end(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            self.unseen.push_back(PodView { ended: true, ..pod });
            for at in 0..NAMES.len() {
                self.machines[at].shares.retain(|(pod, ..)| pod != uid);
            }
        }
    }

    fn show(&mut self, most: usize) {
        for _ in 0..most {
            let Some(pod) = self.unseen.pop_front() else { return };
            self.index.apply_pod(&pod, self.now);
        }
    }

    fn create(&mut self, new: &New) {
        self.created += 1;
        let mut scheduling = terms(new.gates);
        scheduling.created = Timestamp::from_second(self.created).ok();
        let of_group = new.group.filter(|_| self.are_equal).map(|at| [(1, 20, 500, None), (1, 40, 0, Some("x"))][at]);
        let (cards, gib, cpu_milli, pool) = of_group.unwrap_or((new.cards, new.gib, new.cpu_milli, new.pool));
        scheduling.selection = NodeSelection::new(pool.map(labels), None, None);
        let made = PodView {
            priority: new.priority,
            requests: Resources::of_cpu(cpu_milli),
            group: new.group.map(|at| group(at).into()),
            scheduling: scheduling.into(),
            ..pod(&format!("p{}", self.created), cards, gib, 0)
        };
        self.groups.extend(new.group.map(|at| (made.uid.clone(), at)));
        self.pods.insert(made.uid.clone(), made.clone());
        self.unseen.push_back(made);
    }

    fn plan(&mut self, most: usize) -> Result<usize, TestCaseError> {
        let before: Vec<usize> = (0..2).map(|at| self.placed(at)).collect();
        let busy = self.busy.iter().map(|step| Arc::clone(step.uid())).collect();
        let (steps, _) = self.index.plan(most, ENOUGH, &busy, self.now);
        for step in &steps {
            if let Step::Place { demand, planned } = step {
                let pod = self.pods.get(&*demand.uid);
                prop_assert!(pod.is_none_or(|pod| !pod.scheduling.has_other_gates()) || !self.unseen.is_empty());
                prop_assert!(NAMES.contains(&&*planned.node));
            }
        }
        for (at, before) in before.into_iter().enumerate() {
            let (after, min) = (self.placed(at), self.specs[at].map_or(1, |spec| spec.min));
            prop_assert!(after <= before || after >= min, "{}: {before}, then {after} of {min}", GROUPS[at]);
        }
        let count = steps.len();
        self.busy.extend(steps);
        Ok(count)
    }

    /// Members that the index knows to be on a node, or to have a place.
    fn placed(&self, at: usize) -> usize {
        let waiting: HashSet<Arc<str>> = self.index.waiting().iter().map(|demand| Arc::clone(&demand.uid)).collect();
        let known = self.index.pods();
        known.difference(&waiting).filter(|uid| self.groups.get(&***uid) == Some(&at)).count()
    }

    fn write_step(&mut self, step: &Step, outcome: Outcome) {
        let (requests, all) = match step {
            Step::Place { .. } => (2, Outcome::Made),
            Step::Evict { .. } | Step::LetGo { .. } | Step::Withdraw { .. } => (1, Outcome::Made),
        };
        let made = match outcome {
            Outcome::Made => requests,
            Outcome::Refused(made) => made.min(requests - 1),
            Outcome::Unknown(made) => made.min(requests),
        };
        let is_gone = !self.pods.contains_key(&**step.uid());
        for request in 0..made {
            self.request(step, request);
        }
        match (step, outcome) {
            (Step::Place { .. }, _) if is_gone && outcome == all => self.index.refused(step, self.now),
            (Step::Place { .. }, Outcome::Made) => self.index.nominated(step.uid(), self.now),
            (Step::LetGo { uid, .. }, Outcome::Made) => self.index.ungated(uid),
            (Step::Withdraw { demand }, Outcome::Made) => self.index.withdrawn(&demand.uid, self.now),
            (Step::Evict { .. }, Outcome::Made) | (Step::Place { .. }, Outcome::Unknown(_)) => {}
            (_, Outcome::Refused(_) | Outcome::Unknown(_)) => match step {
                Step::Evict { victims, .. } if matches!(outcome, Outcome::Refused(_)) => {
                    self.index.kept_by_budget(step, &victims[0].uid, self.now);
                }
                _ => self.index.refused(step, self.now),
            },
        }
    }

    fn request(&mut self, step: &Step, number: usize) {
        match step {
            Step::Place { demand, planned } => {
                let (first, plan) = (demand.scheduling.has_our_gate(), annotation::encode(planned));
                self.write(&demand.uid, |pod| {
                    if (number == 0) == first {
                        (pod.nominated, pod.is_placed) = (Some(planned.node.clone()), true);
                    } else {
                        pod.annotations.insert(PLANNED.to_owned(), plan);
                        Arc::make_mut(&mut pod.scheduling).gates.retain(|gate| !first || gate != GATE);
                    }
                });
            }
            Step::LetGo { uid, .. } => {
                self.write(uid, |pod| Arc::make_mut(&mut pod.scheduling).gates.retain(|gate| gate != GATE));
            }
            Step::Evict { victims, .. } => victims.iter().for_each(|victim| self.end(&victim.uid)),
            Step::Withdraw { demand } => {
                self.write(&demand.uid, |pod| (pod.nominated, pod.is_placed) = (None, false));
            }
        }
    }

    /// CPU and pods that are still to be had of a node, by the API server.
    fn has_sums(&self, at: usize, pod: &PodView) -> bool {
        let there = self.pods.values().filter(|other| other.node.as_deref() == Some(NAMES[at]));
        let (mut cpu, mut pods) = (pod.requests.cpu_milli, 1);
        there.for_each(|other| (cpu, pods) = (cpu + other.requests.cpu_milli, pods + 1));
        let NodeObject { allocatable, unschedulable, labels, taints, .. } = &self.machines[at].object;
        let allocatable = allocatable.as_ref().expect("known");
        // Who requests nothing of it fits where there is too little (`fitsRequest` of kube-scheduler).
        (pod.requests.cpu_milli == 0 || cpu <= allocatable.cpu_milli)
            && allocatable.amount("pods").is_none_or(|most| pods <= most)
            && unschedulable.is_none()
            && pod.scheduling.selection.matches(NAMES[at], labels, taints)
    }

    fn schedule(&mut self, uid: &str, decision: Decision) {
        let Some(pod) = self.pods.get(uid).cloned() else { return };
        let is_deleted = matches!(pod.end, PodEnd::Deleted { .. });
        if pod.node.is_some() || !pod.scheduling.gates.is_empty() || is_deleted {
            return;
        }
        let nominated = pod.nominated.as_deref().and_then(|name| NAMES.iter().position(|node| *node == name));
        match decision {
            Decision::Bind => {
                let Some(at) = nominated.filter(|at| self.has_sums(*at, &pod)) else { return };
                let planned = pod.annotations.get(PLANNED).and_then(|plan| annotation::decode::<Planned>(plan).ok());
                let state = self.index.state();
                let is_in_vain = state.waits(uid).is_some_and(|demand| state.is_in_vain(demand));
                drop(state);
                self.is_wild |= is_in_vain || planned.is_none_or(|planned| planned.node != NAMES[at]);
                self.write(uid, |pod| pod.node = Some(NAMES[at].to_owned()));
            }
            Decision::BindTo(at) if self.has_sums(at, &pod) => {
                self.is_wild = true;
                self.write(uid, |pod| pod.node = Some(NAMES[at].to_owned()));
            }
            Decision::BindTo(_) => {}
            Decision::Clear => self.write(uid, |pod| (pod.nominated, pod.is_unschedulable) = (None, true)),
            Decision::Nominate(at) => {
                self.is_wild = true;
                self.write(uid, |pod| pod.nominated = Some(NAMES[at].to_owned()));
            }
        }
    }

    /// A node admits its pods, by their plans or as it fits, and reports.
    fn admit(&mut self, at: usize) {
        let bound = |pod: &&PodView| pod.node.as_deref() == Some(NAMES[at]) && !pod.containers.is_empty();
        for pod in self.pods.values().filter(bound).cloned().collect::<Vec<_>>() {
            let machine = &mut self.machines[at];
            if machine.shares.iter().any(|(uid, ..)| *uid == pod.uid) {
                continue;
            }
            let demand = demand(&pod);
            let gib = demand.size().2 >> 10;
            let cards = (0..[2, 1, 1][at]).filter(|card| machine.held(*card) + gib <= CARD);
            let mut cards: Vec<usize> = cards.collect();
            let wanted = demand.size().0 as usize;
            if cards.len() < wanted {
                self.end(&pod.uid);
                continue;
            }
            let planned = pod.annotations.get(PLANNED).and_then(|plan| annotation::decode::<Planned>(plan).ok());
            let planned = planned.filter(|planned| planned.node == NAMES[at]);
            let is_planned = |card: &usize| {
                let name = format!("GPU-{}-{card}", NAMES[at]);
                planned.iter().any(|planned| planned.containers["main"].chosen.iter().any(|id| id.as_str() == name))
            };
            cards.sort_by_key(|card| !is_planned(card));
            machine.shares.extend(cards[..wanted].iter().map(|card| (pod.uid.clone(), *card, gib)));
        }
        self.index.apply_gpu_node(NAMES[at], &self.report(at));
    }

    fn change_node(&mut self, at: usize, change: impl FnOnce(&mut NodeObject)) {
        change(&mut self.machines[at].object);
        self.index.apply_node(NAMES[at], self.machines[at].object.clone());
    }

    fn picked(&self, pick: Pick) -> Option<String> {
        let uids: Vec<&String> = self.pods.keys().collect();
        (!uids.is_empty()).then(|| (*pick.get(&uids)).clone())
    }

    fn happen(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match event {
            Event::Create(new) => self.create(new),
            Event::Other(at) => {
                self.created += 1;
                let uid = format!("p{}", self.created);
                let (node, requests) = (Some(NAMES[*at].to_owned()), Resources::of_cpu(2500));
                let other = PodView { node, requests, containers: Vec::new(), ..pod(&uid, 1, 1, 0) };
                self.pods.insert(uid, other.clone());
                self.unseen.push_back(other);
            }
            Event::OtherGateGoes(pick) => {
                if let Some(uid) = self.picked(*pick) {
                    self.write(&uid, |pod| {
                        Arc::make_mut(&mut pod.scheduling).gates.retain(|gate| gate == GATE);
                    });
                }
            }
            Event::Plan(most) => drop(self.plan(*most)?),
            Event::Write(pick, outcome) => {
                if !self.busy.is_empty() {
                    let step = self.busy.remove(pick.index(self.busy.len()));
                    self.write_step(&step, *outcome);
                }
            }
            Event::Show(most) => self.show(*most),
            Event::Schedule(pick, decision) => {
                self.picked(*pick).into_iter().for_each(|uid| self.schedule(&uid, *decision));
            }
            Event::Delete(pick) => self.picked(*pick).into_iter().for_each(|uid| {
                self.write(&uid, |pod| pod.end = PodEnd::Deleted { at: Timestamp::UNIX_EPOCH });
            }),
            Event::Report(at) => self.admit(*at),
            Event::End(pick) => self.picked(*pick).into_iter().for_each(|uid| self.end(&uid)),
            Event::Cordon(at) => self.change_node(*at, |node| {
                node.unschedulable = node.unschedulable.xor(Some(Unschedulable::Cordoned));
            }),
            Event::Taint(at) => self.change_node(*at, |node| {
                if node.taints.pop().is_none() {
                    let taint = Taint { key: "maintenance".into(), effect: "NoSchedule".into(), ..Taint::default() };
                    node.taints.push(taint);
                }
            }),
            Event::Relabel(at) => self.change_node(*at, |node| {
                let pool = if node.labels == labels("x") { "y" } else { "x" };
                node.labels = labels(pool);
            }),
            Event::Resize(at, cpu) => self.change_node(*at, |node| {
                node.allocatable.iter_mut().for_each(|allocatable| allocatable.cpu_milli = *cpu);
            }),
            Event::Quota(all, some) => {
                self.limits = [*all, *some];
                (0..2).for_each(|at| self.tell_quota(&self.index, at));
            }
            Event::Group(at, min) => {
                self.specs[*at] = min.map(|min| PodGroupSpec { min });
                match self.specs[*at] {
                    Some(spec) => self.index.apply_pod_group(group(*at), spec),
                    None => self.index.delete_pod_group(&group(*at)),
                }
            }
            Event::Failover(pods_first) => {
                // What the last leader was writing is written now, or never.
                for (number, step) in std::mem::take(&mut self.busy).into_iter().enumerate() {
                    let made = if matches!(step, Step::Place { .. }) { number % 3 } else { 0 };
                    (0..made).for_each(|request| self.request(&step, request));
                }
                self.unseen.clear();
                self.index = self.leader(*pods_first);
            }
            Event::Seconds(seconds) => self.pass(*seconds),
        }
        Ok(())
    }

    /// No longer than a nomination is waited for.
    fn pass(&mut self, seconds: u64) {
        if self.passed + seconds < REPORTED_WITHIN.as_secs() {
            self.passed += seconds;
            self.now += Duration::from_secs(seconds);
            self.index.expire(self.now);
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let snapshot = self.index.snapshot();
        // A pod that has ended counts for no quota, though its node may not have said yet that its GPUs are free.
        let known = self.index.pods();
        let holders = || snapshot.nodes().flat_map(|node| node.holders.iter().map(move |holder| (node, holder)));
        let counted = |model: Option<&str>| -> u64 {
            let there = holders().filter(|(_, holder)| known.contains(&holder.uid));
            let models = there.flat_map(|(node, holder)| holder.on.iter().map(|taken| &node.cards()[taken.card].model));
            models.filter(|of| model.is_none_or(|model| ***of == *model)).count() as u64
        };
        let used = [counted(None), counted(Some(T4))];
        if !self.is_wild && !self.preempts {
            let mut cards = snapshot.nodes().flat_map(|node| node.state.each());
            let overfilled = cards.find(|(card, held)| held.memory > card.memory_capacity());
            prop_assert!(overfilled.is_none(), "{overfilled:?}");
            for (at, used) in used.into_iter().enumerate() {
                let limit = self.limits[at].unwrap_or(u64::MAX).max(self.used[at]);
                prop_assert!(used <= limit, "{used} of {limit}");
            }
        }
        self.used = used;
        Ok(())
    }

    /// Everything is written and shown, and nobody does anything but the planner and a scheduler that follows it, until the planner
    /// has nothing to do.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for step in std::mem::take(&mut self.busy) {
            self.write_step(&step, Outcome::Made);
        }
        for (uid, pod) in self.pods.clone() {
            let planned = pod.annotations.get(PLANNED).and_then(|plan| annotation::decode::<Planned>(plan).ok());
            if pod.node.is_none() && planned.map(|planned| planned.node) != pod.nominated {
                self.write(&uid, |pod| pod.nominated = None);
            }
        }
        let (mut idle, mut last) = (0, Vec::new());
        // As long as turned down pods are left alone.
        for _ in 0..3000 {
            self.show(usize::MAX);
            (0..NAMES.len()).for_each(|at| self.admit(at));
            self.show(usize::MAX);
            self.now += Duration::from_secs(1);
            self.index.expire(self.now);
            let rests = self.index.waiting().iter().any(|demand| self.index.state().queue.rests(&demand.uid, self.now));
            idle = if self.plan(3)? == 0 && !rests { idle + 1 } else { 0 };
            // As long as an unanswered write counts.
            if idle > BOUND_WITHIN.as_secs() {
                return Ok(());
            }
            last = std::mem::take(&mut self.busy);
            for step in &last {
                self.write_step(step, Outcome::Made);
            }
            self.pods.keys().cloned().collect::<Vec<_>>().iter().for_each(|uid| self.schedule(uid, Decision::Bind));
        }
        Err(TestCaseError::fail(format!("the planner finds no end: {last:?}")))
    }

    /// Who waits has a reason for it.
    fn check_settled(&mut self) -> Result<(), TestCaseError> {
        for demand in self.index.waiting() {
            if demand.scheduling.has_other_gates() {
                continue;
            }
            let at = (0..2).find(|at| demand.group.as_deref() == Some(&group(*at)));
            let starts_alone = at.is_none_or(|at| {
                let min = self.specs[at].map_or(1, |spec| spec.min);
                min <= 1 || self.placed(at) >= min
            });
            if !starts_alone {
                continue;
            }
            let snapshot = self.index.snapshot_for(&demand);
            let allowed = demand.avoiding(snapshot.exceeded());
            let policy = demand.policies(self.index.config()).cards;
            let fits = |node: &&Arc<Node>| {
                node.takes(&demand)
                    && node.refusal(&demand).is_none()
                    && plan(&node.state, &allowed.request(), &policy).is_ok()
            };
            let fitting = snapshot.nodes().find(fits).map(|node| &node.name);
            prop_assert!(fitting.is_none(), "{} waits and fits on {fitting:?}", demand.uid);
        }
        let waiting: HashSet<Arc<str>> = self.index.waiting().iter().map(|demand| Arc::clone(&demand.uid)).collect();
        let is_deleted = |pod: &PodView| matches!(pod.end, PodEnd::Deleted { .. });
        let unbound = self.pods.values().filter(|pod| pod.node.is_none() && !is_deleted(pod));
        for pod in unbound.filter(|pod| !waiting.contains(&*pod.uid)) {
            let is_nominated = pod.nominated.is_some() && pod.annotations.contains_key(PLANNED);
            prop_assert!(is_nominated && pod.scheduling.gates.is_empty(), "{} isn't waiting: {pod:?}", pod.uid);
        }
        let next = self.leader(false);
        let (mut steps, _) = next.plan(usize::MAX, ENOUGH, &HashSet::new(), self.now);
        steps.retain(|step| self.are_equal || !self.groups.contains_key(&**step.uid()));
        prop_assert!(steps.is_empty(), "a new leader finds {steps:?}");
        Ok(())
    }

    /// Nothing is left of pods that have ended.
    fn check_empty(&mut self) -> Result<(), TestCaseError> {
        self.pods.keys().cloned().collect::<Vec<_>>().iter().for_each(|uid| self.end(uid));
        self.show(usize::MAX);
        (0..NAMES.len()).for_each(|at| self.admit(at));
        prop_assert_eq!(self.plan(9)?, 0);
        let state = self.index.state();
        prop_assert_eq!(state.reservations().count() + state.preemptors().len(), 0);
        prop_assert!(state.queue.first().is_none() && state.queue.parked().next().is_none());
        prop_assert!(state.astray.is_empty() && state.in_vain.is_empty() && state.queue.has_no_rests());
        drop(state);
        let snapshot = self.index.snapshot();
        prop_assert!(snapshot.nodes().flat_map(|node| &node.state.held).all(|held| held.pods == 0));
        prop_assert_eq!(self.index.pods().len(), 0);
        Ok(())
    }
}

fn new() -> impl Strategy<Value = New> {
    let gates = prop::sample::select(vec![&[GATE][..], &[GATE], &[GATE], &[], &[GATE, "quota"]]);
    let group = prop::sample::select(vec![None, None, Some(0), Some(1)]);
    let pool = prop::sample::select(vec![None, None, Some("x"), Some("y")]);
    let cpu = prop::sample::select(vec![0u32, 500, 2500]);
    let size = (1u32..=2, prop::sample::select(vec![10u64, 20, 30, 40]), cpu);
    (size, prop::sample::select(vec![0, 0, 5]), gates, group, pool).prop_map(|(size, priority, gates, group, pool)| {
        let (cards, gib, cpu_milli) = size;
        New { cards, gib, cpu_milli, priority, gates, group, pool }
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Made),
        2 => (0..2usize).prop_map(Outcome::Refused),
        2 => (0..3usize).prop_map(Outcome::Unknown),
    ]
}

fn decision() -> impl Strategy<Value = Decision> {
    prop_oneof![
        8 => Just(Decision::Bind),
        2 => Just(Decision::Clear),
        1 => (0..3usize).prop_map(Decision::BindTo),
        1 => (0..3usize).prop_map(Decision::Nominate),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let at = || 0..3usize;
    let gpus = || prop::option::of(0..5u64);
    prop_oneof![
        12 => new().prop_map(Event::Create),
        4 => at().prop_map(Event::Other),
        2 => any::<Pick>().prop_map(Event::OtherGateGoes),
        10 => (1..5usize).prop_map(Event::Plan),
        12 => (any::<Pick>(), outcome()).prop_map(|(which, outcome)| Event::Write(which, outcome)),
        12 => (1..6usize).prop_map(Event::Show),
        8 => (any::<Pick>(), decision()).prop_map(|(which, decision)| Event::Schedule(which, decision)),
        2 => any::<Pick>().prop_map(Event::Delete),
        6 => at().prop_map(Event::Report),
        5 => any::<Pick>().prop_map(Event::End),
        1 => at().prop_map(Event::Cordon),
        1 => at().prop_map(Event::Taint),
        1 => at().prop_map(Event::Relabel),
        1 => (at(), prop::sample::select(vec![1000u32, 4000, 8000])).prop_map(|(at, cpu)| Event::Resize(at, cpu)),
        2 => (gpus(), gpus()).prop_map(|(all, some)| Event::Quota(all, some)),
        3 => (0..2usize, prop::option::weighted(0.8, 1..4usize)).prop_map(|(at, min)| Event::Group(at, min)),
        1 => any::<bool>().prop_map(Event::Failover),
        3 => (0..12u64).prop_map(Event::Seconds),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_pod_that_fits_gets_a_place_and_no_gpu_two_pods(
        preempts in prop::bool::weighted(0.2),
        are_equal in any::<bool>(),
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut cluster = Cluster::new(preempts, are_equal);
        for event in &events {
            cluster.happen(event)?;
            cluster.check().map_err(|error| TestCaseError::fail(format!("after {event:?}: {error}")))?;
        }
        cluster.settle()?;
        cluster.check_settled()?;
        cluster.check_empty()?;
    }
}
