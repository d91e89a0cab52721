//! What an installation of Divvy consists of: names, labels and ports of its objects, as `deploy/manifests` and the chart have
//! them. All programs, `kubectl divvy` and the uninstaller find one another by these.

/// Namespace of the manifests, and of the chart's documentation.
pub const NAMESPACE: &str = "divvy-system";

/// Label of everything that is installed, with its value.
pub const PART_OF: &str = "app.kubernetes.io/part-of=divvy";
/// Label of a program's objects and pods; its value is the program.
pub const PROGRAM: &str = "app.kubernetes.io/name";

/// The daemon: program, DaemonSet, ServiceAccount, ConfigMap, and field manager of what it writes.
pub const DAEMON: &str = "divvy-node";
/// The webhook: program, Deployment, Service for reviews, ServiceAccount, ConfigMap, Lease of the leader, both webhook
/// configurations, and field manager of what it writes.
pub const WEBHOOK: &str = "divvy-webhook";
/// The supervisor of the MPS control daemon: program and DaemonSet.
pub const MPS: &str = "divvy-mps";
/// The Service of the scheduler extender, and its EndpointSlice.
pub const EXTENDER: &str = "divvy-extender";
/// The DaemonSet of `deploy/uninstall`, whose pods are ready once their node is clean.
pub const UNINSTALL: &str = "divvy-uninstall";

/// ConfigMap of the configuration that all programs share.
pub const CONFIG_MAP: &str = "divvy-config";
/// Secret of the certificates that the webhook issues itself: its own and the scheduler's.
pub const SECRET: &str = "divvy-webhook-tls";
/// Secret of the webhook's certificate where cert-manager issues it, as the chart has it.
pub const CERT_MANAGER_SECRET: &str = "divvy-webhook-certificate";
/// `APIService` of the aggregated API.
pub const API_SERVICE: &str = "v1alpha1.metrics.nvidia.com";
/// ValidatingAdmissionPolicies, and their bindings.
pub const POLICIES: [&str; 8] = [
    "divvy-gpunodes",
    "divvy-node-nodes",
    "divvy-node-pods",
    "divvy-pod-annotations",
    "divvy-pod-templates",
    "divvy-webhook-evictions",
    "divvy-webhook-nodes",
    "divvy-webhook-pods",
];

/// Port of `/metrics` and `/readyz` of the daemon.
pub const DAEMON_METRICS_PORT: u16 = 9402;
/// Port of `/metrics` and `/readyz` of the webhook.
pub const WEBHOOK_METRICS_PORT: u16 = 9403;
/// Port of `/config`, `/usage` and the debug pages on the loopback interface of every program's pod.
pub const ADMIN_PORT: u16 = 9404;

/// Label selector of a program's pods.
pub fn pods_of(program: &str) -> String {
    format!("{PROGRAM}={program}")
}
