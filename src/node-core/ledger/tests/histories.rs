//! Random histories, with the daemon killed at every point of them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::Arc;

use divvy_api::request::Defaults;
use divvy_api::{ContainerKind, ContainerRequest, ResourceNames, SlotId};
use proptest::prelude::*;

use super::model::{CARDS, Model, inventory, pod_ref, pod_shape, view};
use super::{file, release, reopen};
use crate::ledger::reconcile::{FoundContainer, Observed, Reconciled, RestoreContext, reconcile};
use crate::ledger::{Ledger, Part, PodEntry, Rewrite, Rewritten};
use crate::pod::{DeviceRecord, Pod, PodRef};

#[derive(Clone, Debug)]
enum Step {
    /// The next container of a pod, or one that has its devices already: the kubelet asks again.
    Allocate {
        pod: usize,
        pick: usize,
        again: bool,
    },
    /// As above, on a full disk.
    Refused {
        pod: usize,
        pick: usize,
    },
    Release {
        pod: usize,
    },
    /// The process dies, perhaps in the middle of a record.
    Crash {
        torn: Vec<u8>,
    },
    /// The journal begins to be rewritten, with the new file perhaps written at once.
    Begin {
        written: bool,
    },
    /// The new journal takes the place of the old one.
    Finish,
    /// The kubelet is heard, and some pods are no longer listed.
    Reconcile {
        gone: Vec<bool>,
        slots: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let pick = 0..48usize;
    prop_oneof![
        8 => (0..4usize, pick.clone(), prop::bool::weighted(0.2)).prop_map(|(pod, pick, again)| Step::Allocate { pod, pick, again }),
        1 => (0..4usize, pick).prop_map(|(pod, pick)| Step::Refused { pod, pick }),
        2 => (0..5usize).prop_map(|pod| Step::Release { pod }),
        2 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|torn| Step::Crash { torn }),
        2 => any::<bool>().prop_map(|written| Step::Begin { written }),
        2 => Just(Step::Finish),
        2 => (prop::collection::vec(prop::bool::weighted(0.3), 4), any::<bool>()).prop_map(|(gone, slots)| Step::Reconcile { gone, slots }),
    ]
}

/// A pod's UID changes when it ends: a controller makes a new one.
struct Node {
    dir: tempfile::TempDir,
    ledger: Option<Ledger>,
    /// A rewrite under way, with its file if that is written.
    rewrite: Option<(Rewrite, Option<Rewritten>)>,
    model: Model,
    shapes: Vec<Vec<ContainerRequest>>,
    born: Vec<u32>,
    /// The kubelet's device records.
    records: Vec<DeviceRecord>,
}

impl Node {
    fn ledger(&mut self) -> &mut Ledger {
        self.ledger.as_mut().expect("open between steps")
    }

    fn agrees(&self) -> Result<(), TestCaseError> {
        self.model.agrees_with(self.ledger.as_ref().expect("open between steps").allocations())
    }

    fn uid(&self, pod: usize) -> String {
        format!("{pod}-{}", self.born.get(pod).copied().unwrap_or_default())
    }

    fn allocate(&mut self, pod: usize, pick: usize, again: bool) -> Result<(), TestCaseError> {
        let (uid, requests) = (self.uid(pod), self.shapes[pod].clone());
        let held = |at: usize| self.model.pods.get(&uid).is_some_and(|entry| entry.containers[at].holding.is_some());
        let Some(at) = (0..requests.len()).find(|at| requests[*at].request.is_some() && held(*at) == again) else {
            return Ok(());
        };
        let Some((entry, holding)) = self.model.plan(&uid, &requests, at, pick) else { return Ok(()) };
        let slots: Vec<SlotId> = holding.parts.iter().filter_map(Part::slot_id).collect();
        let before = self.ledger().revision();
        let booked = self.ledger().allocate(&entry.pod, &requests, &requests[at].name, holding);
        prop_assert!(booked.expect("writes") > before);
        let (namespace, pod, container) =
            (entry.pod.namespace.clone(), entry.pod.name.clone(), requests[at].name.clone());
        self.records.retain(|record| record.pod != pod || record.container != container);
        if requests[at].kind != ContainerKind::Init {
            let devices = slots.iter().map(ToString::to_string).collect();
            let resource = "nvidia.com/gpu".to_owned();
            self.records.push(DeviceRecord { namespace, pod, container, resource, devices });
        }
        self.model.hold(entry);
        Ok(())
    }

    /// No live pod's share changes, whatever becomes of its slots.
    fn reconcile(&mut self, gone: &[bool], slots: bool) -> Result<(), TestCaseError> {
        let gone: Vec<String> = (0..4).filter(|pod| gone[*pod]).map(|pod| self.uid(pod)).collect();
        let mut pods: Vec<Arc<Pod>> =
            self.model.pods.values().map(view).filter(|pod| !gone.contains(&pod.uid)).collect();
        let system = PodEntry { pod: pod_ref("system"), containers: vec![] };
        pods.push(view(&system));
        let names = ResourceNames::default();
        let found = |_: &PodRef, _: &str| FoundContainer::unknown();
        let reading = RestoreContext {
            names: &names,
            defaults: Defaults::default(),
            inventory: &inventory(CARDS),
            found: &found,
        };
        let assigned = slots.then(|| self.records.clone());
        let ledger = self.ledger();
        let seen = HashSet::new();
        let as_of = ledger.revision();
        let heard = Observed {
            as_of,
            pods: &pods,
            is_whole: true,
            listed_before: Some(&seen),
            cgroups: &HashMap::new(),
            records: assigned.as_deref(),
            foreign: &[],
        };
        let Reconciled { changes, notes } = reconcile(ledger.allocations(), &heard, &reading);
        ledger.apply(changes).expect("writes");
        prop_assert_eq!(notes, Vec::<String>::new());
        for pod in (0..4).filter(|pod| gone.contains(&self.uid(*pod))).collect::<Vec<_>>() {
            self.model.pods.remove(&self.uid(pod));
            self.born[pod] += 1;
        }
        let shares = |pods: Vec<&PodEntry>| {
            let mut pods: Vec<PodEntry> = pods.into_iter().cloned().collect();
            pods.iter_mut().flat_map(PodEntry::parts_mut).for_each(|part| (part.slot, part.lost) = (None, None));
            pods
        };
        let after: Vec<PodEntry> = self.ledger().allocations().pods().cloned().collect();
        prop_assert_eq!(shares(after.iter().collect()), shares(self.model.pods.values().collect()));
        self.model.pods = after.into_iter().map(|entry| (entry.pod.uid.clone(), entry)).collect();
        Ok(())
    }

    fn refused(&mut self, pod: usize, pick: usize) {
        let (uid, requests) = (self.uid(pod), self.shapes[pod].clone());
        let planned = requests.iter().position(|request| request.request.is_some());
        let Some((at, (entry, holding))) =
            planned.and_then(|at| Some((at, self.model.plan(&uid, &requests, at, pick)?)))
        else {
            return;
        };
        let ledger = self.ledger();
        let file = ledger.break_writes();
        ledger.allocate(&entry.pod, &requests, &requests[at].name, holding).expect_err("full");
        ledger.mend_writes(file);
    }

    fn release(&mut self, pod: usize) {
        let uid = self.uid(pod);
        let freed: Option<PodEntry> = release(self.ledger(), &uid, "gone").expect("writes");
        assert_eq!(freed, self.model.pods.remove(&uid));
        self.born.iter_mut().skip(pod).take(1).for_each(|born| *born += 1);
    }

    fn begin(&mut self, written: bool) {
        if self.rewrite.is_none() {
            let Ledger { journal, allocations, revision, .. } = self.ledger();
            let rewrite = journal.begin_rewrite(allocations, *revision);
            let file = written.then(|| rewrite.write());
            self.rewrite = Some((rewrite, file));
        }
    }

    fn finish(&mut self) {
        if let Some((rewrite, file)) = self.rewrite.take() {
            self.ledger().finish_rewrite(file.unwrap_or_else(|| rewrite.write()));
            rewrite.sync_directory();
        }
    }

    fn crash(&mut self, torn: &[u8]) -> Result<(), TestCaseError> {
        let revision = self.ledger().revision();
        (self.ledger, self.rewrite) = (None, None);
        let path = file(self.dir.path());
        let torn: Vec<u8> = torn.iter().copied().filter(|byte| *byte != b'\n').collect();
        fs::write(&path, [fs::read(&path).expect("journal"), torn.clone()].concat()).expect("writes");
        let (ledger, report) = reopen(self.dir.path());
        prop_assert_eq!((report.torn, report.damaged), (torn.len(), vec![]));
        prop_assert!(ledger.revision() > revision);
        self.ledger = Some(ledger);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn ledger_survives_crashes_and_never_overfills_a_gpu(
        shapes in prop::collection::vec(pod_shape(), 4),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let dir = tempfile::tempdir().expect("dir");
        let ledger = Some(reopen(dir.path()).0);
        let mut node = Node { dir, ledger, rewrite: None, model: Model::default(), shapes, born: vec![0; 4], records: vec![] };
        for step in steps {
            match step {
                Step::Allocate { pod, pick, again } => node.allocate(pod, pick, again)?,
                Step::Refused { pod, pick } => node.refused(pod, pick),
                Step::Reconcile { gone, slots } => node.reconcile(&gone, slots)?,
                Step::Release { pod } => node.release(pod),
                Step::Crash { torn } => node.crash(&torn)?,
                Step::Begin { written } => node.begin(written),
                Step::Finish => node.finish(),
            }
            node.agrees()?;
        }
        node.crash(&[])?;
        node.agrees()?;
    }
}
