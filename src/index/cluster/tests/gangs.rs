//! Gangs: all of a group's GPUs are held, or none.

mod histories;

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::Held;
use crate::pod::SchedulingTerms;
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};

const WAIT: Duration = Duration::from_secs(60);

fn group(name: &str) -> PodGroup {
    PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: name.into() }
}

fn member(of: &str, number: usize, cards: u32, gib: u64) -> PodView {
    PodView { group: Some(group(of).into()), ..pod(&format!("{of}-{number}"), cards, gib, 0) }
}

fn gated(pod: &PodView) -> PodView {
    let scheduling = SchedulingTerms { gates: vec!["quota".into()], ..SchedulingTerms::default() };
    PodView { scheduling: scheduling.into(), ..pod.clone() }
}

/// Shows a group of so many pods, each with a GPU of its own.
fn show(index: &Index, name: &str, min: usize, pods: usize) -> Vec<PodView> {
    index.apply_pod_group(group(name), PodGroupSpec { min, wait: WAIT });
    let pods: Vec<PodView> = (0..pods).map(|number| member(name, number, 1, 40)).collect();
    for pod in &pods {
        index.apply_pod(pod, Instant::now());
    }
    pods
}

fn refused(held: Held) -> String {
    match held {
        Held::Refused(reason) | Held::Unseen(reason) => reason.to_string(),
        Held::Nothing | Held::At(_) => panic!("{held:?}"),
    }
}

fn free(index: &Index, node: &str) -> usize {
    held(index, node).iter().filter(|gib| **gib == 0).count()
}

#[test]
fn gpus_are_held_for_all_of_a_group_or_for_none() {
    let (n1, n2, now) = (node("n1", 4), node("n2", 2), Instant::now());
    let (index, names) = (index(&[&n1, &n2]), ["n1", "n2"]);
    let first = show(&index, "first", 4, 4);
    let second = show(&index, "second", 3, 3);
    let at = |pod: &PodView| index.hold(&demand(pod), &names, now);
    assert!(matches!(at(&first[1]), Held::At(_)));
    assert_eq!(free(&index, "n1") + free(&index, "n2"), 2, "for all four at once");
    let nodes: Vec<_> = first.iter().map(&at).collect();
    assert!(nodes.iter().all(|held| matches!(held, Held::At(_))), "{nodes:?}");
    assert_eq!(nodes, first.iter().map(&at).collect::<Vec<_>>(), "the same answers again");
    assert_eq!(refused(at(&second[0])), "pod group second: free GPUs for 2 of 3 pods that start together");
    assert_eq!(free(&index, "n1") + free(&index, "n2"), 2, "what isn't enough isn't held");
    let other = pod("other", 1, 40, 0);
    assert_eq!(at(&other), Held::Nothing, "no member of a gang");

    // Bound, they hold what was held for them.
    let held: BTreeMap<_, _> = index.held().into_iter().map(|held| (held.uid.to_string(), held.node)).collect();
    for pod in &first {
        let planned = index.reserve(&demand(pod), &held[&pod.uid], now).expect("it was held");
        index.apply_pod(&bound(pod.clone(), &planned), now);
    }
    assert!(index.held().is_empty());
    assert_eq!(free(&index, "n1") + free(&index, "n2"), 2);
    index.delete_pod("first-0");
    assert!(matches!(at(&second[2]), Held::At(_)), "there is room for three now");
}

#[test]
fn held_gpus_are_given_back_when_the_wait_ends() {
    let (n1, now) = (node("n1", 3), Instant::now());
    let index = index(&[&n1]);
    let (first, second) = (show(&index, "first", 2, 2), show(&index, "second", 2, 2));
    let at = |pod: &PodView, seconds| index.hold(&demand(pod), &["n1"], now + Duration::from_secs(seconds));
    assert_eq!(at(&first[0], 0), Held::At(0));
    assert_eq!(at(&first[1], 59), Held::At(0), "held already, for no longer than at first");
    assert_eq!(refused(at(&second[0], 59)), "pod group second: free GPUs for 1 of 2 pods that start together");
    index.expire(now + WAIT);
    assert_eq!(free(&index, "n1"), 3);
    assert_eq!(
        refused(at(&first[0], 61)),
        "pod group first: GPUs were held for 60 s, and too few of its pods were bound: others come first for 60 s"
    );
    assert_eq!(at(&second[0], 61), Held::At(0), "the other group's turn");
    for seconds in [61, 80, 100, 119] {
        assert_eq!(at(&second[1], seconds), Held::At(0));
    }
    assert_eq!(refused(at(&first[0], 120)), "pod group first: free GPUs for 1 of 2 pods that start together");
    index.delete_pod("second-0");
    index.delete_pod("second-1");
    assert_eq!(at(&first[0], 121), Held::At(0), "after the pause");
}

#[test]
fn member_whose_node_is_out_of_the_question_moves() {
    let (n1, n2, now) = (node("n1", 2), node("n2", 1), Instant::now());
    let index = index(&[&n1, &n2]);
    let pods = show(&index, "g", 2, 3);
    let at = |pod: &PodView, names: &[&str]| index.hold(&demand(pod), names, now);
    assert_eq!(at(&pods[0], &["n1"]), Held::At(0));
    assert_eq!(at(&pods[1], &["n2"]), Held::At(0));
    assert_eq!((free(&index, "n1"), free(&index, "n2")), (1, 0));
    assert_eq!(at(&pods[2], &["n1", "n2"]), Held::At(0), "more than start together, one by one");
    assert_eq!(index.held().len(), 3);

    assert_eq!(refused(at(&pods[1], &["n1"])), "pod group g: free GPUs for 2 of 3 pods that start together");
    assert_eq!(index.held().len(), 2, "the others are enough");
    index.delete_pod("g-2");
    assert_eq!(at(&pods[1], &["n1"]), Held::At(0));
    assert!(!refused(at(&pods[0], &[])).is_empty());
    assert!(index.held().is_empty(), "one of two that start together is no use");
}

#[test]
fn members_without_gpus_count_and_gated_ones_do_not() {
    let (n1, now) = (node("n1", 1), Instant::now());
    let index = index(&[&n1]);
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2, wait: WAIT });
    let worker = member("g", 0, 1, 40);
    let unseen = index.hold(&demand(&worker), &["n1"], now);
    assert!(matches!(unseen, Held::Unseen(_)), "{unseen:?}");
    index.apply_pod(&worker, now);
    let too_few = Held::Refused("pod group g needs 2 pods at once, and there are 1".into());
    assert_eq!(index.hold(&demand(&worker), &["n1"], now), too_few, "no watch is behind");
    let launcher = PodView { containers: Vec::new(), ..member("g", 1, 1, 1) };
    index.apply_pod(&gated(&launcher), now);
    assert_eq!(index.hold(&demand(&worker), &["n1"], now), too_few);
    index.apply_pod(&gated(&worker), now);
    assert!(matches!(index.hold(&demand(&worker), &["n1"], now), Held::Unseen(_)), "its gates are gone");
    index.apply_pod(&worker, now);
    index.apply_pod(&launcher, now);
    assert_eq!(index.hold(&demand(&worker), &["n1"], now), Held::At(0));
}

#[test]
fn only_a_known_group_makes_a_gang() {
    let (n1, now) = (node("n1", 1), Instant::now());
    let index = index(&[&n1]);
    let of = |api| PodView { group: Some(PodGroup { api, ..group("g") }.into()), ..pod("a", 1, 8, 0) };
    let hold = |api| index.hold(&demand(&of(api)), &["n1"], now);
    assert_eq!(hold(PodGroupApi::Coscheduling), Held::Nothing, "a label is all there is");
    assert_eq!(hold(PodGroupApi::Kubernetes), Held::Nothing, "the API server has no such API");
    index.serves_pod_groups(PodGroupApi::Kubernetes, true);
    assert_eq!(refused(hold(PodGroupApi::Kubernetes)), "pod group g is not known yet: try again");
    index.apply_pod(&of(PodGroupApi::Coscheduling), now);
    for min in [0, 1] {
        index.apply_pod_group(group("g"), PodGroupSpec { min, wait: WAIT });
        assert_eq!(hold(PodGroupApi::Coscheduling), Held::Nothing, "each pod may start alone");
    }
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2, wait: WAIT });
    assert!(matches!(hold(PodGroupApi::Coscheduling), Held::Refused(_)));
    let moved = PodView { group: Some(group("other").into()), ..of(PodGroupApi::Coscheduling) };
    show(&index, "other", 2, 2);
    index.apply_pod(&moved, now);
    assert_eq!(index.hold(&demand(&moved), &["n1"], now), Held::Nothing, "its label has changed");
    index.keep_pod_groups(PodGroupApi::Coscheduling, |_| false);
    assert_eq!(hold(PodGroupApi::Coscheduling), Held::Nothing);
}

fn limit(index: &Index, gpus: u64) {
    let spec = serde_json::from_value(json!({ "hard": { "gpu": gpus } })).expect("a quota");
    index.apply_quota("default", "few", Ok(&spec));
}

fn used(index: &Index) -> u64 {
    index.quotas()[0].used.count
}

#[test]
fn held_gpus_count_for_quotas() {
    let (n1, now) = (node("n1", 8), Instant::now());
    let index = index(&[&n1]);
    limit(&index, 4);
    let (pods, large) = (show(&index, "g", 3, 5), show(&index, "large", 6, 6));
    let at = |pod: &PodView| index.hold(&demand(pod), &["n1"], now);
    let whole = "pod group large: exceeded GpuQuota few, requested: gpu=6, used: gpu=0, limited: gpu=4";
    assert_eq!((refused(at(&large[5])).as_str(), used(&index)), (whole, 0), "as a whole, though each fits");
    assert_eq!((at(&pods[0]), used(&index)), (Held::At(0), 3));
    assert!(index.exceeded(&demand(&pod("other", 1, 8, 0))).is_empty());
    assert_eq!(index.exceeded(&demand(&pod("other", 2, 8, 0))).len(), 1, "one is left to others");
    assert!(index.exceeded(&demand(&pods[0])).is_empty(), "what is held for it doesn't count against it");
    assert_eq!((at(&pods[3]), used(&index)), (Held::At(0), 4), "more than start together, one by one");
    let beyond = refused(at(&pods[4]));
    assert!(beyond.ends_with("; exceeded GpuQuota few, requested: gpu=1, used: gpu=4, limited: gpu=4"), "{beyond}");
    index.give_up_group(&demand(&pods[4]));
    assert_eq!(used(&index), 4, "the others are enough without it");
    for pod in &pods[..4] {
        index.reserve(&demand(pod), "n1", now).expect("GPUs were held for it");
    }
    assert_eq!((index.held().len(), used(&index)), (0, 4));
}

#[test]
fn quota_that_refuses_one_member_frees_what_others_hold() {
    let (n1, now) = (node("n1", 8), Instant::now());
    let index = index(&[&n1]);
    let pods = show(&index, "g", 4, 4);
    let hold = || assert_eq!(index.hold(&demand(&pods[0]), &["n1"], now), Held::At(0));
    hold();
    limit(&index, 3);
    index.give_up_group(&demand(&pods[0]));
    assert_eq!(used(&index), 0, "three aren't enough");
    limit(&index, 4);
    hold();
    limit(&index, 2);
    let refused = index.reserve(&demand(&pods[1]), "n1", now).expect_err("three others hold GPUs");
    assert!(matches!(refused, NotReserved::Exceeded { .. }), "{refused}");
    assert_eq!((index.held().len(), used(&index)), (0, 0));
}

#[test]
fn nothing_is_held_for_pods_of_another_scheduler() {
    let (n1, now) = (node("n1", 4), Instant::now());
    let index = index(&[&n1]);
    let pods = show(&index, "g", 3, 2);
    let of = |scheduler: &str, number| {
        let scheduling = SchedulingTerms { scheduler: scheduler.into(), ..SchedulingTerms::default() };
        PodView { scheduling: scheduling.into(), ..member("g", number, 1, 40) }
    };
    (2..6).for_each(|number| index.apply_pod(&of("nobody", number), now));
    let at = |pod: &PodView| index.hold(&demand(pod), &["n1"], now);
    assert_eq!(refused(at(&pods[0])), "pod group g needs 3 pods at once, and there are 2");
    index.apply_pod(&of("", 6), now);
    assert_eq!((at(&pods[0]), index.held().len()), (Held::At(0), 3));
    assert!(index.held().iter().all(|held| ["g-0", "g-1", "g-6"].contains(&&*held.uid)));
}

#[test]
fn deleted_group_holds_nothing() {
    let (n1, now) = (node("n1", 4), Instant::now());
    let index = index(&[&n1]);
    let pods = show(&index, "g", 2, 2);
    let hold = || assert_eq!(index.hold(&demand(&pods[0]), &["n1"], now), Held::At(0));
    hold();
    index.delete_pod_group(&group("g"));
    assert_eq!((index.held().len(), free(&index, "n1")), (0, 4));
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2, wait: WAIT });
    hold();
    index.keep_pod_groups(PodGroupApi::Coscheduling, |_| false);
    assert_eq!((index.held().len(), free(&index, "n1")), (0, 4), "a list without it");
}

#[test]
fn gpus_of_a_group_that_nobody_asks_for_are_given_back() {
    let (n1, now) = (node("n1", 4), Instant::now());
    let index = index(&[&n1]);
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2, wait: PodGroupSpec::LONGEST_WAIT });
    let pods = [0, 1].map(|number| member("g", number, 1, 40));
    for pod in &pods {
        index.apply_pod(pod, now);
    }
    let at = |second| now + Duration::from_secs(second);
    let ask = |pod: usize, second| index.hold(&demand(&pods[pod]), &["n1"], at(second));
    // One finds no node for another reason, and comes back from each back-off of ten seconds.
    for second in (0..=200).step_by(10) {
        index.expire(at(second));
        assert_eq!((ask(0, second), index.held().len()), (Held::At(0), 2), "after {second} s");
    }
    index.expire(at(219));
    assert_eq!(index.held().len(), 2);
    index.expire(at(220));
    assert_eq!((index.held().len(), free(&index, "n1")), (0, 4));
    assert_eq!((ask(1, 290), index.held().len()), (Held::At(0), 2), "it is asked for again");
    index.expire(at(300));
    assert_eq!(index.held().len(), 0, "no longer than at first");
    let pauses =
        "pod group g: GPUs were held for 300 s, and too few of its pods were bound: others come first for 60 s";
    assert_eq!(refused(ask(1, 359)), pauses);
    assert_eq!(ask(1, 360), Held::At(0));
}

#[test]
fn gang_that_does_not_fit_is_worked_out_once() {
    let (n1, now) = (node("n1", 2), Instant::now());
    let index = index(&[&n1]);
    let at = |pod: &PodView, millis| index.hold(&demand(pod), &["n1"], now + Duration::from_millis(millis));
    let changes = || index.view().version();
    let pods = show(&index, "g", 3, 3);
    let reason = refused(at(&pods[0], 0));
    assert_eq!(reason, "pod group g: free GPUs for 2 of 3 pods that start together");
    let before = changes();
    assert_eq!((refused(at(&pods[1], 5)), refused(at(&pods[2], 999))), (reason.clone(), reason.clone()));
    assert_eq!(changes(), before, "nothing was tried");
    assert_eq!((refused(at(&pods[1], 1000)), changes() > before), (reason, true), "after a second");
    index.apply_gpu_node("n1", &node("n1", 3));
    assert_eq!(at(&pods[2], 1001), Held::At(0), "at once when a node changes");

    // The largest come first: where one fits nowhere, smaller ones aren't tried.
    let large = member("uneven", 0, 4, 40);
    index.apply_pod_group(group("uneven"), PodGroupSpec { min: 2, wait: WAIT });
    let small = member("uneven", 1, 1, 1);
    for pod in [&large, &small] {
        index.apply_pod(pod, now);
    }
    for pod in &pods {
        index.delete_pod(&pod.uid);
    }
    let before = changes();
    assert_eq!(refused(at(&small, 0)), "pod group uneven: free GPUs for 0 of 2 pods that start together");
    assert_eq!(changes(), before, "nothing was held");
}
