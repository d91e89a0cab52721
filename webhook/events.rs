//! Events on pending pods: why no node can run them, and again when the reason has changed; with our gate a condition too, as
//! no scheduler says anything of them.
//!
//! kube-scheduler's events are about single attempts, node by node; these are about the whole cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::installation::WEBHOOK;
use divvy_index::Index;
use divvy_index::demand::Demand;
use divvy_runtime::api_server::{ApiServer, Requests};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::json;

use crate::planner::{is_outdated, placed_condition};

/// Sends events on pending pods.
pub struct PodEvents {
    index: Arc<Index>,
    client: Client,
    recorder: Recorder,
    requests: Requests,
    sent: Sent,
}

/// Events that were sent, by pod.
#[derive(Debug, Default)]
struct Sent {
    pods: HashMap<Arc<str>, Patience>,
}

#[derive(Debug)]
struct Patience {
    /// When it was first seen pending.
    since: Instant,
    /// The last event, and when it was sent.
    last: Option<(String, Instant)>,
}

/// The request, as it is logged.
const REQUEST: &str = "create events";
/// Request for a condition, as it is logged.
const CONDITION_REQUEST: &str = "patch pods/status (conditions)";
/// Reason of the event and of the condition.
const REASON: &str = "NoNodeFits";
/// Interval between rounds.
const PERIOD: Duration = Duration::from_secs(5);
/// Time after which a pending pod gets an event.
const PENDING_FOR: Duration = Duration::from_secs(30);
/// Time for a pod with our gate: nobody else tells of it.
const GATED_FOR: Duration = Duration::from_secs(3);
/// Time after which an unchanged reason is sent again; the API server deletes events after an hour.
const LASTS: Duration = Duration::from_secs(600);
/// Longest search for nodes for one shape of pods.
const PATIENCE: Duration = Duration::from_millis(2);
/// Most events in one round; the rest follow in the next.
const MOST: usize = 50;

// === impl PodEvents ===

impl PodEvents {
    /// Prepares to send events on the pods of this index.
    pub fn new(api_server: ApiServer, index: Arc<Index>, replica: &str) -> Self {
        let reporter = Reporter { controller: WEBHOOK.to_owned(), instance: Some(replica.to_owned()) };
        let ApiServer { client, requests } = api_server;
        let recorder = Recorder::new(client.clone(), reporter);
        Self { index, client, recorder, requests, sent: Sent::default() }
    }

    /// Sends events while `leads`, for ever.
    pub async fn run(mut self, leads: impl Fn() -> bool) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let waiting = if leads() { self.index.waiting() } else { Vec::new() };
            // Each shape takes milliseconds in a large cluster: those of the runtime's threads answer calls.
            let index = Arc::clone(&self.index);
            let mut sent = std::mem::take(&mut self.sent);
            let search = move || {
                let due = sent.due(&waiting, Instant::now(), |demand| why_not(&index, demand));
                (sent, due)
            };
            let Ok((sent, due)) = tokio::task::spawn_blocking(search).await else { continue };
            self.sent = sent;
            for (demand, note) in due {
                if !leads() {
                    break;
                }
                // Those before it took their time: the planner may have placed it since, and said so. A pod without the gate may say
                // that it is placed, as it was once.
                if self.index.is_queued(&demand.uid) {
                    self.condition(&demand, &note).await;
                }
                self.send(&demand, note).await;
            }
        }
    }

    /// Says in the pod's status why it waits. The planner says when it does no longer.
    async fn condition(&self, demand: &Demand, note: &str) {
        let condition = placed_condition("False", REASON, note);
        let change = json!({ "metadata": { "uid": &*demand.uid }, "status": { "conditions": [condition] } });
        let pods = Api::<Pod>::namespaced(self.client.clone(), &demand.namespace);
        match pods.patch_status(&demand.name, &PatchParams::default(), &Patch::Strategic(change)).await {
            Ok(_) => self.requests.succeeded(CONDITION_REQUEST),
            Err(error) if is_outdated(&error) => {}
            Err(error) => self.requests.failed(CONDITION_REQUEST, &error, PERIOD),
        }
    }

    async fn send(&self, demand: &Demand, note: String) {
        let pod = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(demand.namespace.clone()),
            name: Some(demand.name.clone()),
            uid: Some(demand.uid.to_string()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Warning,
            reason: REASON.to_owned(),
            note: Some(note),
            action: "Scheduling".to_owned(),
            secondary: None,
        };
        match self.recorder.publish(&event, &pod).await {
            Ok(()) => self.requests.succeeded(REQUEST),
            Err(error) => self.requests.failed(REQUEST, &error, PERIOD),
        }
    }
}

// === impl Sent ===

impl Sent {
    /// Pods that are due for an event, and its note.
    fn due(
        &mut self,
        waiting: &[Arc<Demand>],
        now: Instant,
        why_not: impl Fn(&Demand) -> Option<String>,
    ) -> Vec<(Arc<Demand>, String)> {
        let uids: HashSet<&str> = waiting.iter().map(|demand| &*demand.uid).collect();
        self.pods.retain(|uid, _| uids.contains(&**uid));
        let mut due = Vec::new();
        // Pods of one shape have one answer; those of a Job wait by the thousand.
        let mut reasons = HashMap::new();
        // A first reason goes before another's repetition: there may be more waiting pods than are told in ten minutes.
        let mut waiting: Vec<&Arc<Demand>> = waiting.iter().collect();
        waiting.sort_by_key(|demand| self.pods.get(&demand.uid).is_some_and(|patience| patience.last.is_some()));
        for demand in waiting {
            let patience = self.pods.entry(Arc::clone(&demand.uid)).or_insert(Patience { since: now, last: None });
            let pending_for = if demand.scheduling.is_ours() { GATED_FOR } else { PENDING_FOR };
            if due.len() == MOST || now.duration_since(patience.since) < pending_for {
                continue;
            }
            let alike = (demand.class(), demand.group.clone());
            let Some(reason) = reasons.entry(alike).or_insert_with(|| why_not(demand)) else { continue };
            let note = shortened(reason.clone());
            // Numbers change all the time, and the events with them would be many.
            let stands =
                |(last, at): &(String, Instant)| words(last).eq(words(&note)) && now.duration_since(*at) < LASTS;
            if !patience.last.as_ref().is_some_and(stands) {
                patience.last = Some((note.clone(), now));
                due.push((Arc::clone(demand), note));
            }
        }
        due
    }
}

/// Why no node can take the pod.
fn why_not(index: &Index, demand: &Demand) -> Option<String> {
    let is_planned_here = demand.scheduling.is_ours() || index.is_queued(&demand.uid);
    let snapshot = index.snapshot_for(demand);
    if is_planned_here { snapshot.why_unplaced(demand) } else { snapshot.feasibility(demand, PATIENCE).refusal() }
}

/// The text without its numbers.
fn words(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| !c.is_ascii_digit())
}

/// The API server refuses notes of more than 1024 bytes (`ValidateEvent`, `NoteLengthLimit`).
fn shortened(mut note: String) -> String {
    const LONGEST: usize = 1024;
    if note.len() > LONGEST {
        let most = LONGEST - '…'.len_utf8();
        let end = note.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= most).last();
        note.truncate(end.unwrap_or(0));
        note.push('…');
    }
    note
}

#[cfg(test)]
mod tests {
    use divvy_api::gpunode::GpuNode;
    use divvy_api::names::GATE;
    use divvy_index::demand::{PlannedPods, SchedulingConfig};
    use divvy_index::fixture::{node, pod, share, status};
    use divvy_index::pod::{PodView, SchedulingTerms};
    use divvy_index::{Index, NodeObject, Unschedulable};

    use super::*;

    fn full(name: &str) -> GpuNode {
        let mut full = node(name, 1);
        let share = share(&full, "other", 0, 40, 100);
        status(&mut full).shares.push(share);
        full
    }

    fn due(sent: &mut Sent, index: &Index, now: Instant) -> Vec<String> {
        sent.due(&index.waiting(), now, |demand| why_not(index, demand)).into_iter().map(|(_, note)| note).collect()
    }

    #[test]
    fn pending_pod_gets_an_event_again_when_the_reason_changes() {
        let index = Index::new(SchedulingConfig::default());
        index.apply_gpu_node("n1", &full("n1"));
        let (mut sent, start) = (Sent::default(), Instant::now());
        index.apply_pod(&pod("patient", 1, 8, 30), start);
        assert!(due(&mut sent, &index, start).is_empty(), "the scheduler has just been asked");
        let later = start + PENDING_FOR;
        let why = "0/1 nodes are available: 1 Insufficient GPUs (1 held exclusively by another pod)";
        assert_eq!(due(&mut sent, &index, later), [why]);
        assert!(due(&mut sent, &index, later + PERIOD).is_empty(), "the same again");
        index.apply_gpu_node("n2", &full("n2"));
        assert!(due(&mut sent, &index, later + PERIOD).is_empty(), "only numbers have changed");
        index.apply_gpu_node("n2", divvy_api::gpunode::GpuNodeReport::default());
        assert_eq!(due(&mut sent, &index, later + PERIOD).len(), 1, "it has changed");
        assert_eq!(due(&mut sent, &index, later + PERIOD + LASTS).len(), 1, "the event may be gone");
        index.apply_gpu_node("n2", &node("n2", 1));
        assert!(due(&mut sent, &index, later + 2 * LASTS).is_empty(), "there is room: the scheduler's affair");
        index.delete_pod("patient");
        assert!(due(&mut sent, &index, later + 3 * LASTS).is_empty());
        assert!(sent.pods.is_empty());
    }

    #[test]
    fn gated_pod_gets_its_event_soon_with_all_that_is_in_its_way() {
        let schedulers = vec!["s".to_owned()];
        let planned = PlannedPods { schedulers, groups_alone: false };
        let index = Index::new(SchedulingConfig { planned, ..SchedulingConfig::default() });
        index.apply_gpu_node("n1", &full("n1"));
        index.apply_gpu_node("n2", &node("n2", 1));
        let cordoned = Some(Unschedulable::Cordoned);
        index.apply_node("n2", NodeObject { unschedulable: cordoned, ..NodeObject::default() });
        let terms =
            SchedulingTerms { scheduler: "s".to_owned(), gates: vec![GATE.to_owned()], ..SchedulingTerms::default() };
        let (mut sent, start) = (Sent::default(), Instant::now());
        index.apply_pod(&PodView { scheduling: terms.into(), ..pod("patient", 1, 8, 30) }, start);
        assert!(due(&mut sent, &index, start).is_empty(), "it is about to be planned");
        let why = "0/2 nodes are available: 1 Insufficient GPUs (held exclusively by another pod), \
                   1 node(s) were cordoned (GPUs fit)";
        assert_eq!(due(&mut sent, &index, start + GATED_FOR), [why]);
        assert!(due(&mut sent, &index, start + PENDING_FOR).is_empty());
    }

    #[test]
    fn first_reason_of_a_pod_goes_before_repetitions() {
        let index = Index::new(SchedulingConfig::default());
        index.apply_gpu_node("n1", &full("n1"));
        let start = Instant::now();
        for number in 0..=MOST {
            index.apply_pod(&pod(&format!("p{number}"), 1, 8, 30), start);
        }
        let (mut sent, waiting) = (Sent::default(), index.waiting());
        let mut told = |now| {
            let due = sent.due(&waiting, now, |demand| why_not(&index, demand));
            due.into_iter().map(|(demand, _)| demand.uid.to_string()).collect::<HashSet<_>>()
        };
        assert!(told(start).is_empty());
        let first = told(start + PENDING_FOR);
        let again = told(start + PENDING_FOR + LASTS);
        assert_eq!((first.len(), first.union(&again).count()), (MOST, MOST + 1));
    }

    #[test]
    fn event_notes_fit_the_limit_of_the_api_server() {
        assert_eq!(shortened("ä".repeat(600)).len(), 1023);
        assert_eq!(shortened("short".to_owned()), "short");
    }
}
