use divvy_api::annotation::{CardShare, PlannedCards};
use divvy_api::gpunode::{GpuNode, GpuNodeReport, HealthStatus};
use divvy_api::names::annotation::PLANNED;
use divvy_api::{Memory, Share, Tier};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::NodeObject;
use crate::demand::SchedulingConfig;
use crate::fixture::{AGES, condition, container, cut, node, pod, share, status};

fn index(nodes: &[GpuNode]) -> Index {
    let index = Index::new(SchedulingConfig::default());
    for node in nodes {
        index.apply_gpu_node(node.metadata.name.as_deref().expect("a name"), node);
    }
    index
}

/// One of each kind of trouble, beside one that is well.
fn cluster() -> Vec<GpuNode> {
    let [mut full, mut sick, mut closed, well] = [node("full", 2), node("sick", 3), node("closed", 1), node("well", 1)];
    status(&mut full).shares = vec![share(&full, "low", 0, 30, 0), share(&full, "alone", 1, 40, 100)];
    sick.spec.unschedulable_cards = vec!["GPU-sick-1".to_owned()];
    let cards = &mut status(&mut sick).cards;
    (cards[0].health, cards[0].reason) = (HealthStatus::Unhealthy, Some("XID 79".to_owned()));
    (cards[2].memory, cards[2].model) = (Memory::mib(16 << 10), "Tesla T4".to_owned());
    status(&mut closed).conditions.push(condition("Draining", "True", "the daemon is about to stop"));
    vec![full, sick, closed, well]
}

/// A line a node, and one a card.
fn lines(explanation: &Explanation) -> String {
    let card = |CardAnswer { uuid, memory_mi: Part { free, capacity }, chosen, reason, .. }: &CardAnswer| {
        format!("  {uuid}: {free} of {capacity} free, chosen {chosen}, {reason:?}\n")
    };
    let node = |node: &NodeAnswer| {
        let NodeAnswer { name, fits, rank, score, reason, lower, .. } = node;
        let answer = format!("{fits:?}, rank {rank:?}, score {score}, {lower:?} in the way");
        format!("{name}: {answer}, {reason:?}\n{}", node.cards.iter().map(card).collect::<String>())
    };
    let Explanation { verdict, fitting, nodes, .. } = explanation;
    format!("{verdict} ({fitting} of {} nodes)\n{}", nodes.len(), nodes.iter().map(node).collect::<String>())
}

#[test]
fn every_node_and_gpu_has_a_reason() {
    let index = index(&cluster());
    index.apply_pod(&PodView { node: Some("full".into()), ..pod("low", 1, 30, 0) }, Instant::now());
    let ask = |priority, cards, gib| lines(&index.explain(&PodView { priority, ..pod("p", cards, gib, 0) }, AGES));
    insta::assert_snapshot!("now", ask(0, 1, 20));
    insta::assert_snapshot!("later", ask(5, 2, 35));
    insta::assert_snapshot!("never", ask(0, 1, 41));
    index.apply_node("well", NodeObject { unschedulable: Some(Unschedulable::Cordoned), ..NodeObject::default() });
    insta::assert_snapshot!("cordoned", ask(5, 1, 20));
    let picky =
        PodView { annotations: [("divvy.dev/card-model".to_owned(), "T4".to_owned())].into(), ..pod("p", 1, 8, 0) };
    insta::assert_snapshot!("picky", lines(&index.explain(&picky, AGES)));
}

#[test]
fn mig_instances_too_small_in_use_or_absent_differ() {
    let mut nodes = ["gpus", "busy", "small", "two"].map(|name| node(name, 2));
    for (at, gib) in [(1, [10, 10]), (2, [5, 5]), (3, [20, 10])] {
        cut(&mut nodes[at], &gib);
    }
    let held = [share(&nodes[1], "alone", 0, 10, 100), share(&nodes[1], "part", 1, 2, 20)];
    status(&mut nodes[1]).shares = held.to_vec();
    status(&mut nodes[0]).tier = Tier::Shim;
    let index = index(&nodes);
    let ask = |cards, gib| {
        let annotations = [("divvy.dev/tier".to_owned(), "mig".to_owned())].into();
        lines(&index.explain(&PodView { annotations, ..pod("p", cards, gib, 30) }, AGES))
    };
    insta::assert_snapshot!("instances", [ask(1, 8), ask(3, 8)].join("\n"));
}

#[test]
fn explanation_is_written_as_json() {
    let mut p = pod("p", 1, 20, 30);
    p.containers.insert(0, container("warm-up", ContainerKind::Init, 2, 10, 0));
    p.annotations.insert("divvy.dev/card-policy".to_owned(), "spread".to_owned());
    insta::assert_json_snapshot!(index(&[node("n1", 2)]).explain(&p, AGES));
}

#[test]
fn scores_equal_those_of_prioritize() {
    let mut nodes = vec![node("a", 1), node("b", 1), node("c", 1), node("d", 1)];
    status(&mut nodes[1]).shares = vec![share(&nodes[1], "x", 0, 10, 0)];
    status(&mut nodes[2]).shares = vec![share(&nodes[2], "y", 0, 20, 0)];
    let explained = index(&nodes).explain(&pod("p", 1, 20, 0), AGES);
    let scores: Vec<_> = explained.nodes.iter().map(|node| (node.name.as_str(), node.rank, node.score)).collect();
    assert_eq!(scores, [("c", Some(1), 10), ("b", Some(2), 7), ("a", Some(3), 4), ("d", Some(3), 4)]);
}

#[test]
fn explanation_follows_the_phase_of_the_pod() {
    let index = index(&[node("n1", 1), node("n2", 1)]);
    let explain = |pod: &PodView| {
        let Explanation { verdict, state, nodes, .. } = index.explain(pod, AGES);
        (verdict, state, nodes.len())
    };
    let (here, p) = (Some("n1".to_owned()), pod("p", 1, 20, 0));
    let card: divvy_api::CardId = "GPU-n1-0".parse().expect("a card");
    let part = Share { memory: Memory::mib(20 << 10), cores: Cores::ZERO, ..Share::default() };
    let shares = [("main".to_owned(), vec![CardShare { uuid: card.clone(), share: part }])].into();
    let cards = Cards { ledger_revision: 7, tier: Tier::Accounting, containers: shares };
    let plan = PlannedCards { chosen: vec![card], reused: Vec::new() };
    let planned =
        Planned { node: "n1".to_owned(), containers: [("main".to_owned(), plan)].into(), ..Planned::default() };
    let with = |key: &str, text: String| PodView {
        node: here.clone(),
        annotations: [(key.to_owned(), text)].into(),
        ..p.clone()
    };
    let elsewhere = Planned { node: "n2".to_owned(), ..planned.clone() };
    let mut contradiction = p.clone();
    contradiction.containers[0].limits.insert("nvidia.com/gpucores".to_owned(), "101".to_owned());
    let states = [
        explain(&PodView { nominated: here.clone(), ..p.clone() }),
        explain(&with(PLANNED, annotation::encode(&planned))),
        explain(&with(PLANNED, annotation::encode(&elsewhere))),
        explain(&with(CARDS, annotation::encode(&cards))),
        explain(&PodView { node: Some("gone".to_owned()), ..p.clone() }),
        explain(&PodView { ended: true, ..p.clone() }),
        explain(&pod("none", 0, 0, 0)),
        explain(&contradiction),
    ];
    insta::assert_debug_snapshot!(states);
}

#[test]
fn own_reservation_counts_as_free_for_the_pod_alone() {
    let index = index(&[node("n1", 1)]);
    let p = pod("p", 1, 30, 0);
    let demand = Arc::new(Demand::read(&p, index.config()).expect("a request").expect("cards"));
    index.reserve(&demand, "n1", Instant::now()).expect("an empty card");
    assert!(index.explain(&p, AGES).nodes[0].fits == Fits::Now);
    assert!(index.explain(&pod("q", 1, 30, 0), AGES).nodes[0].fits == Fits::Later);
}

#[test]
fn node_without_reported_gpus_is_never_infeasible() {
    let index = index(&[]);
    index.apply_gpu_node(
        "n1",
        GpuNodeReport::read(ObjectMeta::default(), &serde_json::json!({ "status": { "cards": 7 } })),
    );
    let Explanation { verdict, nodes, .. } = index.explain(&pod("p", 1, 1, 0), AGES);
    assert_eq!(
        verdict,
        "0/1 nodes are available: 1 node(s) were not ready for GPU pods: GpuNode can't be decoded: status.cards: expected a list"
    );
    assert_eq!(nodes[0].fits, Fits::Later);
}

#[test]
fn unschedulable_nodes_do_not_fit() {
    let index = index(&["fine", "cordoned", "silent", "gone"].map(|name| node(name, 1)));
    let p = pod("p", 1, 8, 0);
    index.apply_node("cordoned", NodeObject { unschedulable: Some(Unschedulable::Cordoned), ..NodeObject::default() });
    index.apply_node("silent", NodeObject { unschedulable: Some(Unschedulable::NotReady), ..NodeObject::default() });
    assert_eq!(index.explain(&p, AGES).verdict, "best now: fine, gone", "not all Nodes have been listed");
    index.apply_node("fine", NodeObject::default());
    index.keep_nodes(&["fine", "cordoned", "silent"].map(str::to_owned).into());
    let answers = |fits: Fits, barred| {
        index.explain(&p, AGES).nodes.iter().any(|node| (node.fits, node.barred) == (fits, barred))
    };
    assert!(
        answers(Fits::Now, None)
            && answers(Fits::Barred, Some(Unschedulable::Gone))
            && answers(Fits::Barred, Some(Unschedulable::NotReady))
    );

    index.delete_node("fine");
    let nowhere = "0/4 nodes are available: 2 node(s) had no Node object (GPUs fit), 1 node(s) were cordoned (GPUs fit), \
                   1 node(s) were not ready (GPUs fit)";
    assert_eq!(index.explain(&p, AGES).verdict, nowhere);
    let demand = Demand::read(&p, index.config()).expect("a request").expect("cards");
    assert_eq!(index.snapshot_for(&demand).feasibility(&demand, AGES).to_string(), nowhere);
    index.apply_gpu_node("gone", &node("gone", 1));
    assert!(index.explain(&p, AGES).fitting == 0, "a report is no Node");
    index.apply_node("gone", NodeObject::default());
    assert_eq!(index.explain(&p, AGES).verdict, "best now: gone");

    let bound = |name: &str| index.explain(&PodView { node: Some(name.to_owned()), ..p.clone() }, AGES).verdict;
    assert_eq!(bound("cordoned"), "node cordoned has free GPUs for the pod and hasn't reported its allocation yet");
    assert_eq!(bound("silent"), "node silent: node(s) were not ready (GPUs fit)");
}

#[test]
fn node_not_asked_in_time_is_unknown() {
    let index = index(&[node("n1", 1)]);
    let Explanation { verdict, fitting, nodes, .. } = index.explain(&pod("p", 1, 8, 0), Duration::ZERO);
    assert_eq!((verdict.as_str(), fitting), ("unknown: not all nodes were evaluated in time", 0));
    assert_eq!(
        (nodes[0].fits, nodes[0].reason.as_deref()),
        (Fits::Unknown, Some("node(s) were not evaluated in time"))
    );
    assert_eq!(nodes[0].cards.len(), 1, "what it has is known");
}

#[test]
fn unhealthy_gpu_keeps_the_reason_of_its_node() {
    let mut n1 = node("n1", 1);
    n1.spec.unschedulable_cards = vec!["GPU-n1-0".to_owned()];
    let card = &mut status(&mut n1).cards[0];
    (card.health, card.reason) = (HealthStatus::Unhealthy, Some("XID 79".to_owned()));
    let reason = |node: &GpuNode| {
        index(std::slice::from_ref(node)).explain(&pod("p", 1, 1, 0), AGES).nodes[0].cards[0].reason.clone()
    };
    assert_eq!(reason(&n1).as_deref(), Some("cordoned; XID 79"));
    status(&mut n1).cards[0].reason = None;
    assert_eq!(reason(&n1).as_deref(), Some("cordoned"));
}

#[test]
fn expected_requests_rank_nodes_as_in_prioritize() {
    let [mut tight, mut wide] = [node("tight", 1), node("wide", 1)];
    status(&mut tight).shares = vec![share(&tight, "x", 0, 15, 0)];
    status(&mut wide).shares = vec![share(&wide, "x", 0, 5, 0)];
    let (index, asked) = (index(&[tight, wide]), pod("p", 1, 10, 0));
    let order = |explanation: &Explanation| -> Vec<(String, i64)> {
        explanation.nodes.iter().map(|node| (node.name.clone(), node.score)).collect()
    };
    let before = index.explain(&asked, AGES);
    assert_eq!((order(&before)[0].0.as_str(), before.expected), ("tight", None), "it fits best");

    for number in 0..64 {
        let (gib, uid) = (if number % 3 == 0 { 8 } else { 20 }, format!("before-{number}"));
        index.apply_pod(&pod(&uid, 1, gib, 0), Instant::now());
        index.delete_pod(&uid);
    }
    let after = index.explain(&asked, AGES);
    assert_eq!(order(&after)[0].0, "wide", "another 20 GiB still fit there");
    let demand = Demand::read(&asked, index.config()).expect("a request").expect("cards");
    let names = ["tight", "wide"];
    let mut told = index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), &names, true).fitting;
    let told: Vec<(String, i64)> =
        ranked(&mut told).map(|(asked, _, score)| (names[asked.name].to_owned(), score)).collect();
    assert_eq!(order(&after), told);
    insta::assert_json_snapshot!(after.expected, @r#"
    {
      "pods": 64,
      "requests": [
        {
          "percent": 65.6,
          "request": {
            "cards": 1,
            "memory": "20Gi",
            "cores": 0
          },
          "cpuMilli": 0
        },
        {
          "percent": 34.4,
          "request": {
            "cards": 1,
            "memory": "8Gi",
            "cores": 0
          },
          "cpuMilli": 0
        }
      ]
    }
    "#);
    assert_eq!(index.explain(&pod("p", 1, 41, 0), AGES).expected, None, "there is nothing to rank");
}

#[test]
fn feasibility_looks_at_no_more_nodes_than_there_is_time_for() {
    let names: Vec<String> = (0..2000).map(|number| format!("n{number}")).collect();
    let index = Index::new(SchedulingConfig::default());
    for name in &names {
        let mut full = node(name, 1);
        let shares = vec![share(&full, &format!("on-{name}"), 0, 40, 0)];
        status(&mut full).shares = shares;
        index.apply_gpu_node(name, &full);
    }
    for pod in [pod("single", 1, 1, 0), pod("several", 2, 1, 0)] {
        let demand = Demand::read(&pod, index.config()).expect("a request").expect("cards");
        let late = index.snapshot_for(&demand).feasibility(&demand, Duration::ZERO);
        assert_eq!((late.now, late.ever, late.asked), (None, true, 0), "{}", pod.name);
        assert_eq!(late.to_string(), "unknown: not all nodes were evaluated in time");
        let all = index.snapshot_for(&demand).feasibility(&demand, AGES);
        assert_eq!((all.now, all.asked > 0), (Some(false), true), "{}", pod.name);
    }
}
