//! Cells that take more than a look at one field, as the printers of the API server make them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::{is_deleting, items, text};

/// How long ago, in at most two units (apimachinery `duration.HumanDuration`).
pub(crate) fn age(since: &str) -> String {
    match since.parse::<Timestamp>() {
        Ok(since) => human(Timestamp::now().as_second() - since.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, of: &str, small: i64, part: &str| {
        if small == 0 { format!("{big}{of}") } else { format!("{big}{of}{small}{part}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

pub(crate) fn age_of(object: &Value) -> Value {
    age(text(object, "/metadata/creationTimestamp")).into()
}

fn or_none(texts: &[String]) -> Value {
    if texts.is_empty() { "<none>".into() } else { texts.join(",").into() }
}

fn first_of<'a>(object: &'a Value, pointers: &[&str]) -> &'a str {
    pointers.iter().map(|pointer| text(object, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}

fn is_true(condition: Option<&Value>) -> bool {
    condition.is_some_and(|condition| condition["status"] == "True")
}

// === pods ===

fn container_statuses(pod: &Value) -> &[Value] {
    items(pod, "/status/containerStatuses")
}

pub(crate) fn pod_ready(pod: &Value) -> Value {
    let ready = container_statuses(pod).iter().filter(|status| status["ready"] == true).count();
    format!("{ready}/{}", items(pod, "/spec/containers").len()).into()
}

/// The phase, or a reason that says more: of the pod, of an init container under way, of a container.
pub(crate) fn pod_status(pod: &Value) -> Value {
    let (phase, reason) = (text(pod, "/status/phase"), text(pod, "/status/reason"));
    if is_deleting(pod) && !matches!(phase, "Succeeded" | "Failed") {
        return if reason == "NodeLost" { "Unknown".into() } else { "Terminating".into() };
    }
    if reason.is_empty() && phase == "Pending" && !items(pod, "/spec/schedulingGates").is_empty() {
        return "SchedulingGated".into();
    }
    let why = initializing(pod).or_else(|| container_statuses(pod).iter().find_map(stopped));
    let plain = if reason.is_empty() { phase } else { reason };
    why.unwrap_or_else(|| plain.to_owned()).into()
}

fn initializing(pod: &Value) -> Option<String> {
    let statuses = items(pod, "/status/initContainerStatuses");
    let total = items(pod, "/spec/initContainers").len();
    let done = |status: &Value| status.pointer("/state/terminated/exitCode") == Some(&json!(0));
    let (at, status) = statuses.iter().enumerate().find(|(_, status)| !done(status) && status["started"] != true)?;
    match stopped(status).filter(|reason| reason != "PodInitializing") {
        Some(reason) => Some(format!("Init:{reason}")),
        None => Some(format!("Init:{at}/{total}")),
    }
}

/// Why a container doesn't run.
fn stopped(status: &Value) -> Option<String> {
    let reason = first_of(status, &["/state/waiting/reason", "/state/terminated/reason"]);
    let code = status.pointer("/state/terminated/exitCode");
    if reason.is_empty() { code.map(|code| format!("ExitCode:{code}")) } else { Some(reason.to_owned()) }
}

pub(crate) fn pod_restarts(pod: &Value) -> Value {
    let counts = container_statuses(pod).iter().filter_map(|status| status["restartCount"].as_i64());
    counts.sum::<i64>().to_string().into()
}

pub(crate) fn readiness_gates(pod: &Value) -> Value {
    let gates = items(pod, "/spec/readinessGates");
    let met = gates.iter().filter(|gate| is_true(condition(pod, text(gate, "/conditionType")))).count();
    if gates.is_empty() { "<none>".into() } else { format!("{met}/{}", gates.len()).into() }
}

// === nodes ===

pub(crate) fn node_status(node: &Value) -> Value {
    let ready = match condition(node, "Ready") {
        None => "Unknown",
        ready if is_true(ready) => "Ready",
        Some(_) => "NotReady",
    };
    let cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    if cordoned { format!("{ready},SchedulingDisabled").into() } else { ready.into() }
}

pub(crate) fn node_roles(node: &Value) -> Value {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flat_map(|labels| labels.keys());
    let roles = labels.filter_map(|label| label.strip_prefix("node-role.kubernetes.io/"));
    or_none(&roles.map(String::from).collect::<Vec<_>>())
}

pub(crate) fn node_address(node: &Value, kind: &str) -> Value {
    let address = items(node, "/status/addresses").iter().find(|address| address["type"] == kind);
    address.map_or_else(|| "<none>".into(), |address| address["address"].clone())
}

// === events ===

pub(crate) fn event_last(event: &Value) -> Value {
    age(first_of(event, &["/series/lastObservedTime", "/lastTimestamp", "/firstTimestamp", "/eventTime"])).into()
}

pub(crate) fn event_first(event: &Value) -> Value {
    age(first_of(event, &["/firstTimestamp", "/eventTime"])).into()
}

pub(crate) fn event_object(event: &Value) -> Value {
    let (kind, name) = (text(event, "/involvedObject/kind"), text(event, "/involvedObject/name"));
    format!("{}/{name}", kind.to_lowercase()).into()
}

pub(crate) fn event_source(event: &Value) -> Value {
    first_of(event, &["/source/component", "/reportingComponent"]).into()
}

pub(crate) fn event_count(event: &Value) -> Value {
    event.pointer("/series/count").or_else(|| event.get("count")).cloned().unwrap_or_else(|| 1.into())
}

// === workloads ===

pub(crate) fn containers(workload: &Value, field: &str) -> Value {
    let containers = items(workload, "/spec/template/spec/containers").iter();
    containers.map(|container| container[field].as_str().unwrap_or_default()).collect::<Vec<_>>().join(",").into()
}

pub(crate) fn labels(object: &Value, pointer: &str) -> Value {
    let labels = object.pointer(pointer).and_then(Value::as_object);
    let pairs =
        labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    or_none(&pairs.collect::<Vec<_>>())
}

fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

pub(crate) fn replicas_ready(workload: &Value) -> Value {
    let ready = number(workload, "/status/readyReplicas").unwrap_or_default();
    format!("{ready}/{}", number(workload, "/spec/replicas").unwrap_or(1)).into()
}

/// A field that is true or false, and false if it is missing, as words.
pub(crate) fn flag(object: &Value, pointer: &str) -> Value {
    (object.pointer(pointer) == Some(&Value::Bool(true))).to_string().into()
}

pub(crate) fn job_status(job: &Value) -> Value {
    let ends = [("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")];
    let end = ends.iter().find(|(kind, _)| is_true(condition(job, kind))).map(|(_, shown)| *shown);
    end.unwrap_or(if is_deleting(job) { "Terminating" } else { "Running" }).into()
}

pub(crate) fn job_completions(job: &Value) -> Value {
    let done = number(job, "/status/succeeded").unwrap_or_default();
    format!("{done}/{}", number(job, "/spec/completions").unwrap_or(1)).into()
}

pub(crate) fn job_duration(job: &Value) -> Value {
    let at = |pointer: &str| text(job, pointer).parse::<Timestamp>().ok();
    let Some(start) = at("/status/startTime") else { return "".into() };
    let end = at("/status/completionTime").unwrap_or_else(Timestamp::now);
    human(end.as_second() - start.as_second()).into()
}

// === the rest ===

pub(crate) fn data(object: &Value) -> Value {
    let of = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    (of("data") + of("binaryData")).into()
}

pub(crate) fn count(object: &Value, pointer: &str) -> Value {
    items(object, pointer).len().into()
}

pub(crate) fn role(binding: &Value) -> Value {
    format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name")).into()
}

pub(crate) fn ports(service: &Value) -> Value {
    let port = |port: &Value| format!("{}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP"));
    or_none(&items(service, "/spec/ports").iter().map(port).collect::<Vec<_>>())
}
