//! What one review costs in process, from bytes to bytes: the tail, which a mean hides.

use std::hint::black_box;
use std::time::Instant;

use divvy_webhook::admission::{Endpoint, Fit, PodDemand, Settings, review};
use serde_json::{Value, json};

fn main() {
    tail();
    divan::main();
}

/// Percentiles; the budget is 300 µs at p99.
fn tail() {
    const REVIEWS: usize = 5_000;
    for pod in [Pod::Usual, Pod::Large] {
        let body = question(pod);
        let time = |_| {
            let start = Instant::now();
            black_box(review(black_box(&body), Endpoint::Mutate, &Settings::default(), &hint));
            start.elapsed()
        };
        let mut times: Vec<_> = (0..REVIEWS).map(time).collect();
        times.sort_unstable();
        let tail = [500, 900, 990, 999].map(|permille| times[(REVIEWS - 1) * permille / 1000]);
        println!("mutate, {pod:?}, {} bytes: p50, p90, p99, p99.9 {tail:?}", body.len());
    }
}

#[derive(Clone, Copy, Debug)]
enum Pod {
    /// Two containers with forty variables each.
    Usual,
    /// Sixteen.
    Large,
}

#[divan::bench(args = [Pod::Usual, Pod::Large])]
fn mutate(bencher: divan::Bencher<'_, '_>, pod: Pod) {
    let body = question(pod);
    bencher.bench(|| review(black_box(&body), Endpoint::Mutate, &Settings::default(), &hint));
}

#[divan::bench(args = [Pod::Usual, Pod::Large])]
fn validate(bencher: divan::Bencher<'_, '_>, pod: Pod) {
    let body = question(pod);
    bencher.bench(|| review(black_box(&body), Endpoint::Validate, &Settings::default(), &hint));
}

fn hint(_: &PodDemand) -> Fit {
    Fit::Unknown
}

fn question(pod: Pod) -> Vec<u8> {
    let count = match pod {
        Pod::Usual => 2,
        Pod::Large => 16,
    };
    let variable = |at| json!({ "name": format!("VARIABLE_{at}"), "value": "a value of some length" });
    let variables: Value = (0..40).map(variable).collect();
    let limits = json!({ "cpu": "4", "nvidia.com/gpu": "2", "nvidia.com/gpumem": "8Gi", "nvidia.com/gpucores": "30" });
    let container = |at| {
        json!({
            "name": format!("c{at}"),
            "image": "registry.example.com/team/model:1.2.3",
            "resources": { "limits": limits, "requests": limits },
            "env": variables,
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        })
    };
    let containers: Value = (0..count).map(container).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "train", "annotations": { "divvy.dev/numa": "strict", "notes": "x".repeat(4096) } },
        "spec": { "containers": containers, "volumes": [{ "name": "data", "emptyDir": {} }] },
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5", "operation": "CREATE", "namespace": "ml",
            "kind": { "group": "", "version": "v1", "kind": "Pod" }, "object": object, "oldObject": null,
        },
    });
    review.to_string().into_bytes()
}
