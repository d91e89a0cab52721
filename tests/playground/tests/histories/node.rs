//! A node: the kubelet's device manager and pods, and the daemon, one step at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use divvy_contract::{ContainerKind, ContainerSpec, SlotId};
use divvy_node::allocation::{Choice, Refusal};
use divvy_node::inventory::{CardHealth, CardInfo};
use divvy_node::kubelet::advertise;
use divvy_node::kubelet::client::PodList;
use divvy_node::kubelet::pods::{ContainerState, Phase, PodView};
use divvy_node::ledger::reconcile::Assigned;
use divvy_playground::kubelet::devices::{Demand, Devices, Grant, Ids, Question, Step};
use divvy_playground::pods::GPU;
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use proptest::prelude::*;
use proptest::sample::Index;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::daemon::{Daemon, Disk, SLOTS, Shown, cards};
use crate::seen;
use crate::shapes::Shape;

/// Who dies during an Allocate, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    /// The daemon, before it is asked anything.
    BeforeProposal,
    /// The daemon, between the two calls.
    BeforeAllocate,
    /// The daemon, while it writes the record: directories are made, and some of the record's bytes are written.
    Torn(Index),
    /// The daemon, when everything is written.
    BeforeAnswer,
    /// The kubelet, before the answer reaches it.
    KubeletBeforeAnswer,
    /// Both, while the record is written.
    Both(Index),
}

/// A pod, as the kubelet and the runtime know it.
pub(crate) struct Pod {
    /// As the kubelet lists it.
    pub(crate) view: PodView,
    /// The kubelet that runs now has listed it.
    listed: bool,
    failed: bool,
    pub(crate) bad: bool,
    /// Answers that containers run with, or would be started with; by container.
    pub(crate) given: BTreeMap<String, ContainerAllocateResponse>,
    /// Containers that the kubelet's last start found running.
    found_running: BTreeSet<String>,
}

pub(crate) struct Node {
    pub(crate) disk: Disk,
    /// `None` for a moment, while it is dead.
    daemon: Option<Daemon>,
    pub(crate) cards: Vec<CardInfo>,
    pub(crate) devices: Devices,
    pub(crate) pods: Vec<Pod>,
    /// The kubelet has listed all its pods.
    sources_ready: bool,
    /// All IDs of the daemon's last list.
    pub(crate) listed: Ids,
    /// A list that the daemon has asked for and that is under way.
    late: Option<(Shown, u64)>,
    rng: StdRng,
    born: u32,
    /// Starts of the kubelet: connections to one are of no use for the next.
    boots: u16,
}

/// How an admission ended.
enum Outcome {
    Admitted,
    Failed,
    /// Nobody saw its end.
    KubeletDied,
}

// === impl Node ===

impl Node {
    pub(crate) fn new(seed: u64, volume_mounts: bool, memory_scale: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk { directory, volume_mounts, memory_scale };
        let mut node = Self {
            daemon: None,
            disk,
            cards: cards(),
            devices: Devices::default(),
            pods: Vec::new(),
            sources_ready: true,
            listed: Ids::new(),
            late: None,
            rng: StdRng::seed_from_u64(seed),
            born: 0,
            boots: 1,
        };
        node.start_daemon().unwrap();
        node
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    fn daemon_mut(&mut self) -> &mut Daemon {
        self.daemon.as_mut().unwrap()
    }

    // --- what happens ---

    pub(crate) fn arrive(
        &mut self,
        shape: Shape,
        dies: Option<(usize, Death)>,
        twice: bool,
    ) -> Result<(), TestCaseError> {
        self.born += 1;
        let (uid, name) = (format!("u{}", self.born), format!("p{}", self.born));
        let Shape { containers, annotations, bad } = shape;
        let (phase, states) = (Phase::Pending, BTreeMap::new());
        let view = PodView { uid, namespace: "default".to_owned(), name, annotations, containers, phase, states };
        let (given, found_running) = (BTreeMap::new(), BTreeSet::new());
        self.pods.push(Pod { view, listed: true, failed: false, bad, given, found_running });
        self.admit(self.pods.len() - 1, dies, twice)
    }

    pub(crate) fn advance(&mut self, pod: Index) -> Result<(), TestCaseError> {
        let Some(at) = self.pick(pod) else { return Ok(()) };
        let pod = &self.pods[at];
        if pod.failed || pod.view.states.is_empty() {
            return Ok(());
        }
        let containers = pod.view.containers.clone();
        for ContainerSpec { name, kind, .. } in containers {
            match (kind, self.pods[at].view.states[&name]) {
                (_, ContainerState::Waiting { .. }) => return self.start(at, &name),
                (ContainerKind::Init, ContainerState::Running) => {
                    self.pods[at].set(&name, ContainerState::Terminated);
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// `startContainer`: PreStartContainer, then the cached answer.
    fn start(&mut self, at: usize, name: &str) -> Result<(), TestCaseError> {
        let pod = &self.pods[at];
        let uid = &pod.view.uid;
        if count(&pod.view, name) > 0 {
            // A kubelet that has lost its records can't start the container any more.
            let Some(grant) = self.devices.grant(uid, name, GPU) else { return Ok(()) };
            let answer = grant.answer.clone();
            let written = self.daemon().0.pre_start(&slots(&grant.ids));
            prop_assert!(written.is_ok(), "{uid} {name}: PreStartContainer: {written:?}");
            self.pods[at].given.insert(name.to_owned(), answer);
            seen("started");
        }
        self.pods[at].set(name, ContainerState::Running);
        Ok(())
    }

    pub(crate) fn restart_container(&mut self, pod: Index) {
        let Some(at) = self.pick(pod) else { return };
        let running = self.pods[at].running();
        if let Some(name) = running.into_iter().next() {
            self.pods[at].set(&name, ContainerState::Waiting { started_before: true });
        }
    }

    pub(crate) fn finish(&mut self, pod: Index) {
        let Some(at) = self.pick(pod) else { return };
        if !self.pods[at].view.states.is_empty() {
            self.pods[at].end_all();
        }
    }

    pub(crate) fn evict(&mut self, pod: Index) {
        let Some(at) = self.pick(pod) else { return };
        self.pods[at].fail();
    }

    pub(crate) fn stop(&mut self, pod: Index) {
        let Some(at) = self.pick(pod) else { return };
        if self.pods[at].failed {
            self.pods[at].end_all();
        }
    }

    pub(crate) fn delete(&mut self, pod: Index) {
        if let Some(at) = self.pick(pod) {
            self.pods.remove(at);
        }
    }

    pub(crate) fn delete_all(&mut self) {
        self.pods.clear();
    }

    pub(crate) fn look(&mut self) -> Result<(), TestCaseError> {
        let shown = self.shown();
        let looked = self.daemon_mut().look(&shown);
        prop_assert!(looked.is_ok(), "{looked:?}");
        if shown.settled {
            self.nothing_leaked()?;
        }
        Ok(())
    }

    /// The daemon asks for a list, which arrives with [`Self::hear_late`].
    pub(crate) fn ask_late(&mut self) {
        self.late = Some((self.shown(), self.daemon().0.ledger().revision()));
    }

    pub(crate) fn hear_late(&mut self) -> Result<(), TestCaseError> {
        let Some((shown, asked)) = self.late.take() else { return Ok(()) };
        match self.daemon_mut().look_late(&shown, asked) {
            Ok(()) => seen("late list"),
            Err(refusal) => prop_assert!(matches!(refusal, Refusal::Stale), "{refusal}"),
        }
        Ok(())
    }

    pub(crate) fn set_health(&mut self, card: Index, healthy: bool) {
        let at = card.index(self.cards.len());
        let sick = || CardHealth::Unhealthy { reason: "XID 79".to_owned() };
        self.cards[at].health = if healthy { CardHealth::Healthy } else { sick() };
        let cards = self.cards.clone();
        self.daemon_mut().set_cards(cards);
        self.advertise();
    }

    /// The daemon dies and comes back, with or without a card.
    pub(crate) fn crash(&mut self, lost: Option<Index>) -> Result<(), TestCaseError> {
        seen("crash");
        self.daemon = None;
        let mut there = self.cards.clone();
        if let Some(lost) = lost {
            there.remove(lost.index(there.len()));
        }
        self.start_daemon_with(there)
    }

    pub(crate) fn restart_kubelet(
        &mut self,
        lose_checkpoint: bool,
        mut dies: Option<(usize, Death)>,
    ) -> Result<(), TestCaseError> {
        self.stop_kubelet(lose_checkpoint);
        self.start_kubelet(&mut dies)
    }

    // --- the kubelet ---

    fn stop_kubelet(&mut self, lose_checkpoint: bool) {
        let held = std::mem::take(&mut self.devices.held);
        self.devices = if lose_checkpoint { Devices::default() } else { Devices::restored(held, [GPU.to_owned()]) };
        self.sources_ready = false;
        self.boots += 1;
        for pod in &mut self.pods {
            pod.listed = false;
            pod.found_running = pod.running().into_iter().collect();
            // What doesn't run, and isn't on record, will be asked for anew.
            let on_record = |name: &str| self.devices.grant(&pod.view.uid, name, GPU).is_some();
            pod.given.retain(|name, _| pod.found_running.contains(name) || on_record(name));
        }
    }

    /// Lists its pods one by one, as it admits them again.
    fn start_kubelet(&mut self, dies: &mut Option<(usize, Death)>) -> Result<(), TestCaseError> {
        seen("kubelet restart");
        self.daemon_mut().0.begin_session();
        self.advertise();
        for at in 0..self.pods.len() {
            self.pods[at].listed = true;
            if matches!(self.pods[at].view.phase, Phase::Pending | Phase::Running) {
                self.admit(at, dies.take(), false)?;
                self.check()?;
            }
        }
        self.sources_ready = true;
        Ok(())
    }

    fn admit(&mut self, at: usize, dies: Option<(usize, Death)>, twice: bool) -> Result<(), TestCaseError> {
        let containers = self.pods[at].view.containers.clone();
        let mut asked = 0;
        for container in &containers {
            let wanted = count(&self.pods[at].view, &container.name) > 0;
            let death = dies.filter(|(nth, _)| wanted && *nth == asked).map(|(_, death)| death);
            asked += usize::from(wanted);
            let outcome = if wanted { self.allocate(at, container, death, twice)? } else { Outcome::Admitted };
            match outcome {
                Outcome::Admitted => {}
                Outcome::Failed => {
                    self.pods[at].fail();
                    return Ok(());
                }
                // It comes back with its checkpoint, which says nothing of this container.
                Outcome::KubeletDied => {
                    self.stop_kubelet(false);
                    return self.start_kubelet(&mut None);
                }
            }
        }
        self.pods[at].admitted();
        Ok(())
    }

    /// `ManagerImpl.Allocate` for one container.
    fn allocate(
        &mut self,
        at: usize,
        container: &ContainerSpec,
        death: Option<Death>,
        twice: bool,
    ) -> Result<Outcome, TestCaseError> {
        let view = self.pods[at].view.clone();
        let demand =
            Demand { pod: &view.uid, container: &container.name, resource: GPU, count: count(&view, &container.name) };
        self.devices.enter(&view.uid);
        self.sweep();
        let running = !self.sources_ready && self.pods[at].found_running.contains(&container.name);
        let ids = match self.devices.begin(demand, running, &mut self.rng) {
            Err(_refused) => return Ok(Outcome::Failed),
            Ok(Step::Nothing) => None,
            Ok(Step::Chosen(ids)) => Some(ids),
            Ok(Step::Ask(question)) => match self.ask(demand, &question, death, twice)? {
                Some(ids) => Some(ids),
                None => return Ok(Outcome::Failed),
            },
        };
        if let Some(ids) = ids {
            match self.call(at, demand, ids, death)? {
                Outcome::Admitted => {}
                other => return Ok(other),
            }
        }
        self.devices.leave(&view.uid, &container.name, container.kind == ContainerKind::Init);
        Ok(Outcome::Admitted)
    }

    /// Lets the daemon choose; `None` if it refused.
    fn ask(
        &mut self,
        demand: Demand<'_>,
        question: &Question,
        death: Option<Death>,
        twice: bool,
    ) -> Result<Option<Ids>, TestCaseError> {
        if twice {
            return Ok(Some(self.devices.settle_twice(demand, question, &mut self.rng)));
        }
        if matches!(death, Some(Death::BeforeProposal)) {
            self.crash(None)?;
            return Ok(None);
        }
        let available = slots(&(&question.free | &question.taken)).into_iter().collect();
        let choice = Choice { available, required: slots(&question.taken).into_iter().collect(), size: question.size };
        let shown = self.shown();
        let preferred = self.daemon_mut().propose(&shown, &choice);
        let Ok(preferred) = not_our_fault(preferred)? else { return Ok(None) };
        let preferred = preferred.iter().map(ToString::to_string).collect();
        Ok(Some(self.devices.settle(GPU, question, &preferred, &mut self.rng)))
    }

    /// Calls Allocate and books its answer.
    fn call(
        &mut self,
        at: usize,
        demand: Demand<'_>,
        ids: Ids,
        death: Option<Death>,
    ) -> Result<Outcome, TestCaseError> {
        if matches!(death, Some(Death::BeforeAllocate)) {
            self.crash(None)?;
            self.devices.recount();
            return Ok(Outcome::Failed);
        }
        let mut order = slots(&ids);
        rand::seq::SliceRandom::shuffle(&mut order[..], &mut self.rng);
        let shown = self.shown();
        let again = self.booked(demand);
        let answer = self.daemon_mut().allocate(&shown, &order);
        let Ok(answer) = not_our_fault(answer)? else {
            self.devices.recount();
            return Ok(Outcome::Failed);
        };
        match death {
            Some(Death::Torn(cut)) => {
                self.die_writing(cut)?;
                self.devices.recount();
                Ok(Outcome::Failed)
            }
            Some(Death::BeforeAnswer) => {
                self.crash(None)?;
                self.devices.recount();
                Ok(Outcome::Failed)
            }
            Some(Death::KubeletBeforeAnswer) => Ok(Outcome::KubeletDied),
            Some(Death::Both(cut)) => {
                self.die_writing(cut)?;
                Ok(Outcome::KubeletDied)
            }
            Some(Death::BeforeProposal | Death::BeforeAllocate) | None => {
                seen(if again { "allocated again" } else { "allocated" });
                self.pods[at].given.insert(demand.container.to_owned(), answer.clone());
                self.devices.insert(demand, Grant { ids, answer });
                Ok(Outcome::Admitted)
            }
        }
    }

    /// Whether the books say that the container has its devices.
    fn booked(&self, demand: Demand<'_>) -> bool {
        let entry = self.daemon().0.ledger().book().pod(demand.pod);
        entry.is_some_and(|entry| entry.holding(demand.container).is_some())
    }

    fn sweep(&mut self) {
        if self.sources_ready {
            let active = self.pods.iter().filter(|pod| pod.listed && !pod.view.has_ended());
            let active = active.map(|pod| pod.view.uid.clone()).collect();
            self.devices.sweep(&active);
        }
    }

    fn shown(&mut self) -> Shown {
        let listed = self.pods.iter().filter(|pod| pod.listed).map(|pod| pod.view.clone());
        let pods = listed.chain([daemons_own_pod()]).collect();
        let list = PodList { pods, connection: Some((Ipv4Addr::LOCALHOST, self.boots).into()) };
        let assigned = self.pods.iter().filter(|pod| pod.listed).flat_map(|pod| self.assigned(&pod.view)).collect();
        Shown { list, settled: self.sources_ready, assigned }.shuffle(&mut self.rng)
    }

    fn assigned<'a>(&'a self, view: &'a PodView) -> impl Iterator<Item = Assigned> + 'a {
        let containers = view.containers.iter().filter(|container| container.kind != ContainerKind::Init);
        containers.filter_map(|container| {
            let grant = self.devices.grant(&view.uid, &container.name, GPU)?;
            Some(Assigned {
                namespace: view.namespace.clone(),
                pod: view.name.clone(),
                container: container.name.clone(),
                devices: grant.ids.iter().cloned().collect(),
            })
        })
    }

    // --- the daemon ---

    fn die_writing(&mut self, cut: Index) -> Result<(), TestCaseError> {
        seen("torn record");
        self.daemon = None;
        self.disk.tear(cut);
        self.start_daemon()
    }

    fn start_daemon(&mut self) -> Result<(), TestCaseError> {
        self.start_daemon_with(self.cards.clone())
    }

    /// Until it has recovered, nothing is answered; by then every running container has its shares again.
    fn start_daemon_with(&mut self, cards: Vec<CardInfo>) -> Result<(), TestCaseError> {
        self.late = None;
        let mut daemon = self.disk.open();
        daemon.set_cards(cards);
        let shown = self.shown();
        let recovered = daemon.recover(&shown);
        prop_assert!(recovered.is_ok(), "{recovered:?}");
        self.daemon = Some(daemon);
        self.advertise();
        self.only_live_directories()?;
        self.check()
    }

    fn advertise(&mut self) {
        let list = advertise::devices(self.daemon().0.inventory(), self.daemon().0.ledger().book(), SLOTS);
        self.listed = list.iter().map(|device| device.id.clone()).collect();
        self.devices.replace_list(GPU, list);
    }

    fn pick(&self, pod: Index) -> Option<usize> {
        (!self.pods.is_empty()).then(|| pod.index(self.pods.len()))
    }
}

/// Some refusals nobody here gives cause for.
fn not_our_fault<T>(result: Result<T, Refusal>) -> Result<Result<T, Refusal>, TestCaseError> {
    if let Err(refusal) = &result {
        seen("refused");
        seen(refusal.kind());
        let internal = matches!(refusal.kind(), "call" | "stale" | "ledger" | "delivery" | "unknown-holder");
        prop_assert!(!internal, "{refusal}");
    }
    Ok(result)
}

/// A kubelet that runs the daemon lists at least this.
fn daemons_own_pod() -> PodView {
    PodView {
        uid: "own".to_owned(),
        namespace: "divvy".to_owned(),
        name: "divvy-node".to_owned(),
        annotations: BTreeMap::new(),
        containers: Vec::new(),
        phase: Phase::Running,
        states: BTreeMap::new(),
    }
}

fn slots(ids: &Ids) -> Vec<SlotId> {
    ids.iter().map(|id| id.parse().unwrap()).collect()
}

fn count(pod: &PodView, container: &str) -> usize {
    let container = pod.containers.iter().find(|other| other.name == container).unwrap();
    container.limits.get(GPU).map_or(0, |text| text.parse().unwrap())
}

// === impl Pod ===

impl Pod {
    pub(crate) fn running(&self) -> Vec<String> {
        let running = self.view.states.iter().filter(|(_, state)| **state == ContainerState::Running);
        running.map(|(name, _)| name.clone()).collect()
    }

    fn admitted(&mut self) {
        for container in &self.view.containers {
            let waiting = ContainerState::Waiting { started_before: false };
            self.view.states.entry(container.name.clone()).or_insert(waiting);
        }
    }

    fn fail(&mut self) {
        self.failed = true;
        self.view.phase = Phase::Failed;
    }

    fn end_all(&mut self) {
        for name in self.view.states.keys().cloned().collect::<Vec<_>>() {
            self.set(&name, ContainerState::Terminated);
        }
    }

    fn set(&mut self, name: &str, state: ContainerState) {
        self.view.states.insert(name.to_owned(), state);
        if self.failed {
            return;
        }
        let state_of = |container: &ContainerSpec| self.view.states[&container.name];
        let waits = |container: &ContainerSpec| {
            let init = container.kind == ContainerKind::Init && state_of(container) != ContainerState::Terminated;
            init || state_of(container) == ContainerState::Waiting { started_before: false }
        };
        let containers = &self.view.containers;
        self.view.phase = if containers.iter().all(|container| state_of(container) == ContainerState::Terminated) {
            Phase::Succeeded
        } else if containers.iter().any(waits) {
            Phase::Pending
        } else {
            Phase::Running
        };
    }
}
