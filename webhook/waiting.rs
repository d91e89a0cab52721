//! Events on pods that wait for cards: why, and again when the reason has changed.
//!
//! kube-scheduler says the same of single attempts, node by node; here it is said once, of the whole cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_index::Index;
use divvy_index::demand::{Demand, Shape};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::admission::Fit;
use crate::fit::fit;

/// Looks at waiting pods from time to time.
pub struct Waiting {
    index: Arc<Index>,
    recorder: Recorder,
    told: Told,
}

/// What pods have been told.
#[derive(Debug, Default)]
struct Told {
    pods: HashMap<Arc<str>, Patience>,
}

#[derive(Debug)]
struct Patience {
    /// When it was first seen to wait.
    since: Instant,
    /// What it was told last, and when.
    said: Option<(String, Instant)>,
}

/// How often pods are looked at.
const PERIOD: Duration = Duration::from_secs(15);
/// Pods that are placed at once need no event.
const UNTOLD: Duration = Duration::from_secs(30);
/// How long a reason stands before it is said again; the API server forgets events after an hour.
const LASTS: Duration = Duration::from_secs(600);
/// Events of one look; the others' turn comes at the next.
const MOST: usize = 50;

// === impl Waiting ===

impl Waiting {
    /// Will tell pods of this index.
    pub fn new(client: Client, index: Arc<Index>, replica: &str) -> Self {
        let reporter = Reporter { controller: "divvy-webhook".to_owned(), instance: Some(replica.to_owned()) };
        Self { index, recorder: Recorder::new(client, reporter), told: Told::default() }
    }

    /// Tells pods while `leads` says so, for ever.
    pub async fn run(mut self, leads: impl Fn() -> bool) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let waiting = if leads() { self.index.waiting() } else { Vec::new() };
            let due = self.told.due(&waiting, Instant::now(), |demand| fit(&self.index, demand));
            for (demand, note) in due {
                self.say(&demand, note).await;
            }
        }
    }

    async fn say(&self, demand: &Demand, note: String) {
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
            reason: "NoCards".to_owned(),
            note: Some(note),
            action: "Scheduling".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &pod).await {
            tracing::debug!(pod = %format_args!("{}/{}", demand.namespace, demand.name), %error, "no event");
        }
    }
}

// === impl Told ===

impl Told {
    /// Pods that are to be told something now.
    fn due(
        &mut self,
        waiting: &[Arc<Demand>],
        now: Instant,
        fit: impl Fn(&Demand) -> Fit,
    ) -> Vec<(Arc<Demand>, String)> {
        let uids: HashSet<&str> = waiting.iter().map(|demand| &*demand.uid).collect();
        self.pods.retain(|uid, _| uids.contains(&**uid));
        let mut due = Vec::new();
        // Pods of one shape have one answer; those of a Job wait by the thousand.
        let mut fits: HashMap<Shape, Fit> = HashMap::new();
        for demand in waiting {
            let patience = self.pods.entry(Arc::clone(&demand.uid)).or_insert(Patience { since: now, said: None });
            if due.len() == MOST || now.duration_since(patience.since) < UNTOLD {
                continue;
            }
            let fit = fits.entry(demand.shape()).or_insert_with(|| fit(demand));
            let Fit::Nowhere(reason) = fit else { continue };
            let note = shortened(reason.clone());
            let stands = |(said, at): &(String, Instant)| *said == note && now.duration_since(*at) < LASTS;
            if !patience.said.as_ref().is_some_and(stands) {
                patience.said = Some((note.clone(), now));
                due.push((Arc::clone(demand), note));
            }
        }
        due
    }
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
    use divvy_index::demand::SchedulingConfig;
    use divvy_index::fixture::{node, pod, share, status};
    use divvy_index::{Index, ReservationTimeouts};

    use super::*;

    fn full(name: &str) -> GpuNode {
        let mut full = node(name, 1);
        let share = share(&full, "other", 0, 40, 100);
        status(&mut full).shares.push(share);
        full
    }

    fn due(told: &mut Told, index: &Index, now: Instant) -> Vec<String> {
        told.due(&index.waiting(), now, |demand| fit(index, demand)).into_iter().map(|(_, note)| note).collect()
    }

    #[test]
    fn a_pod_that_waits_is_told_why_once_and_again_when_that_changes() {
        let index = Index::new(SchedulingConfig::default(), ReservationTimeouts::default());
        index.apply_gpu_node("n1", &full("n1"));
        let (mut told, start) = (Told::default(), Instant::now());
        index.apply_pod(&pod("patient", 1, 8, 30), start);
        assert!(due(&mut told, &index, start).is_empty(), "the scheduler has just been asked");
        let later = start + UNTOLD;
        let why = "0/1 nodes are available: 1 Insufficient GPUs (1 held exclusively by another pod)";
        assert_eq!(due(&mut told, &index, later), [why]);
        assert!(due(&mut told, &index, later + PERIOD).is_empty(), "the same again");
        index.apply_gpu_node("n2", &full("n2"));
        assert_eq!(due(&mut told, &index, later + PERIOD).len(), 1, "it has changed");
        assert_eq!(due(&mut told, &index, later + PERIOD + LASTS).len(), 1, "the event may be gone");
        index.apply_gpu_node("n2", &node("n2", 1));
        assert!(due(&mut told, &index, later + 2 * LASTS).is_empty(), "there is room: the scheduler's affair");
        index.delete_pod("patient");
        assert!(due(&mut told, &index, later + 3 * LASTS).is_empty());
        assert!(told.pods.is_empty());
    }

    #[test]
    fn notes_are_as_long_as_the_api_server_takes_them() {
        assert_eq!(shortened("ä".repeat(600)).len(), 1023);
        assert_eq!(shortened("short".to_owned()), "short");
    }
}
