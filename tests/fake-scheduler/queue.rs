//! Pods that wait for a node: those whose turn it is, those that were tried a moment ago, and those for which nothing has
//! changed since (`pkg/scheduler/backend/queue`). Plain and synchronous.
//!
//! Without the flush of pods that wait for five minutes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::amounts::Amounts;
use fake_apiserver::object::uid;

/// How long a pod waits after its first try; twice as long after each further one.
const BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);

/// A pod that wants a node.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) object: Arc<Value>,
    pub(crate) amounts: Amounts,
}

/// A pod in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) pod: Pod,
    /// Tries that failed.
    attempts: u32,
    /// When it came, for order among equals.
    number: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active,
    /// Tried not before this.
    BackOff(Instant),
    /// Tried when something changes. Until `BackOff` at the earliest.
    Unschedulable {
        by: Obstacle,
        ready: Instant,
    },
}

/// Who refused a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The scheduler's own plugins.
    InTree,
    /// The extender had a part in it.
    Extender,
}

/// A change that may make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new node, or another of its amounts, labels, taints or conditions.
    Node,
    /// A node's annotations alone.
    Annotations,
    /// A pod came to a node, or one that is there changed.
    PodPlaced,
    /// A pod left its node.
    PodGone,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: HashMap<String, Waiting>,
    arrivals: u64,
}

// === impl Pod ===

impl Pod {
    pub(crate) fn uid(&self) -> &str {
        uid(&self.object)
    }

    fn priority(&self) -> i64 {
        self.object.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or_default()
    }
}

// === impl Change ===

impl Change {
    /// The scheduler doesn't know what an extender goes by: to it any change may matter.
    fn may_help(self, by: Obstacle) -> bool {
        by == Obstacle::Extender || matches!(self, Self::Node | Self::PodGone)
    }
}

// === impl Queue ===

impl Queue {
    /// A pod came, or it isn't any more what it was. A change of its own may be what it needed.
    pub(crate) fn put(&mut self, pod: Pod) {
        let key = pod.uid().to_owned();
        if let Some(known) = self.waiting.get_mut(&key) {
            if let (Place::Unschedulable { ready, .. }, true) = (known.place, differs(&known.pod.object, &pod.object)) {
                known.place = Place::BackOff(ready);
            }
            known.pod = pod;
            return;
        }
        self.arrivals += 1;
        self.waiting.insert(key, Waiting { pod, attempts: 0, number: self.arrivals, place: Place::Active });
    }

    pub(crate) fn remove(&mut self, uid: &str) {
        self.waiting.remove(uid);
    }

    /// The pod to try next: the most important, then the oldest. It is out of the queue until it is put back.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Waiting> {
        let due = self.waiting.iter().filter(|(_, own)| match own.place {
            Place::Active => true,
            Place::BackOff(ready) => ready <= now,
            Place::Unschedulable { .. } => false,
        });
        let first = due.min_by_key(|(_, own)| (std::cmp::Reverse(own.pod.priority()), own.number));
        let key = first.map(|(key, _)| key.clone())?;
        self.waiting.remove(&key)
    }

    /// When the next pod is to be tried.
    pub(crate) fn due(&self) -> Option<Instant> {
        let due = self.waiting.values().filter_map(|own| match own.place {
            Place::Active => Some(Instant::now()),
            Place::BackOff(ready) => Some(ready),
            Place::Unschedulable { .. } => None,
        });
        due.min()
    }

    /// Takes a pod back after a try. Without an obstacle something went wrong, and the same may go well a little later.
    pub(crate) fn put_back(&mut self, mut waiting: Waiting, by: Option<Obstacle>, now: Instant) {
        let ready = now + back_off(waiting.attempts);
        waiting.attempts += 1;
        waiting.place = match by {
            Some(by) => Place::Unschedulable { by, ready },
            None => Place::BackOff(ready),
        };
        self.waiting.insert(waiting.pod.uid().to_owned(), waiting);
    }

    /// Has pods tried again for which a change may matter.
    pub(crate) fn wake(&mut self, change: Change) {
        for own in self.waiting.values_mut() {
            if let Place::Unschedulable { by, ready } = own.place
                && change.may_help(by)
            {
                own.place = Place::BackOff(ready);
            }
        }
    }
}

/// After so many tries before.
fn back_off(attempts: u32) -> Duration {
    BACK_OFF.saturating_mul(1_u32.checked_shl(attempts).unwrap_or(u32::MAX)).min(LONGEST_BACK_OFF)
}

/// Whether more has changed than what the scheduler itself writes (`isPodUpdated`).
fn differs(before: &Value, after: &Value) -> bool {
    let own =
        |pod: &Value| (pod["spec"].clone(), pod["metadata"]["labels"].clone(), pod["metadata"]["annotations"].clone());
    own(before) != own(after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, priority: i64) -> Pod {
        let object = json!({ "metadata": { "uid": uid }, "spec": { "priority": priority } });
        Pod { object: Arc::new(object), amounts: Amounts::default() }
    }

    fn next(queue: &mut Queue, now: Instant) -> Option<String> {
        queue.pop(now).map(|waiting| waiting.pod.uid().to_owned())
    }

    #[test]
    fn the_most_important_comes_first_and_then_the_oldest() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for (uid, priority) in [("a", 0), ("b", 0), ("c", 5)] {
            queue.put(pod(uid, priority));
        }
        assert_eq!(
            [(); 4].map(|()| next(&mut queue, now)),
            [Some("c".into()), Some("a".into()), Some("b".into()), None]
        );
    }

    #[test]
    fn what_went_wrong_is_tried_again_after_longer_and_longer_times() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.put(pod("a", 0));
        for seconds in [1, 2, 4, 8, 10, 10] {
            let waiting = queue.pop(now).expect("it is due");
            queue.put_back(waiting, None, now);
            assert_eq!(queue.due(), Some(now + Duration::from_secs(seconds)));
            assert!(queue.pop(now).is_none());
            now += Duration::from_secs(seconds);
        }
    }

    #[test]
    fn unschedulable_pod_waits_for_a_change_that_may_help() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let woken = |by, change| {
            let mut queue = Queue::default();
            queue.put(pod("a", 0));
            let waiting = queue.pop(now).expect("it is due");
            queue.put_back(waiting, Some(by), now);
            assert_eq!((queue.due(), next(&mut queue, later)), (None, None));
            queue.wake(change);
            assert!(queue.pop(now).is_none(), "not before its time");
            next(&mut queue, later).is_some()
        };
        for (change, in_tree) in
            [(Change::Node, true), (Change::Annotations, false), (Change::PodPlaced, false), (Change::PodGone, true)]
        {
            assert_eq!(woken(Obstacle::InTree, change), in_tree, "{change:?}");
            assert!(woken(Obstacle::Extender, change), "{change:?}");
        }
    }

    #[test]
    fn changed_pod_is_retried_but_not_for_its_status() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.put(pod("a", 0));
        let waiting = queue.pop(now).expect("it is due");
        queue.put_back(waiting, Some(Obstacle::InTree), now);
        let with = |change: fn(&mut Value)| {
            let mut changed = pod("a", 0);
            change(Arc::make_mut(&mut changed.object));
            changed
        };
        queue.put(with(|pod| pod["status"] = json!({ "phase": "Pending" })));
        assert_eq!(queue.due(), None);
        queue.put(with(|pod| pod["metadata"]["annotations"] = json!({ "x": "y" })));
        assert_eq!(queue.due(), Some(now + BACK_OFF));
    }
}
