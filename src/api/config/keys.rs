//! The keys themselves: each has its line here, and its consumers.
//!
//! A list of lines `name: Type = default` is handed on by a macro: to [`ClusterConfig`] here, and to
//! `divvy_runtime::keys!` of each program, which makes a flag, a variable and an entry of the file of it.

use serde::{Deserialize, Serialize};

use crate::config::Version;

/// Keys by which requests are read and GPUs chosen, which all programs have. Calls `callback! { @with { keys } rest }`, after the
/// keys of other lists.
#[macro_export]
macro_rules! gpu_keys {
    ([$($callback:tt)+] { $($others:tt)* } $($rest:tt)*) => {
        $($callback)+! { @with {
            $($others)*
            /// Extended resource that counts GPUs
            resource_count: $crate::ResourceName = $crate::ResourceNames::default().count,
            /// Extended resource for memory of each GPU, in MiB
            resource_memory: $crate::ResourceName = $crate::ResourceNames::default().memory,
            /// Extended resource for memory of each GPU, in percent
            resource_memory_percentage: $crate::ResourceName = $crate::ResourceNames::default().memory_percentage,
            /// Extended resource for compute of each GPU, in percent
            resource_cores: $crate::ResourceName = $crate::ResourceNames::default().cores,
            /// Most containers that can share a GPU: 1 to 256
            slots_per_card: $crate::config::Within<1, 256> = $crate::config::Within::new($crate::config::SLOTS_PER_CARD),
            /// How memory and compute are advertised: amounts (extended resources in the Node's status) or devices (of the device plugin, one per unit)
            advertise: $crate::config::Advertise = $crate::config::Advertise::default(),
            /// Size of a memory unit in MiB with advertise devices: 16 to 16384; part of the resource's name
            memory_unit: $crate::config::Within<16, 16384> = $crate::config::Within::new(256),
            /// Memory of a request that names cores alone: same-as-cores, a percentage such as 25%, or an amount such as 4Gi
            default_memory: $crate::config::DefaultMemory = $crate::config::DefaultMemory::SameAsCores,
            /// Cores of a request that names memory alone: 0 to 99
            default_cores: $crate::config::Within<0, 99> = $crate::config::Within::new(0),
            /// Policy that chooses a pod's GPUs: binpack, spread, random, least-fragmentation or topology
            card_policy: $crate::annotation::PolicyName = $crate::annotation::PolicyName::default(),
            /// Whether GPUs that are busier than their shares come after others: on or off; the GpuNodes then have each GPU's utilization
            load_aware: $crate::config::Switch = $crate::config::Switch::Off,
        } $($rest)* }
    };
}

/// Keys by which nodes are chosen, which daemons have no use of. Calls as [`gpu_keys!`](crate::gpu_keys!) does.
#[macro_export]
macro_rules! node_keys {
    ([$($callback:tt)+] { $($others:tt)* } $($rest:tt)*) => {
        $($callback)+! { @with {
            $($others)*
            /// Policy that chooses a pod's node, one of those of cardPolicy; unless set, as cardPolicy
            node_policy: $crate::annotation::PolicyName,
            /// Who chooses the nodes of pods that request GPUs: gates (the leader, and kube-scheduler follows), extender (kube-scheduler, which calls the webhook) or node (kube-scheduler, by amounts per node and a preferred affinity to the nodes that fit)
            scheduling: $crate::config::Scheduling = $crate::config::Scheduling::default(),
            /// Schedulers that try status.nominatedNodeName first: their pods get the scheduling gate with gates, and those of groups with extender
            schedulers: $crate::config::List<String> = $crate::config::List(vec![$crate::config::DEFAULT_SCHEDULER.to_owned()]),
            /// Seconds for which GPUs are reserved for a pod on its nominated node before its scheduler binds it: 30 to 86400
            nomination_timeout_seconds: $crate::config::Within<30, 86400> = $crate::config::Within::new(600),
        } $($rest)* }
    };
}

/// Makes [`ClusterConfig`] of the lines.
macro_rules! cluster_config {
    (@with { $( $(#[doc = $doc:literal])+ $name:ident: $type:ty $(= $default:expr)?, )+ }) => {
        /// The configuration that the parts of a cluster share; absent keys have their defaults.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct ClusterConfig {
            /// Format of the text; [`check`](Self::check) refuses a text without one.
            #[serde(default)]
            pub version: Option<Version>,
            $( $(#[doc = $doc])+ pub $name: cluster_config!(@type $type $(, $default)?), )+
        }

        impl Default for ClusterConfig {
            fn default() -> Self {
                Self { version: Some(Version::V1), $( $name: cluster_config!(@default $($default)?), )+ }
            }
        }
    };
    (@with { $($keys:tt)+ } node_keys) => { $crate::node_keys! { [cluster_config] { $($keys)+ } } };
    (@type $type:ty) => { Option<$type> };
    (@type $type:ty, $default:expr) => { $type };
    (@default) => { None };
    (@default $default:expr) => { $default };
}

gpu_keys! { [cluster_config] {} node_keys }
