//! Pods that wait for a node, and pods whose node hasn't reported their GPUs yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_index::Index;
use divvy_index::demand::Demand;
use divvy_index::pod::PodView;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize as _, Serialize};

use super::Inner;

/// A pod that requests GPUs and hasn't started.
pub(super) struct PodEntry {
    pub(super) namespace: String,
    pub(super) name: String,
    demand: Arc<Demand>,
    /// Everything but the verdict.
    content: Content,
    /// What the page is sent; nothing while the node's report shows its GPUs.
    pub(super) json: Option<Arc<str>>,
    /// Number of the change that it is of.
    pub(super) version: u64,
    /// Number of the change at which it was looked at last where it fits.
    judged: u64,
}

/// A pod as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    uid: String,
    namespace: String,
    name: String,
    /// When it was created, as the API server writes it.
    created: Option<String>,
    priority: i32,
    /// `waiting` or `bound`.
    phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nominated: Option<String>,
    /// What its containers request.
    asks: String,
    /// Models that alone will do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<String>,
    /// What its scheduler said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Where it fits, in a sentence.
    verdict: String,
    /// Nodes that have GPUs for it now; of many the best few are counted.
    fitting: usize,
}

/// Longest look at where one pod fits.
const PATIENCE: Duration = Duration::from_millis(50);

// === impl Inner ===

impl Inner {
    pub(super) fn apply_pod(&mut self, index: &Index, pod: &Pod, version: u64) {
        let value = serde_json::to_value(pod).unwrap_or_default();
        let Ok(view) = PodView::deserialize(&value) else { return };
        index.apply_pod(&view, Instant::now());
        let uid: Arc<str> = view.uid.as_str().into();
        let node = view.node.clone();
        match Demand::read(&view, index.config()) {
            Ok(Some(demand)) => {
                let before = self.pods.remove(&uid);
                let mut entry = PodEntry::new(pod, view, demand, before);
                entry.judge(index);
                self.pods.insert(Arc::clone(&uid), entry);
                self.render_pod(&uid, version);
            }
            _ => drop(self.pods.remove(&uid)),
        }
        if let Some(node) = node {
            self.render_node(index, &node, version);
        }
    }

    pub(super) fn remove_pod(&mut self, index: &Index, uid: &str, version: u64) {
        index.delete_pod(uid);
        let removed = self.pods.remove(uid);
        if let Some(node) = removed.and_then(|pod| pod.content.node) {
            self.render_node(index, &node, version);
        }
    }

    /// Looks again where waiting pods fit: first at those that were looked at longest ago, of these at the oldest. The last look
    /// begins within `patience`; whether that was enough for all.
    pub(super) fn judge_pods(&mut self, index: &Index, patience: Duration, version: u64) -> bool {
        let begun = Instant::now();
        index.expire(begun);
        let waiting = self.pods.iter().filter(|(_, pod)| pod.content.node.is_none());
        let mut all: Vec<(u64, Option<String>, Arc<str>)> =
            waiting.map(|(uid, pod)| (pod.judged, pod.content.created.clone(), Arc::clone(uid))).collect();
        all.sort_unstable();
        for (_, _, uid) in all {
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            pod.judged = version;
            if pod.judge(index) {
                self.render_pod(&uid, version);
            }
            if begun.elapsed() >= patience {
                return false;
            }
        }
        true
    }

    /// Writes the content of the pods of a node anew: its report may show their GPUs.
    pub(super) fn render_pods_of(&mut self, node: &str, version: u64) {
        let of_node = self.pods.iter().filter(|(_, pod)| pod.content.node.as_deref() == Some(node));
        for uid in of_node.map(|(uid, _)| Arc::clone(uid)).collect::<Vec<_>>() {
            self.render_pod(&uid, version);
        }
    }

    fn render_pod(&mut self, uid: &str, version: u64) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let node = pod.content.node.as_deref().and_then(|name| self.nodes.get(name));
        let json = (!node.is_some_and(|node| node.holds(uid)))
            .then(|| serde_json::to_string(&pod.content).expect("texts, numbers and lists always serialise").into());
        if pod.json != json {
            (pod.json, pod.version) = (json, version);
        }
    }
}

// === impl PodEntry ===

impl PodEntry {
    fn new(pod: &Pod, view: PodView, demand: Demand, before: Option<Self>) -> Self {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut unscheduled =
            conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
        let requests = demand.containers.iter().filter_map(|container| Some((&container.name, container.request?)));
        let is_one = demand.claiming() == 1;
        let asks =
            requests.map(|(name, request)| if is_one { request.to_string() } else { format!("{name}: {request}") });
        let asks = asks.collect::<Vec<_>>().join("; ");
        let PodView { uid, namespace, name, priority, node, nominated, .. } = view;
        let (verdict, fitting) =
            before.map(|before| (before.content.verdict, before.content.fitting)).unwrap_or_default();
        let content = Content {
            uid,
            namespace: namespace.clone(),
            name: name.clone(),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()),
            priority,
            phase: if node.is_some() { "bound" } else { "waiting" },
            node,
            nominated,
            asks,
            models: demand.preferences.models.clone(),
            reason: unscheduled.next().and_then(|condition| condition.message.clone()),
            verdict,
            fitting,
        };
        Self { namespace, name, demand: Arc::new(demand), content, json: None, version: 0, judged: 0 }
    }

    /// Looks where the pod fits now; whether that is another answer.
    fn judge(&mut self, index: &Index) -> bool {
        let (verdict, fitting) = if let Some(node) = &self.content.node {
            (format!("bound to node {node}, which hasn't reported its GPUs yet"), 0)
        } else {
            let feasibility = index.snapshot_for(&self.demand).feasibility(&self.demand, PATIENCE);
            (feasibility.to_string(), feasibility.best.len())
        };
        let is_new = self.content.verdict != verdict || self.content.fitting != fitting;
        (self.content.verdict, self.content.fitting) = (verdict, fitting);
        is_new
    }
}
