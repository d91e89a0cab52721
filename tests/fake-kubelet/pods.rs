//! The pods of the node: what the API server wants, what the kubelet decided, what the containers do. Synchronous.

use std::sync::Arc;

use divvy_api::{ContainerKind, ContainerSpec};
use divvy_proto::deviceplugin as dp;
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use tokio::sync::{Notify, watch};

use super::spec;

/// Why a pod failed before or beside its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `status.reason`, such as `UnexpectedAdmissionError`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
}

/// What came of a pod's admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Admitted: containers are being started.
    Admitted,
    /// Failed for good; listed until it is deleted.
    Rejected(Refusal),
    /// Deleted before its turn came.
    Deleted,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Something hasn't been started yet.
    Pending,
    /// Every container was started, one runs.
    Running,
    /// All ended with 0.
    Succeeded,
    /// Rejected, evicted, or ended with another code.
    Failed,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Before a start.
    Waiting {
        /// `ContainerCreating`, `CreateContainerConfigError` and so on.
        reason: &'static str,
        /// The error, if that is the reason.
        message: String,
    },
    /// Between start and end.
    Running {
        /// Time of the last start.
        since: Timestamp,
    },
    /// Ended.
    Terminated {
        /// 0 is well.
        exit_code: i32,
        /// Time of the last start.
        started: Option<Timestamp>,
        /// Time of the end.
        finished: Timestamp,
    },
}

/// One container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) spec: ContainerSpec,
    pub(crate) state: ContainerState,
    /// Starts so far.
    pub(crate) starts: u32,
    /// What it was really started with, the last time.
    pub(crate) given: Option<dp::ContainerAllocateResponse>,
    /// The kubelet that started last found it running.
    pub(crate) found_running: bool,
}

/// One pod that is bound to the node.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    /// As the API server has it, but for the status.
    pub(crate) object: v1::Pod,
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) containers: Vec<Container>,
    /// This kubelet's pod manager has it, so everything that lists pods shows it.
    pub(crate) listed: bool,
    /// Deleted by force: nothing lists it any more, and its containers run on until they have ended.
    pub(crate) forgotten: bool,
    /// Rejected or evicted.
    pub(crate) failure: Option<Refusal>,
    /// Rejected, while the API server's object, which `/pods` shows, doesn't say so yet.
    pub(crate) unheard: bool,
    /// Deletion was asked for.
    pub(crate) deleted: Option<Timestamp>,
    /// When the kubelet first saw it.
    pub(crate) started: Timestamp,
    /// Wakes its worker.
    pub(crate) poke: Arc<Notify>,
    /// What came of its last admission.
    pub(crate) outcome: watch::Sender<Option<Admission>>,
}

/// What a pod's worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start this container.
    Start(usize),
    /// Let this init container run to its end.
    RunToEnd(usize),
    /// End all containers that run.
    Stop,
    /// Take the pod off the list.
    Remove,
    /// Nothing until something happens.
    Sleep,
}

// === impl Pod ===

impl Pod {
    pub(crate) fn new(object: v1::Pod) -> Result<Self, spec::SpecError> {
        let missing = |field| move || spec::SpecError::Missing(field);
        let metadata = &object.metadata;
        let uid = metadata.uid.clone().ok_or_else(missing("metadata.uid"))?;
        let namespace = metadata.namespace.clone().ok_or_else(missing("metadata.namespace"))?;
        let name = metadata.name.clone().ok_or_else(missing("metadata.name"))?;
        let containers = spec::containers(&object).into_iter().map(Container::new).collect();
        let (failure, unheard, deleted, listed, forgotten) = (None, false, None, false, false);
        let (poke, started) = (Arc::new(Notify::new()), Timestamp::now());
        let outcome = watch::Sender::new(None);
        Ok(Self {
            object,
            uid,
            namespace,
            name,
            containers,
            listed,
            forgotten,
            failure,
            unheard,
            deleted,
            started,
            poke,
            outcome,
        })
    }

    /// `getPhase`: a pod with a container that was never started is Pending, whatever the others do.
    pub(crate) fn phase(&self) -> Phase {
        let ended = self.apps().all(Container::has_ended) && !self.is_running();
        let unfinished_init = |c: &Container| c.spec.kind == ContainerKind::Init && !c.has_ended();
        if self.failure.is_some() {
            Phase::Failed
        } else if ended && self.apps().all(|c| c.state.exit_code() == Some(0)) {
            Phase::Succeeded
        } else if ended {
            Phase::Failed
        } else if self.containers.iter().any(|c| c.starts == 0 || unfinished_init(c)) {
            Phase::Pending
        } else {
            Phase::Running
        }
    }

    /// Whether the sync loop has yet to take it up.
    pub(crate) fn is_unseen(&self) -> bool {
        !self.listed && !self.forgotten
    }

    /// Whether its devices stay its own: not `isPodInactive`.
    pub(crate) fn is_active(&self) -> bool {
        self.is_running() || !self.is_terminal()
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.phase(), Phase::Succeeded | Phase::Failed)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.containers.iter().any(|container| container.state.is_running())
    }

    pub(crate) fn container_mut(&mut self, name: &str) -> Option<&mut Container> {
        self.containers.iter_mut().find(|container| container.spec.name == name)
    }

    /// What its worker does next, once admitted: init containers one after another, sidecars stay, then apps.
    pub(crate) fn next_action(&self) -> Action {
        let stopping = self.failure.is_some() || self.deleted.is_some() || self.apps().all(Container::has_ended);
        if stopping {
            return match (self.is_running(), self.deleted.is_some()) {
                (true, _) => Action::Stop,
                (false, true) => Action::Remove,
                (false, false) => Action::Sleep,
            };
        }
        for (index, container) in self.containers.iter().enumerate() {
            match (container.spec.kind, &container.state) {
                (_, ContainerState::Waiting { .. }) => return Action::Start(index),
                (ContainerKind::Init, ContainerState::Running { .. }) => return Action::RunToEnd(index),
                (_, ContainerState::Running { .. } | ContainerState::Terminated { .. }) => {}
            }
        }
        Action::Sleep
    }

    /// Takes over labels and annotations.
    pub(crate) fn relabel(&mut self, object: &v1::Pod) {
        self.object.metadata.annotations.clone_from(&object.metadata.annotations);
        self.object.metadata.labels.clone_from(&object.metadata.labels);
    }

    /// Asks for the deletion, unless that was done before.
    pub(crate) fn delete(&mut self) {
        self.deleted.get_or_insert_with(Timestamp::now);
    }

    /// Deletes the pod by force. One that wasn't admitted yet has nothing to leave behind.
    pub(crate) fn forget(&mut self) {
        self.delete();
        self.forgotten = self.listed;
        self.listed = false;
    }

    /// Ends every running container.
    pub(crate) fn stop(&mut self, exit_code: i32) {
        for container in self.containers.iter_mut().filter(|container| container.state.is_running()) {
            container.end(exit_code);
        }
    }

    /// Ends the pod's work as if its processes had, those that never started too; sidecars are stopped after that.
    pub(crate) fn finish(&mut self, exit_code: i32) {
        for container in self.containers.iter_mut().filter(|c| c.spec.kind != ContainerKind::Sidecar) {
            container.end(exit_code);
        }
    }

    fn apps(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| container.spec.kind == ContainerKind::App)
    }
}

// === impl Container ===

impl Container {
    fn new(spec: ContainerSpec) -> Self {
        let state = ContainerState::waiting("PodInitializing");
        Self { spec, state, starts: 0, given: None, found_running: false }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, ContainerState::Terminated { .. })
    }

    pub(crate) fn start(&mut self, given: dp::ContainerAllocateResponse) {
        self.state = ContainerState::Running { since: Timestamp::now() };
        self.starts += 1;
        self.given = Some(given);
    }

    pub(crate) fn end(&mut self, exit_code: i32) {
        let started = match self.state {
            ContainerState::Running { since } => Some(since),
            ContainerState::Terminated { started, .. } => started,
            ContainerState::Waiting { .. } => None,
        };
        self.state = ContainerState::Terminated { exit_code, started, finished: Timestamp::now() };
    }
}

// === impl ContainerState ===

impl ContainerState {
    pub(crate) fn waiting(reason: &'static str) -> Self {
        Self::Waiting { reason, message: String::new() }
    }

    /// Whether its process exists.
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Terminated { exit_code, .. } => Some(*exit_code),
            _ => None,
        }
    }
}

// === impl Phase ===

impl Phase {
    /// As `status.phase` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}
