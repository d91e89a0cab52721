//! Changes of the ledger that follow from pod lists and device records.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::limits::asks_for_cards;
use tracing::warn;

use super::{Allocator, Refusal};
use crate::ledger::reconcile::{FoundContainer, Observed, Reconciled, RestoreContext, reconcile};
use crate::ledger::{Change, Nonce, PodEntry};
use crate::pod::{CgroupState, DeviceRecord, Pod, PodList, PodRef};
use crate::ports::NodeRecords;

/// A pod list that was requested.
#[derive(Clone, Copy, Debug)]
pub struct ListRequest {
    /// Revision of the ledger at that moment.
    revision: u64,
    /// Which list it was.
    number: u64,
}

/// Pod lists and device records received so far.
#[derive(Debug, Default)]
pub(super) struct Reconciliation {
    records: StartRecords,
    /// Lists asked for so far.
    requested: u64,
    /// The latest of them that was received.
    received: u64,
    /// Pods of the last list.
    pub(super) listed: Vec<Arc<Pod>>,
    /// Live pods, by UID, that ask for cards and that the ledger doesn't know.
    unmatched: HashSet<String>,
}

/// The kubelet's records of devices from before our first answer.
#[derive(Debug, Default)]
enum StartRecords {
    /// They haven't been read.
    #[default]
    Unread,
    /// They wait until the pods are known to compare them with.
    Pending(Vec<DeviceRecord>),
    /// What the journal had lost is restored.
    Compared,
}

// === impl Reconciliation ===

impl Reconciliation {
    fn request(&mut self, revision: u64) -> ListRequest {
        self.requested += 1;
        ListRequest { revision, number: self.requested }
    }

    /// Whether a list that was asked for later was received before.
    fn is_superseded(&mut self, list: ListRequest) -> bool {
        let is_late = list.number < self.received;
        self.received = self.received.max(list.number);
        is_late
    }

    fn pending(&self) -> Option<&[DeviceRecord]> {
        match &self.records {
            StartRecords::Pending(records) => Some(records),
            StartRecords::Unread | StartRecords::Compared => None,
        }
    }

    fn compared(&mut self) {
        if let StartRecords::Pending(_) = self.records {
            self.records = StartRecords::Compared;
        }
    }
}

// === impl Allocator ===

impl Allocator {
    /// Marks the moment at which a pod list is requested; called before the request.
    pub fn begin_list(&mut self) -> ListRequest {
        self.reconciliation.request(self.ledger.revision())
    }

    /// Time for which no new pod has come onto the kubelet's list, this one included; called before [`Self::reconcile`].
    pub fn quiet(&mut self, list: &PodList) -> Duration {
        self.history.quiet(&list.pods, Instant::now())
    }

    /// Keeps the kubelet's records for the next [`Self::reconcile`]: nothing was answered since they were read.
    pub fn compare_with(&mut self, records: NodeRecords) {
        self.compare_slots_with(records.slots);
        self.units.compare_with(records.units);
    }

    /// Keeps records of slots alone.
    pub fn compare_slots_with(&mut self, records: Vec<DeviceRecord>) {
        self.reconciliation.records = StartRecords::Pending(records);
    }

    /// Live pods that ask for cards and that aren't in the ledger.
    pub fn unknown_pods(&self, pods: &[Arc<Pod>]) -> Vec<PodRef> {
        let asks = |pod: &Pod| pod.containers.iter().any(|spec| asks_for_cards(&self.settings.names, spec));
        let is_unknown =
            |pod: &&Arc<Pod>| !pod.has_ended() && asks(pod) && self.ledger.allocations().pod(&pod.uid).is_none();
        pods.iter().filter(is_unknown).map(|pod| pod.reference()).collect()
    }

    /// Pods in the ledger, by UID, that aren't on the list.
    pub fn missing(&self, pods: &[Arc<Pod>]) -> Vec<String> {
        self.missing_pods(pods).into_iter().map(|pod| pod.uid).collect()
    }

    /// Pods in the ledger that aren't on the list.
    pub fn missing_pods(&self, pods: &[Arc<Pod>]) -> Vec<PodRef> {
        let listed: HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        let recorded = self.ledger.allocations().pods().map(|entry| &entry.pod);
        recorded.filter(|pod| !listed.contains(pod.uid.as_str())).cloned().collect()
    }

    /// Brings the ledger in line with the kubelet: shares of ended pods end, and with records of devices that
    /// were kept lost ones are restored. Returns what changed or could not be restored, in words.
    ///
    /// A list that was received after one asked for later says nothing any more: pods on that one may not be on it yet.
    /// `is_whole`: the list is known to hold every pod. `cgroups`: of pods of [`Self::missing`].
    pub fn reconcile(
        &mut self,
        list: &PodList,
        request: ListRequest,
        is_whole: bool,
        cgroups: &HashMap<String, CgroupState>,
    ) -> Result<Vec<String>, Refusal> {
        if self.reconciliation.is_superseded(request) {
            return Ok(Vec::new());
        }
        self.keep_foreign(&list.pods);
        let listed_before = self.history.listed_before(list.connection);
        let reconciled = self.compare(&list.pods, request, is_whole, listed_before, cgroups);
        self.history.follow(list, self.ledger.allocations());
        self.apply(&list.pods, reconciled)
    }

    /// Brings the ledger in line with the pods that the API server has bound to this node, while the kubelet doesn't list its own. Of the pods of
    /// [`Self::missing`] those of `gone` have ended.
    pub fn reconcile_bound(
        &mut self,
        pods: &[Arc<Pod>],
        request: ListRequest,
        gone: &HashSet<String>,
    ) -> Result<Vec<String>, Refusal> {
        if self.reconciliation.is_superseded(request) {
            return Ok(Vec::new());
        }
        self.keep_foreign(pods);
        let reconciled = self.compare(pods, request, false, Some(gone), &HashMap::new());
        self.apply(pods, reconciled)
    }

    /// A pod on the kubelet's records, as far as they are still to be compared, that is not among these.
    pub fn recorded_elsewhere(&self, pods: &[Arc<Pod>]) -> Option<String> {
        let mut records = self.reconciliation.pending().into_iter().flatten();
        let is_here = |record: &DeviceRecord, pod: &Pod| pod.namespace == record.namespace && pod.name == record.pod;
        let elsewhere = records.find(|record| !pods.iter().any(|pod| is_here(record, pod)))?;
        Some(format!("{}/{}", elsewhere.namespace, elsewhere.pod))
    }

    /// Takes devices of other systems out of the records that are to be compared: they are compared with every list.
    fn keep_foreign(&mut self, pods: &[Arc<Pod>]) {
        if let StartRecords::Pending(records) = &mut self.reconciliation.records {
            self.foreign.take(&self.settings.names, pods, records);
        }
    }

    fn compare(
        &self,
        pods: &[Arc<Pod>],
        request: ListRequest,
        is_whole: bool,
        listed_before: Option<&HashSet<String>>,
        cgroups: &HashMap<String, CgroupState>,
    ) -> Reconciled {
        let observed = Observed {
            as_of: request.revision,
            pods,
            is_whole,
            listed_before,
            cgroups,
            records: self.reconciliation.pending(),
            foreign: &self.foreign.devices,
        };
        let context = RestoreContext {
            names: &self.settings.names,
            defaults: self.settings.defaults,
            inventory: &self.inventory,
            found: &|pod, container| self.containers.find(&pod.uid, container).unwrap_or_else(FoundContainer::unknown),
        };
        reconcile(self.ledger.allocations(), &observed, &context)
    }

    fn apply(&mut self, pods: &[Arc<Pod>], reconciled: Reconciled) -> Result<Vec<String>, Refusal> {
        self.units.follow(pods, self.ledger.allocations());
        self.reconciliation.listed = pods.to_vec();
        let touched: BTreeSet<String> = reconciled.changes.iter().map(|change| change.uid().to_owned()).collect();
        let before = self.nonces(&touched);
        let changes = reconciled.changes.iter().map(Change::to_string).chain(reconciled.notes).collect();
        self.ledger.apply(reconciled.changes)?;
        self.reconciliation.compared();
        self.reconciliation.unmatched = self.unknown_pods(pods).into_iter().map(|pod| pod.uid).collect();
        let after = self.nonces(&touched);
        self.ended.extend(before.difference(&after));
        Ok(changes)
    }

    fn nonces(&self, uids: &BTreeSet<String>) -> HashSet<Nonce> {
        let entries = uids.iter().filter_map(|uid| self.ledger.allocations().pod(uid));
        entries.flat_map(PodEntry::holdings).map(|(_, holding)| holding.nonce).collect()
    }

    /// Removes the directories of containers that hold nothing any more, but for those of listed pods that the ledger doesn't
    /// know. Does nothing before the ledger has been compared with the kubelet's records: a container that the ledger has
    /// lost may run.
    pub fn remove_stale_directories(&self) {
        if !matches!(self.reconciliation.records, StartRecords::Compared) {
            return;
        }
        let live = self.ledger.allocations().nonces().collect();
        if let Err(error) = self.containers.remove_all_but(&live, &self.reconciliation.unmatched) {
            warn!(%error, "failed to remove the directories of terminated containers");
        }
    }
}
