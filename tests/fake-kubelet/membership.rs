//! What the kubelet has to do with an API server: its Node, the pods that are bound to it, and what it says of them.
//!
//! In process, past tokens and faults: an API server that is cut off from everybody else still has its kubelets. Nor does
//! it end with the kubelet's process: pods that come while there is none are admitted by the next.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Kubelet;
use super::core::{Core, State};
use super::devices::Health;
use super::pods::Pod;
use super::record::Gone;
use super::status;
use divvy_api::quantity::parse_count;
use fake_apiserver::{ApiServer, Feed, News, Refusal};

/// For how long changes are gathered before they are written.
const GATHER: Duration = Duration::from_millis(100);

/// The kubelet belongs to a cluster until this is dropped.
#[derive(Debug)]
pub struct Membership {
    _end: DropGuard,
}

/// What the API server was told last.
#[derive(Default)]
struct Told {
    /// By UID.
    pods: HashMap<String, Statement>,
    /// How many pods were removed there, of all that have gone.
    gone: usize,
    /// Devices by resource: all, and the healthy ones.
    devices: BTreeMap<String, (usize, usize)>,
}

/// A pod's status, and whose it is.
#[derive(Clone, PartialEq)]
struct Statement {
    namespace: String,
    name: String,
    /// `None` until its first admission has ended: a kubelet says nothing of a pod before.
    status: Option<v1::PodStatus>,
}

// === impl Kubelet ===

impl Kubelet {
    /// Creates the Node; from then on runs the pods that are bound to it and writes their statuses.
    pub fn join(&self, server: &Arc<ApiServer>) -> Result<Membership, Refusal> {
        server.create(&node(&self.core.node_name))?;
        let end = CancellationToken::new();
        let (feed, there) = server.feed("Pod");
        let followed = follow(Arc::clone(&self.core), feed, there);
        let (feed, there) = server.feed("Node");
        let informed = follow_node(Arc::clone(&self.core), feed, there);
        let reported = report(Arc::clone(&self.core), Arc::clone(server));
        let until = end.clone();
        tokio::spawn(async move {
            tokio::select! { () = until.cancelled() => {}, () = followed => {}, () = informed => {}, () = reported => {} }
        });
        Ok(Membership { _end: end.drop_guard() })
    }
}

/// As a kubelet registers it.
fn node(name: &str) -> Value {
    let amounts = json!({ "cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110" });
    let conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let conditions = conditions.map(|(kind, status, reason, message)| {
        json!({ "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now })
    });
    let labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels }, "spec": {},
        "status": {
            "capacity": amounts, "allocatable": amounts, "conditions": conditions,
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }, { "type": "Hostname", "address": name }],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "playground", "kernelVersion": "none",
                "containerRuntimeVersion": "none", "kubeletVersion": "v1.36.0-stand-in", "kubeProxyVersion": "",
                "bootID": "", "machineID": "", "systemUUID": "",
            },
        },
    })
}

/// Takes pods in, and what becomes of them.
async fn follow(core: Arc<Core>, mut feed: Feed, mut news: Vec<News>) {
    loop {
        for News { before, after } in news {
            let own = |pod: &Option<Arc<Value>>| {
                pod.as_deref().is_some_and(|pod| pod.pointer("/spec/nodeName") == Some(&json!(core.node_name)))
            };
            if !own(&before) && !own(&after) {
                continue;
            }
            let told = match (before, after) {
                // One that was bound before and isn't known any more has ended here.
                (before, Some(pod)) if !own(&before) => core.take_in(&pod),
                (_, Some(pod)) => core.hear(&pod),
                (Some(pod), None) => core.tell(uid(&pod), Pod::delete).map_err(Into::into),
                (None, None) => Ok(()),
            };
            if let Err(error) = told {
                tracing::debug!(%error, node = core.node_name, "a pod of the API server");
            }
        }
        news = feed.next().await;
    }
}

/// Takes over the amounts of the Node, as the informer has them that admission asks.
async fn follow_node(core: Arc<Core>, mut feed: Feed, mut news: Vec<News>) {
    loop {
        let own = |node: &Arc<Value>| node.pointer("/metadata/name") == Some(&json!(core.node_name));
        if let Some(node) = news.into_iter().filter_map(|news| news.after).rfind(own) {
            let amounts = node.pointer("/status/allocatable").and_then(Value::as_object).into_iter().flatten();
            let amount = |(name, amount): (&String, &Value)| {
                let is_extended = name.contains('/') && !name.starts_with("kubernetes.io/");
                let amount = amount.as_str().and_then(|text| parse_count(text).ok());
                amount.filter(|_| is_extended).map(|amount| (name.clone(), amount))
            };
            let amounts = amounts.filter_map(amount).collect();
            core.update(|state| state.allocatable = amounts);
        }
        news = feed.next().await;
    }
}

fn uid(pod: &Value) -> &str {
    pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

/// Writes what has changed, again and again.
async fn report(core: Arc<Core>, server: Arc<ApiServer>) {
    let (mut changes, mut told) = (core.changes(), Told::default());
    let mut statuses = tokio::time::interval(core.timing.node_status);
    statuses.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        changes.borrow_and_update();
        let (statements, gone, devices) =
            core.read(|state| (state.statements(), state.record.gone[told.gone..].to_vec(), state.device_counts()));
        told.tell_pods(&server, statements);
        told.tell_gone(&server, &gone);
        told.tell_devices(&server, &core.node_name, devices);
        tokio::select! {
            news = changes.changed() => if news.is_err() { return },
            // A status says what the devices are, whatever somebody else has written meanwhile.
            _ = statuses.tick() => told.devices.clear(),
        }
        tokio::time::sleep(GATHER).await;
    }
}

// === impl Core ===

impl Core {
    /// A pod that was bound to this node.
    fn take_in(&self, object: &Value) -> anyhow::Result<()> {
        self.add(Pod::new(serde_json::from_value(object.clone())?)?)?;
        self.hear(object)
    }

    /// A pod of this node that may have changed.
    fn hear(&self, object: &Value) -> anyhow::Result<()> {
        let object: v1::Pod = serde_json::from_value(object.clone())?;
        let deleting = object.metadata.deletion_timestamp.is_some();
        let differs = |pod: &Pod| {
            let (known, now) = (&pod.object.metadata, &object.metadata);
            known.annotations != now.annotations || known.labels != now.labels || deleting != pod.deleted.is_some()
        };
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        if self.read(|state| state.pod(uid).is_some_and(differs)) {
            self.tell(uid, |pod| {
                pod.relabel(&object);
                if deleting {
                    pod.delete();
                }
            })?;
        }
        Ok(())
    }
}

// === impl State ===

impl State {
    fn statements(&self) -> HashMap<String, Statement> {
        let statement = |pod: &Pod| Statement {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            status: pod.outcome.borrow().is_some().then(|| status::status(pod)),
        };
        self.pods.iter().map(|pod| (pod.uid.clone(), statement(pod))).collect()
    }

    fn device_counts(&self) -> BTreeMap<String, (usize, usize)> {
        let counts = |Health { healthy, unhealthy }: &Health| (healthy.len() + unhealthy.len(), healthy.len());
        self.devices.known.iter().map(|(resource, health)| (resource.clone(), counts(health))).collect()
    }
}

// === impl Told ===

impl Told {
    fn tell_pods(&mut self, server: &ApiServer, statements: HashMap<String, Statement>) {
        for (uid, Statement { namespace, name, status }) in &statements {
            let Some(status) = status else { continue };
            if self.pods.get(uid).is_some_and(|told| told.status.as_ref() == Some(status)) {
                continue;
            }
            // One that was dropped meanwhile, or never came from there, is nobody's business.
            drop(server.edit("Pod", namespace, name, |pod| {
                if self::uid(pod) == uid {
                    let class = pod["status"]["qosClass"].take();
                    pod["status"] = json!(status);
                    pod["status"]["qosClass"] = class;
                }
            }));
        }
        self.pods = statements;
    }

    /// Also of those that came and went between two rounds.
    fn tell_gone(&mut self, server: &ApiServer, gone: &[Gone]) {
        for Gone { uid, namespace, name } in gone {
            drop(server.remove("Pod", namespace, name, uid));
        }
        self.gone += gone.len();
    }

    fn tell_devices(&mut self, server: &ApiServer, node: &str, devices: BTreeMap<String, (usize, usize)>) {
        if self.devices == devices {
            return;
        }
        let is_shown = |node: &Value| {
            devices.iter().all(|(resource, (all, healthy))| {
                let amounts = [("capacity", all), ("allocatable", healthy)];
                amounts.iter().all(|(kind, amount)| node["status"][*kind][resource] == amount.to_string())
            })
        };
        if server.get("Node", "", node).is_some_and(|node| is_shown(&node)) {
            self.devices = devices;
            return;
        }
        let written = server.edit("Node", "", node, |node| {
            for (resource, (all, healthy)) in &devices {
                node["status"]["capacity"][resource] = all.to_string().into();
                node["status"]["allocatable"][resource] = healthy.to_string().into();
            }
        });
        if written.is_ok() {
            self.devices = devices;
        }
    }
}
