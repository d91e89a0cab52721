//! What the kubelet's lists change, whoever asked for them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::request::asks_for_cards;
use tracing::warn;

use super::{Allocator, Refusal};
use crate::container::Limits;
use crate::kubelet::cgroups::Trace;
use crate::kubelet::client::PodList;
use crate::kubelet::pods::PodView;
use crate::ledger::reconcile::{Assigned, Heard, Reading, Reconciled, reconcile};
use crate::ledger::{Change, Nonce, PodEntry, Terms};

/// The moment when a pod list was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Where the ledger stood.
    revision: u64,
    /// Which list it was.
    list: u64,
}

/// How far the books have been compared with what the kubelet knew before our first answer.
#[derive(Debug, Default)]
pub(super) enum Comparison {
    /// Its records of devices haven't been read.
    #[default]
    Due,
    /// They wait until its pods are known to compare them with.
    Kept(Vec<Assigned>),
    /// What the journal had lost is restored.
    Done,
}

// === impl Allocator ===

impl Allocator {
    /// To be called before a pod list is asked for.
    pub fn ask(&mut self) -> Moment {
        self.lists += 1;
        Moment { revision: self.ledger.revision(), list: self.lists }
    }

    /// How long no pod has come onto the kubelet's list, this one included; to be asked before [`Self::reconcile`].
    pub fn quiet(&mut self, list: &PodList) -> Duration {
        self.session.quiet(&list.pods, Instant::now())
    }

    /// Keeps the kubelet's records of devices for the next [`Self::reconcile`]: nothing was answered since they were read.
    pub fn keep_records(&mut self, records: Vec<Assigned>) {
        self.comparison = Comparison::Kept(records);
    }

    /// Live pods that ask for cards and of which the books know nothing.
    pub fn unbooked<'a>(&self, pods: &'a [Arc<PodView>]) -> Vec<&'a Arc<PodView>> {
        let asks = |pod: &PodView| pod.containers.iter().any(|spec| asks_for_cards(&self.settings.names, spec));
        let unbooked =
            |pod: &&Arc<PodView>| !pod.has_ended() && asks(pod) && self.ledger.book().pod(&pod.uid).is_none();
        pods.iter().filter(unbooked).collect()
    }

    /// Pods in the books, by UID, that the kubelet doesn't list.
    pub fn missing(&self, pods: &[Arc<PodView>]) -> Vec<String> {
        let listed: HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        let booked = self.ledger.book().pods().map(|entry| &entry.pod.uid);
        booked.filter(|uid| !listed.contains(uid.as_str())).cloned().collect()
    }

    /// Brings the books in line with what the kubelet said (principle 2): shares of ended pods end, and with records of
    /// devices that were kept lost ones are restored. Returns what changed or could not be settled, in words.
    ///
    /// The list was asked for at `asked`. One that was overtaken by a list asked for later says nothing any more: pods on
    /// that one may not be on it yet. `settled`: it is known to be whole.
    /// `traces`: what is known of pods of [`Self::missing`].
    pub fn reconcile(
        &mut self,
        list: &PodList,
        asked: Moment,
        settled: bool,
        traces: &HashMap<String, Trace>,
    ) -> Result<Vec<String>, Refusal> {
        if self.is_overtaken(asked) {
            return Ok(Vec::new());
        }
        let seen = self.session.seen(list.connection);
        let reconciled = self.compare(&list.pods, asked, settled, seen, traces);
        self.session.follow(list, self.ledger.book());
        self.apply(&list.pods, reconciled)
    }

    /// The same by the pods that the API server has bound to this node, while the kubelet doesn't list its own. Of the
    /// pods of [`Self::missing`] those of `gone` have ended.
    pub fn reconcile_bound(
        &mut self,
        pods: &[Arc<PodView>],
        asked: Moment,
        gone: &HashSet<String>,
    ) -> Result<Vec<String>, Refusal> {
        if self.is_overtaken(asked) {
            return Ok(Vec::new());
        }
        let reconciled = self.compare(pods, asked, false, Some(gone), &HashMap::new());
        self.apply(pods, reconciled)
    }

    /// A pod on the kubelet's records, as far as they are still to be compared, that is not among these.
    pub fn recorded_elsewhere(&self, pods: &[Arc<PodView>]) -> Option<String> {
        let mut records = self.kept_records().into_iter().flatten();
        let is_here = |record: &Assigned, pod: &PodView| pod.namespace == record.namespace && pod.name == record.pod;
        let elsewhere = records.find(|record| !pods.iter().any(|pod| is_here(record, pod)))?;
        Some(format!("{}/{}", elsewhere.namespace, elsewhere.pod))
    }

    fn is_overtaken(&mut self, asked: Moment) -> bool {
        let is_late = asked.list < self.heard;
        self.heard = self.heard.max(asked.list);
        is_late
    }

    fn kept_records(&self) -> Option<&[Assigned]> {
        match &self.comparison {
            Comparison::Kept(records) => Some(records),
            Comparison::Due | Comparison::Done => None,
        }
    }

    fn compare(
        &self,
        pods: &[Arc<PodView>],
        asked: Moment,
        settled: bool,
        seen: Option<&HashSet<String>>,
        traces: &HashMap<String, Trace>,
    ) -> Reconciled {
        let assigned = self.kept_records();
        let heard = Heard { as_of: asked.revision, pods, settled, seen, traces, assigned };
        let reading = Reading {
            names: &self.settings.names,
            defaults: self.settings.defaults,
            memory: &|card| self.inventory.cards.iter().find(|known| known.id == *card).map(|known| known.memory),
            gives_whole: self.gives_whole(),
            found: &|pod, container| {
                let found = self.delivery.find(&pod.uid, container).and_then(|(nonce, limits)| {
                    let Limits { tier, compute, priority, .. } = limits;
                    Some((nonce.parse().ok()?, Terms { tier, compute, priority }))
                });
                found.unwrap_or_else(|| (Nonce::random(), Terms::default()))
            },
        };
        reconcile(self.ledger.book(), &heard, &reading)
    }

    fn apply(&mut self, pods: &[Arc<PodView>], reconciled: Reconciled) -> Result<Vec<String>, Refusal> {
        self.units.follow(pods, self.ledger.book());
        let unasked = |pod: &&Arc<PodView>| !pod.has_ended() && pod.asks_for_amounts_alone(&self.settings.names);
        self.unasked = pods.iter().filter(unasked).map(|pod| pod.reference()).collect();
        let touched: BTreeSet<String> = reconciled.changes.iter().map(|change| change.uid().to_owned()).collect();
        let before = self.nonces(&touched);
        let changes = reconciled.changes.iter().map(Change::to_string).chain(reconciled.notes).collect();
        self.ledger.apply(reconciled.changes)?;
        if let Comparison::Kept(_) = self.comparison {
            self.comparison = Comparison::Done;
        }
        let after = self.nonces(&touched);
        self.over.extend(before.difference(&after));
        Ok(changes)
    }

    fn nonces(&self, uids: &BTreeSet<String>) -> HashSet<Nonce> {
        let entries = uids.iter().filter_map(|uid| self.ledger.book().pod(uid));
        entries.flat_map(PodEntry::holdings).map(|(_, holding)| holding.nonce).collect()
    }

    /// Holdings that ended since this was last asked: their directories are the caller's to remove, once it has let go
    /// of the allocator.
    pub fn take_over(&mut self) -> Vec<Nonce> {
        mem::take(&mut self.over)
    }

    /// Removes the directories of containers that hold nothing any more, whoever left them. Not before the books have
    /// been compared: what they have lost may run.
    pub fn remove_stale_directories(&self) {
        if !matches!(self.comparison, Comparison::Done) {
            return;
        }
        let live = self.ledger.book().nonces().map(|nonce| nonce.to_string()).collect();
        if let Err(error) = self.delivery.sweep(&live) {
            warn!(%error, "directories of ended containers are left behind");
        }
    }
}
