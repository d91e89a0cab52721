use std::time::Instant;

use divvy_api::gpunode::{GpuNode, Oversubscription};
use divvy_api::{Memory, Tier};
use divvy_index::demand::SchedulingConfig;
use divvy_index::explain::{KnownPod, Objects};
use divvy_index::fixture::{AGES, condition, node, pod, share, status};
use divvy_index::pod::{PodEnd, PodView};
use divvy_index::{Index, NodeObject, Unschedulable};

use super::fetch::FoundExplanation;
use super::*;

fn index(nodes: &[GpuNode]) -> Index {
    let index = Index::new(SchedulingConfig::default());
    for node in nodes {
        index.apply_gpu_node(node.metadata.name.as_deref().expect("a name"), node);
    }
    index
}

fn shown(index: &Index, pod: &PodView, wide: bool) -> String {
    let low = KnownPod { name: "low".to_owned(), end: PodEnd::Completes };
    let objects = Objects { pods: [("low".to_owned(), low)].into(), ..Objects::default() };
    let mut explanation = index.explain(pod, AGES);
    explanation.suggestions = index.suggest(pod, &objects, AGES);
    show::render(&FoundExplanation { explanation, remarks: Vec::new() }, wide, true)
}

#[test]
fn every_hint_names_what_to_do() {
    let [mut full, mut sick, mut closed, well] = [node("full", 1), node("sick", 2), node("closed", 1), node("well", 1)];
    status(&mut full).shares = vec![share(&full, "low", 0, 30, 0)];
    sick.spec.unschedulable_cards = vec!["GPU-sick-0".to_owned(), "GPU-sick-1".to_owned()];
    status(&mut closed).conditions.push(condition("Draining", "True", "the daemon is about to stop"));
    let index = index(&[full, sick, closed, well]);
    index.apply_node("well", NodeObject { unschedulable: Some(Unschedulable::Cordoned), ..NodeObject::default() });
    index.apply_pod(&PodView { node: Some("full".into()), ..pod("low", 1, 30, 0) }, Instant::now());
    let p = |gib| PodView { priority: 5, ..pod("p", 1, gib, 0) };
    insta::assert_snapshot!("hints", shown(&index, &p(20), false));
    insta::assert_snapshot!("wide", shown(&index, &p(20), true));
    insta::assert_snapshot!("never", shown(&index, &p(41), false));
    index.apply_node("well", NodeObject::default());
    insta::assert_snapshot!("now", shown(&index, &p(20), false));
}

#[test]
fn many_nodes_are_shown_by_their_reasons() {
    let with = |number: usize, held: u64| {
        let mut node = node(&format!("node-{number:02}"), 1);
        status(&mut node).shares = vec![share(&node, "x", 0, held, 0)];
        node
    };
    let nodes: Vec<GpuNode> =
        (0..40).map(|number| with(number, [1, 30, 25][usize::from(number > 14) + usize::from(number > 37)])).collect();
    insta::assert_snapshot!(shown(&index(&nodes), &pod("p", 1, 20, 0), false));
}

#[test]
fn host_memory_has_a_column_where_a_node_oversubscribes() {
    let (mut both, plain) = (node("both", 2), node("plain", 1));
    let oversubscription = Oversubscription { memory_scale: 150, host_memory: Memory::mib(12 << 10) };
    (status(&mut both).tier, status(&mut both).oversubscription) = (Tier::Shim, Some(oversubscription));
    let mut held = share(&both, "a", 0, 30, 0);
    held.share.host = Memory::mib(10 << 10);
    status(&mut both).shares = vec![held, share(&both, "b", 1, 8, 0)];
    let index = index(&[both, plain]);
    let annotations = [("divvy.dev/oversubscribe".to_owned(), "true".to_owned())].into();
    insta::assert_snapshot!(shown(&index, &PodView { annotations, ..pod("p", 1, 12, 0) }, true));
}

#[test]
fn words_of_another_system_are_shown() {
    let of = |record: &str| {
        let annotations = [("divvy.dev/dialect".to_owned(), record.to_owned())].into();
        shown(&index(&[]), &PodView { annotations, ..pod("p", 1, 8, 0) }, false)
    };
    let gpushare = r#"{"version":"v1","name":"gpushare","containers":{"a":{"aliyun.com/gpu-mem":"4"},"b":{"aliyun.com/gpu-core.percentage":"25","aliyun.com/gpu-mem":"1"}}}"#;
    let line = "  translated from gpushare: a: aliyun.com/gpu-mem 4; b: aliyun.com/gpu-core.percentage 25, aliyun.com/gpu-mem 1\n";
    assert!(of(gpushare).contains(line), "{}", of(gpushare));
    let kai = of(r#"{"version":"v1","name":"kai","annotations":{"gpu-fraction":"0.5\u001b[2J"}}"#);
    assert!(kai.contains("  translated from kai: gpu-fraction: 0.5\\u{1b}[2J\n"), "{kai}");
    assert!(!of("unreadable").contains("translated"), "{}", of("unreadable"));
}

#[test]
fn pod_without_gpus_and_cluster_without_nodes_are_explained() {
    insta::assert_snapshot!(shown(&index(&[]), &pod("none", 0, 0, 0), false), @"default/none: the pod requests no GPUs");
    let nowhere = shown(&index(&[]), &pod("p", 1, 8, 0), false);
    assert!(
        nowhere.starts_with("default/p: 0/0 nodes are available: no node has reported GPUs\n  hint: "),
        "{nowhere}"
    );
}

#[test]
fn pod_is_found_in_every_workload_kind() {
    let container = "containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]";
    let read =
        |text: &str| file::only_pod(text).map(|written| (written.pod.name.clone(), written.pod.containers.len()));
    let pod = format!("kind: Pod\nmetadata: {{name: p}}\nspec: {{{container}}}");
    let job = format!("kind: Job\nmetadata: {{name: j}}\nspec: {{template: {{spec: {{{container}}}}}}}");
    let cron = format!(
        "kind: CronJob\nmetadata: {{name: c}}\nspec: {{jobTemplate: {{spec: {{template: {{spec: {{{container}}}}}}}}}}}"
    );
    for (text, name) in [(&pod, "p"), (&job, "j"), (&cron, "c")] {
        assert_eq!(read(text).expect(name), (name.to_owned(), 1));
    }
    let json = r#"{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}"#;
    assert_eq!(read(json).expect("JSON is YAML"), ("p".to_owned(), 1));
    let refused = |text: &str| format!("{:#}", read(text).expect_err(text));
    assert_eq!(refused(&format!("{pod}\n---\n{job}")), "expected one pod or workload, found Pod p, Job j");
    assert_eq!(refused("kind: Service"), "expected a Pod, or a workload with a pod template, found Service");
    assert_eq!(refused(""), "expected a Pod, or a workload with a pod template, found nothing");
    assert!(refused("kind: Pod\nspec: {containers: 3}").starts_with("the pod: invalid type: "));
    assert!(refused("kind: [").starts_with("error") || !refused("kind: [").contains('\n'));
}
