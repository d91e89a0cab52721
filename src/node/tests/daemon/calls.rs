//! Calls that a kubelet doesn't make.

use std::time::Duration;

use divvy_proto::deviceplugin as dp;
use divvy_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use divvy_testkit::pods::GPU;
use fake_kubelet::PodsFault;
use fake_nvml::Scenario;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::bench::{Bench, part, pod};

async fn plugin(bench: &Bench) -> DevicePluginClient<Channel> {
    let socket = bench.kubelet.plugin_dir().join("divvy-gpu.sock");
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost").timeout(Duration::from_secs(20));
    DevicePluginClient::new(endpoint.connect_with_connector(connect).await.unwrap())
}

fn allocate(containers: &[&[&str]]) -> dp::AllocateRequest {
    let ids =
        |ids: &&[&str]| dp::ContainerAllocateRequest { device_ids: ids.iter().map(|id| (*id).to_owned()).collect() };
    dp::AllocateRequest { container_requests: containers.iter().map(ids).collect() }
}

#[tokio::test]
async fn invalid_allocate_is_refused_with_a_reason() {
    let bench = Bench::new().await;
    let mut plugin = plugin(&bench).await;
    let slot = format!("{}::0", Scenario::uuid(0));
    let cases: [(&[&[&str]], Code, &str); 7] = [
        (&[], Code::InvalidArgument, "expected one container request, got 0"),
        (&[&[&slot], &[&slot]], Code::InvalidArgument, "expected one container request, got 2"),
        (&[&["0"]], Code::NotFound, "slot 0 was never registered by this daemon"),
        (&[&["GPU-x::99999999999"]], Code::NotFound, "slot GPU-x::99999999999 was never registered"),
        (&[&[""]], Code::NotFound, "was never registered"),
        (&[&[]], Code::FailedPrecondition, "no listed pod waits for 0 nvidia.com/gpu"),
        // Nobody is under admission.
        (&[&[&slot]], Code::FailedPrecondition, "no listed pod waits for 1 nvidia.com/gpu"),
    ];
    for (containers, code, said) in cases {
        let status = plugin.allocate(allocate(containers)).await.unwrap_err();
        assert!(status.code() == code && status.message().contains(said), "{containers:?}: {status:?}");
    }
    let unknown = dp::PreStartContainerRequest { device_ids: vec![slot.clone()] };
    let status = plugin.pre_start_container(unknown).await.unwrap_err();
    assert!(status.code() == Code::NotFound && status.message().contains(&slot), "{status:?}");
    let negative = dp::ContainerPreferredAllocationRequest { allocation_size: -1, ..Default::default() };
    let negative = dp::PreferredAllocationRequest { container_requests: vec![negative] };
    let status = plugin.get_preferred_allocation(negative).await.unwrap_err();
    assert!(status.message().contains("allocation size -1 is negative"), "{status:?}");
    bench.run(part("100")).await;
}

/// What is answered to an Allocate of these IDs, while the kubelet admits a pod whose container requests two cards.
async fn allocate_for_two_cards(ids: &[&str]) -> tonic::Status {
    let mut bench = Bench::with(json!({ "kubeletTimeout": "10m" })).await;
    let mut plugin = plugin(&bench).await;
    // The kubelet's own call waits for the pod list for as long as the test lasts, ours gets it at once.
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Slow(Duration::from_secs(600)));
    let asked = bench.kubelet.view().pod_lists;
    bench.kubelet.add_pod(pod(&[(GPU, "2")]).pod()).unwrap();
    bench.until("the kubelet's own call", |view| view.pod_lists > asked).await;
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
    let status = plugin.allocate(allocate(&[ids])).await.unwrap_err();
    bench.until_booked(&[]).await;
    assert!(!bench.path("run/containers").exists(), "nothing lies on disk for it");
    assert!(bench.runs());
    status
}

#[tokio::test]
async fn slots_must_be_on_distinct_known_gpus() {
    let slots = [0, 1].map(|number| format!("{}::{number}", Scenario::uuid(0)));
    let two_of_one = [slots[0].as_str(), slots[1].as_str()];
    let twice_the_same = [slots[0].as_str(); 2];
    let cases = [
        (two_of_one, Code::ResourceExhausted, "divvy: same-card: the kubelet chose two slots of GPU-"),
        (twice_the_same, Code::ResourceExhausted, "divvy: same-card: the kubelet chose two slots of GPU-"),
        (["GPU-x::0", "GPU-x::1"], Code::NotFound, "divvy: unknown-slot: slot GPU-x::0 was never registered"),
    ];
    for (ids, code, said) in cases {
        let status = allocate_for_two_cards(&ids).await;
        assert!(status.code() == code && status.message().starts_with(said), "{ids:?}: {status:?}");
    }
    let nobody = allocate_for_two_cards(&[]).await;
    assert!(nobody.message().starts_with("divvy: identity-nobody: "), "the pod lacks two, not none: {nobody:?}");
}
