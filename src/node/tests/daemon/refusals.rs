//! What users read when a pod contradicts itself.

use divvy_testkit::pods::GPU;
use fake_kubelet::Workload;

use crate::bench::{Bench, part, pod};

const MEMORY: &str = "nvidia.com/gpumem";
const PERCENT: &str = "nvidia.com/gpumem-percentage";
const CORES: &str = "nvidia.com/gpucores";

#[tokio::test]
async fn refusal_reason_reaches_the_pod_status() {
    let bench = Bench::new().await;
    let annotated = |key: &str, value: &str| part("100").annotation(key, value);
    let bad: [(Workload, &str); 11] = [
        (pod(&[(GPU, "1"), (MEMORY, "8G")]), "\"8G\" is ambiguous: did you mean \"8Gi\"?"),
        (
            pod(&[(GPU, "1"), (CORES, "101")]),
            "spec.containers[0].resources.limits[nvidia.com/gpucores]: 101 is out of range",
        ),
        (pod(&[(GPU, "1"), (MEMORY, "0")]), "limits[nvidia.com/gpumem]: 0 is out of range"),
        (pod(&[(GPU, "1"), (MEMORY, "10"), (PERCENT, "10")]), "excludes nvidia.com/gpumem in the same container"),
        (pod(&[(GPU, "3")]), "2 suitable"),
        (part("20000"), "too small, largest 16Gi"),
        (annotated("divvy.dev/card-policy", "tight"), "annotation divvy.dev/card-policy: \"tight\" is not allowed"),
        (annotated("divvy.dev/request", "{"), "annotation divvy.dev/request: EOF while parsing"),
        (
            annotated("divvy.dev/oversubscribe", "true"),
            "annotation divvy.dev/oversubscribe: refused, because tier accounting",
        ),
        (annotated("divvy.dev/tier", "shim"), "annotation divvy.dev/tier: shim requested, this node offers accounting"),
        (annotated("divvy.dev/card-uuid", "GPU-none"), "2 with a UUID that the pod doesn't allow"),
    ];
    for (workload, reason) in bad {
        let message = bench.refused(workload).await;
        assert!(message.contains("divvy: ") && message.contains(reason), "{reason}: {message}");
        assert!(message.len() < 1000, "{message}");
    }
    bench.until_booked(&[]).await;
    bench.run(part("100")).await;
}

#[tokio::test]
async fn slot_of_another_pod_gives_no_more_than_its_gpu_has_free() {
    let bench = Bench::new().await;
    let whole = bench.run(pod(&[(GPU, "1")])).await;
    bench.kubelet.set_faults(|faults| faults.hand_out_twice = 1.0);
    let message = bench.refused(part("100")).await;
    assert!(message.contains("the GPUs that the kubelet chose") && message.contains("held exclusively"), "{message}");
    bench.gone(&whole).await;
    bench.until_booked(&[]).await;
    let first = bench.run(part("100")).await;
    let second = bench.run(part("200")).await;
    assert_eq!(bench.given(&first)[0].0, bench.given(&second)[0].0, "one slot, handed out twice");
    bench.until_booked(&[100, 200]).await;
}
