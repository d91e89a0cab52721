//! Pods in other systems' words, run by a real kubelet.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::ResourceNames;
use divvy_api::annotation::{self, Cards};
use divvy_api::names::annotation::{CARDS, DIALECT};
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::installation::Installation;
use divvy_e2e::pods::{self, PODS};
use divvy_systems::{Dialect, match_conditions};
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use crate::hidden::environment;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
/// As a quota writes it.
const COUNTED: &str = "requests.nvidia.com/gpumem";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Pods of twelve systems as their users write them become pods of ours, and run with what they ask for.
pub(crate) async fn run_as_they_are(cluster: &mut Cluster) -> anyhow::Result<()> {
    switch_on(cluster).await?;
    let objects = vec![
        written("nano", &[json!({ "nano-gpu.io/gpu-core": "20", "nano-gpu.io/gpu-memory": "1" })], json!({})),
        written("share", &[json!({ "aliyun.com/gpu-mem": "3" }), json!({ "aliyun.com/gpu-mem": "2" })], json!({})),
        written("volcano", &[json!({ "volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "2000" })], json!({})),
        written("kai", &[json!({})], json!({ "gpu-fraction": "0.25" })),
        written("fractions", &[json!({})], json!({ "nvidia.com/container.c0.gpu-memory.request": "1Gi" })),
        written(
            "hami",
            &[
                json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "20", "nvidia.com/priority": "1" }),
            ],
            json!({}),
        ),
        written("elastic", &[json!({ "elasticgpu.io/gpu-memory": "256" })], json!({})),
        written(
            "model",
            &[json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "1Gi" })],
            json!({ "nvidia.com/gpu.model": "NVIDIA H100 80GB HBM3" }),
        ),
        written(
            "manager",
            &[json!({ "tencent.com/vcuda-core": "10", "tencent.com/vcuda-memory": "4" })],
            json!({ "tencent.com/vcuda-core-limit": "40" }),
        ),
        written(
            "koordinator",
            &[
                json!({ "koordinator.sh/gpu.shared": "1", "koordinator.sh/gpu-core": "10", "koordinator.sh/gpu-memory-ratio": "10" }),
            ],
            json!({}),
        ),
        written(
            "vgpu",
            &[
                json!({ "nvidia.com/vgpu-number": "1", "nvidia.com/vgpu-cores": "10", "nvidia.com/vgpu-memory": "1024" }),
            ],
            json!({}),
        ),
        written("replica", &[json!({ "nvidia.com/gpu.shared": "1" })], json!({})),
        written(
            "fusion",
            &[json!({})],
            json!({ "tensor-fusion.ai/tflops-request": "20", "tensor-fusion.ai/vram-request": "1Gi" }),
        ),
    ];
    let count = objects.len();
    cluster.create_objects(objects).await?;
    cluster.all_running(count).await?;
    cluster.agree().await?;

    let pod = cluster.api.get(&format!("{PODS}/share")).await?;
    println!("  {DIALECT}: {}", pod["metadata"]["annotations"][DIALECT]);
    let told = &pod["metadata"]["annotations"];
    let assigned = ["POD", "ASSIGNED"].map(|name| told[format!("ALIYUN_COM_GPU_MEM_{name}")].as_str());
    ensure!(assigned == [Some("5"), Some("true")], "annotations of gpushare: {assigned:?}");
    let cards: Cards = annotation::decode(pod["metadata"]["annotations"][CARDS].as_str().context("no cards")?)?;
    let of_pod: BTreeSet<_> = cards.containers.values().flatten().map(|card| card.uuid.clone()).collect();
    ensure!(cards.containers.len() == 2 && of_pod.len() == 1, "not on one GPU: {cards:?}");
    for (pod, container, variable) in [
        ("hami", "c0", "CUDA_DEVICE_MEMORY_LIMIT_0=3000m"),
        ("hami", "c0", "CUDA_DEVICE_SM_LIMIT=20"),
        ("share", "c1", "ALIYUN_COM_GPU_MEM_CONTAINER=2"),
        ("share", "c1", "ALIYUN_COM_GPU_MEM_POD=5"),
    ] {
        let variables = environment(cluster, "default", pod, container).await?;
        ensure!(variables.lines().any(|found| found == variable), "{pod}: no {variable}: {variables}");
    }
    cluster.clear().await?;
    counted_by_a_quota(cluster).await?;
    cluster.clear().await?;
    cluster.configure_pods_as_installed().await?;
    cluster.stop_webhook().await
}

/// Starts the webhook with all systems, and waits until the API server asks it about their pods.
pub(crate) async fn switch_on(cluster: &mut Cluster) -> anyhow::Result<()> {
    let dialects = json!([
        "hami",
        { "name": "nano-gpu", "memoryUnit": "1Gi" },
        "elastic-gpu",
        { "name": "gpushare", "outputs": true },
        "gpu-model",
        "gpu-manager",
        "volcano",
        "kai",
        "koordinator",
        "vgpu-manager",
        { "name": "time-slicing", "replicas": 4 },
        { "name": "tensor-fusion", "tflops": 200 },
    ]);
    cluster.start_webhook().await?;
    cluster.configure_webhook(&json!({ "dialects": dialects })).await?;
    if !matches!(cluster.installation, Installation::Chart(..)) {
        recognise(cluster, &dialects).await?;
    }
    cluster.webhook_called().await
}

/// A `ResourceQuota` counts what a pod requests once it is translated.
async fn counted_by_a_quota(cluster: &mut Cluster) -> anyhow::Result<()> {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "memory"},
        "spec": {"hard": {(COUNTED): "4096"}},
    });
    cluster.api.create(QUOTAS, &quota).await?;
    let memory = format!("{QUOTAS}/memory");
    let counted = async |cluster: &mut Cluster, mib: &str| {
        cluster
            .until(&format!("quota that counts {mib} MiB"), PATIENCE, async |this| {
                let status = &this.api.get(&memory).await?["status"];
                ensure!(status["hard"][COUNTED].is_string() && status["used"][COUNTED] == mib, "{status}");
                Ok(Some(()))
            })
            .await
    };
    counted(cluster, "0").await?;
    let share = |name, gib: &str| written(name, &[json!({ "aliyun.com/gpu-mem": gib })], json!({}));
    cluster.api.create(PODS, &share("counted", "3")).await?;
    counted(cluster, "3072").await?;
    let refused = cluster.api.create(PODS, &share("beyond", "2")).await.err().context("it exceeds the quota")?;
    println!("  {refused:#}");
    let why =
        format!("exceeded quota: memory, requested: {COUNTED}=2048, used: {COUNTED}=3072, limited: {COUNTED}=4096");
    ensure!(format!("{refused:#}").contains(&why), "{refused:#}");
    cluster.all_running(1).await?;
    cluster.api.delete(&memory).await
}

/// A pod whose containers have these limits, as somebody wrote it.
fn written(name: &str, limits: &[Value], annotations: Value) -> Value {
    let names: Vec<String> = (0..limits.len()).map(|at| format!("c{at}")).collect();
    let shape = names.iter().fold(PodShape::new(name), |shape, name| shape.with(App, name, &[]));
    let mut pod = pods::plain(&shape);
    for (at, limits) in limits.iter().enumerate() {
        pod["spec"]["containers"][at]["resources"] = json!({ "limits": limits });
    }
    pod["metadata"]["annotations"] = annotations;
    // One system's annotations count with this label alone; the others have no use of it.
    pod["metadata"]["labels"]["tensor-fusion.ai/enabled"] = "true".into();
    pod
}

/// Puts these systems' words into the match conditions, as the chart does.
async fn recognise(cluster: &Cluster, dialects: &Value) -> anyhow::Result<()> {
    let dialects: Vec<Dialect> = serde_json::from_value(dialects.clone())?;
    let names = ResourceNames::default();
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let path = format!("{CONFIGURATIONS}/{kind}/divvy-webhook");
        let mut webhooks = cluster.api.get(&path).await?["webhooks"].clone();
        for webhook in webhooks.as_array_mut().context("webhooks")? {
            let name = webhook["name"].as_str().unwrap_or_default();
            webhook["matchConditions"] =
                json!(match_conditions(name, &names, &dialects).context("an unknown webhook")?);
        }
        cluster.api.patch(&path, Part::Object, &json!({ "webhooks": webhooks })).await?;
    }
    Ok(())
}
