//! Deleting objects: grace, finalizers, and what goes along with an owner, a namespace or a definition.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::kinds;
use super::object::{self, Object, is_deleting, is_held, items, metadata, text};
use super::resource::Resource;
use super::status::{Answer, Refusal};
use super::store::{Key, Store};
use super::target::Target;

/// `v1.DeleteOptions`, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
}

// === impl DeleteOptions ===

impl DeleteOptions {
    pub(crate) fn of(body: &Value) -> Self {
        let precondition = |field| body.pointer(field).and_then(Value::as_str).map(String::from);
        Self {
            grace: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: precondition("/preconditions/uid"),
            version: precondition("/preconditions/resourceVersion"),
            dry_run: !items(body, "/dryRun").is_empty(),
        }
    }
}

/// Deletes an object, or starts to. Returns its last state, and whether it is gone.
pub(crate) fn delete(store: &mut Store, target: &Target, options: &DeleteOptions) -> Answer<(Arc<Object>, bool)> {
    let live = Arc::clone(target.live(store)?);
    check(target, &live, options)?;
    if options.dry_run {
        return Ok((live, false));
    }
    let (resource, key) = (&target.resource, target.key());
    let grace = if resource.kind == "Pod" { kinds::grace(&live, options.grace) } else { 0 };
    let left = live.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let contents = resource.kind == "Namespace" && !store.inside(&target.name).is_empty();
    if grace == 0 && !is_held(&live) && !contents {
        drop_now(store, &key);
        return Ok((live, true));
    }
    if is_deleting(&live) && left.is_some_and(|left| left <= grace) {
        return Ok((live, false));
    }
    let marked = store.put(key, mark(resource, &live, grace));
    if contents {
        empty(store, &target.name);
    }
    Ok((marked, false))
}

fn check(target: &Target, live: &Object, options: &DeleteOptions) -> Answer<()> {
    let version = text(live, "/metadata/resourceVersion");
    let refuse = |what: &str, wanted: &str, actual: &str, end: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). \
             The object might have been {end}"
        );
        Err(Refusal::precondition(&target.resource, &target.name, &why))
    };
    if let Some(uid) = options.uid.as_ref().filter(|uid| *uid != object::uid(live)) {
        return refuse("UID", uid, object::uid(live), "deleted and then recreated");
    }
    if let Some(wanted) = options.version.as_ref().filter(|wanted| *wanted != version) {
        return refuse("ResourceVersion", wanted, version, "modified");
    }
    Ok(())
}

/// The object with the time by which it should be gone.
fn mark(resource: &Resource, live: &Object, grace: i64) -> Object {
    let mut object = live.clone();
    let due = Timestamp::now().saturating_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    let generation = live.pointer("/metadata/generation").and_then(Value::as_i64);
    let own = metadata(&mut object);
    own.insert("deletionTimestamp".to_owned(), object::stamp(due).into());
    own.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    if let Some(generation) = generation.filter(|_| !is_deleting(live)) {
        own.insert("generation".to_owned(), (generation + 1).into());
    }
    if resource.kind == "Namespace" {
        object::map_at(&mut object, "status").insert("phase".to_owned(), "Terminating".into());
    }
    object
}

/// Whether nothing holds an object back any more that is being deleted.
pub(crate) fn is_done(object: &Object) -> bool {
    let left = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    is_deleting(object) && left.unwrap_or_default() == 0 && !is_held(object) && text(object, "/kind") != "Namespace"
}

/// Drops an object and everything that was there for its sake.
pub(crate) fn drop_now(store: &mut Store, key: &Key) {
    let Some(object) = store.get(key).cloned() else { return };
    let mut orphans = store.dependents(object::uid(&object));
    orphans.retain(|orphan| !has_other_owner(store, orphan, object::uid(&object)));
    if text(&object, "/kind") == "CustomResourceDefinition" {
        orphans.extend(store.stored(&key.name));
    }
    for orphan in &orphans {
        delete_key(store, orphan);
    }
    store.remove(key);
    finish_namespace(store, &key.namespace);
}

/// Whether another owner of the object still exists.
fn has_other_owner(store: &Store, key: &Key, gone: &str) -> bool {
    let Some(object) = store.get(key) else { return true };
    let mut owners = items(object, "/metadata/ownerReferences").iter();
    owners.any(|owner| {
        let (group, version) = text(owner, "/apiVersion").rsplit_once('/').unwrap_or(("", text(owner, "/apiVersion")));
        let of_kind =
            |own: &&Arc<Resource>| own.kind == text(owner, "/kind") && own.group == group && own.version == version;
        let (uid, name) = (text(owner, "/uid"), text(owner, "/name"));
        let storage = store.resources.iter().find(of_kind).map(|own| &own.storage);
        uid != gone && storage.is_some_and(|storage| store.is_alive(storage, &key.namespace, name, uid))
    })
}

fn delete_key(store: &mut Store, key: &Key) {
    let Some(resource) = store.resources.stored(&key.storage).cloned() else { return store.remove(key) };
    let target =
        Target { resource, namespace: key.namespace.clone(), name: key.name.clone(), subresource: String::new() };
    if let Err(refusal) = delete(store, &target, &DeleteOptions::default()) {
        tracing::debug!(?refusal, ?key, "it was gone before its owner");
    }
}

fn empty(store: &mut Store, namespace: &str) {
    for key in store.inside(namespace) {
        delete_key(store, &key);
    }
    finish_namespace(store, namespace);
}

/// Drops a namespace that waits for the last of its contents to go.
fn finish_namespace(store: &mut Store, namespace: &str) {
    let Some(resource) = store.resources.of_kind("Namespace") else { return };
    let key = Key::new(resource, "", namespace);
    let waits = store.get(&key).is_some_and(|own| is_deleting(own) && !is_held(own));
    if waits && store.inside(namespace).is_empty() {
        store.remove(&key);
    }
}
