//! The configuration of divvy-apiserver: every key once. `divvy_runtime::settings` says how they are written and which source
//! wins.

use std::net::{Ipv4Addr, SocketAddr};

use divvy_runtime::settings::{AbsolutePath, LogFilter, LogFormat, LoopbackAddress, ObjectName, Period, Switch};

divvy_runtime::keys! {
    required {
        /// Namespace of this pod, its Service and its Secret; in a pod from metadata.namespace
        namespace: ObjectName,
    }

    /// Whether a watch of podresources without other parameters than watch=true is answered in nvidia-gpu-scheduler's form, lines of "Type" and "Object": on or off; others, such as those of kubectl and client-go, are answered as Kubernetes does
    legacy_watch: Switch = Switch::Off,

    /// Address of the TLS listener, for kube-apiserver
    listen_address: SocketAddr = (Ipv4Addr::UNSPECIFIED, 8443).into(),
    /// Address of the plain-HTTP listener: /metrics, /healthz and /readyz
    metrics_address: SocketAddr = (Ipv4Addr::UNSPECIFIED, 9403).into(),
    /// Loopback address of /config and /debug, reached with kubectl port-forward
    admin_address: LoopbackAddress = LoopbackAddress::port(9404),
    /// How long new calls are still answered after SIGTERM, while the Service's endpoints are updated
    shutdown_delay: Period = Period::seconds(5),
    /// Longest wait for running calls after shutdownDelay; watches end at once
    drain_timeout: Period = Period::seconds(20),
    /// Kubeconfig of the API server, unless this runs as a pod of its cluster
    kubeconfig: AbsolutePath,
    /// Log levels by target, such as info,divvy_apiserver=debug
    log_level: LogFilter = LogFilter::default(),
    /// Log format: plain or json
    log_format: LogFormat = LogFormat::default(),
}

/// The Service that the `APIService` names.
pub const SERVICE: &str = "divvy-apiserver";
/// The Secret of the certificate.
pub const SECRET: &str = "divvy-apiserver-tls";
/// The `APIService`.
pub const API_SERVICE: &str = "v1alpha1.metrics.nvidia.com";
