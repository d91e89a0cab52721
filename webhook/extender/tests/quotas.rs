//! `GpuQuota`s: what the extender says of them, and that no history of pods, bindings and leaders spends more.

use std::collections::BTreeMap;

use divvy_api::annotation::{self, Planned, PlannedCards};
use divvy_api::gpunode::{CardStatus, ShareStatus};
use divvy_api::gpuquota::{Amount, GpuQuotaSpec, counted};
use divvy_api::names::annotation::{AVOID_CARD_MODEL, CARD_MODEL, PLANNED};
use divvy_api::pod::peak;
use divvy_api::{ContainerKind, ContainerRequest, Memory, Totals};
use divvy_index::demand::Demand;
use divvy_index::fixture::{AGES, container};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const NODES: [&str; 3] = ["n0", "n1", "n2"];
const T4: &str = "Tesla T4";

fn spec(hard: &Value) -> GpuQuotaSpec {
    serde_json::from_value(json!({"models": ["A100"], "hard": hard})).expect("a quota")
}

/// Three GPUs a node: of one model on n0, of both on n1, of the other on n2.
fn nodes() -> [GpuNode; 3] {
    let mut nodes = NODES.map(|name| node(name, 3));
    for (at, others) in [(1, 2..3), (2, 0..3)] {
        for card in &mut status(&mut nodes[at]).cards[others] {
            (card.model, card.memory) = (T4.into(), Memory::mib(16 << 10));
        }
    }
    nodes
}

fn limited(hard: &Value) -> Extender {
    let extender = extender(&nodes(), 16);
    extender.index.apply_quota("default", "a100", Ok(&spec(hard)));
    extender
}

fn bind(extender: &Extender, pod: &str, node: &str) -> Result<Planned, String> {
    let call = json!({"PodName": pod, "PodNamespace": "default", "PodUID": pod, "Node": node});
    match extender.bind(call.to_string().as_bytes(), Instant::now()).expect("arguments") {
        Bind::Post(binding) => Ok(annotation::decode(&binding.planned).expect("a plan")),
        Bind::Answer(answer) | Bind::Unknown(answer) => Err(String::from_utf8(answer).expect("text")),
    }
}

#[test]
fn models_whose_quota_is_used_up_are_left_out() {
    let extender = limited(&json!({"gpu": 2, "gpumem": "60Gi"}));
    let picky = |name: &str| {
        let mut pod = pod(name, 1, 10, 30);
        pod.annotations.insert(CARD_MODEL.to_owned(), "A100".to_owned());
        pod
    };
    for pod in [picky("a"), picky("b"), pod("c", 1, 10, 30), picky("d")] {
        extender.index.apply_pod(&pod, Instant::now());
    }
    bind(&extender, "a", "n0").expect("one of two");
    let planned = bind(&extender, "b", "n1").expect("two of two");
    assert_eq!(planned.avoid_models, Vec::<String>::new());
    let kept = |pod: &PodView| filter(&extender, &named(pod, &["n0", "n2"]))["NodeNames"].clone();
    assert_eq!(kept(&pod("c", 1, 10, 30)), json!(["n2"]), "the other model is free");
    let planned = bind(&extender, "c", "n1").expect("the other model");
    assert_eq!(planned.containers["main"].chosen[0].as_str(), "GPU-n1-2");
    assert_eq!(planned.avoid_models, ["=NVIDIA A100-SXM4-40GB"], "in case that the node plans anew");
    assert_eq!(kept(&picky("a")), json!(["n0"]), "its own reservation doesn't count");
    let moved = bind(&extender, "a", "n2").expect_err("it may be bound");
    assert!(moved.contains("may have been bound to node n0"), "{moved}");

    let answer = filter(&extender, &named(&picky("d"), &NODES));
    assert_eq!(answer["NodeNames"], json!([]));
    let reason = "exceeded GpuQuota a100, requested: gpu=1, used: gpu=2, limited: gpu=2";
    assert_eq!(answer["FailedAndUnresolvableNodes"]["n0"], reason, "no eviction helps: {answer}");
    let refused = bind(&extender, "d", "n0").expect_err("no more");
    assert!(refused.contains(&format!("node n0: {reason}")), "{refused}");

    let elsewhere = PodView { namespace: "other".to_owned(), ..picky("d") };
    assert_eq!(kept(&elsewhere), json!(["n0"]), "another namespace has no quota");
    extender.index.delete_quota("default", "a100");
    assert_eq!(extender.index.quotas(), []);
    bind(&extender, "d", "n0").expect("no quota any more");
}

#[test]
fn whole_gpus_count_in_full_in_every_amount() {
    let extender = limited(&json!({"gpumem": "100Gi", "gpumem-percentage": 250}));
    extender.index.apply_pod(&pod("whole", 2, 8, 100), Instant::now());
    bind(&extender, "whole", "n0").expect("80 of 100 GiB");
    let used = extender.index.quotas()[0].used;
    assert_eq!(Amount::ALL.map(|amount| amount.in_totals(&used)), [2, 80 << 10, 200, 200]);
    extender.index.apply_pod(&pod("part", 1, 30, 0), Instant::now());
    let refused = bind(&extender, "part", "n0").expect_err("110 GiB");
    let reason = "exceeded GpuQuota a100, requested: gpumem=30Gi,gpumem-percentage=75, used: gpumem=80Gi,gpumem-percentage=200, \
         limited: gpumem=100Gi,gpumem-percentage=250";
    assert!(refused.contains(reason), "{refused}");
}

#[test]
fn quota_that_cannot_be_read_gives_nothing_more() {
    let extender = limited(&json!({"gpumem": "8G"}));
    extender.index.apply_pod(&pod("a", 1, 8, 0), Instant::now());
    let refused = bind(&extender, "a", "n0").expect_err("unreadable");
    assert!(refused.contains("GpuQuota a100 can't be read: spec.hard.gpumem: \\\"8G\\\" is ambiguous"), "{refused}");
}

#[derive(Clone, Debug)]
enum Step {
    Create {
        cards: u32,
        gib: u64,
        cores: u32,
        wish: Option<(&'static str, &'static str)>,
        /// Number and memory of an init container's GPUs.
        init: Option<(u32, u64)>,
    },
    Bind {
        pod: usize,
        node: usize,
    },
    /// The API server answers a Binding.
    Land {
        binding: usize,
        fate: Fate,
    },
    /// The watch shows all pods that are bound.
    Watch,
    /// A daemon reports what the pods of its node hold.
    Report(usize),
    End(usize),
    /// A `GpuNode` is deleted, and its daemon makes it again with its next report.
    Delete(usize),
    Quota {
        gpu: Option<u64>,
        gib: Option<u64>,
    },
    /// Another replica leads, which knows what the API server has.
    Failover,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Bound,
    Refused,
    AnswerLost,
}

fn steps() -> impl Strategy<Value = Step> {
    let wish = select(vec![None, None, None, Some((CARD_MODEL, "A100")), Some((AVOID_CARD_MODEL, "A100"))]);
    let init = prop::option::of((1u32..3, select(vec![4u64, 14])));
    let create = (1u32..3, select(vec![4u64, 10, 14]), select(vec![0u32, 30, 100]), wish, init);
    let quota = (prop::option::of(0u64..6), prop::option::of(0u64..120));
    prop_oneof![
        3 => create.prop_map(|(cards, gib, cores, wish, init)| Step::Create { cards, gib, cores, wish, init }),
        8 => (0usize..12, 0..NODES.len()).prop_map(|(pod, node)| Step::Bind { pod, node }),
        6 => (0usize..4, select(vec![Fate::Bound, Fate::Bound, Fate::Refused, Fate::AnswerLost]))
            .prop_map(|(binding, fate)| Step::Land { binding, fate }),
        2 => Just(Step::Watch),
        3 => (0..NODES.len()).prop_map(Step::Report),
        2 => (0usize..12).prop_map(Step::End),
        1 => (0..NODES.len()).prop_map(Step::Delete),
        1 => quota.prop_map(|(gpu, gib)| Step::Quota { gpu, gib }),
        1 => Just(Step::Failover),
    ]
}

/// What the API server has, and the leader.
struct World {
    leader: Extender,
    quota: GpuQuotaSpec,
    reports: [GpuNode; 3],
    /// By UID, with node and plan once they are bound.
    pods: BTreeMap<String, PodView>,
    /// Posted, and not answered yet.
    posted: Vec<Binding>,
    created: usize,
}

// === impl World ===

impl World {
    fn new() -> Self {
        let quota = spec(&json!({"gpu": 3, "gpumem": "60Gi"}));
        let leader = limited(&json!({"gpu": 3, "gpumem": "60Gi"}));
        Self { leader, quota, reports: nodes(), pods: BTreeMap::new(), posted: Vec::new(), created: 0 }
    }

    /// What a pod's containers hold by this plan, in admission order. Of the GPUs that it may draw a container draws the first.
    fn shares(&self, pod: &PodView, planned: &Planned) -> Vec<(ContainerRequest, Vec<&CardStatus>)> {
        let demand = Demand::read(pod, self.leader.index.config()).expect("a request").expect("cards");
        let cards = || self.reports.iter().flat_map(|node| &node.status.as_ref().expect("a status").cards);
        let held = demand.containers.into_iter().map(|container| {
            let PlannedCards { chosen, reused } = &planned.containers[&container.name];
            let wanted = container.request.expect("cards").cards as usize;
            let uuids: Vec<_> = chosen.iter().chain(reused).take(wanted).collect();
            (container, cards().filter(|card| uuids.contains(&&card.uuid)).collect())
        });
        held.collect()
    }

    /// What a pod holds of the limited model by this plan: of each GPU its peak there.
    fn held(&self, pod: &PodView, planned: &Planned) -> Totals {
        let shares = self.shares(pod, planned);
        let cards = self.reports.iter().flat_map(|node| &node.status.as_ref().expect("a status").cards);
        let held = cards.filter(|card| card.model != T4).filter_map(|card| {
            let there = shares.iter().filter(|(_, cards)| cards.iter().any(|held| held.uuid == card.uuid));
            let share = |container: &ContainerRequest| container.request.expect("cards").share_on(card.memory);
            let there: Vec<_> = there.map(|(container, _)| (container.kind, share(container))).collect();
            // One init container and one container: where both have the GPU, the device is the same.
            (!there.is_empty()).then(|| counted(&peak(there), card.memory, 1))
        });
        held.fold(Totals::default(), |sum, held| sum.each(held, u64::saturating_add))
    }

    /// What all pods hold that are bound, or may be.
    fn spent(&self) -> Totals {
        let planned = |pod: &PodView| annotation::decode::<Planned>(pod.annotations.get(PLANNED)?).ok();
        let bound = self.pods.values().filter_map(|pod| Some(self.held(pod, &planned(pod)?)));
        let posted = self.posted.iter().filter_map(|binding| {
            let pod = self.pods.get(&binding.uid).filter(|pod| pod.node.is_none())?;
            Some(self.held(pod, &annotation::decode(&binding.planned).expect("a plan")))
        });
        bound.chain(posted).fold(Totals::default(), |sum, held| sum.each(held, u64::saturating_add))
    }

    fn pod(&self, at: usize) -> Option<String> {
        self.pods.keys().nth(at).cloned()
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Create { cards, gib, cores, wish, init } => {
                self.created += 1;
                let mut pod = pod(&format!("p{}", self.created), *cards, *gib, *cores);
                let init = init.map(|(cards, gib)| container("init", ContainerKind::Init, cards, gib, 0));
                pod.containers.splice(0..0, init);
                pod.annotations.extend(wish.map(|(key, value)| (key.to_owned(), value.to_owned())));
                self.leader.index.apply_pod(&pod, Instant::now());
                self.pods.insert(pod.uid.clone(), pod);
            }
            Step::Bind { pod, node } => {
                let Some(uid) = self.pod(*pod) else { return Ok(()) };
                let call = json!({"PodName": uid, "PodNamespace": "default", "PodUID": uid, "Node": NODES[*node]});
                let answer = self.leader.bind(call.to_string().as_bytes(), Instant::now()).expect("arguments");
                let Bind::Post(binding) = answer else { return Ok(()) };
                let takes = self.held(&self.pods[&uid], &annotation::decode(&binding.planned).expect("a plan"));
                let is_again = self.posted.iter().any(|posted| posted.uid == uid) || self.pods[&uid].node.is_some();
                self.posted.retain(|posted| posted.uid != uid);
                self.posted.push(binding);
                // What was promised stays promised, whatever the quota says by now.
                if is_again {
                    return Ok(());
                }
                let (spent, limits) = (self.spent(), self.quota.limits().expect("amounts"));
                for amount in Amount::ALL.into_iter().filter(|amount| amount.in_totals(&takes) > 0) {
                    let limit = limits.limit(amount).unwrap_or(u64::MAX);
                    prop_assert!(amount.in_totals(&spent) <= limit, "{amount:?}: {spent:?} of {limit}");
                }
            }
            Step::Land { binding, fate } => {
                if *binding < self.posted.len() {
                    let binding = self.posted.remove(*binding);
                    self.land(&binding, *fate);
                }
            }
            Step::Watch => self.watch(),
            Step::Report(at) => self.report(*at),
            Step::End(at) => {
                if let Some(uid) = self.pod(*at) {
                    self.pods.remove(&uid);
                    self.posted.retain(|posted| posted.uid != uid);
                    self.leader.index.delete_pod(&uid);
                }
            }
            Step::Delete(at) => self.leader.index.delete_gpu_node(NODES[*at]),
            Step::Quota { gpu, gib } => {
                self.quota = spec(&json!({"gpu": gpu, "gpumem": gib.map(|gib| format!("{gib}Gi"))}));
                self.leader.index.apply_quota("default", "a100", Ok(&self.quota));
            }
            Step::Failover => {
                // Whoever led gives up its bindings before another leads.
                for binding in std::mem::take(&mut self.posted) {
                    self.land(&binding, Fate::AnswerLost);
                }
                self.leader = extender(&self.reports, 16);
                self.leader.index.apply_quota("default", "a100", Ok(&self.quota));
                self.watch();
            }
        }
        Ok(())
    }

    fn land(&mut self, binding: &Binding, fate: Fate) {
        let Some(pod) = self.pods.get_mut(&binding.uid) else {
            self.leader.failed(binding, "the pod is gone");
            return;
        };
        if let Some(node) = &pod.node {
            // The API server refuses it, and the binder looks at what the pod says.
            if *node == binding.node && pod.annotations.get(PLANNED) == Some(&binding.planned) {
                self.leader.committed(binding, Instant::now());
            } else {
                self.leader.failed(binding, "the pod is bound already");
            }
            return;
        }
        if !matches!(fate, Fate::Refused) {
            pod.node = Some(binding.node.clone());
            pod.annotations.insert(PLANNED.to_owned(), binding.planned.clone());
        }
        match fate {
            Fate::Bound => self.leader.committed(binding, Instant::now()),
            Fate::Refused => self.leader.failed(binding, "refused"),
            Fate::AnswerLost => self.leader.undecided("no answer"),
        };
    }

    fn watch(&self) {
        self.pods.values().for_each(|pod| self.leader.index.apply_pod(pod, Instant::now()));
    }

    /// The node holds what was planned.
    fn report(&mut self, at: usize) {
        let mut shares = Vec::new();
        for pod in self.pods.values().filter(|pod| pod.node.as_deref() == Some(NODES[at])) {
            let planned: Planned = annotation::decode(&pod.annotations[PLANNED]).expect("a plan");
            for (container, cards) in self.shares(pod, &planned) {
                shares.extend(cards.into_iter().map(|card| ShareStatus {
                    pod_uid: pod.uid.clone(),
                    namespace: pod.namespace.clone(),
                    pod: pod.name.clone(),
                    container: container.name.clone(),
                    kind: container.kind,
                    card: card.uuid.clone(),
                    share: container.request.expect("cards").share_on(card.memory),
                    adopted: false,
                }));
            }
        }
        status(&mut self.reports[at]).shares = shares;
        self.leader.index.apply_gpu_node(NODES[at], &self.reports[at]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_spends_more_than_a_quota(steps in prop::collection::vec(steps(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step)?;
        }
        // When all have ended nothing counts any more.
        while let Some(uid) = world.pod(0) {
            world.pods.remove(&uid);
            world.leader.index.delete_pod(&uid);
        }
        (0..NODES.len()).for_each(|at| world.report(at));
        world.leader.index.expire(Instant::now() + AGES);
        prop_assert_eq!(world.leader.index.quotas()[0].used, Totals::default());
    }
}
