//! What the kubelet decides by, read from a pod object.

use std::collections::BTreeMap;

use divvy_api::quantity::parse_count;
use divvy_api::{ContainerKind, ContainerSpec};
use k8s_openapi::api::core::v1;

/// A pod that this kubelet can't run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The API server fills these in; a pod without one doesn't come from there.
    #[error("pod has no {0}: set it")]
    Missing(&'static str),
    /// A second pod of the same UID.
    #[error("pod {0} is already bound to this node: delete it first")]
    Twice(String),
    /// A pod that this kubelet doesn't have.
    #[error("no pod {0} on this node")]
    Unknown(String),
}

/// Containers in admission order: init containers as listed, then app containers.
pub fn containers(pod: &v1::Pod) -> Vec<ContainerSpec> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten().enumerate().map(|(index, container)| {
        let sidecar = container.restart_policy.as_deref() == Some("Always");
        container_spec(container, if sidecar { ContainerKind::Sidecar } else { ContainerKind::Init }, index)
    });
    let apps = spec.containers.iter().enumerate();
    init.chain(apps.map(|(index, container)| container_spec(container, ContainerKind::App, index))).collect()
}

/// Kernel parameters that every kubelet allows (`sysctl.SafeSysctlAllowlist`).
const SAFE_SYSCTLS: [&str; 4] =
    ["kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range"];

/// The first kernel parameter that a kubelet without `allowedUnsafeSysctls` rejects the pod for.
pub(crate) fn forbidden_sysctl(pod: &v1::Pod) -> Option<String> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    let mut names = context.sysctls.iter().flatten().map(|sysctl| &sysctl.name);
    names.find(|name| !SAFE_SYSCTLS.contains(&name.as_str())).cloned()
}

/// The limits that the device manager may have to do with: whole numbers.
pub(crate) fn counts(container: &ContainerSpec) -> Vec<(String, usize)> {
    let count = |text: &String| parse_count(text).ok().and_then(|count| usize::try_from(count).ok());
    container.limits.iter().filter_map(|(name, text)| Some((name.clone(), count(text)?))).collect()
}

fn container_spec(container: &v1::Container, kind: ContainerKind, index: usize) -> ContainerSpec {
    let limits = container.resources.iter().filter_map(|resources| resources.limits.as_ref()).flatten();
    let limits: BTreeMap<_, _> = limits.map(|(name, quantity)| (name.clone(), quantity.0.clone())).collect();
    ContainerSpec { name: container.name.clone(), kind, index, limits }
}
