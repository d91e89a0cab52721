//! How lists and maps merge: by key, as sets, or as a whole.
//!
//! The API's Go types say it field by field in struct tags. Field names say the same but for `ports`, so one table does
//! for all built-in kinds; custom resources say it in their schema.

use serde_json::Value;

/// How two lists become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The newer one.
    Atomic,
    /// All members of both.
    Set,
    /// Item by item, matched by these fields. A strategic merge patch knows the first one only.
    Map(Vec<String>),
}

/// A place in an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape<'a> {
    /// In a built-in kind; the field's name and whether it is within a Service.
    BuiltIn { field: &'a str, service: bool },
    /// In a custom resource, with the schema of this place; null where the schema says nothing.
    Custom { schema: &'a Value, root: bool },
}

/// Fields whose lists are maps, and their keys.
const MAPS: &[(&str, &[&str])] = &[
    ("addresses", &["type"]),
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("matchConditions", &["name"]),
    ("ownerReferences", &["uid"]),
    ("podIPs", &["ip"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("secrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("variables", &["name"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
    ("webhooks", &["name"]),
];

/// Fields whose maps are atomic to an apply; a strategic merge patch merges them.
const ATOMIC_MAPS: &[&str] = &[
    "configMapKeyRef",
    "fieldRef",
    "involvedObject",
    "labelSelector",
    "namespaceSelector",
    "nodeSelector",
    "objectSelector",
    "resourceFieldRef",
    "roleRef",
    "secretKeyRef",
    "selector",
];

const NOTHING: &Value = &Value::Null;

// === impl Shape ===

impl<'a> Shape<'a> {
    /// The shape of a whole object.
    pub(crate) fn of(resource: &'a super::resource::Resource) -> Self {
        match &resource.schema {
            Some(schema) => Self::Custom { schema, root: true },
            None => Self::BuiltIn { field: "", service: resource.kind == "Service" },
        }
    }

    pub(crate) fn field(self, name: &'a str) -> Self {
        match self {
            Self::Custom { root: true, .. } if name == "metadata" => Self::BuiltIn { field: name, service: false },
            Self::Custom { schema, .. } => {
                let own = schema.get("properties").and_then(|properties| properties.get(name));
                Self::Custom {
                    schema: own.or_else(|| schema.get("additionalProperties")).unwrap_or(NOTHING),
                    root: false,
                }
            }
            Self::BuiltIn { service, .. } => Self::BuiltIn { field: name, service },
        }
    }

    /// The items of a list here.
    pub(crate) fn item(self) -> Self {
        match self {
            Self::Custom { schema, .. } => Self::Custom { schema: schema.get("items").unwrap_or(NOTHING), root: false },
            Self::BuiltIn { service, .. } => Self::BuiltIn { field: "", service },
        }
    }

    /// How a list here merges.
    pub(crate) fn list_type(self) -> ListType {
        let map = |keys: &[&str]| ListType::Map(keys.iter().map(|&key| key.to_owned()).collect());
        match self {
            Self::BuiltIn { field: "finalizers" | "podCIDRs", .. } => ListType::Set,
            Self::BuiltIn { field: "ports", service: false } => map(&["containerPort", "protocol"]),
            Self::BuiltIn { field: "ports", service: true } => map(&["port", "protocol"]),
            Self::BuiltIn { field, .. } => {
                MAPS.iter().find(|(own, _)| *own == field).map_or(ListType::Atomic, |(_, keys)| map(keys))
            }
            Self::Custom { schema, .. } => match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListType::Set,
                Some("map") => {
                    let keys = super::object::items(schema, "/x-kubernetes-list-map-keys");
                    ListType::Map(keys.iter().filter_map(Value::as_str).map(String::from).collect())
                }
                _ => ListType::Atomic,
            },
        }
    }

    /// Whether an apply owns a map here as a whole.
    pub(crate) fn is_atomic_map(self) -> bool {
        match self {
            Self::BuiltIn { field, .. } => ATOMIC_MAPS.contains(&field),
            Self::Custom { schema, .. } => schema["x-kubernetes-map-type"] == "atomic",
        }
    }
}

/// The value of a key field; `protocol` is the one that has a default.
pub(crate) fn key_of(item: &Value, field: &str) -> Value {
    match item.get(field) {
        Some(value) => value.clone(),
        None if field == "protocol" => "TCP".into(),
        None => Value::Null,
    }
}
