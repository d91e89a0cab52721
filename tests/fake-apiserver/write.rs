//! Creating and changing objects: what every write has in common.

use std::sync::Arc;

use rand::seq::IndexedRandom as _;
use serde_json::Value;
use uuid::Uuid;

use super::fields::{self, Entry};
use super::kinds;
use super::object::{self, Object, copy, metadata, text};
use super::remove;
use super::resource::Resource;
use super::shape::Shape;
use super::status::{Answer, Fault, Refusal};
use super::store::{Key, Store};
use super::target::Target;

/// Who writes, and how.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    /// The field manager.
    pub(crate) manager: String,
    /// Answer as if, and keep nothing.
    pub(crate) dry_run: bool,
    /// The object says already who owns its fields.
    pub(crate) recorded: bool,
}

/// A write that is worked out and not yet made.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Where it is written; the name is empty until the server has made one up.
    pub(crate) target: Target,
    pub(crate) writer: Writer,
    /// What it replaces; `None` for a new object.
    pub(crate) live: Option<Arc<Object>>,
    /// As it is to be kept, up to now.
    pub(crate) object: Object,
    entry: Entry,
}

/// What a new object doesn't bring along.
const OF_THE_SERVER: [&str; 6] =
    ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "resourceVersion", "selfLink", "uid"];

/// Creates an object and returns it as it is kept.
pub(crate) fn create(store: &mut Store, target: &Target, shown: &Object, writer: &Writer) -> Answer<Arc<Object>> {
    let mut draft = Draft::create(store, target, shown, writer)?;
    draft.settle()?;
    draft.commit(store)
}

/// Replaces an object by what `change` makes of it, and returns it as it is kept.
pub(crate) fn update(
    store: &mut Store,
    target: &Target,
    writer: &Writer,
    change: impl FnOnce(&Object) -> Answer<Object>,
) -> Answer<Arc<Object>> {
    let mut draft = Draft::update(store, target, writer, change)?;
    draft.settle()?;
    draft.commit(store)
}

// === impl Draft ===

impl Draft {
    /// A new object, as the client wants it and with the defaults of its kind.
    pub(crate) fn create(store: &Store, target: &Target, shown: &Object, writer: &Writer) -> Answer<Self> {
        let resource = &target.resource;
        check_version(resource, shown)?;
        let mut object = resource.keep(shown);
        settle_namespace(target, &mut object)?;
        check_namespace(store, target, &object)?;
        let own = metadata(&mut object);
        for field in OF_THE_SERVER {
            own.remove(field);
        }
        kinds::complete(resource, &mut object)?;
        let entry = Entry::new(&writer.manager, "Update", "", shown);
        Ok(Self { target: target.clone(), writer: writer.clone(), live: None, object, entry })
    }

    /// What `change` makes of an object, as far as the client may change it.
    pub(crate) fn update(
        store: &Store,
        target: &Target,
        writer: &Writer,
        change: impl FnOnce(&Object) -> Answer<Object>,
    ) -> Answer<Self> {
        let resource = &target.resource;
        let live = Arc::clone(target.live(store)?);
        let shown = change(&resource.show(&live))?;
        check_version(resource, &shown)?;
        let mut object = resource.keep(&shown);
        check_same(target, &live, &object)?;
        object::keep_identity(&mut object, &live);
        match target.subresource.as_str() {
            "status" => kinds::restrict_to_status(resource, &live, &mut object),
            "ephemeralcontainers" => kinds::restrict_to_ephemeral_containers(&live, &mut object),
            "" if resource.has("status") => copy(object::map(&mut object), Some(&live), "status"),
            _ => {}
        }
        if target.subresource.is_empty() {
            kinds::complete(resource, &mut object)?;
        }
        let entry = Entry::new(&writer.manager, "Update", &target.subresource, &shown);
        Ok(Self { target: target.clone(), writer: writer.clone(), live: Some(live), object, entry })
    }

    /// The object as clients see it.
    pub(crate) fn shown(&self) -> Object {
        self.target.resource.show(&self.object)
    }

    /// Takes what a webhook has made of it.
    pub(crate) fn replace(&mut self, shown: &Object) -> Answer<()> {
        self.object = self.target.resource.keep(shown);
        kinds::complete(&self.target.resource, &mut self.object)
    }

    /// Adds what only the server writes. Nothing but looking at it may come between this and [`commit`](Self::commit).
    pub(crate) fn settle(&mut self) -> Answer<()> {
        let Self { target, writer, live, object, entry } = self;
        let resource = &target.resource;
        if let Some(live) = live {
            object::keep_identity(object, live);
            if target.subresource.is_empty() {
                kinds::revise(resource, live, object)?;
            } else {
                super::quantity::canonicalize(object);
            }
            if resource.generations && wanted(live) != wanted(object) {
                let generation = live.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
                metadata(object).insert("generation".to_owned(), (generation + 1).into());
            }
            copy(metadata(object), live.get("metadata"), "resourceVersion");
        } else {
            target.name = settle_name(resource, object)?;
            let own = metadata(object);
            own.insert("uid".to_owned(), Uuid::new_v4().to_string().into());
            own.insert("creationTimestamp".to_owned(), object::now().into());
            if resource.generations {
                own.insert("generation".to_owned(), 1.into());
            }
            kinds::prepare(resource, object)?;
            if !writer.recorded {
                metadata(object).remove("managedFields");
            }
        }
        if !writer.recorded {
            let before = live.as_deref().unwrap_or(&Value::Null);
            fields::record(before, object, Shape::of(resource), entry.clone());
        }
        Ok(())
    }

    /// Whether somebody else has changed the object since.
    pub(crate) fn is_stale(&self, store: &Store) -> bool {
        let same = |live: &Arc<Object>| store.get(&self.target.key()).is_some_and(|now| Arc::ptr_eq(now, live));
        self.live.as_ref().is_some_and(|live| !same(live))
    }

    /// Writes it, and returns it as it is kept.
    pub(crate) fn commit(self, store: &mut Store) -> Answer<Arc<Object>> {
        let Self { target, writer, live, object, entry: _ } = self;
        let key = target.key();
        match live {
            None => {
                check_namespace(store, &target, &object)?;
                if store.get(&key).is_some() {
                    return Err(Refusal::already_exists(&target.resource, &target.name));
                }
            }
            Some(live) if *live == object => return Ok(live),
            Some(_) => {}
        }
        if writer.dry_run {
            return Ok(Arc::new(object));
        }
        let done = remove::is_done(&object);
        let written = store.put(key.clone(), object);
        if done {
            remove::drop_now(store, &key);
        }
        Ok(written)
    }
}

/// Changes an object and its status at once, as no client can.
pub(crate) fn overwrite(store: &mut Store, target: &Target, change: impl FnOnce(&mut Object)) -> Answer<Arc<Object>> {
    let live = Arc::clone(target.live(store)?);
    let mut shown = target.resource.show(&live);
    change(&mut shown);
    let mut object = target.resource.keep(&shown);
    object::keep_identity(&mut object, &live);
    Ok(store.put(target.key(), object))
}

/// What a generation counts: everything but metadata and status.
fn wanted(object: &Object) -> Object {
    let mut object = object.clone();
    object::map(&mut object).retain(|field, _| !matches!(field.as_str(), "metadata" | "status" | "apiVersion"));
    object
}

fn check_version(resource: &Resource, object: &Object) -> Answer<()> {
    let (given, expected) = (text(object, "/apiVersion"), resource.api_version());
    if !object.is_object() {
        return Err(Refusal::bad_request("couldn't get version/kind; the body is no object"));
    }
    if !given.is_empty() && given != expected {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        )));
    }
    let kind = text(object, "/kind");
    if !kind.is_empty() && kind != resource.kind {
        let Resource { version, kind: own, group, .. } = resource;
        let group = group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
        return Err(Refusal::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {own}: converting ({version}.{kind}) to ({group}.{own}): \
             unknown conversion"
        )));
    }
    Ok(())
}

/// The name, identity and version in the data must be those of the object that is there.
fn check_same(target: &Target, live: &Object, object: &Object) -> Answer<()> {
    let Target { resource, name, namespace, .. } = target;
    let given = object::name(object);
    if given != name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let given = object::namespace(object);
    if resource.namespaced && !given.is_empty() && given != namespace {
        return Err(wrong_namespace());
    }
    let (given, uid) = (object::uid(object), object::uid(live));
    if !given.is_empty() && given != uid {
        return Err(target.other_uid(given, uid));
    }
    let given = text(object, "/metadata/resourceVersion");
    if given.is_empty() && !resource.may_be_overwritten() {
        return Err(Refusal::no_version(resource, name));
    }
    if !given.is_empty() && given != text(live, "/metadata/resourceVersion") {
        return Err(Refusal::modified(resource, name));
    }
    Ok(())
}

fn wrong_namespace() -> Refusal {
    Refusal::bad_request("the namespace of the provided object does not match the namespace sent on the request")
}

fn settle_namespace(target: &Target, object: &mut Object) -> Answer<()> {
    let Target { resource, namespace, .. } = target;
    if !resource.namespaced {
        metadata(object).remove("namespace");
        return Ok(());
    }
    if !matches!(object::namespace(object), "") && object::namespace(object) != namespace {
        return Err(wrong_namespace());
    }
    metadata(object).insert("namespace".to_owned(), namespace.as_str().into());
    Ok(())
}

/// Whether new objects may live where this one is to.
fn check_namespace(store: &Store, target: &Target, object: &Object) -> Answer<()> {
    let Target { resource, namespace, .. } = target;
    let Some(namespaces) = store.resources.of_kind("Namespace").filter(|_| resource.namespaced) else { return Ok(()) };
    let own = store.get(&Key::new(namespaces, "", namespace));
    let own = own.ok_or_else(|| Refusal::not_found(namespaces, namespace))?;
    if object::is_deleting(own) {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(Refusal::forbidden(resource, object::name(object), &why));
    }
    Ok(())
}

fn settle_name(resource: &Resource, object: &mut Object) -> Answer<String> {
    let prefix = text(object, "/metadata/generateName").to_owned();
    let mut name = object::name(object).to_owned();
    if name.is_empty() && prefix.is_empty() {
        let fault = Fault::required("metadata.name", "name or generateName is required");
        return Err(Refusal::invalid(resource, "", &[fault]));
    }
    if name.is_empty() {
        // Neither vowels nor digits that look like them, so that no suffix is a word.
        let mut rng = rand::rng();
        let suffix =
            (0..5).filter_map(|_| b"bcdfghjklmnpqrstvwxz2456789".choose(&mut rng)).map(|&byte| char::from(byte));
        name = prefix.chars().chain(suffix).collect();
        metadata(object).insert("name".to_owned(), name.as_str().into());
    }
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '.');
    let edge = |c: char| c.is_ascii_alphanumeric();
    let sound = name.len() <= 253 && name.chars().all(allowed) && name.starts_with(edge) && name.ends_with(edge);
    if !sound && resource.group != "rbac.authorization.k8s.io" {
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
            and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
            '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        return Err(Refusal::invalid(
            resource,
            &name,
            &[Fault::invalid("metadata.name", &name.as_str().into(), message)],
        ));
    }
    Ok(name)
}
