//! What the planner makes of pods that wait.

mod histories;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use divvy_api::config::{ClusterConfig, List, Within};
use divvy_api::names::GATE;
use divvy_api::pod::wire::Resources;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::Step;
use crate::demand::PlannedPods;
use crate::node_selection::NodeSelection;
use crate::pod::{PodEnd, SchedulingTerms};
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};

pub(super) const ENOUGH: Duration = Duration::from_secs(60);

/// Pods of this scheduler.
pub(super) fn ours() -> PlannedPods {
    PlannedPods { schedulers: vec!["ours".into()], groups_alone: false }
}

/// An index that plans them.
pub(super) fn planner(nodes: &[&GpuNode]) -> Index {
    let index = Index::new(SchedulingConfig { planned: ours(), ..SchedulingConfig::default() });
    for node in nodes {
        let name = node.metadata.name.as_deref().expect("a name");
        index.apply_gpu_node(name, *node);
        index.apply_node(name, NodeObject::default());
    }
    index
}

pub(super) fn terms(gates: &[&str]) -> SchedulingTerms {
    let gates = gates.iter().map(|gate| (*gate).to_owned()).collect();
    SchedulingTerms { scheduler: "ours".into(), gates, ..SchedulingTerms::default() }
}

/// A pod with our gate that was created so many seconds after the first.
pub(super) fn gated(name: &str, cards: u32, gib: u64, created: i64) -> PodView {
    let created = Timestamp::from_second(created).ok();
    PodView { scheduling: SchedulingTerms { created, ..terms(&[GATE]) }.into(), ..pod(name, cards, gib, 0) }
}

fn steps(index: &Index, now: Instant) -> Vec<Step> {
    index.plan(100, ENOUGH, &HashSet::new(), now).0
}

/// Pods that get a place, with its node, in the order in which they do; a pod whose gate goes without one has none.
pub(super) fn placed(index: &Index, now: Instant) -> Vec<(String, String)> {
    let steps = steps(index, now).into_iter().map(|step| match step {
        Step::Place { demand, planned } => (demand.uid.to_string(), planned.node),
        Step::LetGo { uid, .. } => (uid.to_string(), String::new()),
        Step::Evict { victims, .. } => panic!("evictions: {victims:?}"),
        Step::Withdraw { demand } => panic!("nominated in vain: {}", demand.uid),
    });
    steps.collect()
}

pub(super) fn pair(pod: &str, node: &str) -> (String, String) {
    (pod.to_owned(), node.to_owned())
}

/// The pod as the watch shows it once its gate is gone.
fn nominated(pod: &PodView, step: &Step) -> PodView {
    let Step::Place { planned, .. } = step else { panic!("no place: {step:?}") };
    let annotations = [(PLANNED.to_owned(), annotation::encode(planned))].into();
    let (nominated, scheduling) = (Some(planned.node.clone()), terms(&[]).into());
    PodView { nominated, is_placed: true, annotations, scheduling, ..pod.clone() }
}

#[test]
fn pods_are_planned_by_priority_and_age() {
    let (index, now) = (planner(&[&node("n1", 2)]), Instant::now());
    let large = gated("large", 1, 100, 0);
    for pod in [
        large.clone(),
        gated("young", 1, 30, 3),
        gated("old", 1, 30, 1),
        PodView { priority: 7, ..gated("urgent", 1, 30, 9) },
        PodView { scheduling: terms(&[GATE, "quota"]).into(), ..gated("others", 1, 1, 0) },
        PodView { scheduling: SchedulingTerms::default().into(), ..gated("theirs", 1, 1, 0) },
    ] {
        index.apply_pod(&pod, now);
    }
    assert_eq!(placed(&index, now), [pair("urgent", "n1"), pair("old", "n1")]);
    assert_eq!(placed(&index, now), [], "nothing has changed");
    assert_eq!(index.gated(), 2, "young and large; the other gate is not ours to wait for");
    index.delete_pod("old");
    assert_eq!(placed(&index, now), [pair("young", "n1")]);
    index.apply_pod(&PodView { scheduling: terms(&[GATE]).into(), ..gated("others", 1, 1, 0) }, now);
    assert_eq!(placed(&index, now), [pair("others", "n1")], "its other gate is gone");
}

#[test]
fn planner_that_finds_nothing_is_not_woken_by_itself() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    for name in ["a", "b"] {
        index.apply_pod(&gated(name, 1, 30, 0), now);
    }
    assert_eq!(placed(&index, now).len(), 1);
    let woken = Arc::new(AtomicUsize::new(0));
    let wakes = Arc::clone(&woken);
    index.wake(move || {
        wakes.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!((steps(&index, now), woken.load(Ordering::Relaxed)), (Vec::new(), 0));
    index.apply_pod(&gated("c", 1, 30, 0), now);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
}

#[test]
fn node_is_chosen_by_selection_taints_and_sums() {
    let index = planner(&[&node("n1", 1), &node("n2", 1)]);
    let now = Instant::now();
    let machine = |cpu, memory: u64, pool: &str| NodeObject {
        allocatable: Some(Resources { cpu_milli: cpu, others: [("memory".into(), memory), ("pods".into(), 2)].into() }),
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        ..NodeObject::default()
    };
    index.apply_node("n1", machine(4000, 100, "a"));
    index.apply_node("n2", machine(8000, 200, "b"));
    let wanting = |name: &str, cpu, memory: u64, pool: Option<&str>| {
        let labels = pool.map(|pool| [("pool".to_owned(), pool.to_owned())].into());
        let scheduling = SchedulingTerms { selection: NodeSelection::new(labels, None, None), ..terms(&[GATE]) };
        let requests = Resources { cpu_milli: cpu, others: [("memory".into(), memory)].into() };
        PodView { requests, scheduling: scheduling.into(), ..gated(name, 1, 1, 0) }
    };
    let place = |pod: &PodView| {
        index.apply_pod(pod, now);
        placed(&index, now)
    };
    assert_eq!(place(&wanting("b", 1000, 1, Some("b"))), [pair("b", "n2")]);
    assert_eq!(place(&wanting("cpu", 5000, 1, None)), [pair("cpu", "n2")], "n1 has less CPU");
    assert_eq!(place(&wanting("full", 1, 1, Some("b"))), [], "n2 has room for two pods");
    assert_eq!(place(&wanting("memory", 1, 101, None)), []);
    assert_eq!(place(&wanting("nowhere", 1, 1, Some("c"))), []);
    assert_eq!(place(&wanting("a", 1, 1, None)), [pair("a", "n1")]);
    let later = now + super::super::planning::LACKING_FOR;
    let gone = steps(&index, later);
    let uids: BTreeSet<&str> = gone.iter().map(|step| &**step.uid()).collect();
    assert_eq!(uids, ["full", "memory", "nowhere"].into(), "autoscalers are to see them: {gone:?}");
    assert_eq!(index.plan(100, ENOUGH, &uids.into_iter().map(Arc::from).collect(), later).0, [], "being written");
    index.ungated("nowhere");
    assert_eq!(steps(&index, later).len(), 2);
    index.apply_node("n3", machine(8000, 200, "c"));
    index.apply_gpu_node("n3", &node("n3", 1));
    let now_fit = placed(&index, later);
    assert!(now_fit.contains(&pair("nowhere", "n3")), "{now_fit:?}");
}

#[test]
fn autoscalers_see_a_pod_whose_room_others_take() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let allocatable = Some(Resources { cpu_milli: 4000, others: [("pods".into(), 9)].into() });
    index.apply_node("n1", NodeObject { allocatable, ..NodeObject::default() });
    let place = |name: &str, cpu_milli, gib, now| {
        let requests = Resources { cpu_milli, ..Resources::default() };
        index.apply_pod(&PodView { requests, ..gated(name, 1, gib, 0) }, now);
        placed(&index, now)
    };
    assert_eq!(place("first", 1000, 30, now), [pair("first", "n1")]);
    let later = now + super::super::planning::LACKING_FOR;
    assert_eq!(place("large", 2000, 20, now), []);
    assert_eq!(placed(&index, later), [], "no GPU has room for it, and n1 has its CPU");
    assert_eq!(place("last", 3000, 5, later), [pair("last", "n1")]);
    let seen = later + Duration::from_secs(1);
    assert_eq!(placed(&index, seen), [], "n1 has no CPU any more");
    let over = seen + super::super::planning::LACKING_FOR;
    let before = seen + Duration::from_secs(9);
    index.delete_pod("last");
    assert_eq!(placed(&index, before), [], "n1 has its CPU again, and no GPU");
    assert_eq!(placed(&index, over), []);
    assert_eq!(place("last", 3000, 5, over), [pair("last", "n1")]);
    let seen = over + Duration::from_secs(1);
    assert_eq!(placed(&index, seen), []);
    assert_eq!(placed(&index, seen + super::super::planning::LACKING_FOR), [pair("large", "")]);
}

#[test]
fn pod_that_lacks_only_gpus_keeps_its_gate() {
    let mut halves = node("n1", 2);
    status(&mut halves).shares = vec![share(&halves, "x", 0, 20, 0), share(&halves, "y", 1, 20, 0)];
    let (index, now) = (planner(&[&halves]), Instant::now());
    index.apply_pod(&gated("p", 1, 30, 0), now);
    assert_eq!(placed(&index, now + ENOUGH), []);
    status(&mut halves).shares.pop();
    index.apply_gpu_node("n1", &halves);
    assert_eq!(placed(&index, now + ENOUGH), [pair("p", "n1")]);
}

#[test]
fn pod_is_tried_again_when_others_leave_cpu() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    index.apply_node("n1", NodeObject { allocatable: Some(Resources::of_cpu(4000)), ..NodeObject::default() });
    let using = |pod: PodView| PodView { requests: Resources::of_cpu(3000), ..pod };
    let other = PodView { node: Some("n1".into()), containers: Vec::new(), ..using(pod("other", 1, 1, 0)) };
    index.apply_pod(&other, now);
    index.apply_pod(&using(gated("p", 1, 30, 0)), now);
    assert_eq!(placed(&index, now), []);
    index.delete_pod("other");
    assert_eq!(placed(&index, now), [pair("p", "n1")]);
}

#[test]
fn gate_goes_from_pods_that_request_nothing() {
    let (index, now) = (planner(&[]), Instant::now());
    let astray = PodView { containers: Vec::new(), ..gated("p", 1, 1, 0) };
    index.apply_pod(&astray, now);
    assert_eq!(placed(&index, now), [pair("p", "")]);
    index.ungated("p");
    assert_eq!(placed(&index, now), []);
    index.apply_pod(&astray, now);
    index.delete_pod("p");
    assert_eq!(placed(&index, now), []);
    let off = Index::new(SchedulingConfig::default());
    off.apply_pod(&astray, now);
    off.apply_pod(&gated("q", 1, 1, 0), now);
    assert_eq!(steps(&off, now).len(), 2, "the mode has changed");
    off.ungated("q");
    assert_eq!(steps(&off, now).len(), 1);
}

#[test]
fn nomination_that_no_scheduler_follows_ends() {
    let config = ClusterConfig {
        schedulers: List(vec!["ours".to_owned()]),
        nomination_timeout_seconds: Within::new(90),
        ..ClusterConfig::default()
    };
    let index = Index::new((&config).try_into().expect("a configuration"));
    let now = Instant::now();
    index.apply_gpu_node("n1", &node("n1", 1));
    index.apply_node("n1", NodeObject::default());
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&p, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    index.nominated("p", now);
    index.apply_pod(&nominated(&p, &step), now);
    let held_after = |seconds| {
        index.expire(now + Duration::from_secs(seconds));
        held(&index, "n1").iter().sum::<u64>()
    };
    assert_eq!([held_after(89), held_after(90)], [30, 0]);
}

#[test]
fn reservation_lasts_until_the_nomination_ends() {
    let (index, now) = (planner(&[&node("n1", 1), &node("n2", 1)]), Instant::now());
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&p, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    let on = |name: &str| held(&index, name).iter().sum::<u64>();
    index.apply_pod(&p, now);
    assert_eq!(on("n1"), 30, "an event that is older than the write");
    index.nominated("p", now);
    index.apply_pod(&nominated(&p, &step), now);
    index.expire(now + BOUND_WITHIN);
    assert_eq!(on("n1"), 30, "the scheduler may take its time");
    let cleared = PodView { nominated: None, ..nominated(&p, &step) };
    index.apply_pod(&cleared, now);
    assert_eq!(on("n1"), 0, "it found no room there");
    let later = now + Duration::from_secs(1);
    assert!(matches!(&*steps(&index, later), [Step::Withdraw { .. }]));
    index.withdrawn("p", later);
    let [again] = steps(&index, later).try_into().expect("planned anew");
    index.apply_pod(&nominated(&p, &again), later);

    // The next leader reads it from the pod.
    let next = planner(&[&node("n1", 1), &node("n2", 1)]);
    next.apply_pod(&nominated(&p, &again), now);
    assert_eq!((steps(&next, now), held(&next, "n1").iter().sum::<u64>()), (Vec::new(), 30));
    next.apply_pod(&PodView { nominated: Some("n2".into()), ..nominated(&p, &again) }, now);
    assert_eq!(held(&next, "n1").iter().sum::<u64>(), 0, "evicted for elsewhere");

    // The scheduler has bound it elsewhere.
    index.apply_pod(&PodView { node: Some("n2".into()), ..nominated(&p, &again) }, now);
    assert_eq!((on("n1"), on("n2")), (0, 30), "until its node reports");
    assert_eq!(index.outcomes().get(Outcome::Elsewhere), 1);
}

#[test]
fn quota_is_waited_for_and_no_longer() {
    let mut mixed = node("n1", 2);
    status(&mut mixed).cards[1].model = "Tesla T4".into();
    let (index, now) = (planner(&[&mixed]), Instant::now());
    let limit = |name: &str, models: &[&str], gpus: u64| {
        let spec = json!({ "models": models, "hard": { "gpu": gpus } });
        index.apply_quota("default", name, Ok(&serde_json::from_value(spec).expect("a quota")));
    };
    let group = PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: "g".into() };
    index.apply_pod_group(group.clone(), PodGroupSpec { min: 2 });
    limit("a100", &["A100"], 1);
    limit("t4", &["T4"], 0);
    for name in ["a", "b"] {
        index.apply_pod(&PodView { group: Some(group.clone().into()), ..gated(name, 1, 10, 0) }, now);
    }
    assert_eq!(placed(&index, now), [], "one of them is allowed");
    let tried = index.snapshot().view.version();
    assert_eq!((placed(&index, now), index.snapshot().view.version()), (Vec::new(), tried), "nothing has changed");
    index.apply_pod(&gated("c", 1, 10, 1), now);
    assert_eq!(placed(&index, now), [pair("c", "n1")]);
    limit("t4", &["T4"], 2);
    assert_eq!(placed(&index, now), [pair("a", "n1"), pair("b", "n1")], "A100s are used up as before");
    index.apply_pod(&gated("d", 1, 10, 1), now);
    assert_eq!(placed(&index, now), []);
    index.delete_pod("c");
    assert_eq!(placed(&index, now), [pair("d", "n1")]);
}

#[test]
fn unanswered_write_that_was_made_counts_like_any_other() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&p, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    index.apply_pod(&nominated(&p, &step), now);
    index.expire(now + BOUND_WITHIN);
    index.apply_pod(&gated("q", 1, 30, 1), now);
    assert_eq!(placed(&index, now + BOUND_WITHIN), [], "the scheduler may bind p at any time");
}

#[test]
fn gate_goes_from_pods_that_contradict_themselves() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let mut pod = gated("p", 1, 1, 0);
    pod.annotations.insert(TIER.to_owned(), "strongest".to_owned());
    index.apply_pod(&pod, now);
    assert_eq!(placed(&index, now), [pair("p", "")], "its node says why it can't run");
    pod.annotations.clear();
    index.apply_pod(&pod, now);
    assert_eq!(placed(&index, now), [pair("p", "n1")]);
}

#[test]
fn pods_are_tried_again_when_a_node_oversubscribes_more() {
    let (index, now) = (planner(&[&oversubscribing("n1", 1, 1)]), Instant::now());
    index.apply_pod(&PodView { scheduling: terms(&[GATE]).into(), ..asking("p", 30) }, now);
    assert_eq!(placed(&index, now), []);
    index.apply_gpu_node("n1", &oversubscribing("n1", 1, 25));
    assert_eq!(placed(&index, now), [pair("p", "n1")]);
}

#[test]
fn only_bound_pods_are_evicted_and_as_soon_as_that_helps() {
    let (n1, now) = (node("n1", 1), Instant::now());
    let config = SchedulingConfig { preempts: true, planned: ours(), ..SchedulingConfig::default() };
    let index = Index::new(config);
    index.apply_gpu_node("n1", &n1);
    let low = gated("low", 1, 20, 0);
    let equal = PodView { priority: 9, ..gated("equal", 1, 10, 0) };
    for pod in [&low, &equal] {
        index.apply_pod(pod, now);
    }
    let planned = steps(&index, now);
    assert_eq!(planned.len(), 2);
    for step in &planned {
        let pod = if **step.uid() == *"low" { &low } else { &equal };
        index.apply_pod(&nominated(pod, step), now);
    }
    index.apply_pod(&PodView { priority: 9, ..gated("high", 1, 40, 1) }, now);
    assert_eq!(steps(&index, now), [], "what its equal has is too much, and the other would be gone for good");
    index.delete_pod("equal");
    assert_eq!(steps(&index, now), []);
    let step = planned.iter().find(|step| **step.uid() == *"low").expect("its plan");
    index.apply_pod(&PodView { node: Some("n1".into()), ..nominated(&low, step) }, now);
    let [Step::Evict { victims, .. }] = &*steps(&index, now) else { panic!("an eviction") };
    assert_eq!(&*victims[0].uid, "low");
}

#[test]
fn pods_of_lower_priority_are_evicted_for_one_that_fits_nowhere() {
    let (mut n1, now) = (node("n1", 2), Instant::now());
    let config = SchedulingConfig { preempts: true, planned: ours(), ..SchedulingConfig::default() };
    let index = Index::new(config);
    let full = |n1: &mut GpuNode, pods: &[(&str, usize)]| {
        let shares = pods.iter().map(|(pod, card)| share(n1, pod, *card, 30, 0)).collect();
        status(n1).shares = shares;
    };
    full(&mut n1, &[("low", 0), ("lower", 1)]);
    index.apply_gpu_node("n1", &n1);
    for (name, priority) in [("low", 2), ("lower", 1)] {
        index.apply_pod(&PodView { priority, node: Some("n1".into()), ..pod(name, 1, 30, 0) }, now);
    }
    let urgent = PodView { priority: 9, ..gated("urgent", 1, 30, 0) };
    let never = SchedulingTerms { never_preempts: true, ..terms(&[GATE]) };
    index.apply_pod(&PodView { scheduling: never.into(), ..urgent.clone() }, now);
    assert_eq!(steps(&index, now), [], "preemptionPolicy");
    index.apply_pod(&urgent, now);
    let [Step::Evict { victims, node, .. }] = &*steps(&index, now) else { panic!("an eviction") };
    let names: Vec<&str> = victims.iter().map(|victim| &*victim.name).collect();
    assert_eq!((names, &**node), (vec!["lower"], "n1"), "the least that makes room");
    index.apply_pod(&urgent, now);
    index.apply_pod(&PodView { priority: 5, ..gated("other", 1, 10, 1) }, now);
    assert_eq!(placed(&index, now), [pair("other", "n1")], "beside what both pods of lower priority hold");
    index.delete_pod("other");
    full(&mut n1, &[("low", 0)]);
    index.apply_gpu_node("n1", &n1);
    index.apply_pod(&gated("greedy", 1, 30, 1), now);
    index.delete_pod("lower");
    assert_eq!(placed(&index, now)[0], pair("urgent", "n1"), "what was freed is kept for it");
}

#[test]
fn pod_that_its_scheduler_turns_down_is_left_alone() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&p, now);
    let [mut step] = steps(&index, now).try_into().expect("one step");
    let turn_down = |step: &Step, now: Instant| {
        index.nominated("p", now);
        index.apply_pod(&nominated(&p, step), now);
        index.apply_pod(&PodView { nominated: None, ..nominated(&p, step) }, now);
    };
    let mut at = now;
    for seconds in [1, 4, 16, 64, 256, 300, 300] {
        turn_down(&step, at);
        let [withdraw] = steps(&index, at).try_into().expect("one step");
        assert!(matches!(&withdraw, Step::Withdraw { demand } if *demand.uid == *"p"), "{withdraw:?}");
        index.withdrawn("p", at);
        let withdrawn = PodView { nominated: None, is_placed: false, ..nominated(&p, &step) };
        index.apply_pod(&withdrawn, at);
        assert_eq!(steps(&index, at + Duration::from_secs(seconds - 1)), [], "{seconds}");
        index.apply_pod(&withdrawn, at);
        assert_eq!(steps(&index, at), [], "another event of it");
        at += Duration::from_secs(seconds);
        [step] = steps(&index, at).try_into().expect("planned again");
    }
    index.delete_pod("p");
    assert_eq!(steps(&index, at + ENOUGH), []);
}

#[test]
fn gpus_of_a_pod_that_was_turned_down_are_soon_free() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&p, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    index.nominated("p", now);
    index.apply_pod(&nominated(&p, &step), now);
    // The watch may show it at once.
    let cleared = PodView { nominated: None, is_placed: false, ..nominated(&p, &step) };
    index.apply_pod(&cleared, now);
    index.apply_pod(&gated("other", 1, 30, 1), now);
    let [other] = steps(&index, now).try_into().expect("one step");
    assert_eq!(&**other.uid(), "other", "the GPU isn't kept for a pod that its scheduler can't place");
    index.delete_pod("other");
    let again = now + Duration::from_secs(1);
    let [step] = steps(&index, again).try_into().expect("planned again");
    index.nominated("p", again);
    index.apply_pod(&nominated(&p, &step), again);
    index.apply_pod(&gated("other", 1, 30, 1), again);
    assert_eq!(steps(&index, again), []);
    // No event has woken it.
    let over = again + BOUND_WITHIN;
    index.expire(over);
    let uids = steps(&index, over).iter().map(|step| step.uid().to_string()).collect::<Vec<_>>();
    assert_eq!(uids, ["other", "p"], "planned, and withdrawn");
    index.apply_pod(&nominated(&p, &step), over);
    assert_eq!(steps(&index, over).len(), 1, "an older event reserves nothing");
    index.withdrawn("p", over);
    index.apply_pod(&cleared, over);
    assert_eq!(steps(&index, over), []);
}

#[test]
fn pod_that_evicts_nobody_is_turned_down_in_place() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let never = SchedulingTerms { never_preempts: true, ..terms(&[GATE]) };
    let p = PodView { scheduling: never.into(), ..gated("p", 1, 30, 0) };
    index.apply_pod(&p, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    index.nominated("p", now);
    let never = SchedulingTerms { never_preempts: true, ..terms(&[]) };
    let shown = PodView { scheduling: never.into(), ..nominated(&p, &step) };
    index.apply_pod(&shown, now);
    assert_eq!(steps(&index, now), []);
    index.apply_pod(&PodView { is_unschedulable: true, ..shown }, now);
    assert!(matches!(&*steps(&index, now), [Step::Withdraw { .. }]));
    assert_eq!(held(&index, "n1"), [0]);
}

#[test]
fn nomination_that_ends_before_it_is_shown_has_ended() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&p, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    index.nominated("p", now);
    // A list in place of the events in between.
    index.apply_pod(&PodView { nominated: None, ..nominated(&p, &step) }, now);
    assert_eq!(held(&index, "n1"), [0]);
}

#[test]
fn deleted_pod_that_is_not_bound_is_not_planned() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let deleted = |pod: &PodView| PodView { end: PodEnd::Deleted { at: Timestamp::UNIX_EPOCH }, ..pod.clone() };
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&deleted(&p), now);
    assert_eq!(steps(&index, now), [], "only its finalizer is waited for");
    let q = gated("q", 1, 30, 0);
    index.apply_pod(&q, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    index.apply_pod(&deleted(&nominated(&q, &step)), now);
    assert_eq!(held(&index, "n1"), [0]);
}

#[test]
fn refused_writes_keep_no_other_pod_waiting() {
    let (index, now) = (planner(&[&node("n1", 1), &node("n2", 1)]), Instant::now());
    index.apply_pod(&PodView { priority: 9, ..gated("first", 1, 30, 0) }, now);
    index.apply_pod(&gated("second", 1, 30, 0), now);
    let (mut at, mut refused) = (now, 0);
    for seconds in [1, 4, 16, 16] {
        let steps = steps(&index, at);
        let first = steps.iter().find(|step| **step.uid() == *"first").expect("it is tried again");
        index.refused(first, at);
        refused += 1;
        assert_eq!(placed(&index, at), [], "not at once");
        at += Duration::from_secs(seconds);
    }
    assert_eq!((refused, held(&index, "n1").len()), (4, 1));
    // What another step of the same pod has reserved stays.
    let [step] = steps(&index, at).try_into().expect("one step");
    let Step::Place { demand, .. } = &step else { panic!("{step:?}") };
    let evict = Step::Evict { demand: Arc::clone(demand), node: "n1".into(), victims: Vec::new() };
    index.refused(&evict, at);
    assert_eq!(index.reserved().len(), 2);
}

#[test]
fn pod_that_a_budget_keeps_gives_way_to_the_next_victim() {
    let (mut nodes, now) = ([node("n1", 1), node("n2", 1)], Instant::now());
    let index = Index::new(SchedulingConfig { preempts: true, planned: ours(), ..SchedulingConfig::default() });
    for (at, (name, priority)) in [("guarded", 1), ("next", 2)].into_iter().enumerate() {
        let on = format!("n{}", at + 1);
        status(&mut nodes[at]).shares = vec![share(&nodes[at].clone(), name, 0, 30, 0)];
        index.apply_gpu_node(&on, &nodes[at]);
        index.apply_pod(&PodView { priority, node: Some(on), ..pod(name, 1, 30, 0) }, now);
    }
    index.apply_pod(&PodView { priority: 9, ..gated("urgent", 1, 30, 0) }, now);
    let evicts = |at: Instant| {
        let [step] = <[Step; 1]>::try_from(steps(&index, at)).expect("one step");
        let Step::Evict { victims, .. } = &step else { panic!("{step:?}") };
        (victims[0].name.to_string(), step)
    };
    let (victim, step) = evicts(now);
    assert_eq!(victim, "guarded", "the cheapest");
    index.kept_by_budget(&step, &Arc::from("guarded"), now);
    let (victim, step) = evicts(now);
    assert_eq!(victim, "next");
    index.kept_by_budget(&step, &Arc::from("next"), now);
    assert_eq!(steps(&index, now), [], "nobody is left");
    assert_eq!(evicts(now + ENOUGH).0, "guarded", "the budget may allow it by now");
}

#[test]
fn pod_that_has_just_ended_keeps_no_equal_one_waiting() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    for name in ["a", "b"] {
        index.apply_pod(&gated(name, 1, 30, 0), now);
    }
    let gone = index.waiting().into_iter().find(|demand| *demand.uid == *"a").expect("it waits");
    index.delete_pod("a");
    let planned = index.plan_some(&[gone], (9, now + ENOUGH), now);
    assert!(planned.is_ok_and(|steps| steps.is_empty()), "its line isn't parked for it");
    assert_eq!(placed(&index, now), [pair("b", "n1")]);
}

#[test]
fn changes_of_a_group_are_told_while_it_is_tried() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let group: Arc<PodGroup> =
        PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: "g".into() }.into();
    let changes = || index.state().gangs.changes(&group);
    let member = |name: &str| PodView { group: Some(Arc::clone(&group)), ..gated(name, 1, 30, 0) };
    index.apply_pod(&member("a"), now);
    let one = changes();
    index.apply_pod(&member("a"), now);
    assert_eq!(changes(), one, "the same again");
    index.apply_pod(&member("b"), now);
    let two = changes();
    index.apply_pod_group(PodGroup::clone(&group), PodGroupSpec { min: 2 });
    assert!(one < two && two < changes());
    for name in ["a", "b"] {
        index.delete_pod(name);
    }
    assert_eq!(changes(), 0, "nothing is kept of it");
}

#[test]
fn turned_down_pod_follows_what_becomes_of_its_group() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let group = PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: "g".into() };
    let alone = PodView { group: Some(group.clone().into()), ..gated("a", 1, 30, 0) };
    index.apply_pod(&alone, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    index.nominated("a", now);
    index.apply_pod(&nominated(&alone, &step), now);
    index.apply_pod_group(group.clone(), PodGroupSpec { min: 2 });
    index.apply_pod(&PodView { nominated: None, ..nominated(&alone, &step) }, now);
    assert_eq!(steps(&index, now), [], "it waits for another member");
    index.delete_pod_group(&group);
    let withdrawn = steps(&index, now);
    assert!(matches!(&*withdrawn, [Step::Withdraw { .. }]), "{withdrawn:?}");
    index.apply_pod_group(group, PodGroupSpec { min: 2 });
    assert_eq!(steps(&index, now), [], "it waits for another member again");
}

#[test]
fn gate_that_goes_for_another_reason_ends_no_plan() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&p, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    index.apply_pod(&PodView { scheduling: terms(&[]).into(), ..p.clone() }, now);
    assert_eq!(held(&index, "n1"), [30], "the plan is being written");
    index.nominated("p", now);
    index.apply_pod(&nominated(&p, &step), now);
    assert_eq!((held(&index, "n1"), steps(&index, now)), (vec![30], Vec::new()));
}

#[test]
fn nomination_that_moves_unseen_is_followed() {
    let nodes = [node("n1", 1), node("n2", 1)];
    let (index, now) = (planner(&nodes.iter().collect::<Vec<_>>()), Instant::now());
    let p = gated("p", 1, 30, 0);
    index.apply_pod(&p, now);
    let [step] = steps(&index, now).try_into().expect("one step");
    // Another leader's plan for the same pod.
    index.delete_pod("p");
    index.apply_pod(&PodView { scheduling: terms(&[GATE]).into(), ..gated("blocker", 1, 30, 0) }, now);
    assert_eq!(placed(&index, now), [pair("blocker", "n1")]);
    index.apply_pod(&p, now);
    let [moved] = steps(&index, now).try_into().expect("one step");
    let next = planner(&nodes.iter().collect::<Vec<_>>());
    next.apply_pod(&nominated(&p, &step), now);
    assert_eq!((held(&next, "n1"), held(&next, "n2")), (vec![30], vec![0]));
    next.apply_pod(&nominated(&p, &moved), now);
    assert_eq!((held(&next, "n1"), held(&next, "n2")), (vec![0], vec![30]), "a list in place of the events in between");
    assert_eq!(steps(&next, now), []);
    // The scheduler evicts others elsewhere: that takes as long as they take to end.
    next.apply_pod(&PodView { nominated: Some("n1".into()), ..nominated(&p, &moved) }, now);
    next.expire(now + BOUND_WITHIN);
    assert_eq!((held(&next, "n1"), held(&next, "n2")), (vec![30], vec![0]));
}

#[test]
fn pods_of_an_unknown_group_are_planned_in_one_pass() {
    let (index, now) = (planner(&[&node("n1", 4)]), Instant::now());
    let group = PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: "g".into() };
    for (name, gib, created) in [("large", 100, 0), ("a", 30, 1), ("larger", 101, 2), ("b", 31, 3), ("c", 32, 4)] {
        index.apply_pod(&PodView { group: Some(group.clone().into()), ..gated(name, 1, gib, created) }, now);
    }
    let (steps, _) = index.plan(2, ENOUGH, &HashSet::new(), now);
    assert_eq!(steps.iter().map(|step| &**step.uid()).collect::<Vec<_>>(), ["a", "b"], "as many as were asked for");
    assert_eq!(placed(&index, now), [pair("c", "n1")]);
}

#[test]
fn shortage_lasts_while_single_pods_find_room() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let one_at_a_time = Resources { cpu_milli: 4000, others: [("pods".into(), 1)].into() };
    index.apply_node("n1", NodeObject { allocatable: Some(one_at_a_time), ..NodeObject::default() });
    for name in ["a", "b", "c"] {
        index.apply_pod(&gated(name, 1, 30, 0), now);
    }
    assert_eq!(placed(&index, now), [pair("a", "n1")]);
    let later = now + super::super::planning::LACKING_FOR;
    index.delete_pod("a");
    assert_eq!(placed(&index, later), [pair("b", "n1"), pair("c", "")], "autoscalers see what is left over");
}

#[test]
fn pod_with_too_large_a_selector_is_left_to_its_scheduler() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let selecting = |values: usize| {
        let requirement = json!({ "key": "pool", "operator": "NotIn", "values": vec!["a"; values] });
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [requirement] }] });
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
        NodeSelection::new(None, serde_json::from_value(affinity).expect("an affinity"), None)
    };
    let empty = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": vec![json!({}); 1025],
    } } });
    let empty = NodeSelection::new(None, serde_json::from_value(empty).expect("an affinity"), None);
    for (name, selection, node) in [("p", selecting(1022), "n1"), ("q", selecting(1023), ""), ("r", empty, "")] {
        let scheduling = SchedulingTerms { selection, ..terms(&[GATE]) };
        index.apply_pod(&PodView { scheduling: scheduling.into(), ..gated(name, 1, 1, 0) }, now);
        assert_eq!(placed(&index, now), [pair(name, node)]);
        index.ungated(name);
    }
}

#[test]
fn pod_whose_room_was_taken_evicts_again() {
    let (mut n1, now) = (node("n1", 1), Instant::now());
    let index = Index::new(SchedulingConfig { preempts: true, planned: ours(), ..SchedulingConfig::default() });
    let mut hold = |index: &Index, pods: &[&str]| {
        status(&mut n1).shares = pods.iter().map(|pod| share(&n1.clone(), pod, 0, 30, 0)).collect();
        index.apply_gpu_node("n1", &n1);
    };
    let low = |name: &str| PodView { priority: 1, node: Some("n1".into()), ..pod(name, 1, 30, 0) };
    hold(&index, &["low"]);
    index.apply_pod(&low("low"), now);
    index.apply_pod(&PodView { priority: 9, ..gated("urgent", 1, 30, 0) }, now);
    let evicted = |index: &Index| match &*steps(index, now) {
        [Step::Evict { victims, .. }] => victims.iter().map(|victim| victim.name.to_string()).collect(),
        steps => vec![format!("{steps:?}")],
    };
    assert_eq!(evicted(&index), ["low"]);
    index.apply_pod(&low("thief"), now);
    index.delete_pod("low");
    assert_eq!(steps(&index, now), [], "the node still has it");
    hold(&index, &["thief"]);
    assert_eq!(evicted(&index), ["thief"], "a scheduler that knows sums has bound another pod meanwhile");
    index.delete_pod("thief");
    hold(&index, &[]);
    assert_eq!(placed(&index, now), [pair("urgent", "n1")]);
}
