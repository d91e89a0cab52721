//! NVLink cliques: where the pods of a group go, of nodes that are equal otherwise.

use divvy_api::names::CLIQUE;

use super::*;
use crate::nodes::NodeRef;
use crate::pod_group::{PodGroup, PodGroupApi};
use crate::ranking::shortlist;

fn group(name: &str) -> PodGroup {
    PodGroup { api: PodGroupApi::Coscheduling, namespace: "default".into(), name: name.into() }
}

/// A pod of a group, with all four GPUs of a node.
fn member(of: &str, number: usize) -> PodView {
    PodView { group: Some(group(of).into()), ..pod(&format!("{of}-{number}"), 4, 40, 100) }
}

/// Nodes with four GPUs each, by name and clique.
fn cluster(nodes: &[(&str, &str)]) -> Index {
    let linked = |(name, clique): &(&str, &str)| {
        let mut node = node(name, 4);
        status(&mut node).clique = Some((*clique).to_owned()).filter(|clique| !clique.is_empty());
        node
    };
    index(&nodes.iter().map(linked).collect::<Vec<_>>().iter().collect::<Vec<_>>())
}

fn show(index: &Index, name: &str, pods: usize) -> Vec<PodView> {
    let pods: Vec<PodView> = (0..pods).map(|number| member(name, number)).collect();
    for pod in &pods {
        index.apply_pod(pod, Instant::now());
    }
    pods
}

/// The node that a scheduler without wishes of its own gets.
fn best(index: &Index, pod: &PodView, names: &[&str]) -> String {
    let demand = demand(pod);
    let mut fitting = index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), names, false).fitting;
    shortlist(&mut fitting, 1);
    names[fitting[0].0.name].to_owned()
}

#[test]
fn pods_of_a_group_follow_the_first_into_its_clique() {
    let index = cluster(&[("a1", "a.0"), ("a2", "a.0"), ("b1", "b.0"), ("b2", "b.0"), ("c1", "b.1"), ("d1", "")]);
    let names = ["a1", "a2", "b1", "b2", "c1", "d1"];
    let pods = show(&index, "g", 3);
    index.reserve(&demand(&pods[0]), "b1", Instant::now()).expect("it fits");
    assert_eq!(best(&index, &pods[1], &names), "b2", "another clique of its domain is as far as any");
    assert_eq!(best(&index, &pod("alone", 4, 40, 100), &names), "a1", "no group");
    index.reserve(&demand(&pods[1]), "b2", Instant::now()).expect("it fits");
    assert_eq!(best(&index, &pods[2], &names), "c1", "full, so it is the smallest with a free node");
    // Bound, and then in the ledger of its node, it counts as before.
    let mut b1 = node("b1", 4);
    status(&mut b1).clique = Some("b.0".to_owned());
    status(&mut b1).shares = (0..4).map(|card| share(&b1.clone(), "g-0", card, 40, 100)).collect();
    index.apply_pod(&PodView { node: Some("b1".to_owned()), ..pods[0].clone() }, Instant::now());
    index.apply_gpu_node("b1", &b1);
    index.failed(&demand(&pods[1]).uid);
    assert_eq!(best(&index, &pods[1], &names), "b2");
}

#[test]
fn first_pod_of_a_group_goes_where_all_of_them_fit() {
    let nodes = [("a1", "a.0"), ("b1", "b.0"), ("b2", "b.0"), ("c1", "c.0"), ("c2", "c.0"), ("c3", "c.0")];
    let (index, names) = (cluster(&nodes), ["a1", "b1", "b2", "c1", "c2", "c3"]);
    let of = |pods: usize, name: &str| best(&index, &show(&index, name, pods)[0], &names);
    assert_eq!([of(1, "one"), of(2, "two"), of(3, "three"), of(4, "four")], ["a1", "b1", "c1", "c1"]);
    index.reserve(&demand(&pod("x", 4, 40, 100)), "b1", Instant::now()).expect("it fits");
    assert_eq!([of(1, "one"), of(2, "two")], ["a1", "c1"], "a full node doesn't count");
}

#[test]
fn clique_changes_no_fit_and_no_better_plan() {
    let index = cluster(&[("a1", "a.0"), ("b1", "b.0"), ("b2", "b.0")]);
    let pods = show(&index, "g", 2);
    index.reserve(&demand(&pods[0]), "b1", Instant::now()).expect("it fits");
    // A part of a GPU goes best to the GPU that has another part of it already.
    index.reserve(&demand(&pod("part", 1, 10, 10)), "a1", Instant::now()).expect("it fits");
    let part = PodView { group: Some(group("g").into()), ..pod("g-9", 1, 10, 10) };
    index.apply_pod(&part, Instant::now());
    let names = ["b2", "a1", "b1"];
    assert_eq!(best(&index, &part, &names), "a1", "a better plan counts first");
    let fitting = |pod: &PodView| {
        let demand = demand(pod);
        let ranking = index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), &names, true);
        let names = |nodes: Vec<NodeRef>| nodes.into_iter().map(|node| names[node.name]).collect::<Vec<_>>();
        names(ranking.fitting.into_iter().map(|(node, _)| node).collect())
    };
    assert_eq!(fitting(&part), fitting(&PodView { group: None, ..part.clone() }));
    assert_eq!(fitting(&part), ["b2", "a1"]);
}

#[test]
fn label_of_the_node_comes_before_the_daemons_report() {
    let index = cluster(&[("a1", "a.0"), ("b1", "b.0"), ("b2", "")]);
    let label = |name: &str, clique: Option<&str>| {
        let labels = clique.map(|clique| (CLIQUE.to_owned(), clique.to_owned())).into_iter().collect();
        index.apply_node(name, NodeObject { labels, ..NodeObject::default() });
        index.snapshot().node(name).expect("it is known").clique.as_deref().map(str::to_owned)
    };
    assert_eq!(label("a1", None).as_deref(), Some("a.0"));
    assert_eq!(label("b1", Some("rack-7")).as_deref(), Some("rack-7"));
    assert_eq!(label("b2", Some("rack-7")).as_deref(), Some("rack-7"));
    let pods = show(&index, "g", 2);
    index.reserve(&demand(&pods[0]), "b1", Instant::now()).expect("it fits");
    assert_eq!(best(&index, &pods[1], &["a1", "b2"]), "b2");
}
