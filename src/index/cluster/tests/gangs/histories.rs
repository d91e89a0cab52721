//! Whatever a scheduler asks in whatever order, no group has GPUs held for too few of its pods, none holds them for longer than
//! it may, after its `PodGroup` is deleted, or beyond a quota, and all groups that fit get their turn.
//!
//! The scheduler goes on by single pods as the coscheduling plugin does, or by whole groups as kube-scheduler does since 1.36.
//! It keeps a node for each pod that it has found one for, and binds all of them when they are enough. By single pods it gives up
//! all of them when one finds no node, when the time is over, or when nothing has been asked for a while; by groups, when all have
//! been asked for. Pods whose group is none, or is deleted, are placed one by one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index as Pick;

use super::*;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
const GROUPS: [&str; 3] = ["a", "b", "c"];
/// Nothing is held for a group that nobody has asked for this long.
const FORGOTTEN: Duration = Duration::from_secs(20);

/// A group as its owner wrote it.
#[derive(Clone, Debug)]
struct Job {
    min: usize,
    /// Cards and GiB of each pod.
    pods: Vec<(u32, u64)>,
}

#[derive(Clone, Debug)]
enum Event {
    /// The scheduler asks for a pod of a group, without some of the nodes.
    Ask {
        group: usize,
        pod: Pick,
        nodes: [bool; 3],
    },
    /// It asks for all pods of a group, one after another.
    AskAll {
        group: usize,
        nodes: [bool; 3],
    },
    /// Another pod is bound, or has ended.
    Other {
        bound: bool,
        node: usize,
    },
    /// A group's pods end and come anew, with their group.
    Restart(usize),
    /// A `PodGroup` is deleted, and its pods aren't.
    Delete(usize),
    /// The namespace may hold so many GPUs.
    Limit(Option<u64>),
    Seconds(u64),
}

struct Scheduler {
    index: Index,
    jobs: Vec<Job>,
    /// How often the pods of each group have come.
    lives: [usize; 3],
    /// Where pods are to go that aren't bound.
    assumed: [BTreeMap<String, &'static str>; 3],
    bound: [BTreeMap<String, &'static str>; 3],
    /// Since when GPUs are held for each group.
    held_since: [Option<Instant>; 3],
    /// When each group was asked for last.
    asked: [Option<Instant>; 3],
    is_deleted: [bool; 3],
    /// GPUs that the namespace may hold, and had at the last check.
    limit: Option<u64>,
    used: u64,
    others: usize,
    now: Instant,
}

// === impl Scheduler ===

impl Scheduler {
    fn new(cards: [usize; 3], jobs: Vec<Job>) -> Self {
        let nodes: Vec<GpuNode> = NAMES.iter().zip(cards).map(|(name, cards)| node(name, cards)).collect();
        let index = index(&nodes.iter().collect::<Vec<_>>());
        let (assumed, bound) = (<[_; 3]>::default(), <[_; 3]>::default());
        let mut all = Self {
            index,
            jobs,
            lives: [0; 3],
            assumed,
            bound,
            held_since: [None; 3],
            asked: [None; 3],
            is_deleted: [false; 3],
            limit: None,
            used: 0,
            others: 0,
            now: Instant::now(),
        };
        (0..GROUPS.len()).for_each(|at| all.come(at));
        all
    }

    fn pods(&self, at: usize) -> Vec<PodView> {
        let pod = |(number, (cards, gib)): (usize, &(u32, u64))| PodView {
            group: Some(group(GROUPS[at]).into()),
            ..pod(&format!("{}-{}-{number}", GROUPS[at], self.lives[at]), *cards, *gib, 0)
        };
        self.jobs[at].pods.iter().enumerate().map(pod).collect()
    }

    fn come(&mut self, at: usize) {
        self.lives[at] += 1;
        self.is_deleted[at] = false;
        self.index.apply_pod_group(group(GROUPS[at]), PodGroupSpec { min: self.jobs[at].min, wait: WAIT });
        self.pods(at).iter().for_each(|pod| self.index.apply_pod(pod, self.now));
    }

    fn restart(&mut self, at: usize) {
        self.pods(at).iter().for_each(|pod| self.index.delete_pod(&pod.uid));
        self.assumed[at].clear();
        self.bound[at].clear();
        self.come(at);
    }

    /// Pods of which none starts alone.
    fn min(&self, at: usize) -> usize {
        if self.is_deleted[at] { 1 } else { self.jobs[at].min }
    }

    /// Whether a node is found.
    fn ask(&mut self, at: usize, pod: &PodView, nodes: &[&'static str]) -> bool {
        if self.assumed[at].contains_key(&pod.uid) || self.bound[at].contains_key(&pod.uid) {
            return true; // a scheduler asks once
        }
        self.asked[at] = Some(self.now);
        let demand = demand(pod);
        match self.index.hold(&demand, nodes, self.now) {
            Held::At(node) => self.assumed[at].insert(pod.uid.clone(), nodes[node]).is_none(),
            Held::Refused(_) => false,
            Held::Nothing if self.min(at) == 1 => {
                let exceeded = self.index.exceeded(&demand);
                let allowed = demand.avoiding(&exceeded);
                let fitting = self.index.rank(&Query::new(&allowed, self.index.config()), nodes, true).fitting;
                let node = fitting.first().map(|(node, _)| nodes[node.name]);
                node.is_some_and(|node| self.assumed[at].insert(pod.uid.clone(), node).is_none())
            }
            held @ (Held::Nothing | Held::Unseen(_)) => panic!("{held:?}: all is known"),
        }
    }

    fn ask_all(&mut self, at: usize, nodes: &[&'static str]) {
        for pod in self.pods(at) {
            self.ask(at, &pod, nodes);
        }
        self.bind(at);
        self.assumed[at].clear();
    }

    fn bind(&mut self, at: usize) {
        if self.assumed[at].len() + self.bound[at].len() < self.min(at) {
            return;
        }
        // What a quota refuses was held before the quota was lowered, and then nothing is held for the others either.
        let mut may_fail = self.min(at) == 1;
        for (uid, node) in std::mem::take(&mut self.assumed[at]) {
            let pod = self.pods(at).into_iter().find(|pod| pod.uid == uid).expect("one of the group's");
            match self.index.reserve(&demand(&pod), node, self.now) {
                Ok(planned) => {
                    self.index.apply_pod(&bound(pod, &planned), self.now);
                    self.bound[at].insert(uid, node);
                }
                Err(refused) => {
                    may_fail |= matches!(refused, NotReserved::Exceeded { .. });
                    assert!(may_fail, "GPUs were held for it: {refused}");
                }
            }
        }
    }

    fn limit(&mut self, gpus: Option<u64>) {
        self.limit = gpus;
        match gpus {
            Some(gpus) => limit(&self.index, gpus),
            None => self.index.delete_quota("default", "few"),
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.index.expire(self.now);
        for at in 0..GROUPS.len() {
            let is_forgotten = self.asked[at].is_none_or(|asked| asked + FORGOTTEN <= self.now);
            if is_forgotten || self.held_since[at].is_some_and(|since| since + WAIT <= self.now) {
                self.assumed[at].clear();
            }
        }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Ask { group, pod, nodes } => {
                let pods = self.pods(*group);
                if !self.ask(*group, pod.get(&pods), &named(*nodes)) {
                    self.assumed[*group].clear();
                }
                self.bind(*group);
            }
            Event::AskAll { group, nodes } => self.ask_all(*group, &named(*nodes)),
            Event::Other { bound: true, node } => {
                self.others += 1;
                let other = pod(&format!("other-{}", self.others), 1, 20, 0);
                if let Ok(planned) = self.index.reserve(&demand(&other), NAMES[*node], self.now) {
                    self.index.apply_pod(&bound(other, &planned), self.now);
                }
            }
            Event::Other { bound: false, .. } => self.index.delete_pod(&format!("other-{}", self.others)),
            Event::Restart(group) => self.restart(*group),
            Event::Delete(group) => {
                self.index.delete_pod_group(&super::group(GROUPS[*group]));
                self.is_deleted[*group] = true;
                self.assumed[*group].clear();
            }
            Event::Limit(gpus) => self.limit(*gpus),
            Event::Seconds(seconds) => self.pass(*seconds),
        }
    }

    fn check(&mut self) {
        for name in NAMES {
            let node = self.index.node(name).expect("a node");
            let overfilled = node.cards.iter().find(|card| card.held.memory > card.memory_capacity);
            assert!(overfilled.is_none(), "{overfilled:?}");
        }
        let held = self.index.held();
        for (at, name) in GROUPS.iter().enumerate() {
            let of_group = held.iter().filter(|held| held.group.name == *name).count();
            let (bound, min) = (self.bound[at].len(), self.jobs[at].min);
            assert!(of_group == 0 || !self.is_deleted[at], "{name} is deleted, and holds {of_group}");
            let is_asked = self.asked[at].is_some_and(|asked| self.now < asked + FORGOTTEN);
            assert!(of_group == 0 || is_asked, "nobody asks for {name}");
            assert!(of_group == 0 || of_group + bound >= min, "{name}: {of_group} held and {bound} bound of {min}");
            let since = (of_group > 0).then(|| self.held_since[at].unwrap_or(self.now));
            assert!(since.is_none_or(|since| self.now < since + WAIT), "{name} is held for too long");
            self.held_since[at] = since;
        }
        let nodes = self.index.nodes();
        let used = nodes.iter().flat_map(|node| &node.cards).map(|card| u64::from(card.held.pods)).sum();
        let limit = self.limit.unwrap_or(u64::MAX);
        assert!(used <= limit.max(self.used), "{used} of {limit}, and {} before", self.used);
        self.used = used;
    }

    /// Whether as many members as start together are sure to find their GPUs on empty nodes: pods are placed one after another,
    /// and only where each has one GPU is that as good as any search.
    fn fits_alone(cards: [usize; 3], job: &Job) -> bool {
        let mut alone = Self::new(cards, vec![job.clone(), job.clone(), job.clone()]);
        alone.round(0);
        job.pods.iter().all(|(cards, _)| *cards == 1) && alone.bound[0].len() >= job.min
    }

    fn round(&mut self, at: usize) {
        self.ask_all(at, &NAMES);
        self.check();
    }
}

fn named(nodes: [bool; 3]) -> Vec<&'static str> {
    NAMES.into_iter().zip(nodes).filter(|(_, is)| *is).map(|(name, _)| name).collect()
}

fn job() -> impl Strategy<Value = Job> {
    let pods = prop::collection::vec((1..3_u32, prop_oneof![Just(20_u64), Just(40)]), 1..6);
    (pods, any::<Pick>()).prop_map(|(pods, min)| Job { min: 1 + min.index(pods.len()), pods })
}

fn event() -> impl Strategy<Value = Event> {
    let nodes = || prop_oneof![3 => Just([true; 3]), 1 => any::<[bool; 3]>()];
    prop_oneof![
        12 => (0..3_usize, any::<Pick>(), nodes()).prop_map(|(group, pod, nodes)| Event::Ask { group, pod, nodes }),
        3 => (0..3_usize, nodes()).prop_map(|(group, nodes)| Event::AskAll { group, nodes }),
        2 => (any::<bool>(), 0..3_usize).prop_map(|(bound, node)| Event::Other { bound, node }),
        1 => (0..3_usize).prop_map(Event::Restart),
        1 => (0..3_usize).prop_map(Event::Delete),
        1 => prop::option::of(0..6_u64).prop_map(Event::Limit),
        3 => prop_oneof![0..12_u64, 0..90_u64].prop_map(Event::Seconds),
    ]
}

proptest! {
    #[test]
    fn no_group_holds_gpus_in_vain_or_for_ever(
        cards in [1..5_usize, 0..4, 0..3],
        jobs in prop::collection::vec(job(), 3),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut scheduler = Scheduler::new(cards, jobs.clone());
        for event in &events {
            scheduler.apply(event);
            scheduler.check();
        }
        // Nobody else comes any more, pods end once they are bound, and the scheduler tries all of them every now and then.
        (1..=scheduler.others).for_each(|other| scheduler.index.delete_pod(&format!("other-{other}")));
        scheduler.limit(None);
        (0..3).filter(|at| scheduler.is_deleted[*at]).collect::<Vec<_>>().into_iter().for_each(|at| scheduler.restart(at));
        let mut waiting: Vec<usize> = (0..3).filter(|at| Scheduler::fits_alone(cards, &jobs[*at])).collect();
        for _ in 0..4 * GROUPS.len() {
            for (at, job) in jobs.iter().enumerate() {
                scheduler.round(at);
                if scheduler.bound[at].len() >= job.min {
                    waiting.retain(|waiting| *waiting != at);
                    scheduler.restart(at);
                }
            }
            scheduler.pass(45);
        }
        prop_assert_eq!(waiting, Vec::<usize>::new());
    }
}
