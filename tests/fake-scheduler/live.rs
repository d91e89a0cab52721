//! The scheduler at work: one pod after another gets its node, as kube-scheduler's `ScheduleOne` does it.
//!
//! ```text
//! API server ──nodes, pods──▶ known, queue ──pod──▶ filter, score ──▶ bind ──▶ API server
//!                                ▲                  │  extender  │      │
//!                                └── refused, why ──┴────────────┴──────┘
//! ```
//!
//! Filter and prioritize calls never overlap; bindings run beside them, and their pods count as placed meanwhile. Reads
//! and writes of its own go past the API server's socket; the extender's don't.
//!
//! What it doesn't do: preempt, sample nodes in large clusters (it looks at all), volumes, affinity between pods, topology
//! spreading, priorities by class name. Events aren't merged into series.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::extender::{Client, Extender};
use super::known::{Known, MAX_SCORE, Reasons};
use super::queue::{Change, Obstacle, Pod, Queue, Waiting};
use fake_apiserver::object::{self, items, name, namespace, text, uid};
use fake_apiserver::{ApiServer, Feed, News};

/// The pods that it looks after, and who it says it is.
const NAME: &str = "default-scheduler";

/// The highest score an extender gives (`MaxExtenderPriority`).
const MAX_EXTENDER_SCORE: i64 = 10;

/// The longest text of an event.
const NOTE: usize = 1024;

/// A running scheduler; stops when dropped.
#[derive(Debug)]
pub struct Scheduler {
    _end: DropGuard,
}

struct Live {
    server: Arc<ApiServer>,
    extender: Option<Client>,
    known: Known,
    queue: Queue,
    bindings: JoinSet<Bound>,
    rng: StdRng,
}

/// What became of a binding.
struct Bound {
    waiting: Waiting,
    node: String,
    outcome: anyhow::Result<()>,
}

/// Where a pod is to go.
enum Choice {
    Node(String),
    Nowhere { why: String, by: Obstacle },
}

// === impl Scheduler ===

impl Scheduler {
    /// Schedules all pods of `default-scheduler` from now on. Equal seeds settle ties alike.
    pub fn start(server: &Arc<ApiServer>, extender: Option<Extender>, seed: u64) -> anyhow::Result<Self> {
        let extender = extender.map(Client::new).transpose()?;
        let known = Known::new(extender.as_ref().map(|own| own.config.ignored()).unwrap_or_default());
        let mut live = Live {
            server: Arc::clone(server),
            extender,
            known,
            queue: Queue::default(),
            bindings: JoinSet::new(),
            rng: StdRng::seed_from_u64(seed),
        };
        let ((nodes, nodes_there), (pods, pods_there)) = (server.feed("Node"), server.feed("Pod"));
        live.hear_of_nodes(nodes_there);
        live.hear_of_pods(&pods_there);
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(live.run(nodes, pods)));
        Ok(Self { _end: end.drop_guard() })
    }
}

// === impl Live ===

impl Live {
    async fn run(mut self, mut nodes: Feed, mut pods: Feed) {
        loop {
            let due = self.queue.due();
            tokio::select! {
                biased;
                news = nodes.next() => self.hear_of_nodes(news),
                news = pods.next() => self.hear_of_pods(&news),
                Some(Ok(bound)) = self.bindings.join_next() => self.settle(bound),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if let Some(waiting) = self.queue.pop(Instant::now()) {
                        self.schedule(waiting).await;
                    }
                }
            }
        }
    }

    fn hear_of_nodes(&mut self, news: Vec<News>) {
        for News { before, after } in news {
            match (before, after) {
                (before, Some(node)) => {
                    if let Some(change) = change_of(before.as_deref(), &node) {
                        self.queue.wake(change);
                    }
                    self.known.set_node(node);
                }
                (Some(node), None) => self.known.drop_node(name(&node)),
                (None, None) => {}
            }
        }
    }

    fn hear_of_pods(&mut self, news: &[News]) {
        for News { before, after } in news {
            let Some(pod) = after.as_ref().or(before.as_ref()) else { continue };
            let over = after.is_none() || matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
            let node = text(pod, "/spec/nodeName");
            if over || !node.is_empty() {
                self.queue.remove(uid(pod));
            }
            if over {
                if self.known.forget(uid(pod)) {
                    self.queue.wake(Change::PodGone);
                }
            } else if !node.is_empty() {
                self.known.place(pod, node);
                self.queue.wake(Change::PodPlaced);
            } else if is_ours(pod) && !self.known.is_placed(uid(pod)) {
                self.queue.put(self.known.read(Arc::clone(pod)));
            }
        }
    }

    async fn schedule(&mut self, waiting: Waiting) {
        let (reason, why, by) = match self.choose(&waiting.pod).await {
            Ok(Choice::Node(node)) => return self.bind(waiting, node),
            Ok(Choice::Nowhere { why, by }) => ("Unschedulable", why, Some(by)),
            Err(error) => ("SchedulerError", format!("{error:#}"), None),
        };
        self.say_why_not(&waiting.pod.object, reason, &why);
        self.queue.put_back(waiting, by, Instant::now());
    }

    async fn choose(&mut self, pod: &Pod) -> anyhow::Result<Choice> {
        let (mut fit, mut reasons) = self.known.filter(pod);
        let mut by = Obstacle::InTree;
        let extender = self.extender.as_ref().filter(|own| own.config.manages(&pod.object));
        if let Some(extender) = extender.filter(|_| !fit.is_empty()) {
            match extender.filter(pod, &fit).await {
                Ok(filtered) => {
                    if filtered.nodes.len() < fit.len() {
                        by = Obstacle::Extender;
                    }
                    reasons.extend(filtered.failed.into_iter().map(|(node, why)| (node, vec![why])));
                    fit = filtered.nodes;
                }
                Err(error) if extender.config.ignorable => tracing::info!(%error, "scheduling without the extender"),
                Err(error) => return Err(error),
            }
        }
        match fit.as_slice() {
            [] => Ok(Choice::Nowhere { why: nowhere(self.known.nodes(), &reasons), by }),
            [only] => Ok(Choice::Node(only.clone())),
            several => {
                let theirs = match extender {
                    // Whatever goes wrong here only costs the extender its say.
                    Some(extender) => extender.prioritize(pod, several).await.unwrap_or_default(),
                    None => BTreeMap::new(),
                };
                let own = self.known.scores(pod, several);
                let best = best(several, &own, &theirs);
                Ok(Choice::Node(best.choose(&mut self.rng).map_or_else(String::new, |best| (*best).clone())))
            }
        }
    }

    /// Counts the pod on the node, and binds it meanwhile.
    fn bind(&mut self, waiting: Waiting, node: String) {
        let pod = Arc::clone(&waiting.pod.object);
        self.known.place(&pod, &node);
        let binds = |own: &&Client| !own.config.bind_verb.is_empty() && own.config.manages(&pod);
        let (extender, server) = (self.extender.as_ref().filter(binds).cloned(), Arc::clone(&self.server));
        self.bindings.spawn(async move {
            let outcome = match extender {
                Some(extender) => match extender.bind(&pod, &node).await {
                    Err(error) if extender.config.ignorable => {
                        tracing::info!(%error, "binding without the extender");
                        bind_itself(&server, &pod, &node)
                    }
                    outcome => outcome,
                },
                None => bind_itself(&server, &pod, &node),
            };
            Bound { waiting, node, outcome }
        });
    }

    fn settle(&mut self, Bound { mut waiting, node, outcome }: Bound) {
        let pod = &waiting.pod.object;
        let Err(error) = outcome else {
            let done = format!("Successfully assigned {}/{} to {node}", namespace(pod), name(pod));
            return self.note(pod, "Normal", "Scheduled", "Binding", &done);
        };
        let now = self.server.get("Pod", namespace(pod), name(pod)).filter(|now| uid(now) == uid(pod));
        // It may be gone, or bound although the answer was lost.
        let Some(now) = now.filter(|now| text(now, "/spec/nodeName").is_empty()) else { return };
        self.known.forget(uid(&now));
        self.queue.wake(Change::PodGone);
        self.say_why_not(&now, "SchedulerError", &format!("{error:#}"));
        waiting.pod = self.known.read(Arc::new(now));
        self.queue.put_back(waiting, None, Instant::now());
    }

    /// In the pod's condition, and as an event.
    fn say_why_not(&self, pod: &Value, reason: &str, why: &str) {
        let (kind, at) = ("PodScheduled", object::now());
        let condition = json!({ "type": kind, "status": "False", "reason": reason, "message": why });
        let said = |pod: &Value| {
            let mut conditions = items(pod, "/status/conditions").iter();
            conditions
                .any(|own| ["type", "status", "reason", "message"].iter().all(|field| own[field] == condition[field]))
        };
        let known = self.server.get("Pod", namespace(pod), name(pod));
        if known.is_some_and(|known| uid(&known) == uid(pod) && !said(&known)) {
            let mut condition = condition.clone();
            condition["lastTransitionTime"] = at.into();
            // It may have been deleted meanwhile.
            drop(self.server.edit("Pod", namespace(pod), name(pod), |pod| object::set_condition(pod, condition)));
        }
        self.note(pod, "Warning", "FailedScheduling", "Scheduling", why);
    }

    fn note(&self, pod: &Value, kind: &str, reason: &str, action: &str, note: &str) {
        let about = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace(pod), "name": name(pod), "uid": uid(pod),
            "resourceVersion": pod["metadata"]["resourceVersion"],
        });
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": { "generateName": format!("{}.", name(pod)), "namespace": namespace(pod) },
            "eventTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            "type": kind, "reason": reason, "action": action, "regarding": about,
            "note": note.chars().take(NOTE).collect::<String>(),
            "reportingController": NAME, "reportingInstance": NAME,
        });
        if let Err(refusal) = self.server.create(&event) {
            tracing::debug!(%refusal, "an event of the scheduler");
        }
    }
}

fn bind_itself(server: &ApiServer, pod: &Value, node: &str) -> anyhow::Result<()> {
    server.bind(namespace(pod), name(pod), node, &json!({})).map(drop).map_err(Into::into)
}

fn is_ours(pod: &Value) -> bool {
    let deleting = pod.pointer("/metadata/deletionTimestamp").is_some();
    !deleting && text(pod, "/spec/schedulerName") == NAME && items(pod, "/spec/schedulingGates").is_empty()
}

/// What has changed that may make room; nothing for a heartbeat (`nodeSchedulingPropertiesChange`).
fn change_of(before: Option<&Value>, after: &Value) -> Option<Change> {
    let Some(before) = before else { return Some(Change::Node) };
    let conditions = |node: &Value| -> Vec<(Value, Value)> {
        items(node, "/status/conditions").iter().map(|own| (own["type"].clone(), own["status"].clone())).collect()
    };
    let same = |pointer: &str| before.pointer(pointer) == after.pointer(pointer);
    let own = ["/status/allocatable", "/metadata/labels", "/spec/taints", "/spec/unschedulable"];
    if !own.into_iter().all(same) || conditions(before) != conditions(after) {
        return Some(Change::Node);
    }
    (!same("/metadata/annotations")).then_some(Change::Annotations)
}

/// Why no node takes the pod, in the words of `FitError`.
fn nowhere(nodes: usize, reasons: &Reasons) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counts = BTreeMap::<&str, usize>::new();
    for reason in reasons.values().flatten() {
        *counts.entry(reason).or_default() += 1;
    }
    let mut lines: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    lines.sort();
    let lines = if lines.is_empty() { String::new() } else { format!(" {}.", lines.join(", ")) };
    format!("0/{nodes} nodes are available:{lines}")
}

/// The nodes with the highest sum of scores; more than one if they are equal.
fn best<'n>(nodes: &'n [String], own: &[i64], theirs: &BTreeMap<String, i64>) -> Vec<&'n String> {
    let theirs = |node: &String| theirs.get(node).copied().unwrap_or_default() * (MAX_SCORE / MAX_EXTENDER_SCORE);
    let scores: Vec<i64> = nodes.iter().zip(own).map(|(node, own)| own + theirs(node)).collect();
    let most = scores.iter().max();
    nodes.iter().zip(&scores).filter(|(_, score)| Some(*score) == most).map(|(node, _)| node).collect()
}
