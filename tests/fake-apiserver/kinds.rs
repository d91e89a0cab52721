//! What the API server fills in and refuses for single kinds. No more of it than clients of this project can notice.

use std::net::IpAddr;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use super::object::{self, Object, copy, items, map_at, metadata, text};
use super::quantity;
use super::resource::Resource;
use super::status::{Answer, Fault, Refusal};
use super::target::Target;

mod webhooks;

/// Completes an object that is about to be created.
pub(crate) fn prepare(resource: &Resource, object: &mut Object) -> Answer<()> {
    complete(resource, object)?;
    if resource.has("status") && !matches!(resource.kind.as_str(), "Node" | "CustomResourceDefinition") {
        // Nodes alone bring their status along: the kubelet registers with it.
        object::map(object).remove("status");
    }
    match resource.kind.as_str() {
        _ if resource.is_custom() => {}
        "Pod" => {
            let class = quality(object);
            object::map(object).insert("status".to_owned(), json!({ "phase": "Pending", "qosClass": class }));
        }
        "Event" if resource.group == "events.k8s.io" => event(resource, object)?,
        "Namespace" => {
            let name = object::name(object).to_owned();
            map_at(map_of(object, "metadata"), "labels").insert("kubernetes.io/metadata.name".to_owned(), name.into());
            map_at(object, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
            map_at(object, "status").insert("phase".to_owned(), "Active".into());
        }
        _ => {}
    }
    Ok(())
}

/// Fills in what every object of a kind has.
pub(crate) fn complete(resource: &Resource, object: &mut Object) -> Answer<()> {
    if !resource.is_custom() {
        // Go's structs know no null: such a field is as good as absent.
        object::drop_nulls(object);
    }
    quantity::canonicalize(object);
    match resource.kind.as_str() {
        _ if resource.is_custom() => {}
        "Pod" => pod(object),
        "Service" => {
            map_at(object, "spec").entry("type").or_insert_with(|| "ClusterIP".into());
        }
        "Secret" => secret(object)?,
        "EndpointSlice" => endpoint_slice(resource, object)?,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => webhooks::complete(resource, object)?,
        "CustomResourceDefinition" => definition(object),
        _ => {}
    }
    Ok(())
}

/// Completes an object that is about to replace `live`, and refuses what can't be changed.
pub(crate) fn revise(resource: &Resource, live: &Object, object: &mut Object) -> Answer<()> {
    complete(resource, object)?;
    match resource.kind.as_str() {
        _ if resource.is_custom() => Ok(()),
        "Pod" if fixed(live) != fixed(object) => {
            let message = "pod updates may not change fields other than `spec.containers[*].image`,\
                `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                previously negative)";
            Err(Refusal::invalid(resource, object::name(live), &[Fault::forbidden("spec", message)]))
        }
        "Pod" => {
            let names = |pod| items(pod, "/spec/schedulingGates").iter().map(|gate| text(gate, "/name"));
            let is_new = |(_, name): &(usize, &str)| !names(live).any(|known| known == *name);
            let Some((at, name)) = names(object).enumerate().find(is_new) else { return Ok(()) };
            let message = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            let fault = Fault::forbidden(&format!("spec.schedulingGates[{at}]"), &message);
            Err(Refusal::invalid(resource, object::name(live), &[fault]))
        }
        _ => Ok(()),
    }
}

/// What a write through `/status` leaves alone (`PrepareForUpdate` of the status strategies): everything but the
/// status, and of built-in kinds the metadata too, though a pod's owners stay.
pub(crate) fn restrict_to_status(resource: &Resource, live: &Object, object: &mut Object) {
    let status = object.get("status").cloned();
    let given = metadata(object).clone();
    *object = live.clone();
    match status {
        Some(status) => object::map(object).insert("status".to_owned(), status),
        None => object::map(object).remove("status"),
    };
    let own = metadata(object);
    if resource.is_custom() || resource.kind == "CustomResourceDefinition" {
        copy(own, Some(&given.into()), "managedFields");
        return;
    }
    *own = given;
    if resource.kind == "Pod" {
        copy(own, live.get("metadata"), "ownerReferences");
    }
}

// === pods ===

fn pod(pod: &mut Object) {
    let spec = map_at(pod, "spec");
    for (field, value) in [
        ("dnsPolicy", json!("ClusterFirst")),
        ("restartPolicy", json!("Always")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        spec.entry(field).or_insert(value);
    }
    if spec.get("schedulingGates").is_some_and(|gates| gates.as_array().is_some_and(Vec::is_empty)) {
        spec.remove("schedulingGates");
    }
    for field in ["initContainers", "containers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(request_limits);
    }
}

/// What is limited and not requested is requested as limited.
fn request_limits(container: &mut Value) {
    let resources = map_at(container, "resources");
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if !limits.is_empty() {
        let requests = object::map(resources.entry("requests").or_insert_with(|| json!({})));
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

/// The class of service, from CPU and memory alone.
fn quality(pod: &Object) -> &'static str {
    let containers = items(pod, "/spec/containers").iter().chain(items(pod, "/spec/initContainers"));
    let amounts = containers.flat_map(|container| {
        let amount = |of: &str, name: &str| container.pointer(&format!("/resources/{of}/{name}")).cloned();
        ["cpu", "memory"].map(|name| (amount("requests", name), amount("limits", name)))
    });
    let amounts: Vec<_> = amounts.collect();
    if amounts.iter().all(|(request, limit)| request.is_none() && limit.is_none()) {
        "BestEffort"
    } else if amounts.iter().all(|(request, limit)| limit.is_some() && request == limit) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// The part of a pod's spec that no update may change.
fn fixed(pod: &Object) -> Value {
    let mut spec = pod["spec"].clone();
    for field in ["activeDeadlineSeconds", "schedulingGates", "terminationGracePeriodSeconds", "tolerations"] {
        object::map(&mut spec).remove(field);
    }
    for field in ["containers", "initContainers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            object::map(container).remove("image");
        }
    }
    spec
}

/// What a write through `/ephemeralcontainers` leaves alone: everything but them.
pub(crate) fn restrict_to_ephemeral_containers(live: &Object, object: &mut Object) {
    let given = object.pointer("/spec/ephemeralContainers").cloned();
    let version = object.pointer("/metadata/resourceVersion").cloned();
    *object = live.clone();
    let spec = map_at(object, "spec");
    match given {
        Some(given) => spec.insert("ephemeralContainers".to_owned(), given),
        None => spec.remove("ephemeralContainers"),
    };
    metadata(object).extend(version.map(|version| ("resourceVersion".to_owned(), version)));
}

/// Binds a pod as `pods/{name}/binding` does: node, annotations and condition in one write.
pub(crate) fn bind(target: &Target, pod: &Object, binding: &Object) -> Answer<Object> {
    let (resource, name) = (&*target.resource, object::name(pod));
    let refuse = |why: String| Err(Refusal::conflict(resource, "/binding", name, &why));
    let (node, bound) = (text(binding, "/target/name"), text(pod, "/spec/nodeName"));
    if node.is_empty() {
        return Err(Refusal::invalid(resource, name, &[Fault::required("target.name", "")]));
    }
    let uid = text(binding, "/metadata/uid");
    if !uid.is_empty() && uid != object::uid(pod) {
        return Err(target.other_uid(uid, object::uid(pod)));
    }
    if object::is_deleting(pod) {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !bound.is_empty() {
        return refuse(format!("pod {name} is already assigned to node {bound:?}"));
    }
    if !items(pod, "/spec/schedulingGates").is_empty() {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    map_at(&mut pod, "spec").insert("nodeName".to_owned(), node.into());
    if let Some(added) = binding.pointer("/metadata/annotations").and_then(Value::as_object) {
        let annotations = metadata(&mut pod).entry("annotations").or_insert_with(|| Map::new().into());
        object::map(annotations).extend(added.clone());
    }
    let (kind, at) = ("PodScheduled", object::now());
    object::set_condition(&mut pod, json!({ "type": kind, "status": "True", "lastTransitionTime": at }));
    Ok(pod)
}

/// Seconds that a pod is left to end by itself.
pub(crate) fn grace(pod: &Object, asked: Option<i64>) -> i64 {
    let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    if ended || text(pod, "/spec/nodeName").is_empty() {
        return 0;
    }
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    asked.or(own).unwrap_or(30).max(0)
}

// === endpoint slices ===

/// Refuses addresses that no pod can have (`ValidateNonSpecialIP`): loopback ones.
fn endpoint_slice(resource: &Resource, slice: &Object) -> Answer<()> {
    for (at, endpoint) in items(slice, "/endpoints").iter().enumerate() {
        for (number, address) in items(endpoint, "/addresses").iter().enumerate() {
            let ip: Option<IpAddr> = address.as_str().and_then(|text| text.parse().ok());
            if ip.is_some_and(|ip| ip.is_loopback()) {
                let field = format!("endpoints[{at}].addresses[{number}]");
                let fault = Fault::invalid(&field, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
                return Err(Refusal::invalid(resource, object::name(slice), &[fault]));
            }
        }
    }
    Ok(())
}

// === events ===

/// Refuses an event of `events.k8s.io` that is incomplete or too long (`ValidateEventCreate`).
fn event(resource: &Resource, event: &Object) -> Answer<()> {
    let mut faults = Vec::new();
    if text(event, "/eventTime").is_empty() {
        faults.push(Fault::required("eventTime", ""));
    }
    for (field, kept, most) in [
        ("reportingController", "/reportingComponent", 128),
        ("reportingInstance", "/reportingInstance", 128),
        ("action", "/action", 128),
        ("reason", "/reason", 128),
        ("note", "/message", 1024),
    ] {
        let given = text(event, kept);
        if given.is_empty() && field != "note" {
            faults.push(Fault::required(field, ""));
        }
        if given.len() > most {
            faults.push(Fault::invalid(field, &"".into(), &format!("can have at most {most} characters")));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Refusal::invalid(resource, object::name(event), &faults)) }
}

// === secrets ===

/// Takes plain texts in among the encoded ones; they are never shown as such.
fn secret(secret: &mut Object) -> Answer<()> {
    object::map(secret).entry("type").or_insert_with(|| "Opaque".into());
    let plain = object::map(secret).remove("stringData").unwrap_or_default();
    for (key, text) in plain.as_object().into_iter().flatten() {
        let encoded = ByteString(text.as_str().unwrap_or_default().as_bytes().to_vec());
        map_at(secret, "data").insert(key.clone(), json!(encoded));
    }
    for value in secret["data"].as_object().into_iter().flatten().map(|(_, value)| value) {
        serde_json::from_value::<ByteString>(value.clone()).map_err(|error| {
            let what = "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data";
            Refusal::bad_request(format!("{what}: {error}"))
        })?;
    }
    Ok(())
}

// === custom resource definitions ===

/// Accepts the names of a definition and has it served.
fn definition(definition: &mut Object) {
    let names = map_at(map_of(definition, "spec"), "names");
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
    names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
    let accepted = names.clone();
    map_at(definition, "spec").entry("conversion").or_insert_with(|| json!({ "strategy": "None" }));
    let versions = items(definition, "/spec/versions").iter().filter(|version| version["storage"] == true);
    let stored: Vec<Value> = versions.map(|version| version["name"].clone()).collect();
    let status = map_at(definition, "status");
    status.insert("acceptedNames".to_owned(), accepted.into());
    status.insert("storedVersions".to_owned(), stored.into());
    for (kind, reason, message) in [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ] {
        let known = items(definition, "/status/conditions").iter().any(|condition| condition["type"] == kind);
        if !known {
            let mut condition = json!({ "type": kind, "status": "True", "reason": reason, "message": message });
            condition["lastTransitionTime"] = object::now().into();
            object::set_condition(definition, condition);
        }
    }
}

fn map_of<'a>(object: &'a mut Object, field: &str) -> &'a mut Value {
    map_at(object, field);
    &mut object[field]
}
