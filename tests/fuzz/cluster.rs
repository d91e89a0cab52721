//! What the webhook is sent: reviews, the scheduler's calls, pods to explain, and what a cluster's objects say.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use divvy_api::gpunode::GpuNodeReport;
use divvy_index::demand::{Demand, SchedulingConfig};
use divvy_index::fixture::{AGES, node, pod as asking, share, status};
use divvy_index::pod::PodView;
use divvy_index::{Feasibility, Index};
use divvy_webhook::admission::{Endpoint, Settings, review};
use divvy_webhook::extender::{Bind, Extender};
use serde_json::Value;

/// Two cards on `n1`; two on `n2`, on one of which a pod of low priority holds all. The pod `waiting` asks for one.
fn index() -> Index {
    let index = Index::new(SchedulingConfig::default());
    index.apply_gpu_node("n1", &node("n1", 2));
    let mut full = node("n2", 2);
    let held = share(&full, "low", 0, 40, 100);
    status(&mut full).shares.push(held);
    index.apply_gpu_node("n2", &full);
    let mut low = asking("low", 1, 40, 100);
    (low.priority, low.node) = (-1, Some("n2".to_owned()));
    index.apply_pod(&low, Instant::now());
    index.apply_pod(&asking("waiting", 1, 8, 30), Instant::now());
    index
}

fn extender() -> (Arc<Index>, Extender) {
    let index = Arc::new(index());
    (Arc::clone(&index), Extender::new(index, 16))
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("our own text")
}

/// Nothing is promised beyond what cards have.
fn within_cards(index: &Index) {
    for (card, held) in index.snapshot().nodes().flat_map(|node| node.state.each()) {
        let is_within = held.memory <= card.memory_capacity() && held.cores <= card.cores_capacity();
        assert!(is_within, "{card:?} {held:?}");
    }
}

/// Reviews, at each endpoint. A pod that was completed needs nothing more.
pub fn reviews(bytes: &[u8]) {
    let fits = |_: &Demand| {
        Some(Feasibility { now: Some(true), ever: true, best: vec!["n1".into()], ..Feasibility::default() })
    };
    let ask = |body: &[u8], endpoint| json(&review(body, endpoint, &Settings::default(), &fits).body);
    for endpoint in [Endpoint::Mutate, Endpoint::Hide, Endpoint::Validate, Endpoint::Jobs, Endpoint::Templates] {
        let answer = ask(bytes, endpoint);
        let response = &answer["response"];
        assert!(answer["kind"] == "AdmissionReview" && response["allowed"].is_boolean());
        let Some(patch) = response["patch"].as_str() else { continue };
        let patch = json(&BASE64_STANDARD.decode(patch).expect("base64"));
        let patch: json_patch::Patch = serde_json::from_value(patch).expect("a patch");
        // What isn't read may be no text.
        let Ok(mut question) = serde_json::from_slice::<Value>(bytes) else { continue };
        // No object comes from the API server without.
        if !question["request"]["object"]["metadata"].is_object() {
            continue;
        }
        json_patch::patch(&mut question["request"]["object"], &patch).expect("a patch of this pod");
        let again = ask(question.to_string().as_bytes(), endpoint);
        assert!(again["response"]["allowed"] == true && again["response"]["patch"].is_null(), "{again}");
    }
}

/// Arguments of `filter` and `prioritize`: who is answered was asked about.
pub fn filter(bytes: &[u8]) {
    let (index, extender) = extender();
    let (filtered, scores) = (extender.filter(bytes), extender.prioritize(bytes));
    assert_eq!(filtered.is_ok(), scores.is_ok());
    let (Ok(filtered), Ok(scores)) = (filtered, scores) else { return };
    let (filtered, scores) = (json(&filtered), json(&scores));
    let scores = scores.as_array().expect("a list");
    for name in filtered["NodeNames"].as_array().into_iter().flatten() {
        assert!(scores.iter().any(|score| score["Host"] == *name));
    }
    assert!(scores.iter().filter_map(|score| score["Score"].as_i64()).all(|score| (0..=10).contains(&score)));
    assert_eq!(index.reserved(), [], "to ask is free");
}

/// Arguments of `bind`: whoever is told to come again finds what he found.
pub fn bind(bytes: &[u8]) {
    let (index, extender) = extender();
    let now = Instant::now();
    match extender.bind(bytes, now) {
        Err(_) => {}
        Ok(Bind::Answer(answer) | Bind::Unknown(answer)) => assert_ne!(json(&answer)["Error"], ""),
        Ok(Bind::Post(binding)) => {
            assert_eq!(binding.object().target.name.as_deref(), Some(&*binding.node));
            assert_eq!(extender.bind(bytes, now).expect("as before"), Bind::Post(binding.clone()));
            within_cards(&index);
            extender.failed(&binding, "refused");
        }
    }
    assert_eq!(index.reserved(), []);
}

/// Arguments of `preempt`.
pub fn preempt(bytes: &[u8]) {
    if let Ok(answer) = extender().1.preempt(bytes) {
        assert!(json(&answer)["NodeNameToMetaVictims"].is_object());
    }
}

/// A pod that somebody wants explained.
pub fn explain(bytes: &[u8]) {
    let Ok(pod) = serde_json::from_slice::<PodView>(bytes) else { return };
    let explained = serde_json::to_value(index().explain(&pod, AGES)).expect("plain data");
    assert!(explained.is_object());
}

/// A node's report, as it is and beside others.
pub fn gpu_node(bytes: &[u8]) {
    let index = index();
    let Ok(report) = serde_json::from_slice::<GpuNodeReport>(bytes) else { return };
    index.apply_gpu_node("n", report);
    assert_eq!((index.snapshot().nodes().count(), index.snapshot().overview().len()), (3, 3));
    let pod = asking("waiting", 1, 8, 30);
    let demand = index.demand("waiting").expect("it waits");
    if let Ok(planned) = index.reserve(&demand, "n", Instant::now()) {
        assert!(planned.containers["main"].chosen.len() == 1, "{planned:?}");
    }
    let explained = index.explain(&pod, AGES);
    assert!(serde_json::to_value(explained).is_ok());
    index.delete_gpu_node("n");
    assert_eq!(index.snapshot().nodes().count(), 2);
}

/// A pod as a watch brings it, with what we and others wrote on it, twice, and then its end.
pub fn pod(bytes: &[u8]) {
    let Ok(pod) = serde_json::from_slice::<PodView>(bytes) else { return };
    let index = index();
    for _ in 0..2 {
        index.apply_pod(&pod, Instant::now());
    }
    assert_eq!(index.snapshot().overview().len(), 2);
    index.delete_pod(&pod.uid);
    assert!(index.demand(&pod.uid).is_none());
    assert!(index.reserved().is_empty() && index.waiting().len() <= 1);
}

/// What each seed is a seed of.
#[cfg(test)]
pub(crate) fn seeds_are_accepted() {
    let (_, extender) = extender();
    for seed in [&include_bytes!("seeds/filter/names")[..], include_bytes!("seeds/filter/nodes")] {
        let answer = json(&extender.filter(seed).expect("arguments"));
        assert!(answer["FailedNodes"].is_null() && answer["FailedAndUnresolvableNodes"].is_null(), "{answer}");
    }
    let bound = extender.bind(include_bytes!("seeds/bind/waiting"), Instant::now());
    assert!(matches!(bound, Ok(Bind::Post(_))), "{bound:?}");
    for seed in [&include_bytes!("seeds/preempt/short")[..], include_bytes!("seeds/preempt/whole")] {
        let answer = json(&extender.preempt(seed).expect("arguments"));
        assert_eq!(answer["NodeNameToMetaVictims"]["n2"]["Pods"][0]["UID"], "low", "{answer}");
    }
    let settings = Settings::default();
    let verdict = |body: &[u8], endpoint| review(body, endpoint, &settings, &|_| None).verdict;
    assert_eq!(verdict(include_bytes!("seeds/reviews/created"), Endpoint::Mutate), "allowed");
    assert_eq!(verdict(include_bytes!("seeds/reviews/changed"), Endpoint::Validate), "refused");
    assert_eq!(verdict(include_bytes!("seeds/reviews/debugged"), Endpoint::Mutate), "warned");
    assert_eq!(verdict(include_bytes!("seeds/reviews/deployment"), Endpoint::Templates), "allowed");
    let index = index();
    let node = serde_json::from_slice(include_bytes!("seeds/gpu_node/two-cards")).expect("a GpuNode");
    index.apply_gpu_node("n", &node);
    assert_eq!(index.snapshot().node("n").expect("known").closed, None);
    let pod: PodView = serde_json::from_slice(include_bytes!("seeds/pod/bound")).expect("a pod");
    index.apply_pod(&pod, Instant::now());
    assert_eq!(index.reserved().len(), 1);
}
