//! Gangs: all of a group's GPUs are held, or none.

mod histories;

use std::time::Duration;

use super::*;
use crate::Held;
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};

const WAIT: Duration = Duration::from_secs(60);

fn group(name: &str) -> PodGroup {
    PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: name.into() }
}

fn member(of: &str, number: usize, cards: u32, gib: u64) -> PodView {
    PodView { group: Some(group(of).into()), ..pod(&format!("{of}-{number}"), cards, gib, 0) }
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
        "pod group first: GPUs were held for 60 s, and too few of its pods were bound: others come first for as long"
    );
    assert_eq!(at(&second[0], 61), Held::At(0), "the other group's turn");
    assert_eq!(at(&second[1], 61), Held::At(0));
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
    let unseen = index.hold(&demand(&worker), &["n1"], now);
    assert_eq!(refused(unseen), "pod group g needs 2 pods at once, and there are 1");
    let launcher = PodView { containers: Vec::new(), ..member("g", 1, 1, 1) };
    index.apply_pod(&PodView { is_gated: true, ..launcher.clone() }, now);
    assert!(matches!(index.hold(&demand(&worker), &["n1"], now), Held::Unseen(_)));
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
    index.apply_pod_group(group("g"), PodGroupSpec { min: 1, wait: WAIT });
    index.apply_pod(&of(PodGroupApi::Coscheduling), now);
    assert_eq!(hold(PodGroupApi::Coscheduling), Held::At(0), "each pod may start alone, and is held alone");
    index.keep_pod_groups(PodGroupApi::Coscheduling, |_| false);
    index.delete_pod("a");
    assert_eq!(hold(PodGroupApi::Coscheduling), Held::Nothing);
}
