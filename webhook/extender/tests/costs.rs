//! What the largest pods cost the scheduler's calls and explanations, counted.

use std::time::Duration;

use divvy_api::ContainerKind;
use divvy_api::annotation::MOST_ITEMS;
use divvy_index::explain::State;
use divvy_index::fixture::container;
use divvy_placement::matchings;

use super::*;

const NODES: usize = 2000;
/// Containers of a pod of 1.5 MiB, which is what etcd takes.
const CONTAINERS: usize = 15_000;
const MODELS: usize = 3;

/// Nodes of several models.
fn cluster() -> (Extender, Vec<String>) {
    let names: Vec<String> = (0..NODES).map(|number| format!("n{number}")).collect();
    let nodes = names.iter().enumerate().map(|(number, name)| {
        let mut node = node(name, 8);
        for card in &mut status(&mut node).cards {
            card.model = format!("NVIDIA H{} 80GB", number % MODELS);
        }
        node
    });
    (extender(&nodes.collect::<Vec<_>>(), 16), names)
}

/// Answers of all verbs about a pod that waits, and how often a model was compared with a pattern.
fn asked(extender: &Extender, names: &[String], of: &PodView) -> ([String; 4], u64) {
    let before = matchings();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let text = |answer: Vec<u8>| String::from_utf8(answer).expect("text");
    extender.index.apply_pod(of, Instant::now());
    let (args, now) = (named(of, &names).to_string(), Instant::now());
    let bind = json!({"PodName": of.name, "PodNamespace": of.namespace, "PodUID": of.uid, "Node": "n0"}).to_string();
    let victims = json!({"Pod": json_of(of), "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "b"}]}}}).to_string();
    let bound = match extender.bind(bind.as_bytes(), now).expect("arguments") {
        Bind::Post(binding) => binding.planned,
        Bind::Answer(answer) | Bind::Unknown(answer) => text(answer),
    };
    let answers = [
        text(extender.filter(args.as_bytes()).expect("arguments")),
        text(extender.prioritize(args.as_bytes()).expect("arguments")),
        bound,
        text(extender.preempt(victims.as_bytes()).expect("arguments")),
    ];
    (answers, matchings() - before)
}

#[test]
fn pod_of_thousands_of_requests_is_placed_nowhere() {
    let (extender, names) = cluster();
    for kind in [ContainerKind::App, ContainerKind::Init] {
        let containers = (0..CONTAINERS).map(|number| container(&format!("c{number}"), kind, 1, 1, 0)).collect();
        let mut large = PodView { containers, ..pod("large", 1, 1, 0) };
        large.annotations.insert(CARD_MODEL.into(), vec!["A100"; MOST_ITEMS].join(","));
        let ([filtered, scores, bound, victims], matched) = asked(&extender, &names, &large);
        let reason = "spec: 15000 containers request GPUs: allowed are 64 in a pod";
        assert!(
            filtered.starts_with(r#"{"Nodes":null,"NodeNames":[],"FailedNodes":null,"#) && filtered.contains(reason)
        );
        assert!(!scores.contains(r#""Score":1"#) && bound.contains("not known yet"), "{bound}");
        assert_eq!(victims, r#"{"NodeNameToMetaVictims":{}}"#);
        let explained = extender.index.explain(&large, Duration::from_secs(1 << 20));
        assert_eq!(explained.state, State::Contradicts { reason: reason.to_owned() });
        assert_eq!((matched, extender.index.waiting().len()), (0, 0), "nothing of it is kept");
    }
}

#[test]
fn largest_list_is_matched_once_for_each_model_and_question() {
    let (extender, names) = cluster();
    let mut picky = pod("picky", 1, 1, 0);
    let patterns = [vec!["A100 40GB rev 2"; MOST_ITEMS - 1].join(","), ",=NVIDIA H1 80GB".to_owned()].concat();
    picky.annotations.insert(CARD_MODEL.into(), patterns);
    let ([filtered, ..], matched) = asked(&extender, &names, &picky);
    assert!(filtered.contains(r#""NodeNames":["n1""#), "{}", &filtered[..200]);
    let most = (MOST_ITEMS * MODELS * 8) as u64;
    assert!(matched <= most, "{matched} of {most}, and {} one by one", MOST_ITEMS * NODES * 8);
}
