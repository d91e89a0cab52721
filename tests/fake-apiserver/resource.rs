//! What is served: the built-in kinds in one table, and those that CustomResourceDefinitions add.

use std::sync::Arc;

use serde_json::Value;

use super::columns::{self, Column};
use super::object::{items, text};
use super::prune::{fill_in, prune, undeclared};

/// One kind in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) subresources: Vec<String>,
    /// Whether `metadata.generation` counts changes of what is wanted.
    pub(crate) generations: bool,
    pub(crate) columns: Vec<Column>,
    /// What the objects are kept as: `pods`, `gpunodes.divvy.dev`. Two resources may show the same objects.
    pub(crate) storage: Arc<str>,
    /// Fields by another name than the one they are kept by: (here, kept).
    pub(crate) renames: &'static [(&'static str, &'static str)],
    /// OpenAPI schema, of custom resources alone.
    pub(crate) schema: Option<Value>,
}

/// Every resource, in the order of discovery.
#[derive(Debug)]
pub(crate) struct Resources {
    all: Vec<Arc<Resource>>,
}

/// The rows of the table: group, version, kind, plural, short names, namespaced, subresources, counts generations.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    bool,
    &'static [&'static str],
    bool,
);

#[rustfmt::skip]
const BUILT_IN: &[Row] = &[
    ("", "v1", "Pod", "pods", &["po"], true, &["binding", "ephemeralcontainers", "eviction", "log", "portforward", "status"], true),
    ("", "v1", "Node", "nodes", &["no"], false, &["status"], false),
    ("", "v1", "Event", "events", &["ev"], true, &[], false),
    ("", "v1", "Namespace", "namespaces", &["ns"], false, &["status"], false),
    ("", "v1", "ConfigMap", "configmaps", &["cm"], true, &[], false),
    ("", "v1", "Secret", "secrets", &[], true, &[], false),
    ("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], true, &[], false),
    ("", "v1", "Service", "services", &["svc"], true, &["status"], false),
    ("", "v1", "Endpoints", "endpoints", &["ep"], true, &[], false),
    ("events.k8s.io", "v1", "Event", "events", &["ev"], true, &[], false),
    ("apps", "v1", "DaemonSet", "daemonsets", &["ds"], true, &["status"], true),
    ("apps", "v1", "Deployment", "deployments", &["deploy"], true, &["scale", "status"], true),
    ("apps", "v1", "ReplicaSet", "replicasets", &["rs"], true, &["scale", "status"], true),
    ("apps", "v1", "StatefulSet", "statefulsets", &["sts"], true, &["scale", "status"], true),
    ("batch", "v1", "CronJob", "cronjobs", &["cj"], true, &["status"], true),
    ("batch", "v1", "Job", "jobs", &[], true, &["status"], true),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", &[], false, &[], false),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", &[], false, &[], false),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", &[], false, &[], false),
    ("coordination.k8s.io", "v1", "Lease", "leases", &[], true, &[], false),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", &[], true, &[], true),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", &["netpol"], true, &[], true),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], true, &["status"], true),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", &["pc"], false, &[], true),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", &[], true, &[], false),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", &[], true, &[], false),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", &[], false, &[], false),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", &[], false, &[], false),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", &[], false, &[], true),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &[], false, &[], true),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", &[], false, &["status"], true),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", &[], false, &[], true),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", &[], false, &["status"], false),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", &["crd", "crds"], false, &["status"], true),
];

/// The fields of events.k8s.io/v1 and the ones of v1 that hold the same.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
];

// === impl Resource ===

impl Resource {
    fn built_in(row: &Row) -> Self {
        let &(group, version, kind, plural, short, namespaced, subresources, generations) = row;
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let in_all = matches!((group, kind), ("", "Pod" | "Service") | ("apps" | "batch", _));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short: owned(short),
            categories: owned(if in_all { &["all"] } else { &[] }),
            namespaced,
            subresources: owned(subresources),
            generations,
            columns: columns::built_in(kind),
            storage: if kind == "Event" { "events".into() } else { qualified(plural, group).into() },
            renames: if group == "events.k8s.io" { EVENT_FIELDS } else { &[] },
            schema: None,
        }
    }

    /// The resources of a definition: one for each version that is served.
    pub(crate) fn defined_by(definition: &Value) -> Vec<Self> {
        let of = |pointer: &str| text(definition, pointer).to_owned();
        let texts = |pointer: &str| items(definition, pointer).iter().filter_map(Value::as_str).map(String::from);
        let versions = items(definition, "/spec/versions").iter().filter(|version| version["served"] == true);
        let (group, plural) = (of("/spec/group"), of("/spec/names/plural"));
        let resource = |version: &Value| Self {
            group: group.clone(),
            version: text(version, "/name").to_owned(),
            kind: of("/spec/names/kind"),
            plural: plural.clone(),
            singular: of("/spec/names/singular"),
            short: texts("/spec/names/shortNames").collect(),
            categories: texts("/spec/names/categories").collect(),
            namespaced: text(definition, "/spec/scope") == "Namespaced",
            subresources: version.pointer("/subresources/status").map(|_| "status".to_owned()).into_iter().collect(),
            generations: true,
            columns: columns::printed(items(version, "/additionalPrinterColumns")),
            storage: qualified(&plural, &group).into(),
            renames: &[],
            schema: version.pointer("/schema/openAPIV3Schema").cloned().or(Some(Value::Null)),
        };
        versions.map(resource).collect()
    }

    /// As refusals name it: `pods`, `gpunodes.divvy.dev`.
    pub(crate) fn qualified(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// `v1`, `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.schema.is_some()
    }

    /// Whether an update may leave out the version that it was made from (`AllowUnconditionalUpdate` of the strategies).
    pub(crate) fn may_be_overwritten(&self) -> bool {
        let guarded = self.group == "admissionregistration.k8s.io" || self.group == "apiextensions.k8s.io";
        !(self.is_custom() || guarded || matches!(self.kind.as_str(), "Lease" | "PodDisruptionBudget"))
    }

    pub(crate) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|own| own == subresource)
    }

    /// The object as this resource shows it.
    pub(crate) fn show(&self, kept: &Value) -> Value {
        self.rename(kept, |(here, kept)| (kept, here))
    }

    /// The object as it is kept.
    pub(crate) fn keep(&self, shown: &Value) -> Value {
        let mut kept = self.rename(shown, |pair| pair);
        if let Some(schema) = &self.schema {
            prune(&mut kept, schema);
            fill_in(&mut kept, schema);
        }
        kept
    }

    /// Path of the first field below `spec` or `status` that a custom resource's schema doesn't name.
    pub(crate) fn undeclared(&self, object: &Value) -> Option<String> {
        let schema = self.schema.as_ref()?;
        ["spec", "status"].into_iter().find_map(|part| {
            let below = undeclared(&object[part], &schema["properties"][part])?;
            Some(format!(".{part}{below}"))
        })
    }

    fn rename(
        &self,
        object: &Value,
        from_to: fn((&'static str, &'static str)) -> (&'static str, &'static str),
    ) -> Value {
        let mut object = object.clone();
        if let Some(map) = object.as_object_mut() {
            for (from, to) in self.renames.iter().copied().map(from_to) {
                if let Some(value) = map.remove(from) {
                    map.insert(to.to_owned(), value);
                }
            }
            map.insert("apiVersion".to_owned(), self.api_version().into());
            map.insert("kind".to_owned(), self.kind.as_str().into());
        }
        object
    }
}

fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

// === impl Resources ===

impl Default for Resources {
    fn default() -> Self {
        Self { all: BUILT_IN.iter().map(|row| Arc::new(Resource::built_in(row))).collect() }
    }
}

impl Resources {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.all.iter()
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.iter().find(|own| own.group == group && own.version == version && own.plural == plural)
    }

    /// The first resource of this kind; built-in ones come first.
    pub(crate) fn of_kind(&self, kind: &str) -> Option<&Arc<Resource>> {
        self.iter().find(|own| own.kind == kind)
    }

    /// The resource by which objects kept under `storage` are handled when nobody said a version.
    pub(crate) fn stored(&self, storage: &str) -> Option<&Arc<Resource>> {
        self.iter().find(|own| &*own.storage == storage)
    }

    /// Replaces what the definition that is kept under `storage` defined before.
    pub(crate) fn redefine(&mut self, storage: &str, defined: Vec<Resource>) {
        self.all.retain(|own| !own.is_custom() || &*own.storage != storage);
        self.all.extend(defined.into_iter().map(Arc::new));
    }
}
