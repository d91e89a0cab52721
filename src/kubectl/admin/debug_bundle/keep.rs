//! Which fields of an object go into the archive. What isn't named stays out, whatever a newer Kubernetes or a tenant adds.

use serde_json::{Map, Value};

use self::Keep::{Fields, Starting};

/// Part of a value that is kept. Of a list it is that part of each item.
#[derive(Clone, Copy)]
pub(super) enum Keep {
    /// Fields of an object: those that are kept whole, and those of which a part is.
    Fields(&'static [&'static str], &'static [(&'static str, Self)]),
    /// Fields of an object whose names begin like this.
    Starting(&'static str),
}

/// Pods of tenants.
pub(super) const TENANT_POD: Keep =
    Fields(&[], &[("metadata", METADATA), ("spec", TENANT_POD_SPEC), ("status", POD_STATUS)]);
/// Pods of Divvy.
pub(super) const OWN_POD: Keep = Fields(&[], &[("metadata", METADATA), ("spec", OWN_POD_SPEC), ("status", POD_STATUS)]);
pub(super) const NODE: Keep = Fields(
    &[],
    &[
        ("metadata", METADATA),
        ("spec", Fields(&["unschedulable", "taints"], &[])),
        ("status", Fields(&["capacity", "allocatable", "conditions", "nodeInfo"], &[])),
    ],
);
pub(super) const EVENT: Keep = Fields(
    &[
        "type",
        "reason",
        "message",
        "count",
        "series",
        "source",
        "reportingComponent",
        "firstTimestamp",
        "lastTimestamp",
        "eventTime",
    ],
    &[
        ("metadata", Fields(&["name", "namespace", "creationTimestamp"], &[])),
        ("involvedObject", Fields(&["kind", "namespace", "name", "uid"], &[])),
    ],
);
/// Objects of Divvy's own kinds.
pub(super) const OWN_OBJECT: Keep = Fields(&["spec", "status"], &[("metadata", METADATA)]);
/// DaemonSets and Deployments of Divvy.
pub(super) const WORKLOAD: Keep = Fields(&["status"], &[("metadata", METADATA), ("spec", WORKLOAD_SPEC)]);
/// Services, EndpointSlices, Leases and what else has nothing to hide.
pub(super) const PLAIN: Keep =
    Fields(&["spec", "addressType", "endpoints", "ports", "status"], &[("metadata", METADATA)]);
/// ConfigMaps of Divvy.
pub(super) const CONFIGURATION: Keep = Fields(&["data"], &[("metadata", METADATA)]);
/// Webhook configurations, with the rules and without certificates.
pub(super) const WEBHOOK_CONFIGURATION: Keep = Fields(&[], &[("metadata", METADATA), ("webhooks", WEBHOOKS)]);
/// CustomResourceDefinitions, without the schemas.
pub(super) const DEFINITION: Keep = Fields(
    &[],
    &[
        ("metadata", METADATA),
        ("spec", Fields(&[], &[("versions", Fields(&["name", "served", "storage"], &[]))])),
        ("status", Fields(&["conditions", "storedVersions"], &[])),
    ],
);
pub(super) const API_SERVICE: Keep = Fields(
    &["status"],
    &[
        ("metadata", METADATA),
        ("spec", Fields(&["service", "group", "version", "groupPriorityMinimum", "versionPriority"], &[])),
    ],
);

const METADATA: Keep = Fields(
    &[
        "name",
        "namespace",
        "uid",
        "labels",
        "generation",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "finalizers",
    ],
    &[("annotations", Starting("divvy.dev/")), ("ownerReferences", Fields(&["kind", "name", "uid"], &[]))],
);
const TENANT_POD_SPEC: Keep = Fields(
    &[
        "nodeName",
        "schedulerName",
        "priority",
        "priorityClassName",
        "runtimeClassName",
        "nodeSelector",
        "affinity",
        "tolerations",
        "schedulingGates",
        "restartPolicy",
        "overhead",
    ],
    &[("initContainers", TENANT_CONTAINERS), ("containers", TENANT_CONTAINERS)],
);
const TENANT_CONTAINERS: Keep = Fields(&["name", "resources", "restartPolicy"], &[]);
const OWN_POD_SPEC: Keep = Fields(
    &[
        "nodeName",
        "serviceAccountName",
        "priorityClassName",
        "runtimeClassName",
        "hostNetwork",
        "hostPID",
        "nodeSelector",
        "affinity",
        "tolerations",
        "terminationGracePeriodSeconds",
    ],
    &[("initContainers", OWN_CONTAINERS), ("containers", OWN_CONTAINERS)],
);
const OWN_CONTAINERS: Keep =
    Fields(&["name", "image", "imagePullPolicy", "resources", "restartPolicy", "ports", "securityContext"], &[]);
const POD_STATUS: Keep = Fields(
    &["phase", "reason", "message", "conditions", "nominatedNodeName", "startTime", "qosClass"],
    &[("initContainerStatuses", CONTAINER_STATUSES), ("containerStatuses", CONTAINER_STATUSES)],
);
const CONTAINER_STATUSES: Keep =
    Fields(&["name", "ready", "started", "restartCount"], &[("state", STATE), ("lastState", STATE)]);
/// What a container's state says without the text that it may have left itself.
const STATE: Keep = Fields(
    &["running"],
    &[
        ("waiting", Fields(&["reason"], &[])),
        ("terminated", Fields(&["exitCode", "signal", "reason", "startedAt", "finishedAt"], &[])),
    ],
);
const WORKLOAD_SPEC: Keep = Fields(
    &["replicas", "selector", "updateStrategy", "strategy"],
    &[("template", Fields(&[], &[("metadata", METADATA), ("spec", OWN_POD_SPEC)]))],
);
const WEBHOOKS: Keep = Fields(
    &[
        "name",
        "rules",
        "failurePolicy",
        "matchPolicy",
        "reinvocationPolicy",
        "timeoutSeconds",
        "namespaceSelector",
        "objectSelector",
        "matchConditions",
        "sideEffects",
    ],
    &[("clientConfig", Fields(&["service"], &[]))],
);

// === impl Keep ===

impl Keep {
    /// The part of the value.
    pub(super) fn part_of(self, value: Value) -> Value {
        match (self, value) {
            (_, Value::Array(items)) => items.into_iter().map(|item| self.part_of(item)).collect(),
            (Fields(whole, parts), Value::Object(mut object)) => {
                let mut kept = Map::new();
                for name in whole {
                    kept.extend(object.remove(*name).map(|field| ((*name).to_owned(), field)));
                }
                for (name, keep) in parts {
                    kept.extend(object.remove(*name).map(|field| ((*name).to_owned(), keep.part_of(field))));
                }
                Value::Object(kept)
            }
            (Starting(prefix), Value::Object(object)) => {
                Value::Object(object.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect())
            }
            (_, _) => Value::Null,
        }
    }
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
        let kept = TENANT_POD.part_of(pod);
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
        let kept = WORKLOAD.part_of(template);
        assert!(!kept.to_string().contains("SECRET"), "{kept}");
    }

    #[test]
    fn values_of_another_type_than_expected_stay_out() {
        let kept = TENANT_POD.part_of(json!({ "metadata": "SECRET" }));
        assert_eq!(kept, json!({ "metadata": null }));
    }
}
