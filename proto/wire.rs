//! The bytes on the wire, put together by hand from the protobuf encoding rules: a renumbered field fails here.

use prost::Message;

use crate::{deviceplugin as dp, podresources as pr};

/// One length-delimited field: `(number << 3) | 2`, length, payload.
fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("test payloads are short");
    [&[number << 3 | 2, length], payload].concat()
}

fn assert_wire<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes, "encoding {message:?}");
    assert_eq!(&M::decode(bytes).expect("own bytes decode"), message);
}

#[test]
fn register_request() {
    let options = dp::DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
    let message = dp::RegisterRequest {
        version: "v1beta1".into(),
        endpoint: "divvy.sock".into(),
        resource_name: "nvidia.com/gpu".into(),
        options: Some(options),
    };
    let bytes =
        [field(1, b"v1beta1"), field(2, b"divvy.sock"), field(3, b"nvidia.com/gpu"), field(4, &[0x08, 1, 0x10, 1])];
    assert_wire(&message, &bytes.concat());
}

#[test]
fn device_list() {
    let device = |id: &str, health: &str, numa: Option<i64>| dp::Device {
        id: id.into(),
        health: health.into(),
        topology: numa.map(|id| dp::TopologyInfo { nodes: vec![dp::NumaNode { id }] }),
    };
    let message = dp::ListAndWatchResponse {
        devices: vec![device("GPU-a::0", dp::HEALTHY, None), device("GPU-b::0", dp::UNHEALTHY, Some(1))],
    };
    let first = [field(1, b"GPU-a::0"), field(2, b"Healthy")].concat();
    let topology = field(1, &[0x08, 1]);
    let second = [field(1, b"GPU-b::0"), field(2, b"Unhealthy"), field(3, &topology)].concat();
    assert_wire(&message, &[field(1, &first), field(1, &second)].concat());
    // kubernetes.md §4.1: 13 + len(ID) bytes a healthy device without topology.
    assert_eq!(field(1, &first).len(), 13 + "GPU-a::0".len());
}

#[test]
fn preferred_allocation() {
    let request = dp::PreferredAllocationRequest {
        container_requests: vec![dp::ContainerPreferredAllocationRequest {
            available_device_ids: vec!["a".into(), "b".into()],
            must_include_device_ids: vec!["a".into()],
            allocation_size: 2,
        }],
    };
    let inner = [field(1, b"a"), field(1, b"b"), field(2, b"a"), vec![0x18, 2]].concat();
    assert_wire(&request, &field(1, &inner));
    let response = dp::PreferredAllocationResponse {
        container_responses: vec![dp::ContainerPreferredAllocationResponse { device_ids: vec!["b".into()] }],
    };
    assert_wire(&response, &field(1, &field(1, b"b")));
}

#[test]
fn allocate() {
    let request =
        dp::AllocateRequest { container_requests: vec![dp::ContainerAllocateRequest { device_ids: vec!["a".into()] }] };
    assert_wire(&request, &field(1, &field(1, b"a")));
    let response = dp::ContainerAllocateResponse {
        envs: [("K".to_owned(), "V".to_owned())].into(),
        mounts: vec![dp::Mount { container_path: "/c".into(), host_path: "/h".into(), read_only: true }],
        devices: vec![dp::DeviceSpec { container_path: "/c".into(), host_path: "/h".into(), permissions: "rw".into() }],
        annotations: [("a".to_owned(), "b".to_owned())].into(),
        cdi_devices: vec![dp::CdiDevice { name: "v/c=n".into() }],
    };
    let pair = |k: &[u8], v: &[u8]| [field(1, k), field(2, v)].concat();
    let bytes = [
        field(1, &pair(b"K", b"V")),
        field(2, &[pair(b"/c", b"/h"), vec![0x18, 1]].concat()),
        field(3, &[pair(b"/c", b"/h"), field(3, b"rw")].concat()),
        field(4, &pair(b"a", b"b")),
        field(5, &field(1, b"v/c=n")),
    ];
    assert_wire(&response, &bytes.concat());
    let whole = dp::AllocateResponse { container_responses: vec![dp::ContainerAllocateResponse::default()] };
    assert_wire(&whole, &field(1, &[]));
}

#[test]
fn pre_start() {
    let request = dp::PreStartContainerRequest { device_ids: vec!["a".into(), "b".into()] };
    assert_wire(&request, &[field(1, b"a"), field(1, b"b")].concat());
}

#[test]
fn pod_resources() {
    let devices = pr::ContainerDevices {
        resource_name: "nvidia.com/gpu".into(),
        device_ids: vec!["GPU-a::3".into()],
        topology: None,
    };
    let container = pr::ContainerResources { name: "main".into(), devices: vec![devices], ..Default::default() };
    let pod = pr::PodResources { name: "p".into(), namespace: "ns".into(), containers: vec![container] };
    let inner = [field(1, b"nvidia.com/gpu"), field(2, b"GPU-a::3")].concat();
    let inner = [field(1, b"main"), field(2, &inner)].concat();
    let pod_bytes = [field(1, b"p"), field(2, b"ns"), field(3, &inner)].concat();
    assert_wire(&pr::ListPodResourcesResponse { pod_resources: vec![pod.clone()] }, &field(1, &pod_bytes));
    assert_wire(&pr::GetPodResourcesResponse { pod_resources: Some(pod) }, &field(1, &pod_bytes));
    let request = pr::GetPodResourcesRequest { pod_name: "p".into(), pod_namespace: "ns".into() };
    assert_wire(&request, &[field(1, b"p"), field(2, b"ns")].concat());
    let claim = pr::DynamicResource { claim_name: "c".into(), ..Default::default() };
    assert_wire(&claim, &field(2, b"c"));
}

#[test]
fn fields_of_a_newer_kubelet_are_passed_over() {
    let bytes = [field(1, b"p"), field(15, b"new"), field(2, b"ns"), vec![4 << 3, 7]].concat();
    let pod = pr::PodResources::decode(bytes.as_slice()).expect("unknown fields are skipped");
    assert_eq!((pod.name.as_str(), pod.namespace.as_str()), ("p", "ns"));
}

#[test]
fn a_message_cut_short_is_an_error() {
    let bytes = field(1, &field(1, b"GPU-a::0"));
    for end in 1..bytes.len() {
        assert!(dp::AllocateRequest::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
}
