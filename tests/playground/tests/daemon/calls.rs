//! Calls that a kubelet doesn't make.

use std::time::Duration;

use divvy_proto::deviceplugin as dp;
use divvy_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use fake_nvml::Scenario;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::bench::{Bench, part};

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
async fn an_allocate_that_makes_no_sense_says_why() {
    let bench = Bench::new().await;
    let mut plugin = plugin(&bench).await;
    let slot = format!("{}::0", Scenario::uuid(0));
    let cases: [(&[&[&str]], Code, &str); 6] = [
        (&[], Code::InvalidArgument, "expected one container request, got 0"),
        (&[&[&slot], &[&slot]], Code::InvalidArgument, "expected one container request, got 2"),
        (&[&["0"]], Code::NotFound, "slot 0 was never registered by this daemon"),
        (&[&["GPU-x::99999999999"]], Code::NotFound, "slot GPU-x::99999999999 was never registered"),
        (&[&[""]], Code::NotFound, "was never registered"),
        // Nobody is under admission.
        (&[&[&slot]], Code::FailedPrecondition, "no listed pod has a container that lacks 1 nvidia.com/gpu"),
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
