//! Pods of other systems that run on the node when the daemon comes, and their devices on the kubelet's record.

use divvy_testkit::pods::GPU;
use fake_kubelet::Workload;
use fake_nvml::Scenario;

use crate::bench::cluster::events;
use crate::bench::{Bench, CARDS, Stderr, pod};

/// A pod whose container `main` has devices of a plugin that is gone.
struct Foreign {
    workload: Workload,
    resource: &'static str,
    ids: Vec<String>,
}

// === impl Foreign ===

impl Foreign {
    fn new(workload: Workload, resource: &'static str, amount: &str, ids: &[&str]) -> Self {
        Self {
            workload: workload.app("main", &[(resource, amount)]),
            resource,
            ids: ids
                .iter()
                .map(|id| id.replace("GPU-0", &Scenario::uuid(0)).replace("GPU-1", &Scenario::uuid(1)))
                .collect(),
        }
    }

    /// A node of the API server's on which the pod runs when the daemon starts; answers the pod's UID.
    async fn first(self) -> (Bench, String) {
        let mut bench = Bench::joined().await;
        bench.define();
        let uid = bench.run(self.workload).await;
        bench.kubelet.record_devices(&uid, "main", self.resource, self.ids.into_iter().collect()).unwrap();
        bench.start(Stderr::Log).await;
        // Of a GPU that another plugin's pod holds no slot is healthy.
        bench.until("the daemon's slots", |view| view.listed.contains_key(GPU)).await;
        (bench, uid)
    }
}

// === impl Bench ===

impl Bench {
    /// Waits until the pod is shown to hold these cards alone, and whether as another plugin's.
    async fn until_alone_on(&self, uid: &str, used: &[u32], is_adopted: bool) {
        let mut used: Vec<String> = used.iter().map(|number| Scenario::uuid(*number)).collect();
        used.sort();
        self.until_told("its shares", |status| {
            let shares = status.shares.iter().filter(|share| share.pod_uid == uid && share.share.exclusive);
            let shares = shares.filter(|share| share.adopted == is_adopted);
            let mut cards: Vec<String> = shares.map(|share| share.card.to_string()).collect();
            cards.sort();
            cards == used
        })
        .await;
    }
}

fn whole() -> Workload {
    pod(&[(GPU, "1")])
}

/// The pod's GPUs are given to nobody before it has ended, over a restart of the daemon too.
async fn keeps_its_gpus(foreign: Foreign, used: &[u32]) {
    // One of a resource that nobody serves any more can't be started again.
    let is_restartable = foreign.resource == GPU;
    // Devices of NVIDIA's plugin with time-slicing look as if Divvy had allocated them.
    let is_adopted = foreign.resource != GPU || !foreign.ids.iter().all(|id| id.contains("::"));
    let (mut bench, uid) = foreign.first().await;
    bench.until_alone_on(&uid, used, is_adopted).await;
    let used: Vec<String> = used.iter().map(|number| Scenario::uuid(*number)).collect();
    for _ in used.len()..CARDS as usize {
        let own = bench.run(whole()).await;
        assert!(!used.contains(&bench.given(&own)[0].0), "{}", bench.log());
    }
    // GPUs that are held offer no slots, so the kubelet doesn't ask.
    let is_full = |refusal: &str| refusal.contains("Available: 0") || refusal.contains("no healthy devices present");
    assert!(is_full(&bench.refused(whole()).await), "{}", bench.log());
    bench.killed(|_| {}).await;
    assert!(is_full(&bench.refused(whole()).await), "{}", bench.log());
    if is_restartable {
        bench.kubelet.restart_container(&uid, "main").unwrap();
        bench.until("another start", |view| view.pods[&uid].containers[0].starts == 2).await;
    }
    bench.kubelet.finish(&uid, true).unwrap();
    bench.until_told("their end", |status| status.shares.iter().all(|share| share.pod_uid != uid)).await;
    for _ in &used {
        let own = bench.run(whole()).await;
        assert!(used.contains(&bench.given(&own)[0].0), "{}", bench.log());
    }
}

#[tokio::test]
async fn gpu_that_hami_chose_is_kept() {
    let chosen = format!("{},NVIDIA-NVIDIA L4,3000,30:;", Scenario::uuid(1));
    let hami = Workload::new("hami").annotation("hami.io/vgpu-devices-allocated", chosen);
    keeps_its_gpus(Foreign::new(hami, GPU, "1", &["GPU-0-3"]), &[1]).await;
}

#[tokio::test]
async fn gpu_of_gpushares_number_is_kept() {
    let gpushare = Workload::new("gpushare").annotation("ALIYUN_COM_GPU_MEM_IDX", "1");
    let ids = ["GPU-0-_-0", "GPU-0-_-7", "GPU-1-_-1"];
    keeps_its_gpus(Foreign::new(gpushare, "aliyun.com/gpu-mem", "3", &ids), &[1]).await;
}

#[tokio::test]
async fn gpu_of_nanos_number_is_kept() {
    let nano = Workload::new("nano").annotation("nano-gpu/container-main", "1");
    keeps_its_gpus(Foreign::new(nano, "nano-gpu/gpu-percent", "1", &["nano-0-12"]), &[1]).await;
}

#[tokio::test]
async fn gpu_of_nvidias_shared_device_is_kept() {
    keeps_its_gpus(Foreign::new(Workload::new("nvidia"), GPU, "1", &["GPU-1::1"]), &[1]).await;
    keeps_its_gpus(Foreign::new(Workload::new("shared"), "nvidia.com/gpu.shared", "1", &["GPU-1::1"]), &[1]).await;
}

#[tokio::test]
async fn all_gpus_are_kept_while_it_is_unclear_which_are_used() {
    keeps_its_gpus(Foreign::new(Workload::new("nano"), "nano-gpu/gpu-percent", "1", &["nano-0-12"]), &[0, 1]).await;
}

#[tokio::test]
async fn foreign_pods_get_warnings_that_name_the_resource() {
    let nano = Foreign::new(Workload::new("unclear"), "nano-gpu/gpu-percent", "1", &["nano-0-12"]);
    let (bench, _) = nano.first().await;
    bench.run(Workload::new("late").app("main", &[("aliyun.com/gpu-mem", "3")])).await;
    let event = |view: &fake_apiserver::View<'_>, reason: &str| events(view, reason).into_iter().next();
    let unclear = bench.until_shown("a warning", |view| event(view, "ForeignGpuUnknown")).await;
    insta::assert_snapshot!(format!("{}: {}", unclear.0, unclear.1), @"unclear: another device plugin has allocated nano-gpu/gpu-percent, and it is unclear of which GPUs (annotation nano-gpu.io/gpu-<name> or nano-gpu/container-<name> doesn't say): no pod gets any GPU of this node until this one ends");
    let late = bench.until_shown("another", |view| event(view, "NotTranslated")).await;
    insta::assert_snapshot!(format!("{}: {}", late.0, late.1), @"late: limits name aliyun.com/gpu-mem, a resource of another system: Divvy has allocated no GPU for it; divvy-webhook replaces it in pods that are created while the system's dialect is on, but not in static pods");
}
