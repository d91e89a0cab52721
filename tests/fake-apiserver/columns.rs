//! What tables show: the columns of built-in kinds as the API server prints them, and printer columns of custom ones.

use jsonpath_rust::JsonPath as _;
use serde_json::{Value, json};

use super::cells::{self, age};
use super::object::text;

/// One column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// As OpenAPI calls it: `string`, `integer`, `date`.
    pub(crate) kind: String,
    /// Shown always if 0, else with `-o wide` only.
    pub(crate) priority: i64,
    cell: Cell,
}

/// Where a cell comes from.
#[derive(Clone, Debug)]
enum Cell {
    Of(fn(&Value) -> Value),
    /// The field here, or this text without it; a number is 0 without it.
    At(&'static str, &'static str),
    /// A JSONPath that its first match answers.
    Path(String),
}

/// Name, where from, and whether only `-o wide` shows it.
type Row = (&'static str, Cell, bool);

const AGE: Row = ("Age", Cell::Of(cells::age_of), false);
const CREATED: Row = ("Created At", Cell::At("/metadata/creationTimestamp", "<none>"), false);

const PODS: &[Row] = &[
    ("Ready", Cell::Of(cells::pod_ready), false),
    ("Status", Cell::Of(cells::pod_status), false),
    ("Restarts", Cell::Of(cells::pod_restarts), false),
    AGE,
    ("IP", Cell::At("/status/podIP", "<none>"), true),
    ("Node", Cell::At("/spec/nodeName", "<none>"), true),
    ("Nominated Node", Cell::At("/status/nominatedNodeName", "<none>"), true),
    ("Readiness Gates", Cell::Of(cells::readiness_gates), true),
];
const NODES: &[Row] = &[
    ("Status", Cell::Of(cells::node_status), false),
    ("Roles", Cell::Of(cells::node_roles), false),
    AGE,
    ("Version", Cell::At("/status/nodeInfo/kubeletVersion", ""), false),
    ("Internal-IP", Cell::Of(|node| cells::node_address(node, "InternalIP")), true),
    ("External-IP", Cell::Of(|node| cells::node_address(node, "ExternalIP")), true),
    ("OS-Image", Cell::At("/status/nodeInfo/osImage", "<unknown>"), true),
    ("Kernel-Version", Cell::At("/status/nodeInfo/kernelVersion", "<unknown>"), true),
    ("Container-Runtime", Cell::At("/status/nodeInfo/containerRuntimeVersion", "<unknown>"), true),
];
const EVENTS: &[Row] = &[
    ("Last Seen", Cell::Of(cells::event_last), false),
    ("Type", Cell::At("/type", ""), false),
    ("Reason", Cell::At("/reason", ""), false),
    ("Object", Cell::Of(cells::event_object), false),
    ("Subobject", Cell::At("/involvedObject/fieldPath", ""), true),
    ("Source", Cell::Of(cells::event_source), true),
    ("Message", Cell::At("/message", ""), false),
    ("First Seen", Cell::Of(cells::event_first), true),
    ("Count", Cell::Of(cells::event_count), true),
];
const NAMESPACES: &[Row] = &[("Status", Cell::At("/status/phase", "<none>"), false), AGE];
const DAEMON_SETS: &[Row] = &[
    ("Desired", Cell::At("/status/desiredNumberScheduled", "<none>"), false),
    ("Current", Cell::At("/status/currentNumberScheduled", "<none>"), false),
    ("Ready", Cell::At("/status/numberReady", "<none>"), false),
    ("Up-to-date", Cell::At("/status/updatedNumberScheduled", "<none>"), false),
    ("Available", Cell::At("/status/numberAvailable", "<none>"), false),
    ("Node Selector", Cell::Of(|set| cells::labels(set, "/spec/template/spec/nodeSelector")), false),
    AGE,
    ("Containers", Cell::Of(|set| cells::containers(set, "name")), true),
    ("Images", Cell::Of(|set| cells::containers(set, "image")), true),
    ("Selector", Cell::Of(|set| cells::labels(set, "/spec/selector/matchLabels")), true),
];
const DEPLOYMENTS: &[Row] = &[
    ("Ready", Cell::Of(cells::replicas_ready), false),
    ("Up-to-date", Cell::At("/status/updatedReplicas", "<none>"), false),
    ("Available", Cell::At("/status/availableReplicas", "<none>"), false),
    AGE,
    ("Containers", Cell::Of(|set| cells::containers(set, "name")), true),
    ("Images", Cell::Of(|set| cells::containers(set, "image")), true),
    ("Selector", Cell::Of(|set| cells::labels(set, "/spec/selector/matchLabels")), true),
];
const REPLICA_SETS: &[Row] = &[
    ("Desired", Cell::At("/spec/replicas", "<none>"), false),
    ("Current", Cell::At("/status/replicas", "<none>"), false),
    ("Ready", Cell::At("/status/readyReplicas", "<none>"), false),
    AGE,
    ("Containers", Cell::Of(|set| cells::containers(set, "name")), true),
    ("Images", Cell::Of(|set| cells::containers(set, "image")), true),
    ("Selector", Cell::Of(|set| cells::labels(set, "/spec/selector/matchLabels")), true),
];
const STATEFUL_SETS: &[Row] = &[
    ("Ready", Cell::Of(cells::replicas_ready), false),
    AGE,
    ("Containers", Cell::Of(|set| cells::containers(set, "name")), true),
    ("Images", Cell::Of(|set| cells::containers(set, "image")), true),
];
const CRON_JOBS: &[Row] = &[
    ("Schedule", Cell::At("/spec/schedule", "<none>"), false),
    ("Timezone", Cell::At("/spec/timeZone", "<none>"), false),
    ("Suspend", Cell::Of(|job| cells::flag(job, "/spec/suspend")), false),
    ("Active", Cell::Of(|job| cells::count(job, "/status/active")), false),
    ("Last Schedule", Cell::At("/status/lastScheduleTime", "<none>"), false),
    AGE,
];
const JOBS: &[Row] = &[
    ("Status", Cell::Of(cells::job_status), false),
    ("Completions", Cell::Of(cells::job_completions), false),
    ("Duration", Cell::Of(cells::job_duration), false),
    AGE,
    ("Containers", Cell::Of(|job| cells::containers(job, "name")), true),
    ("Images", Cell::Of(|job| cells::containers(job, "image")), true),
    ("Selector", Cell::Of(|job| cells::labels(job, "/spec/selector/matchLabels")), true),
];
const CONFIG_MAPS: &[Row] = &[("Data", Cell::Of(cells::data), false), AGE];
const SECRETS: &[Row] = &[("Type", Cell::At("/type", ""), false), ("Data", Cell::Of(cells::data), false), AGE];
const LEASES: &[Row] = &[("Holder", Cell::At("/spec/holderIdentity", ""), false), AGE];
const SERVICES: &[Row] = &[
    ("Type", Cell::At("/spec/type", "<none>"), false),
    ("Cluster-IP", Cell::At("/spec/clusterIP", "<none>"), false),
    ("External-IP", Cell::Of(|_| json!("<none>")), false),
    ("Port(s)", Cell::Of(cells::ports), false),
    AGE,
    ("Selector", Cell::Of(|service| cells::labels(service, "/spec/selector")), true),
];
const DISRUPTION_BUDGETS: &[Row] = &[
    ("Min Available", Cell::At("/spec/minAvailable", "N/A"), false),
    ("Max Unavailable", Cell::At("/spec/maxUnavailable", "N/A"), false),
    ("Allowed Disruptions", Cell::At("/status/disruptionsAllowed", ""), false),
    AGE,
];
const PRIORITIES: &[Row] = &[
    ("Value", Cell::At("/value", ""), false),
    ("Global-Default", Cell::Of(|class| cells::flag(class, "/globalDefault")), false),
    AGE,
    ("PreemptionPolicy", Cell::At("/preemptionPolicy", "PreemptLowerPriority"), false),
];
const WEBHOOKS: &[Row] = &[("Webhooks", Cell::Of(|own| cells::count(own, "/webhooks")), false), AGE];
const BINDINGS: &[Row] = &[("Role", Cell::Of(cells::role), false), AGE];
const POLICIES: &[Row] = &[("Validations", Cell::Of(|own| cells::count(own, "/spec/validations")), false), AGE];
const POLICY_BINDINGS: &[Row] = &[("PolicyName", Cell::At("/spec/policyName", "<none>"), false), AGE];

/// Columns of whole numbers, whichever kind shows them.
const COUNTS: &[&str] = &[
    "Active",
    "Allowed Disruptions",
    "Available",
    "Count",
    "Current",
    "Data",
    "Desired",
    "Up-to-date",
    "Value",
    "Webhooks",
];

// === impl Column ===

impl Column {
    fn new(name: &str, kind: &str, priority: i64, cell: Cell) -> Self {
        Self { name: name.to_owned(), kind: kind.to_owned(), priority, cell }
    }

    /// What this column shows of an object; null where it has nothing.
    pub(crate) fn cell(&self, object: &Value) -> Value {
        match &self.cell {
            Cell::Of(cell) => cell(object),
            Cell::At(pointer, missing) => {
                object.pointer(pointer).cloned().unwrap_or_else(|| match self.kind.as_str() {
                    "integer" => 0.into(),
                    _ => (*missing).into(),
                })
            }
            Cell::Path(path) => {
                let found = object.query(path).ok().and_then(|found| found.first().copied());
                match (self.kind.as_str(), found) {
                    ("date", Some(Value::String(at))) => age(at).into(),
                    ("string", Some(value)) if !value.is_string() => value.to_string().into(),
                    (_, found) => found.cloned().unwrap_or_default(),
                }
            }
        }
    }
}

/// The columns of a built-in kind.
pub(crate) fn built_in(kind: &str) -> Vec<Column> {
    let rows = match kind {
        "Pod" => PODS,
        "Node" => NODES,
        "Event" => EVENTS,
        "Namespace" => NAMESPACES,
        "DaemonSet" => DAEMON_SETS,
        "Deployment" => DEPLOYMENTS,
        "ReplicaSet" => REPLICA_SETS,
        "StatefulSet" => STATEFUL_SETS,
        "CronJob" => CRON_JOBS,
        "Job" => JOBS,
        "ConfigMap" => CONFIG_MAPS,
        "Secret" => SECRETS,
        "Lease" => LEASES,
        "Service" => SERVICES,
        "PodDisruptionBudget" => DISRUPTION_BUDGETS,
        "PriorityClass" => PRIORITIES,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "RoleBinding" | "ClusterRoleBinding" => BINDINGS,
        "ValidatingAdmissionPolicy" => POLICIES,
        "ValidatingAdmissionPolicyBinding" => POLICY_BINDINGS,
        "Role" | "ClusterRole" | "CustomResourceDefinition" => &[CREATED],
        _ => &[AGE],
    };
    let own = rows.iter().map(|(name, cell, wide)| {
        let counts = COUNTS.contains(name) || (matches!(kind, "DaemonSet" | "ReplicaSet") && *name == "Ready");
        Column::new(name, if counts { "integer" } else { "string" }, i64::from(*wide), cell.clone())
    });
    // Events alone show their names last, and only with `-o wide`.
    let name = |wide| Column::new("Name", "string", wide, Cell::At("/metadata/name", "<none>"));
    if kind == "Event" { own.chain([name(1)]).collect() } else { [name(0)].into_iter().chain(own).collect() }
}

/// The columns of a custom resource, from `additionalPrinterColumns`.
pub(crate) fn printed(definitions: &[Value]) -> Vec<Column> {
    let column = |definition: &Value| {
        let path = Cell::Path(format!("${}", text(definition, "/jsonPath")));
        let priority = definition["priority"].as_i64().unwrap_or_default();
        Column::new(text(definition, "/name"), text(definition, "/type"), priority, path)
    };
    let name = Column::new("Name", "string", 0, Cell::At("/metadata/name", "<none>"));
    let own: Vec<Column> = definitions.iter().map(column).collect();
    let own = if own.is_empty() { vec![Column::new("Age", "date", 0, Cell::Of(cells::age_of))] } else { own };
    [name].into_iter().chain(own).collect()
}
