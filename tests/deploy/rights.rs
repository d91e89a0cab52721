//! What divvy-webhook may do: all that its code does, and nothing that it doesn't.

use serde_json::{Value, json};

use crate::objects;

/// Something that the code asks of the API server.
struct Call {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    /// The one object; a list or a watch of one name is judged by that name.
    name: &'static str,
    namespace: &'static str,
}

const OWN: &str = "divvy-system";
const ANY: &str = "default";
const CLUSTER: &str = "";

const fn call(
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    name: &'static str,
    namespace: &'static str,
) -> Call {
    Call { verb, group, resource, name, namespace }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";

/// By module.
const CALLS: [Call; 41] = [
    // feed
    call("list", "", "pods", "", CLUSTER),
    call("watch", "", "pods", "", CLUSTER),
    call("list", "", "nodes", "", CLUSTER),
    call("watch", "", "nodes", "", CLUSTER),
    call("list", "divvy.dev", "gpunodes", "", CLUSTER),
    call("watch", "divvy.dev", "gpunodes", "", CLUSTER),
    call("list", "divvy.dev", "gpuquotas", "", CLUSTER),
    call("watch", "divvy.dev", "gpuquotas", "", CLUSTER),
    call("list", "scheduling.k8s.io", "podgroups", "", CLUSTER),
    call("watch", "scheduling.k8s.io", "podgroups", "", CLUSTER),
    call("list", "scheduling.x-k8s.io", "podgroups", "", CLUSTER),
    call("watch", "scheduling.x-k8s.io", "podgroups", "", CLUSTER),
    // readiness: policy 3 says of what
    call("get", "divvy.dev", "gpunodes", "node-1", CLUSTER),
    call("patch", "divvy.dev", "gpunodes/status", "node-1", CLUSTER),
    // soft_taints: policy 6 says of what
    call("get", "", "nodes", "node-1", CLUSTER),
    call("patch", "", "nodes", "node-1", CLUSTER),
    // planner: policies 7 and 8 say of what
    call("patch", "", "pods", "train", ANY),
    call("patch", "", "pods/status", "train", ANY),
    call("create", "", "pods/eviction", "train", ANY),
    // binder, serve::people
    call("create", "", "pods/binding", "train", ANY),
    call("get", "", "pods", "train", ANY),
    // waiting
    call("create", "events.k8s.io", "events", "", ANY),
    call("patch", "events.k8s.io", "events", "train.1", ANY),
    // access
    call("create", "authentication.k8s.io", "tokenreviews", "", CLUSTER),
    call("create", "authorization.k8s.io", "subjectaccessreviews", "", CLUSTER),
    // tls::bundle
    call("list", ADMISSION, MUTATING, "divvy-webhook", CLUSTER),
    call("watch", ADMISSION, MUTATING, "divvy-webhook", CLUSTER),
    call("patch", ADMISSION, MUTATING, "divvy-webhook", CLUSTER),
    call("list", ADMISSION, VALIDATING, "divvy-webhook", CLUSTER),
    call("watch", ADMISSION, VALIDATING, "divvy-webhook", CLUSTER),
    call("patch", ADMISSION, VALIDATING, "divvy-webhook", CLUSTER),
    // tls::secret
    call("create", "", "secrets", "", OWN),
    call("list", "", "secrets", "divvy-webhook-tls", OWN),
    call("watch", "", "secrets", "divvy-webhook-tls", OWN),
    call("update", "", "secrets", "divvy-webhook-tls", OWN),
    // lease
    call("create", "coordination.k8s.io", "leases", "", OWN),
    call("get", "coordination.k8s.io", "leases", "divvy-webhook", OWN),
    call("update", "coordination.k8s.io", "leases", "divvy-webhook", OWN),
    // endpoint_slice: the owner, and server-side apply, which creates what isn't there
    call("get", "", "services", "divvy-extender", OWN),
    call("create", "discovery.k8s.io", "endpointslices", "divvy-extender", OWN),
    call("patch", "discovery.k8s.io", "endpointslices", "divvy-extender", OWN),
];

/// What nobody who takes over the webhook should be able to do.
const FORBIDDEN: [Call; 15] = [
    call("list", "", "secrets", "", OWN),
    call("get", "", "secrets", "divvy-webhook-tls", ANY),
    call("update", "", "configmaps", "divvy-webhook", OWN),
    call("create", "", "configmaps", "", OWN),
    call("update", "", "pods", "train", ANY),
    call("delete", "", "pods", "train", ANY),
    call("patch", "", "pods/ephemeralcontainers", "train", ANY),
    call("patch", "", "pods/resize", "train", ANY),
    call("create", "", "pods", "", ANY),
    call("patch", ADMISSION, MUTATING, "another", CLUSTER),
    call("patch", "divvy.dev", "gpunodes", "node-1", CLUSTER),
    call("patch", "", "nodes/status", "node-1", CLUSTER),
    call("delete", "", "nodes", "node-1", CLUSTER),
    call("update", "coordination.k8s.io", "leases", "kube-scheduler", "kube-system"),
    call("patch", "discovery.k8s.io", "endpointslices", "divvy-webhook", OWN),
];

/// A rule of a role that is bound to the account, and where it counts; nowhere in particular: everywhere.
struct Rule {
    namespace: String,
    rule: Value,
}

// === impl Rule ===

impl Rule {
    fn has(&self, field: &str, value: &str) -> bool {
        self.rule[field].as_array().is_some_and(|values| values.iter().any(|entry| entry == value))
    }

    /// As `k8s.io/kubernetes/pkg/registry/rbac/validation` has it.
    fn allows(&self, call: &Call) -> bool {
        let here = self.namespace.is_empty() || self.namespace == call.namespace;
        let named = self.rule.get("resourceNames").is_none() || self.has("resourceNames", call.name);
        let what = self.has("apiGroups", call.group) && self.has("resources", call.resource);
        here && named && what && self.has("verbs", call.verb)
    }
}

/// The rules of all roles that are bound to an account.
fn rules(account: &str) -> Vec<Rule> {
    let objects = objects::all("deploy/manifests");
    let bindings = objects
        .iter()
        .filter(|object| object["subjects"].as_array().into_iter().flatten().any(|subject| subject["name"] == account));
    let of = |binding: &Value| {
        let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        let role = format!("{} {namespace}/{}", kind.as_str().unwrap(), name.as_str().unwrap());
        let rules = objects::find(&objects, &role)["rules"].as_array().unwrap().clone();
        rules.into_iter().map(move |rule| Rule { namespace: namespace.clone(), rule }).collect::<Vec<_>>()
    };
    bindings.flat_map(of).collect()
}

#[test]
fn the_webhook_may_do_what_its_code_does() {
    let rules = rules("divvy-webhook");
    let describe =
        |call: &Call| format!("{} {}.{} {} in {}", call.verb, call.resource, call.group, call.name, call.namespace);
    for call in &CALLS {
        assert!(rules.iter().any(|rule| rule.allows(call)), "{}", describe(call));
    }
    for call in &FORBIDDEN {
        assert!(!rules.iter().any(|rule| rule.allows(call)), "{}", describe(call));
    }
}

#[test]
fn the_webhook_may_do_nothing_else() {
    for Rule { namespace, rule } in rules("divvy-webhook") {
        let list = |field: &str| rule[field].as_array().cloned().unwrap_or_default();
        for resource in list("resources") {
            for verb in list("verbs") {
                let mut single = Rule { namespace: namespace.clone(), rule: rule.clone() };
                single.rule["resources"] = json!([resource]);
                single.rule["verbs"] = json!([verb]);
                assert!(CALLS.iter().any(|call| single.allows(call)), "nothing needs to {verb} {resource}");
            }
        }
    }
}
