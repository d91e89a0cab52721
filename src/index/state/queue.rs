//! Pods that wait to be planned: in lines of equal ones, each of which waits for room or is to be tried.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::demand::{Class, Demand};
use crate::pod_group::{PodGroup, PodGroupApi};

/// Lines of waiting pods. A line is tried again and again until it is [parked](Self::park).
#[derive(Debug, Default)]
pub(crate) struct Queue {
    numbers: HashMap<Key, u64>,
    lines: BTreeMap<u64, Line>,
    /// Line of each pod, by UID, and its turn there.
    known: HashMap<Arc<str>, (u64, Place)>,
    /// Lines to try, by the turn of their first pod.
    ready: BTreeSet<(Place, u64)>,
    next: u64,
    looked_at: Option<Instant>,
    /// Pods that are left alone, or were, by UID.
    rests: HashMap<Arc<str>, Rest>,
}

/// How often it is looked whether nodes have what parked lines request in sum.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How a pod is left alone.
#[derive(Clone, Copy, Debug)]
struct Rest {
    times: u32,
    until: Instant,
    why: Why,
}

/// Why a pod is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The scheduler has found no room for it on the node that was nominated. What keeps it off may be nothing that is known
    /// here, such as a volume, a port or another pod, and its GPUs would be reserved for ever.
    TurnedDown,
    /// The scheduler has found no room for a pod that starts together with others. One that knows groups looks at it before the
    /// others' gates are gone too, so it is tried again at once a few times, and before others of its priority: they would take
    /// its GPUs.
    TurnedDownTogether,
    /// The API server has refused what was to be written of it.
    Refused,
}

/// Which pods wait in one line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Pods(Class),
    /// The pods of a group start together.
    Group(Arc<PodGroup>),
}

/// Turn of a pod: higher priorities first, then older pods.
type Place = (Reverse<i32>, Option<Timestamp>, Arc<str>);

#[derive(Debug)]
struct Line {
    key: Key,
    pods: BTreeSet<Place>,
    parked: Option<Parked>,
    /// Since when no node has had what the pods request even in sum, over all tries.
    lacking_since: Option<Instant>,
}

/// Why and since when a line waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parked {
    /// Pods to try where a node has gained room, one of each class.
    pub(crate) samples: Vec<Arc<Demand>>,
    /// Whether a `GpuQuota` of the pods' namespace has a part in it: then it may end without a change of any node.
    pub(crate) by_quota: bool,
    /// What a group waits for as a whole.
    pub(crate) reason: Option<Arc<str>>,
    /// Since when no node has had what the pods request even in sum; `None` if one has.
    pub(crate) lacking_since: Option<Instant>,
    /// A node that has, when it was last looked at.
    pub(crate) sufficient: Option<Arc<str>>,
}

// === impl Queue ===

impl Queue {
    /// Adds a pod, or moves it to the line where it belongs now. A group whose pods become more is tried again.
    pub(crate) fn add(&mut self, demand: &Demand) {
        let key = Key::new(demand);
        let known = self.known.get(&demand.uid).and_then(|(number, _)| self.lines.get(number));
        if known.is_some_and(|line| line.key == key) {
            return;
        }
        self.remove(&demand.uid);
        let number = *self.numbers.entry(key.clone()).or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.lines.entry(number).or_insert_with(|| Line {
            key,
            pods: BTreeSet::new(),
            parked: None,
            lacking_since: None,
        });
        let has_begun = self.rests.get(&demand.uid).is_some_and(|rest| rest.why == Why::TurnedDownTogether);
        let created = demand.scheduling.created.filter(|_| !has_begun);
        let place = (Reverse(demand.priority), created, Arc::clone(&demand.uid));
        self.known.insert(Arc::clone(&demand.uid), (number, place.clone()));
        self.change(number, |line| {
            line.pods.insert(place);
            line.parked = line.parked.take().filter(|_| matches!(line.key, Key::Pods(_)));
        });
    }

    /// Leaves a pod alone for a while.
    pub(crate) fn rest(&mut self, uid: &Arc<str>, why: Why, now: Instant) {
        let last = self.rests.get(uid);
        let why = last.map(|last| last.why).filter(|last| *last != Why::Refused).unwrap_or(why);
        let times = last.map_or(0, |last| last.times.saturating_add(1));
        self.rests.insert(Arc::clone(uid), Rest { times, until: now + why.rest(times), why });
        self.remove(uid);
    }

    /// Whether a pod is left alone.
    pub(crate) fn rests(&self, uid: &str, now: Instant) -> bool {
        self.rests.get(uid).is_some_and(|rest| now < rest.until)
    }

    /// Whether nothing is remembered of pods that were left alone.
    #[cfg(test)]
    pub(crate) fn has_no_rests(&self) -> bool {
        self.rests.is_empty()
    }

    /// Whether the pod's scheduler had no use of an earlier nomination.
    pub(crate) fn was_turned_down(&self, uid: &str) -> bool {
        self.rests.get(uid).is_some_and(|rest| rest.why != Why::Refused)
    }

    /// What was to be written of a pod has been.
    pub(crate) fn written(&mut self, uid: &str) {
        if !self.was_turned_down(uid) {
            self.rests.remove(uid);
        }
    }

    /// Pods that have been left alone long enough, and aren't in a line.
    pub(crate) fn rested(&self, now: Instant) -> Vec<Arc<str>> {
        let over = self.rests.iter().filter(|(uid, rest)| rest.until <= now && !self.has(uid));
        over.map(|(uid, _)| Arc::clone(uid)).collect()
    }

    /// Forgets a pod that is bound, or has ended.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.remove(uid);
        self.rests.remove(uid);
    }

    /// Removes a pod that doesn't wait any more.
    pub(crate) fn remove(&mut self, uid: &str) {
        let Some((number, place)) = self.known.remove(uid) else { return };
        self.change(number, |line| {
            line.pods.remove(&place);
        });
    }

    /// The line whose turn it is.
    pub(crate) fn first(&self) -> Option<u64> {
        self.ready.first().map(|(_, number)| *number)
    }

    /// UIDs of a line's pods, the first one first.
    pub(crate) fn pods(&self, number: u64) -> impl Iterator<Item = &Arc<str>> {
        self.lines.get(&number).into_iter().flat_map(|line| &line.pods).map(|(_, _, uid)| uid)
    }

    /// The group of a line's pods, if they start together.
    pub(crate) fn group(&self, number: u64) -> Option<&Arc<PodGroup>> {
        match &self.lines.get(&number)?.key {
            Key::Group(group) => Some(group),
            Key::Pods(_) => None,
        }
    }

    /// Leaves a line alone until it is [woken](Self::wake).
    pub(crate) fn park(&mut self, number: u64, parked: Parked) {
        self.change(number, |line| {
            // Some of its pods may have found a place meanwhile: the others lack it as before.
            line.lacking_since = parked.lacking_since.map(|now| line.lacking_since.unwrap_or(now));
            line.parked = Some(Parked { lacking_since: line.lacking_since, ..parked });
        });
    }

    /// Has a line tried again.
    pub(crate) fn wake(&mut self, number: u64) {
        self.change(number, |line| line.parked = None);
    }

    /// The line of a group.
    pub(crate) fn line_of(&self, group: &Arc<PodGroup>) -> Option<u64> {
        self.numbers.get(&Key::Group(Arc::clone(group))).copied()
    }

    /// Has the line of a group tried again, if it has one.
    pub(crate) fn wake_group(&mut self, group: &Arc<PodGroup>) {
        self.line_of(group).into_iter().for_each(|line| self.wake(line));
    }

    /// Has the lines of all groups of this API tried again.
    pub(crate) fn wake_groups(&mut self, api: PodGroupApi) {
        let numbers = self.numbers.iter();
        let of_api = numbers.filter(|(key, _)| matches!(key, Key::Group(group) if group.api == api));
        of_api.map(|(_, number)| *number).collect::<Vec<_>>().into_iter().for_each(|line| self.wake(line));
    }

    /// Whether a pod waits in a line.
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.known.contains_key(uid)
    }

    /// Why the line of a group waits.
    pub(crate) fn group_waits(&self, group: &Arc<PodGroup>) -> Option<&Arc<str>> {
        self.lines.get(&self.line_of(group)?)?.parked.as_ref()?.reason.as_ref()
    }

    /// Lines that wait for room.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (u64, &Parked)> {
        self.lines.iter().filter_map(|(number, line)| Some((*number, line.parked.as_ref()?)))
    }

    /// Whether it is time to look whether nodes have what parked lines request in sum.
    pub(crate) fn is_time_to_look(&mut self, now: Instant) -> bool {
        let is_time = self.looked_at.is_none_or(|at| at + LOOK_AGAIN_AFTER <= now);
        self.looked_at = if is_time { Some(now) } else { self.looked_at };
        is_time
    }

    /// Notes which node has what a parked line requests in sum, if one has.
    pub(crate) fn found_sums(&mut self, number: u64, sufficient: Option<Arc<str>>, now: Instant) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let Some(parked) = &mut line.parked else { return };
        line.lacking_since = line.lacking_since.or(Some(now)).filter(|_| sufficient.is_none());
        (parked.lacking_since, parked.sufficient) = (line.lacking_since, sufficient);
    }

    /// Changes a line, and keeps its turn with its first pod. One without pods goes.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Line)) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        if let Some(first) = line.pods.first() {
            self.ready.remove(&(first.clone(), number));
        }
        change(line);
        match line.pods.first() {
            None => {
                self.numbers.remove(&line.key);
                self.lines.remove(&number);
            }
            Some(first) if line.parked.is_none() => {
                self.ready.insert((first.clone(), number));
            }
            Some(_) => {}
        }
    }
}

// === impl Why ===

impl Why {
    /// How long a pod is left alone that was so many times before.
    fn rest(self, times: u32) -> Duration {
        let seconds = match self {
            Self::TurnedDown => 4_u64.saturating_pow(times).min(300),
            Self::TurnedDownTogether => times.checked_sub(4).map_or(0, |times| 2_u64.saturating_pow(times).min(300)),
            Self::Refused => 4_u64.saturating_pow(times).min(16),
        };
        Duration::from_secs(seconds)
    }
}

// === impl Key ===

impl Key {
    fn new(demand: &Demand) -> Self {
        let group = demand.group.as_ref();
        group.map_or_else(|| Self::Pods(demand.class()), |group| Self::Group(Arc::clone(group)))
    }
}
