//! Which fields of an object go into the archive. What isn't named stays out, whatever a newer Kubernetes or a tenant adds.

use std::marker::PhantomData;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Part of a value that is kept. Of a list it is that part of each item.
pub(super) enum Keep {
    /// All of it.
    All,
    /// These fields of an object.
    Only(&'static [(&'static str, Self)]),
    /// Fields of an object whose names begin like this.
    Starting(&'static str),
}

/// A kind of objects.
pub(super) trait Kind: Clone {
    const KEEP: Keep;
}

/// An object, of which the rest is forgotten as soon as it is read: the pods of a large cluster need little memory then.
#[derive(Clone, Debug)]
pub(super) struct Kept<K>(pub(super) Value, PhantomData<K>);

/// Pods of tenants.
#[derive(Clone, Debug)]
pub(super) struct TenantPod;
/// Pods of Divvy.
#[derive(Clone, Debug)]
pub(super) struct OwnPod;
#[derive(Clone, Debug)]
pub(super) struct Node;
#[derive(Clone, Debug)]
pub(super) struct Event;
/// Objects of Divvy's own kinds.
#[derive(Clone, Debug)]
pub(super) struct OwnObject;
/// DaemonSets and Deployments of Divvy.
#[derive(Clone, Debug)]
pub(super) struct Workload;
/// Services, EndpointSlices, Leases and what else has nothing to hide.
#[derive(Clone, Debug)]
pub(super) struct Plain;
/// ConfigMaps of Divvy.
#[derive(Clone, Debug)]
pub(super) struct Configuration;
/// Webhook configurations, with the rules and without certificates.
#[derive(Clone, Debug)]
pub(super) struct WebhookConfiguration;
/// CustomResourceDefinitions, without the schemas.
#[derive(Clone, Debug)]
pub(super) struct Definition;
#[derive(Clone, Debug)]
pub(super) struct ApiService;

const METADATA: Keep = Keep::Only(&[
    ("name", Keep::All),
    ("namespace", Keep::All),
    ("uid", Keep::All),
    ("labels", Keep::All),
    ("annotations", Keep::Starting("divvy.dev/")),
    ("generation", Keep::All),
    ("resourceVersion", Keep::All),
    ("creationTimestamp", Keep::All),
    ("deletionTimestamp", Keep::All),
    ("finalizers", Keep::All),
    ("ownerReferences", Keep::Only(&[("kind", Keep::All), ("name", Keep::All), ("uid", Keep::All)])),
]);

/// What a container's state says without the text that it may have left itself.
const STATE: Keep = Keep::Only(&[
    ("waiting", Keep::Only(&[("reason", Keep::All)])),
    ("running", Keep::All),
    (
        "terminated",
        Keep::Only(&[
            ("exitCode", Keep::All),
            ("signal", Keep::All),
            ("reason", Keep::All),
            ("startedAt", Keep::All),
            ("finishedAt", Keep::All),
        ]),
    ),
]);

const STATES: Keep = Keep::Only(&[
    ("name", Keep::All),
    ("ready", Keep::All),
    ("started", Keep::All),
    ("restartCount", Keep::All),
    ("state", STATE),
    ("lastState", STATE),
]);

const POD_STATUS: Keep = Keep::Only(&[
    ("phase", Keep::All),
    ("reason", Keep::All),
    ("message", Keep::All),
    ("conditions", Keep::All),
    ("nominatedNodeName", Keep::All),
    ("startTime", Keep::All),
    ("qosClass", Keep::All),
    ("initContainerStatuses", STATES),
    ("containerStatuses", STATES),
]);

const CONTAINERS: Keep = Keep::Only(&[("name", Keep::All), ("resources", Keep::All), ("restartPolicy", Keep::All)]);

const OWN_CONTAINERS: Keep = Keep::Only(&[
    ("name", Keep::All),
    ("image", Keep::All),
    ("imagePullPolicy", Keep::All),
    ("resources", Keep::All),
    ("restartPolicy", Keep::All),
    ("ports", Keep::All),
    ("securityContext", Keep::All),
]);

const OWN_POD_SPEC: Keep = Keep::Only(&[
    ("nodeName", Keep::All),
    ("serviceAccountName", Keep::All),
    ("priorityClassName", Keep::All),
    ("runtimeClassName", Keep::All),
    ("hostNetwork", Keep::All),
    ("hostPID", Keep::All),
    ("nodeSelector", Keep::All),
    ("affinity", Keep::All),
    ("tolerations", Keep::All),
    ("terminationGracePeriodSeconds", Keep::All),
    ("initContainers", OWN_CONTAINERS),
    ("containers", OWN_CONTAINERS),
]);

// === impl Keep ===

impl Keep {
    /// The part of the value.
    pub(super) fn of(&self, value: Value) -> Value {
        match (self, value) {
            (Self::All, value) => value,
            (_, Value::Array(items)) => items.into_iter().map(|item| self.of(item)).collect(),
            (Self::Only(fields), Value::Object(mut object)) => {
                let kept =
                    fields.iter().filter_map(|(name, keep)| Some(((*name).to_owned(), keep.of(object.remove(*name)?))));
                Value::Object(kept.collect::<Map<_, _>>())
            }
            (Self::Starting(prefix), Value::Object(object)) => {
                Value::Object(object.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect())
            }
            (_, _) => Value::Null,
        }
    }
}

impl<'de, K: Kind> Deserialize<'de> for Kept<K> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Ok(Self(K::KEEP.of(Value::deserialize(source)?), PhantomData))
    }
}

// === impl Kind ===

impl Kind for TenantPod {
    const KEEP: Keep = Keep::Only(&[
        ("metadata", METADATA),
        (
            "spec",
            Keep::Only(&[
                ("nodeName", Keep::All),
                ("schedulerName", Keep::All),
                ("priority", Keep::All),
                ("priorityClassName", Keep::All),
                ("runtimeClassName", Keep::All),
                ("nodeSelector", Keep::All),
                ("affinity", Keep::All),
                ("tolerations", Keep::All),
                ("schedulingGates", Keep::All),
                ("restartPolicy", Keep::All),
                ("overhead", Keep::All),
                ("initContainers", CONTAINERS),
                ("containers", CONTAINERS),
            ]),
        ),
        ("status", POD_STATUS),
    ]);
}

impl Kind for OwnPod {
    const KEEP: Keep = Keep::Only(&[("metadata", METADATA), ("spec", OWN_POD_SPEC), ("status", POD_STATUS)]);
}

impl Kind for Node {
    const KEEP: Keep = Keep::Only(&[
        ("metadata", METADATA),
        ("spec", Keep::Only(&[("unschedulable", Keep::All), ("taints", Keep::All)])),
        (
            "status",
            Keep::Only(&[
                ("capacity", Keep::All),
                ("allocatable", Keep::All),
                ("conditions", Keep::All),
                ("nodeInfo", Keep::All),
            ]),
        ),
    ]);
}

impl Kind for Event {
    const KEEP: Keep = Keep::Only(&[
        ("metadata", Keep::Only(&[("name", Keep::All), ("namespace", Keep::All), ("creationTimestamp", Keep::All)])),
        (
            "involvedObject",
            Keep::Only(&[("kind", Keep::All), ("namespace", Keep::All), ("name", Keep::All), ("uid", Keep::All)]),
        ),
        ("type", Keep::All),
        ("reason", Keep::All),
        ("message", Keep::All),
        ("count", Keep::All),
        ("series", Keep::All),
        ("source", Keep::All),
        ("reportingComponent", Keep::All),
        ("firstTimestamp", Keep::All),
        ("lastTimestamp", Keep::All),
        ("eventTime", Keep::All),
    ]);
}

impl Kind for OwnObject {
    const KEEP: Keep = Keep::Only(&[("metadata", METADATA), ("spec", Keep::All), ("status", Keep::All)]);
}

impl Kind for Workload {
    const KEEP: Keep = Keep::Only(&[
        ("metadata", METADATA),
        (
            "spec",
            Keep::Only(&[
                ("replicas", Keep::All),
                ("selector", Keep::All),
                ("updateStrategy", Keep::All),
                ("strategy", Keep::All),
                ("template", Keep::Only(&[("metadata", METADATA), ("spec", OWN_POD_SPEC)])),
            ]),
        ),
        ("status", Keep::All),
    ]);
}

impl Kind for Plain {
    const KEEP: Keep = Keep::Only(&[
        ("metadata", METADATA),
        ("spec", Keep::All),
        ("addressType", Keep::All),
        ("endpoints", Keep::All),
        ("ports", Keep::All),
        ("status", Keep::All),
    ]);
}

impl Kind for Configuration {
    const KEEP: Keep = Keep::Only(&[("metadata", METADATA), ("data", Keep::All)]);
}

impl Kind for WebhookConfiguration {
    const KEEP: Keep = Keep::Only(&[
        ("metadata", METADATA),
        (
            "webhooks",
            Keep::Only(&[
                ("name", Keep::All),
                ("clientConfig", Keep::Only(&[("service", Keep::All)])),
                ("rules", Keep::All),
                ("failurePolicy", Keep::All),
                ("matchPolicy", Keep::All),
                ("reinvocationPolicy", Keep::All),
                ("timeoutSeconds", Keep::All),
                ("namespaceSelector", Keep::All),
                ("objectSelector", Keep::All),
                ("matchConditions", Keep::All),
                ("sideEffects", Keep::All),
            ]),
        ),
    ]);
}

impl Kind for Definition {
    const KEEP: Keep = Keep::Only(&[
        ("metadata", METADATA),
        (
            "spec",
            Keep::Only(&[(
                "versions",
                Keep::Only(&[("name", Keep::All), ("served", Keep::All), ("storage", Keep::All)]),
            )]),
        ),
        ("status", Keep::Only(&[("conditions", Keep::All), ("storedVersions", Keep::All)])),
    ]);
}

impl Kind for ApiService {
    const KEEP: Keep = Keep::Only(&[
        ("metadata", METADATA),
        (
            "spec",
            Keep::Only(&[
                ("service", Keep::All),
                ("group", Keep::All),
                ("version", Keep::All),
                ("groupPriorityMinimum", Keep::All),
                ("versionPriority", Keep::All),
            ]),
        ),
        ("status", Keep::All),
    ]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_are_not_named_stay_out() {
        let container = json!({
            "name": "main", "image": "i", "args": ["SECRET"], "command": ["SECRET"], "env": [{ "value": "SECRET" }],
            "volumeMounts": [{ "name": "SECRET" }], "resources": { "limits": { "nvidia.com/gpu": "1" } },
            "lifecycle": { "preStop": "SECRET" },
        });
        let pod = json!({
            "apiVersion": "SECRET",
            "metadata": {
                "name": "a", "annotations": { "divvy.dev/policy": "binpack", "example.com/token": "SECRET" },
                "managedFields": "SECRET",
            },
            "spec": { "volumes": ["SECRET"], "containers": [container.clone()], "imagePullSecrets": ["SECRET"] },
            "status": {
                "phase": "Failed",
                "containerStatuses": [{ "name": "main", "state": { "terminated": { "exitCode": 1, "message": "SECRET" } } }],
            },
        });
        let Kept(kept, _) = serde_json::from_value::<Kept<TenantPod>>(pod).expect("a pod");
        let expected = json!({
            "metadata": { "name": "a", "annotations": { "divvy.dev/policy": "binpack" } },
            "spec": { "containers": [{ "name": "main", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
            "status": {
                "phase": "Failed",
                "containerStatuses": [{ "name": "main", "state": { "terminated": { "exitCode": 1 } } }],
            },
        });
        assert_eq!(kept, expected);
        let template = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
        let Kept(kept, _) = serde_json::from_value::<Kept<Workload>>(template).expect("a workload");
        assert!(!kept.to_string().contains("SECRET"), "{kept}");
    }

    #[test]
    fn values_of_another_type_than_expected_stay_out() {
        let Kept(kept, _) = serde_json::from_value::<Kept<TenantPod>>(json!({ "metadata": "SECRET" })).expect("JSON");
        assert_eq!(kept, json!({ "metadata": null }));
    }
}
