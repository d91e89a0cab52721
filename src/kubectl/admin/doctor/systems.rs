//! Other systems that share GPUs: how to recognise their DaemonSets, and what stays in the cluster when they are removed.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use self::Mark::{Annotation, Label, Resource};
use crate::view::inspect::NodeView;

/// A system that allocates GPUs.
pub(super) struct System {
    pub(super) name: &'static str,
    /// Names of its DaemonSets, without the Helm release in front.
    daemon_sets: &'static [&'static str],
    /// What it alone writes, or makes users write, on Nodes.
    pub(super) marks: &'static [Mark],
    /// What others use too: counts only on a Node with one of `marks`.
    pub(super) shared: &'static [Mark],
    /// Paths of objects without namespace.
    pub(super) objects: &'static [&'static str],
    /// Others write the marks too, so they count only where divvy-node runs.
    pub(super) only_beside_divvy: bool,
}

/// What a Node carries: a key, or all that start with what is before `*`. A label may name its value.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    Annotation(&'static str),
    Label(&'static str),
    Resource(&'static str),
}

/// Systems in the order in which a DaemonSet's name is compared: Volcano's plugin may be called `volcano-vgpu-device-plugin`.
pub(super) const SYSTEMS: [System; 9] = [
    // Project-HAMi/volcano-vgpu-device-plugin: volcano-vgpu-device-plugin.yml, pkg/plugin/vgpu/util/types.go.
    System {
        name: "Volcano vGPU",
        daemon_sets: &["volcano-device-plugin", "volcano-vgpu-device-plugin"],
        marks: &[Annotation("volcano.sh/node-vgpu-*"), Resource("volcano.sh/vgpu-*")],
        shared: &[Annotation("volcano.sh/mutex.lock")],
        objects: &[],
        only_beside_divvy: false,
    },
    // Project-HAMi/HAMi: charts/hami/templates, pkg/device/nvidia/device.go; 4paradigm/k8s-vgpu-scheduler, of which it is the
    // successor. Keys of other vendors (`hami.io/node-handshake-…`) aren't named: their GPUs aren't Divvy's.
    System {
        name: "HAMi or 4paradigm vGPU",
        daemon_sets: &["hami-device-plugin", "hami-mock-device-plugin", "vgpu-device-plugin"],
        marks: &[
            Annotation("hami.io/node-handshake"),
            Annotation("hami.io/node-nvidia-*"),
            Annotation("hami.io/device-cordon"),
            Annotation("4pd.io/node-handshake"),
            Annotation("4pd.io/node-nvidia-*"),
            Resource("nvidia.com/priority"),
        ],
        shared: &[
            Annotation("hami.io/mutex.lock"),
            Annotation("4pd.io/mutex.lock"),
            Label("gpu=on"),
            Resource("nvidia.com/gpumem"),
            Resource("nvidia.com/gpumem-percentage"),
            Resource("nvidia.com/gpucores"),
        ],
        objects: &[
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hami-webhook",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/vgpu-webhook",
        ],
        only_beside_divvy: false,
    },
    // AliyunContainerService/gpushare-device-plugin: device-plugin-ds.yaml. Its plugin patches gpu-count into the status.
    System {
        name: "gpushare",
        daemon_sets: &["gpushare-device-plugin-ds", "gpushare-core-device-plugin-ds", "gpushare-mps-device-plugin-ds"],
        marks: &[Label("gpushare=true"), Resource("aliyun.com/gpu-*")],
        shared: &[Label("cgpu.disable.isolation")],
        objects: &[],
        only_beside_divvy: false,
    },
    // elastic-ai/elastic-gpu-agent: deploy/elastic-gpu-agent.yaml; its HEAD says elasticgpu.com.
    System {
        name: "elastic-gpu",
        daemon_sets: &["elastic-gpu-agent"],
        marks: &[Resource("elasticgpu.io/*"), Resource("elasticgpu.com/*")],
        shared: &[],
        objects: &[],
        only_beside_divvy: false,
    },
    // nano-gpu/nano-gpu-agent: deploy/nano-gpu-agent.yaml.
    System {
        name: "nano-gpu",
        daemon_sets: &["nano-gpu-agent"],
        marks: &[Resource("nano-gpu/*"), Resource("nano-gpu.io/*")],
        shared: &[Label("nvidia-device-enable=enable")],
        objects: &[],
        only_beside_divvy: false,
    },
    // tkestack/gpu-manager: gpu-manager.yaml.
    System {
        name: "gpu-manager",
        daemon_sets: &["gpu-manager-daemonset"],
        marks: &[Resource("tencent.com/vcuda-*"), Label("gaia.tencent.com/gpu-model")],
        shared: &[Label("nvidia-device-enable=enable")],
        objects: &[],
        only_beside_divvy: false,
    },
    // Tencent's documentation of TKE: qGPU, "Using qGPU".
    System {
        name: "qGPU",
        daemon_sets: &["qgpu-manager"],
        marks: &[Resource("tke.cloud.tencent.com/qgpu-*")],
        shared: &[Label("qgpu-device-enable=enable"), Label("tke.cloud.tencent.com/qgpu-schedule-policy")],
        objects: &[],
        only_beside_divvy: false,
    },
    // caden2016/nvidia-gpu-scheduler: deployments/helm/nvidia-gpu-scheduler, its values.yaml and crds. It writes nothing on Nodes.
    System {
        name: "nvidia-gpu-scheduler",
        daemon_sets: &["nvidia-gpu-scheduler", "gpuserver-ds"],
        marks: &[],
        shared: &[],
        objects: &[
            "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.metrics.nvidia.com",
            "/apis/apiregistration.k8s.io/v1/apiservices/v1.nvidia-gpu-scheduler",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpunodes.resources.scheduler.caden2016.github.io",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpupods.resources.scheduler.caden2016.github.io",
        ],
        only_beside_divvy: false,
    },
    // NVIDIA/k8s-device-plugin: deployments/static, deployments/helm. Feature discovery stays beside Divvy; in the chart its
    // DaemonSet has another ending.
    System {
        name: "NVIDIA's device plugin",
        daemon_sets: &["nvidia-device-plugin", "nvidia-device-plugin-daemonset", "mps-control-daemon"],
        marks: &[Label("nvidia.com/device-plugin.config"), Label("nvidia.com/mps.capable=true")],
        shared: &[],
        objects: &[],
        only_beside_divvy: true,
    },
];

// === impl System ===

impl System {
    /// The system that a DaemonSet of this name belongs to.
    pub(super) fn of_daemon_set(name: &str) -> Option<&'static Self> {
        let is_named =
            |end: &&str| name.strip_suffix(*end).is_some_and(|release| release.is_empty() || release.ends_with('-'));
        SYSTEMS.iter().find(|system| system.daemon_sets.iter().any(is_named))
    }
}

// === impl Mark ===

impl Mark {
    /// Keys on the Node that are meant.
    pub(super) fn keys<'a>(&self, node: &'a NodeView) -> Vec<&'a str> {
        let matches = |pattern: &str, key: &str| match pattern.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => key == pattern,
        };
        let keys = |pattern: &str, map: &'a BTreeMap<String, String>| {
            map.keys().map(String::as_str).filter(|key| matches(pattern, key)).collect()
        };
        match self {
            Annotation(pattern) => keys(pattern, node.annotations()),
            Resource(pattern) => node.resources().filter(|key| matches(pattern, key)).collect(),
            Label(label) => match label.split_once('=') {
                Some((key, value)) => {
                    let labels = node.labels().get_key_value(key).filter(|(_, found)| *found == value);
                    labels.map(|(key, _)| key.as_str()).into_iter().collect()
                }
                None => keys(label, node.labels()),
            },
        }
    }
}
