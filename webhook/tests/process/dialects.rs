//! Pods in other systems' words on their way into the API server, which asks only about those that are switched on.

use divvy_api::ResourceNames;
use divvy_systems::{Dialect, match_conditions};
use serde_json::{Value, json};

use crate::bench::{Bench, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Lets the API server recognise pods of these systems, as the chart does.
fn recognise(bench: &Bench, dialects: &Value) {
    let dialects: Vec<Dialect> = serde_json::from_value(dialects.clone()).unwrap();
    let names = ResourceNames::default();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let change = |configuration: &mut Value| {
            for webhook in configuration["webhooks"].as_array_mut().unwrap() {
                let name = webhook["name"].as_str().unwrap();
                webhook["matchConditions"] = json!(match_conditions(name, &names, &dialects).unwrap());
            }
        };
        bench.server.edit(kind, "", "divvy-webhook", change).unwrap();
    }
}

/// A pod with these limits, and these annotations.
fn written(name: &str, limits: &Value, annotations: Value) -> Value {
    let mut written = pod(name, 0, 0);
    written["spec"]["containers"][0]["resources"] = json!({ "limits": limits });
    written["metadata"]["annotations"] = annotations;
    // One system's annotations count with this label alone; the others have no use of it.
    written["metadata"]["labels"]["tensor-fusion.ai/enabled"] = "true".into();
    written
}

/// A pod of each system by its name: its limits and annotations as written, and what its limits become.
fn cases() -> [(&'static str, Value, Value, Value); 13] {
    [
        (
            "hami",
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3001", "nvidia.com/priority": "1" }),
            json!({}),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3001" }),
        ),
        (
            "nano",
            json!({ "nano-gpu.io/gpu-core": "20", "nano-gpu.io/gpu-memory": "1" }),
            json!({}),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpucores": "20", "nvidia.com/gpumem": "1024" }),
        ),
        (
            "elastic",
            json!({ "elasticgpu.io/gpu-memory": "256" }),
            json!({}),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "256" }),
        ),
        (
            "gpushare",
            json!({ "aliyun.com/gpu-mem": "3" }),
            json!({}),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3072" }),
        ),
        (
            "model",
            json!({ "nvidia.com/gpu": "2" }),
            json!({ "nvidia.com/gpu.model": "L4" }),
            json!({ "nvidia.com/gpu": "2" }),
        ),
        (
            "manager",
            json!({ "tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "30" }),
            json!({}),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpucores": "50", "nvidia.com/gpumem": "7680" }),
        ),
        (
            "volcano",
            json!({ "volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "3001" }),
            json!({}),
            json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "6002" }),
        ),
        (
            "kai",
            json!({}),
            json!({ "gpu-fraction": "0.5" }),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50" }),
        ),
        (
            "kai-container",
            json!({}),
            json!({ "nvidia.com/container.main.gpu-memory.request": "1Gi", "gpu-fraction-num-devices": "2" }),
            json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "2048" }),
        ),
        (
            "koordinator",
            json!({ "koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50" }),
            json!({}),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpucores": "50", "nvidia.com/gpumem-percentage": "50" }),
        ),
        (
            "vgpu",
            json!({ "nvidia.com/vgpu-number": "1", "nvidia.com/vgpu-cores": "40", "nvidia.com/vgpu-memory": "4096" }),
            json!({}),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpucores": "40", "nvidia.com/gpumem": "4096" }),
        ),
        (
            "slices",
            json!({ "nvidia.com/gpu.shared": "1" }),
            json!({}),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25" }),
        ),
        (
            "fusion",
            json!({}),
            json!({ "tensor-fusion.ai/tflops-request": "40", "tensor-fusion.ai/vram-request": "4Gi" }),
            json!({ "nvidia.com/gpu": "1", "nvidia.com/gpucores": "20", "nvidia.com/gpumem": "4096" }),
        ),
    ]
}

#[tokio::test]
async fn pods_of_every_system_are_admitted_in_our_words() {
    let dialects = json!([
        "hami", { "name": "nano-gpu", "memoryUnit": "1Gi" }, "elastic-gpu", "gpushare", "gpu-model", "gpu-manager", "volcano", "kai",
        "koordinator", "vgpu-manager", { "name": "time-slicing", "replicas": 4 }, { "name": "tensor-fusion", "tflops": 200 },
    ]);
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let replica = bench.alone(&json!({ "dialects": dialects })).await;
    recognise(&bench, &dialects);
    for (name, limits, annotations, wanted) in cases() {
        let made = bench.create(PODS, &written(name, &limits, annotations)).await;
        assert_eq!(made.code, 201, "{name}: {made:?}");
        let resources = &made.object["spec"]["containers"][0]["resources"];
        assert_eq!((&resources["limits"], &resources["requests"]), (&wanted, &wanted), "{name}");
        let record = &made.object["metadata"]["annotations"]["divvy.dev/dialect"];
        assert!(record.as_str().is_some_and(|record| record.contains(r#""name":"#)), "{name}: {record}");
    }
    let mixed = json!({ "aliyun.com/gpu-mem": "3", "nano-gpu.io/gpu-core": "20" });
    let refused = bench.create(PODS, &written("mixed", &mixed, json!({}))).await;
    let why = refused.object["message"].as_str().unwrap();
    assert!(
        refused.code >= 400 && why.contains("[nano-gpu.io/gpu-core]") && why.contains("[aliyun.com/gpu-mem]"),
        "{why}"
    );
    replica.counts("divvy_admission_reviews_total", &["refused"], 1.0).await;
}

#[tokio::test]
async fn pods_of_a_dialect_that_is_off_are_not_reviewed() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let mut replica = bench.alone(&json!({ "dialects": ["nano-gpu"] })).await;
    recognise(&bench, &json!(["nano-gpu"]));
    let gpushare = |name: &str| written(name, &json!({ "aliyun.com/gpu-mem": "3" }), json!({}));
    let nano = |name: &str| written(name, &json!({ "nano-gpu.io/gpu-core": "20" }), json!({}));
    assert_eq!(bench.create(PODS, &nano("on")).await.code, 201);
    let reviews = replica.metric("divvy_admission_reviews_total", &[]).await;
    let made = bench.create(PODS, &gpushare("off")).await;
    assert_eq!(made.object["spec"]["containers"][0]["resources"]["limits"], json!({ "aliyun.com/gpu-mem": "3" }));
    assert!((replica.metric("divvy_admission_reviews_total", &[]).await - reviews).abs() < 0.5);
    replica.signal("KILL").await;
    replica.ended().await;
    let refused = bench.create(PODS, &nano("down")).await;
    assert!(refused.code >= 500, "it would wait for ever: {refused:?}");
    assert_eq!(bench.create(PODS, &gpushare("elsewhere")).await.code, 201);
}

#[tokio::test]
async fn annotations_of_containers_are_reviewed_with_kai_alone() {
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let replica = bench.alone(&json!({ "dialects": ["kai"] })).await;
    let (request, earlier) =
        ("nvidia.com/container.main.gpu-memory.request", "nvidia.cdi.k8s.io/main.gpu-memory.limit");
    let of_cdi = "nvidia.cdi.k8s.io/container.main";
    for (name, dialects, key, is_reviewed) in [
        ("off", json!([]), request, false),
        ("off-earlier", json!([]), earlier, false),
        ("on", json!(["kai"]), request, true),
        ("on-earlier", json!(["kai"]), earlier, true),
        ("on-cdi", json!(["kai"]), of_cdi, false),
    ] {
        recognise(&bench, &dialects);
        let before = replica.metric("divvy_admission_reviews_total", &[]).await;
        let made = bench.create(PODS, &written(name, &json!({}), json!({ key: "1Gi" }))).await;
        assert_eq!(made.code, 201, "{name}: {made:?}");
        let reviews = replica.metric("divvy_admission_reviews_total", &[]).await - before;
        let is_there = made.object["metadata"]["annotations"].get(key).is_some();
        assert_eq!((reviews > 0.5, is_there), (is_reviewed, !is_reviewed), "{name}: {made:?}");
    }
}

#[tokio::test]
async fn label_of_tensor_fusion_makes_its_annotations_count() {
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let dialects = json!(["tensor-fusion"]);
    let _replica = bench.alone(&json!({ "dialects": dialects })).await;
    recognise(&bench, &dialects);
    let wanted = json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "8192" });
    for (name, enabled, limits) in [("on", "true", &wanted), ("off", "false", &Value::Null)] {
        let annotations = json!({ "tensor-fusion.ai/vram-request": "4Gi", "tensor-fusion.ai/gpu-count": "2" });
        let mut pod = written(name, &json!({}), annotations);
        pod["metadata"]["labels"] = json!({ "tensor-fusion.ai/enabled": enabled });
        let made = bench.create(PODS, &pod).await;
        assert_eq!(made.code, 201, "{name}: {made:?}");
        let resources = &made.object["spec"]["containers"][0]["resources"];
        assert_eq!(resources["limits"].as_object().filter(|limits| !limits.is_empty()), limits.as_object(), "{name}");
    }
}

#[tokio::test]
async fn limits_that_hami_writes_as_variables_are_removed() {
    let dialects = json!(["hami"]);
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let _replica = bench.alone(&json!({ "dialects": dialects })).await;
    recognise(&bench, &dialects);
    let mut pod = written("limited", &json!({ "nvidia.com/gpumem": "3000" }), json!({}));
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    pod["spec"]["containers"][0]["env"] = json!([
        variable("CUDA_DEVICE_MEMORY_LIMIT_0", "9000m"),
        variable("MODEL", "resnet"),
        variable("NVIDIA_VISIBLE_DEVICES", "all"),
        json!({ "name": "CUDA_DEVICE_SM_LIMIT", "valueFrom": { "configMapKeyRef": { "name": "c", "key": "k" } } }),
        variable("CUDA_DEVICE_MEMORY_LIMIT_0", "again"),
        variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ]);
    let made = bench.create(PODS, &pod).await;
    assert_eq!(made.code, 201, "{made:?}");
    let is_said = |text: &str| assert!(made.warnings.iter().any(|said| said.contains(text)), "{:?}", made.warnings);
    is_said("spec.containers[0].env[2]: NVIDIA_VISIBLE_DEVICES is removed");
    is_said("spec.containers[0].env CUDA_DEVICE_SM_LIMIT: removed");
    let left = json!([variable("MODEL", "resnet"), variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]);
    assert_eq!(made.object["spec"]["containers"][0]["env"], left);
}

/// The API server takes 256 KiB of annotations together.
#[tokio::test]
async fn annotations_as_long_as_they_can_be() {
    let dialects = json!(["hami", "kai"]);
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let replica = bench.alone(&json!({ "dialects": dialects })).await;
    recognise(&bench, &dialects);
    let long = "x".repeat(255 << 10);
    let limits = json!({ "nvidia.com/gpumem": "3000", "nvidia.com/priority": "1" });
    let foreign = bench.create(PODS, &written("foreign", &limits, json!({ "example.com/notes": long }))).await;
    assert_eq!(foreign.code, 201, "{}", foreign.object["message"]);
    assert_eq!(foreign.object["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "1");
    let ours = bench.create(PODS, &written("word", &limits, json!({ "nvidia.com/use-gputype": long }))).await;
    let why = ours.object["message"].as_str().unwrap();
    assert!(
        ours.code >= 400 && why.contains("nvidia.com/use-gputype") && why.contains("4096") && why.len() < 1000,
        "{why}"
    );
    let output =
        bench.create(PODS, &written("output", &limits, json!({ "hami.io/vgpu-devices-allocated": long }))).await;
    assert_eq!(output.code, 201, "{}", output.object["message"]);
    assert!(output.object["metadata"]["annotations"].get("hami.io/vgpu-devices-allocated").is_none());
    replica.counts("divvy_admission_reviews_total", &["refused"], 1.0).await;
}

#[tokio::test]
async fn replicas_that_need_more_gpus_than_a_node_has_are_warned_of() {
    let dialects = json!([{ "name": "time-slicing", "replicas": 4 }]);
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.alone(&json!({ "dialects": dialects })).await;
    recognise(&bench, &dialects);
    let two = written("two", &json!({ "nvidia.com/gpu.shared": "2" }), json!({}));
    let made = bench.create(PODS, &two).await;
    assert_eq!(made.code, 201, "{made:?}");
    let warned = |what: &str| assert!(made.warnings.iter().any(|text| text.contains(what)), "{made:?}");
    warned("parts of 2 GPUs: with NVIDIA's plugin they could all be of one");
    warned("none could ever run this pod");
}
