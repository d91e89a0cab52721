//! Gangs: the members of a `PodGroup` that start together are planned as a whole.

use divvy_api::config::DEFAULT_SCHEDULER;
use divvy_api::names::GATE;
use divvy_api::pod::wire::Resources;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::planning::{ENOUGH, gated, ours, pair, placed, planner, terms};
use super::*;
use crate::demand::PlannedPods;
use crate::node_selection::NodeSelection;
use crate::pod::SchedulingTerms;
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};

fn group(name: &str) -> PodGroup {
    PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: name.into() }
}

/// A pod of the group `g`.
fn member(name: &str, cards: u32, gib: u64) -> PodView {
    PodView { group: Some(group("g").into()), ..gated(name, cards, gib, 0) }
}

fn waits(index: &Index, pod: &PodView) -> String {
    index.snapshot_for(&demand(pod)).pod.group_waits.as_deref().unwrap_or_default().to_owned()
}

#[test]
fn group_is_placed_as_a_whole_or_waits_as_a_whole() {
    let (mut n1, now) = (node("n1", 4), Instant::now());
    status(&mut n1).shares = vec![share(&n1, "x", 3, 40, 100)];
    let index = planner(&[&n1]);
    let group = PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: "g".into() };
    let member = |name: &str| PodView { group: Some(group.clone().into()), ..gated(&format!("g-{name}"), 1, 40, 0) };
    index.apply_pod_group(group.clone(), PodGroupSpec { min: 4 });
    for name in ["a", "b", "c"] {
        index.apply_pod(&member(name), now);
    }
    assert_eq!(placed(&index, now), [], "too few");
    index.apply_pod(&member("d"), now);
    let before = index.snapshot().view.version();
    assert_eq!(placed(&index, now), [], "three would fit");
    assert_eq!(held(&index, "n1").iter().sum::<u64>(), 40, "nothing is held for them");
    let after = index.snapshot().view.version();
    assert!(after > before, "it has been tried");
    assert_eq!((placed(&index, now), index.snapshot().view.version()), (Vec::new(), after), "once");
    assert_eq!(placed(&index, now + ENOUGH), [], "its gates stay: alone no member may start");
    index.apply_pod(&gated("other", 1, 30, 9), now);
    assert_eq!(placed(&index, now), [pair("other", "n1")], "nobody waits for it");
    index.delete_pod("other");
    status(&mut n1).shares.clear();
    index.apply_gpu_node("n1", &n1);
    assert_eq!(placed(&index, now).len(), 4);
    index.apply_pod(&member("surplus"), now);
    index.delete_pod("g-a");
    assert_eq!(placed(&index, now), [pair("g-surplus", "n1")], "by itself");
}

#[test]
fn members_of_a_group_that_differ_do_not_count_as_equal() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let label = |pool: &str| Some([("pool".to_owned(), pool.to_owned())].into());
    index.apply_node("n1", NodeObject { labels: label("a").expect("labels"), ..NodeObject::default() });
    let group = PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: "g".into() };
    let member = |name: &str, pool: &str| {
        let selection = NodeSelection::new(label(pool), None, None);
        let scheduling = SchedulingTerms { selection, ..terms(&[GATE]) };
        PodView { group: Some(group.clone().into()), scheduling: scheduling.into(), ..gated(name, 1, 10, 0) }
    };
    for min in [1, 2] {
        index.apply_pod_group(group.clone(), PodGroupSpec { min });
        let of = |number: u32, pool| member(&format!("{min}-{number}"), pool);
        for pod in [of(1, "b"), of(2, "a"), of(3, "a")] {
            index.apply_pod(&pod, now);
        }
        let uids = [2, 3].map(|number| pair(&format!("{min}-{number}"), "n1"));
        assert_eq!(placed(&index, now), uids, "the first may run on no node");
        for number in 1..=3 {
            index.delete_pod(&format!("{min}-{number}"));
        }
    }
}

#[test]
fn members_start_alone_when_their_group_is_gone_or_never_comes() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    let alone = |api, name: &str| {
        let group = PodGroup { api, namespace: "default".into(), name: "g".into() };
        index.apply_pod(&PodView { group: Some(group.clone().into()), ..gated(name, 1, 10, 0) }, now);
        group
    };
    let group = alone(PodGroupApi::Coscheduling, "a");
    index.apply_pod_group(group.clone(), PodGroupSpec { min: 2 });
    assert_eq!(placed(&index, now), []);
    index.delete_pod_group(&group);
    assert_eq!(placed(&index, now), [pair("a", "n1")]);
    index.serves_pod_groups(PodGroupApi::Kubernetes, true);
    alone(PodGroupApi::Kubernetes, "b");
    assert_eq!(placed(&index, now), [], "its group may come");
    index.serves_pod_groups(PodGroupApi::Kubernetes, false);
    assert_eq!(placed(&index, now), [pair("b", "n1")]);
}

#[test]
fn members_without_gpus_count_and_gated_ones_do_not() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2 });
    let worker = member("worker", 1, 40);
    let launcher = PodView { containers: Vec::new(), ..member("launcher", 1, 1) };
    let kept = |pod: &PodView| PodView { scheduling: terms(&["quota", GATE]).into(), ..pod.clone() };
    index.apply_pod(&worker, now);
    index.apply_pod(&kept(&launcher), now);
    assert_eq!(placed(&index, now), [pair("launcher", "")], "it requests no GPU");
    assert_eq!(waits(&index, &worker), "pod group g needs 2 pods at once, and there are 1");
    index.apply_pod(&kept(&worker), now);
    let freed = PodView { scheduling: terms(&[]).into(), ..launcher };
    index.apply_pod(&freed, now);
    assert_eq!(placed(&index, now), [], "somebody else keeps the worker");
    index.apply_pod(&worker, now);
    assert_eq!(placed(&index, now), [pair("worker", "n1")]);
}

#[test]
fn group_of_one_makes_no_gang() {
    for min in [0, 1] {
        let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
        index.apply_pod_group(group("g"), PodGroupSpec { min });
        for name in ["a", "b"] {
            index.apply_pod(&member(name, 1, 40), now);
        }
        assert_eq!(placed(&index, now), [pair("a", "n1")], "each pod may start alone");
        assert_eq!(waits(&index, &member("b", 1, 40)), "");
    }
}

#[test]
fn group_that_is_not_listed_any_more_keeps_nobody() {
    let (index, now) = (planner(&[&node("n1", 1)]), Instant::now());
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2 });
    index.apply_pod(&member("a", 1, 40), now);
    assert_eq!(placed(&index, now), []);
    index.keep_pod_groups(PodGroupApi::Coscheduling, |_| false);
    assert_eq!(placed(&index, now), [pair("a", "n1")]);
}

#[test]
fn pods_of_another_scheduler_do_not_count() {
    let (index, now) = (planner(&[&node("n1", 4)]), Instant::now());
    index.apply_pod_group(group("g"), PodGroupSpec { min: 3 });
    let of = |scheduler: &str, name: &str| {
        let scheduling = SchedulingTerms { scheduler: scheduler.into(), ..terms(&[]) };
        PodView { scheduling: scheduling.into(), ..member(name, 1, 40) }
    };
    for pod in [of("nobody", "x"), of("nobody", "y"), member("a", 1, 40), member("b", 1, 40)] {
        index.apply_pod(&pod, now);
    }
    assert_eq!(placed(&index, now), []);
    assert_eq!(waits(&index, &member("a", 1, 40)), "pod group g needs 3 pods at once, and there are 2");
    index.apply_pod(&member("c", 1, 40), now);
    assert_eq!(placed(&index, now).len(), 3);
}

#[test]
fn group_exceeds_a_quota_as_a_whole() {
    let (index, now) = (planner(&[&node("n1", 8)]), Instant::now());
    let spec = serde_json::from_value(json!({ "hard": { "gpu": 4 } })).expect("a quota");
    index.apply_quota("default", "few", Ok(&spec));
    index.apply_pod_group(group("g"), PodGroupSpec { min: 6 });
    for name in ["a", "b", "c", "d", "e", "f"] {
        index.apply_pod(&member(name, 1, 40), now);
    }
    assert_eq!(placed(&index, now), [], "though each fits");
    let whole = "pod group g: exceeded GpuQuota few, requested: gpu=6, used: gpu=0, limited: gpu=4";
    assert_eq!(waits(&index, &member("a", 1, 40)), whole);
    index.apply_pod_group(group("g"), PodGroupSpec { min: 3 });
    assert_eq!(placed(&index, now).len(), 4, "more than start together, one by one");
    assert_eq!(index.quotas()[0].used.count, 4);
}

#[test]
fn members_that_a_large_one_leaves_no_chance_are_not_tried() {
    let (index, now) = (planner(&[&node("n1", 2)]), Instant::now());
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2 });
    for pod in [member("small", 1, 1), member("large", 4, 40)] {
        index.apply_pod(&pod, now);
    }
    let before = index.snapshot().view.version();
    assert_eq!((placed(&index, now), index.snapshot().view.version()), (Vec::new(), before), "nothing was reserved");
    let reason = "pod group g: free GPUs for 0 of 2 pods that start together";
    assert_eq!(waits(&index, &member("small", 1, 1)), reason);
}

#[test]
fn gang_is_shown_to_autoscalers_if_its_scheduler_knows_groups() {
    let terms = |scheduler: &str| SchedulingTerms { scheduler: scheduler.into(), ..terms(&[GATE]) };
    for (api, scheduler, shown) in [
        (PodGroupApi::Kubernetes, DEFAULT_SCHEDULER, 3),
        (PodGroupApi::Coscheduling, DEFAULT_SCHEDULER, 0),
        (PodGroupApi::Coscheduling, "ours", 3),
    ] {
        let schedulers = [DEFAULT_SCHEDULER, "ours"].map(str::to_owned).into();
        let planned = PlannedPods { schedulers, groups_alone: false };
        let (index, now) = (Index::new(SchedulingConfig { planned, ..SchedulingConfig::default() }), Instant::now());
        index.apply_gpu_node("n1", &node("n1", 1));
        let allocatable = Some(Resources { cpu_milli: 1500, others: [("pods".into(), 10)].into() });
        index.apply_node("n1", NodeObject { allocatable, ..NodeObject::default() });
        let group = PodGroup { api, ..group("g") };
        index.apply_pod_group(group.clone(), PodGroupSpec { min: 3 });
        for name in ["a", "b", "c"] {
            let (group, requests) = (Some(group.clone().into()), Resources::of_cpu(1000));
            index.apply_pod(
                &PodView { group, requests, scheduling: terms(scheduler).into(), ..pod(name, 1, 10, 0) },
                now,
            );
        }
        assert_eq!(placed(&index, now), [], "one has enough CPU");
        assert_eq!(placed(&index, now + ENOUGH).len(), shown, "{api:?} {scheduler}");
    }
}

#[test]
fn gang_is_planned_within_a_clique() {
    let linked = |(name, clique): (&str, &str)| {
        let mut node = node(name, 4);
        status(&mut node).clique = Some(clique.to_owned()).filter(|clique| !clique.is_empty());
        node
    };
    let nodes = [("a1", "a.0"), ("b1", "b.0"), ("b2", "b.0"), ("c1", "")].map(linked);
    let (index, now) = (planner(&nodes.iter().collect::<Vec<_>>()), Instant::now());
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2 });
    for name in ["a", "b"] {
        index.apply_pod(&member(name, 4, 40), now);
    }
    let nodes: BTreeSet<String> = placed(&index, now).into_iter().map(|(_, node)| node).collect();
    assert_eq!(nodes, BTreeSet::from(["b1".to_owned(), "b2".to_owned()]));
}

#[test]
fn beside_an_extender_only_groups_are_planned() {
    let planned = PlannedPods { groups_alone: true, ..ours() };
    let (index, now) = (Index::new(SchedulingConfig { planned, ..SchedulingConfig::default() }), Instant::now());
    index.apply_gpu_node("n1", &node("n1", 4));
    let created = Timestamp::from_second(1).ok();
    let alone = |gates: &[&str]| PodView {
        scheduling: SchedulingTerms { created, ..terms(gates) }.into(),
        ..pod("alone", 1, 40, 0)
    };
    index.apply_pod(&alone(&[]), now);
    assert_eq!(placed(&index, now), [], "its scheduler asks the extender");
    index.apply_pod(&alone(&[GATE]), now);
    assert_eq!(placed(&index, now), [pair("alone", "")], "nobody plans it any more");
    index.apply_pod_group(group("g"), PodGroupSpec { min: 2 });
    let pods = [member("a", 1, 40), member("b", 1, 40)];
    for pod in &pods {
        index.apply_pod(pod, now);
    }
    assert_eq!(placed(&index, now).iter().filter(|(_, node)| node == "n1").count(), 2);
    let planned = index.reserve(&demand(&pods[0]), "n1", now).expect("it is planned there");
    index.apply_pod(&bound(pods[0].clone(), &planned), now);
    assert_eq!(held(&index, "n1").iter().filter(|gib| **gib > 0).count(), 2, "each once");
}

#[test]
fn explanation_starts_a_group_as_the_leader_does() {
    let (index, now) = (planner(&[&node("n1", 3)]), Instant::now());
    index.apply_pod_group(group("g"), PodGroupSpec { min: 4 });
    let pods = ["a", "b", "c", "d"].map(|name| member(name, 1, 40));
    for pod in &pods {
        index.apply_pod(pod, now);
    }
    index.apply_pod(&gated("other", 1, 1, 1), now);
    let start = |pod: &PodView| index.start_group(&demand(pod), now);
    let reason = "pod group g: free GPUs for 3 of 4 pods that start together";
    assert_eq!(start(&pods[0]), Some(Err(reason.into())));
    assert_eq!(start(&gated("other", 1, 1, 1)), None);
    index.apply_gpu_node("n2", &node("n2", 1));
    assert_eq!(start(&pods[0]), Some(Ok(())));
}
