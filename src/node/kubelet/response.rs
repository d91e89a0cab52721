//! Conversion of the core's responses and refusals to gRPC.

use divvy_node_core::allocator::Refusal;
use divvy_node_core::ports::{ContainerResponse, Mount};
use divvy_proto::deviceplugin as api;
use tonic::{Code, Status};

/// gRPC status of a refused call. Its message reaches the pod's status and events.
pub fn status(refusal: &Refusal) -> Status {
    let code = match refusal {
        Refusal::Call(_) | Refusal::GpuRequest(_) | Refusal::Annotation(_) | Refusal::UnitsAlone { .. } => {
            Code::InvalidArgument
        }
        Refusal::NoPlan(_) | Refusal::Misfit(_) | Refusal::SameCard { .. } => Code::ResourceExhausted,
        Refusal::Pods(_) | Refusal::Unlisted { .. } | Refusal::Setup(_) | Refusal::Ledger(_) => Code::Unavailable,
        Refusal::UnknownSlot { .. } | Refusal::UnknownHolder { .. } => Code::NotFound,
        Refusal::Identity(_)
        | Refusal::IdentityUnlisted { .. }
        | Refusal::IdentityUntold { .. }
        | Refusal::Tier { .. }
        | Refusal::Oversubscribe { .. }
        | Refusal::NotOversubscribed
        | Refusal::Stale => Code::FailedPrecondition,
    };
    Status::new(code, format!("divvy: {}: {refusal}", refusal.kind()))
}

/// Response to `Allocate` for one container.
pub fn response(container: ContainerResponse) -> api::ContainerAllocateResponse {
    let ContainerResponse { envs, mounts, annotations, cdi_devices } = container;
    let mount = |Mount { container_path, host_path, read_only }| api::Mount { container_path, host_path, read_only };
    api::ContainerAllocateResponse {
        envs: envs.into_iter().collect(),
        mounts: mounts.into_iter().map(mount).collect(),
        annotations: annotations.into_iter().collect(),
        cdi_devices: cdi_devices.into_iter().map(|name| api::CdiDevice { name }).collect(),
        ..api::ContainerAllocateResponse::default()
    }
}
