//! Who owns which fields: `metadata.managedFields`, and the sets of paths in it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::object::{self, Object, items, metadata, text};
use super::shape::{ListType, Shape, key_of};

/// Fields of an object. Each step is written as in `fieldsV1`: `f:spec`, `k:{"name":"main"}`, `v:"a"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet(BTreeSet<Path>);

type Path = Vec<String>;

/// An entry of `metadata.managedFields`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    /// `Apply` or `Update`.
    pub(crate) operation: String,
    pub(crate) subresource: String,
    api_version: String,
    time: String,
    pub(crate) fields: FieldSet,
}

/// Fields at the top and of `metadata` that nobody owns.
const UNOWNED: &[&str] = &["apiVersion", "kind"];
const UNOWNED_METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

// === impl FieldSet ===

impl FieldSet {
    /// All fields of an object.
    pub(crate) fn of(object: &Object, shape: Shape<'_>) -> Self {
        let mut set = Self::default();
        let mut path = Path::new();
        for (field, value) in object.as_object().into_iter().flatten() {
            path.push(format!("f:{field}"));
            match value {
                _ if UNOWNED.contains(&field.as_str()) => {}
                Value::Object(metadata) if field == "metadata" => {
                    let owned = metadata.iter().filter(|(field, _)| !UNOWNED_METADATA.contains(&field.as_str()));
                    owned.for_each(|(field, value)| set.field(field, value, shape.field("metadata"), &mut path));
                }
                value => set.walk(value, shape.field(field), &mut path),
            }
            path.pop();
        }
        set
    }

    /// Fields of `new` that `old` lacks or has otherwise.
    pub(crate) fn changed(old: &Object, new: &Object, shape: Shape<'_>) -> Self {
        let differs = |path: &Path| match (at(old, path), at(new, path)) {
            (Some(old), Some(new)) => !is_item(path) && old != new,
            _ => true,
        };
        Self(Self::of(new, shape).0.into_iter().filter(differs).collect())
    }

    fn field(&mut self, field: &str, value: &Value, parent: Shape<'_>, path: &mut Path) {
        path.push(format!("f:{field}"));
        self.walk(value, parent.field(field), path);
        path.pop();
    }

    fn walk(&mut self, value: &Value, shape: Shape<'_>, path: &mut Path) {
        match (value, shape.list_type()) {
            (Value::Object(fields), _) if !fields.is_empty() && !shape.is_atomic_map() => {
                fields.iter().for_each(|(field, value)| self.field(field, value, shape, path));
            }
            (Value::Array(items), ListType::Set) if !items.is_empty() => {
                let steps = items.iter().map(|item| format!("v:{item}"));
                self.0.extend(steps.map(|step| [path.as_slice(), &[step]].concat()));
            }
            (Value::Array(items), ListType::Map(keys)) if !items.is_empty() => {
                for item in items {
                    let key = keys.iter().map(|key| (key.clone(), key_of(item, key))).collect();
                    path.push(format!("k:{}", Value::Object(key)));
                    self.0.insert(path.clone());
                    for (field, value) in item.as_object().into_iter().flatten() {
                        self.field(field, value, shape.item(), path);
                    }
                    path.pop();
                }
            }
            _ => drop(self.0.insert(path.clone())),
        }
    }

    fn from_v1(tree: &Value) -> Self {
        fn descend(tree: &Value, path: &mut Path, into: &mut BTreeSet<Path>) {
            let steps = tree.as_object().into_iter().flatten();
            let (own, inner): (Vec<_>, Vec<_>) = steps.partition(|(step, _)| *step == ".");
            if !path.is_empty() && (inner.is_empty() || !own.is_empty()) {
                into.insert(path.clone());
            }
            for (step, tree) in inner {
                path.push(step.clone());
                descend(tree, path, into);
                path.pop();
            }
        }
        let mut paths = BTreeSet::new();
        descend(tree, &mut Path::new(), &mut paths);
        Self(paths)
    }

    fn to_v1(&self) -> Value {
        let mut tree = json!({});
        // A field that is owned beside fields below it is marked by a dot.
        let inner = |path: &Path| self.has_below(path).then(|| ".".to_owned());
        for path in &self.0 {
            path.iter().cloned().chain(inner(path)).fold(&mut tree, |node, step| {
                let node = object::map(node).entry(step).or_insert(Value::Null);
                object::map(node);
                node
            });
        }
        tree
    }

    fn has_below(&self, path: &Path) -> bool {
        let mut from = self.0.range::<Path, _>((std::ops::Bound::Excluded(path), std::ops::Bound::Unbounded));
        from.next().is_some_and(|next| next.starts_with(path))
    }

    /// Whether it holds this path or one below.
    fn reaches(&self, path: &Path) -> bool {
        self.0.contains(path) || self.has_below(path)
    }
}

// === impl Entry ===

impl Entry {
    pub(crate) fn new(manager: &str, operation: &str, subresource: &str, object: &Object) -> Self {
        Self {
            manager: manager.to_owned(),
            operation: operation.to_owned(),
            subresource: subresource.to_owned(),
            api_version: text(object, "/apiVersion").to_owned(),
            time: object::now(),
            fields: FieldSet::default(),
        }
    }

    pub(crate) fn all_of(object: &Object) -> Vec<Self> {
        let entry = |entry: &Value| Self {
            manager: text(entry, "/manager").to_owned(),
            operation: text(entry, "/operation").to_owned(),
            subresource: text(entry, "/subresource").to_owned(),
            api_version: text(entry, "/apiVersion").to_owned(),
            time: text(entry, "/time").to_owned(),
            fields: FieldSet::from_v1(&entry["fieldsV1"]),
        };
        items(object, "/metadata/managedFields").iter().map(entry).collect()
    }

    pub(crate) fn is_of(&self, other: &Self) -> bool {
        (&self.manager, &self.operation, &self.subresource) == (&other.manager, &other.operation, &other.subresource)
    }

    /// As conflicts name it.
    fn describe(&self) -> String {
        let Self { manager, operation, subresource, api_version, time, fields: _ } = self;
        let through = if subresource.is_empty() { String::new() } else { format!(" with subresource {subresource:?}") };
        let since = if operation == "Update" { format!(" using {api_version} at {time}") } else { String::new() };
        format!("{manager:?}{through}{since}")
    }

    fn to_json(&self) -> Value {
        let Self { manager, operation, subresource, api_version, time, fields } = self;
        let mut entry = json!({
            "manager": manager, "operation": operation, "apiVersion": api_version, "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields.to_v1(),
        });
        if !subresource.is_empty() {
            entry["subresource"] = subresource.as_str().into();
        }
        entry
    }
}

/// Notes in `new` that `writer` changed it from `live`, and that nobody owns what is gone.
pub(crate) fn record(live: &Object, new: &mut Object, shape: Shape<'_>, writer: Entry) {
    let entries = Entry::all_of(if items(new, "/metadata/managedFields").is_empty() { live } else { new });
    let changed = FieldSet::changed(live, new, shape);
    let mut entries: Vec<Entry> = entries.into_iter().filter(|entry| !entry.manager.is_empty()).collect();
    for entry in &mut entries {
        let mine = entry.is_of(&writer);
        entry.fields.0.retain(|path| at(new, path).is_some() && (mine || !changed.0.contains(path)));
    }
    if !changed.0.is_empty() {
        let own = own_entry(&mut entries, writer);
        own.fields.0.extend(changed.0);
    }
    write(new, &entries);
}

/// The live object with `config` merged in as what `applier` wants; the conflicts are what it would take from others.
pub(crate) fn apply(
    live: &Object,
    config: &Object,
    shape: Shape<'_>,
    applier: Entry,
    force: bool,
) -> Result<Object, Vec<(String, String)>> {
    let wanted = FieldSet::of(config, shape);
    let mut entries = Entry::all_of(live);
    let mut conflicts = Vec::new();
    let taken_over = if applier.manager == "kubectl" { applied_before(live, shape) } else { FieldSet::default() };
    for entry in entries.iter_mut().filter(|entry| !entry.is_of(&applier)) {
        let disputed =
            |path: &&Path| !is_item(path) && entry.fields.0.contains(*path) && at(live, path) != at(config, path);
        let disputed: Vec<Path> = wanted.0.iter().filter(disputed).cloned().collect();
        let open = disputed.iter().filter(|path| !taken_over.0.contains(*path));
        conflicts.extend(open.map(|path| (entry.describe(), dotted(path))));
        entry.fields.0.retain(|path| !disputed.contains(path));
    }
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    let mut merged = overlay(live.clone(), config, shape);
    let before = entries.iter().find(|entry| entry.is_of(&applier)).map(|own| own.fields.clone()).unwrap_or_default();
    // An item comes before its fields, among them those that it is found by.
    for path in before.0.difference(&wanted.0) {
        let kept = entries.iter().any(|entry| !entry.is_of(&applier) && entry.fields.reaches(path));
        if !kept && !wanted.reaches(path) {
            remove(&mut merged, path);
        }
    }
    if before != wanted {
        own_entry(&mut entries, applier).fields = wanted;
    }
    write(&mut merged, &entries);
    Ok(merged)
}

/// What `kubectl apply` noted when it applied on the client's side and nobody has changed since: it may apply that on the
/// server's side without a conflict (apimachinery `lastappliedmanager.go`).
fn applied_before(live: &Object, shape: Shape<'_>) -> FieldSet {
    let noted = live.pointer("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration");
    let noted = noted.and_then(Value::as_str).and_then(|noted| serde_json::from_str::<Value>(noted).ok());
    let Some(noted) = noted else { return FieldSet::default() };
    let FieldSet(paths) = FieldSet::of(&noted, shape);
    FieldSet(paths.into_iter().filter(|path| at(live, path) == at(&noted, path)).collect())
}

/// The entry of `writer`, made if there is none, with a new time.
fn own_entry(entries: &mut Vec<Entry>, writer: Entry) -> &mut Entry {
    let at = entries.iter().position(|entry| entry.is_of(&writer)).unwrap_or_else(|| {
        entries.push(writer.clone());
        entries.len() - 1
    });
    let own = &mut entries[at];
    (own.time, own.api_version) = (writer.time, writer.api_version);
    own
}

fn write(object: &mut Object, entries: &[Entry]) {
    let entries: Vec<Value> = entries.iter().filter(|entry| !entry.fields.0.is_empty()).map(Entry::to_json).collect();
    metadata(object).insert("managedFields".to_owned(), entries.into());
}

/// Lays `config` over `live`: maps and keyed lists merge, sets unite, everything else is replaced.
fn overlay(live: Value, config: &Value, shape: Shape<'_>) -> Value {
    match (live, config, shape.list_type()) {
        (Value::Object(mut live), Value::Object(config), _) if !shape.is_atomic_map() => {
            for (field, wanted) in config {
                let old = live.remove(field).unwrap_or_default();
                live.insert(field.clone(), overlay(old, wanted, shape.field(field)));
            }
            Value::Object(live)
        }
        (Value::Array(mut live), Value::Array(config), ListType::Map(keys)) => {
            for wanted in config {
                let same = |item: &&mut Value| keys.iter().all(|key| key_of(item, key) == key_of(wanted, key));
                match live.iter_mut().find(same) {
                    Some(item) => *item = overlay(item.take(), wanted, shape.item()),
                    None => live.push(wanted.clone()),
                }
            }
            live.into()
        }
        (Value::Array(mut live), Value::Array(config), ListType::Set) => {
            live.extend(config.iter().filter(|item| !live.contains(item)).cloned().collect::<Vec<_>>());
            live.into()
        }
        (_, config, _) => config.clone(),
    }
}

/// Whether the path names an item of a list, not what is in it.
fn is_item(path: &Path) -> bool {
    path.last().is_some_and(|step| !step.starts_with("f:"))
}

/// Where an item is that the step names.
fn position(list: &[Value], step: &str) -> Option<usize> {
    let wanted: Value = serde_json::from_str(step.get(2..)?).ok()?;
    list.iter().position(|item| match (&wanted, step.starts_with("k:")) {
        (Value::Object(keys), true) => keys.iter().all(|(key, value)| key_of(item, key) == *value),
        _ => *item == wanted,
    })
}

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| match step.strip_prefix("f:") {
        Some(field) => value.get(field),
        None => value.as_array().and_then(|list| list.get(position(list, step)?)),
    })
}

/// Removes what the path names, and the maps that are empty without it.
fn remove(value: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else { return };
    match (value, step.strip_prefix("f:")) {
        (Value::Object(map), Some(field)) => {
            if let Some(inner) = map.get_mut(field) {
                remove(inner, rest);
                let empty = inner.as_object().is_some_and(serde_json::Map::is_empty) || inner == &json!([]);
                if rest.is_empty() || empty {
                    map.remove(field);
                }
            }
        }
        (Value::Array(list), None) => {
            if let Some(at) = position(list, step) {
                if rest.is_empty() {
                    list.remove(at);
                } else {
                    remove(&mut list[at], rest);
                }
            }
        }
        _ => {}
    }
}

/// The path as conflicts show it: `.spec.containers[name="main"].image`.
fn dotted(path: &Path) -> String {
    let step = |step: &String| match (step.get(..2), step.get(2..).unwrap_or_default()) {
        (Some("k:"), keys) => {
            let keys: serde_json::Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        (Some("v:"), value) => format!("[={value}]"),
        (_, field) => format!(".{field}"),
    };
    path.iter().map(step).collect()
}
