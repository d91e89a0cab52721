//! Writes events on the Node and on pods: for state changes that need action.

pub(super) mod changes;
mod violations;

use std::collections::VecDeque;

use divvy_api::CardId;
use divvy_node_core::pod::PodRef;
use divvy_runtime::api_server::{ApiServer, within_deadline};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::time::Instant;

use self::violations::ReportedViolations;
use super::ROUND;
use super::attempts::{Attempts, concerns_one_object};
use super::view::View;
use crate::prompt::Prompts;

/// Most events that wait to be written; beyond that the oldest are dropped.
const PENDING: usize = 100;
const CREATE_EVENTS: &str = "create events";

/// Writes events, and remembers which.
pub(super) struct EventWriter {
    node_name: String,
    recorder: Recorder,
    attempts: Attempts,
    /// Events that haven't been written yet.
    pending: VecDeque<PendingEvent>,
    violations: ReportedViolations,
}

/// Event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingEvent {
    /// Pod that the event is about; `None`: the Node.
    pub(super) pod: Option<PodRef>,
    /// GPU that the event is about, too.
    pub(super) card: Option<CardId>,
    /// Type `Warning`, not `Normal`.
    pub(super) warning: bool,
    /// Reason, in camel case.
    pub(super) reason: &'static str,
    /// Message: what happened, and what to do.
    pub(super) note: String,
}

// === impl EventWriter ===

impl EventWriter {
    pub(super) fn new(node_name: &str, ApiServer { client, requests }: &ApiServer) -> Self {
        let reporter = Reporter { controller: "divvy.dev/node".to_owned(), instance: Some(node_name.to_owned()) };
        Self {
            node_name: node_name.to_owned(),
            recorder: Recorder::new(client.clone(), reporter),
            attempts: Attempts::new(requests.clone()),
            pending: VecDeque::new(),
            violations: ReportedViolations::default(),
        }
    }

    /// Takes note of what has changed between two views.
    pub(super) fn observe(&mut self, before: &View, after: &View) {
        self.pending.extend(changes::between(before, after));
        self.pending.extend(self.violations.news(&after.usage.findings, Instant::now()));
        self.pending.drain(..self.pending.len().saturating_sub(PENDING));
    }

    /// Writes the events that are pending, in order. Calls that wait for the Node go first; the next round goes on.
    pub(super) async fn write(&mut self, prompts: &Prompts) {
        while let Some(event) = self.pending.front().filter(|_| self.attempts.are_due(CREATE_EVENTS)) {
            if prompts.are_waiting() {
                return;
            }
            let publish = async { self.recorder.publish(&event.event(), &event.subject(&self.node_name)).await };
            match within_deadline(publish).await {
                Ok(()) => self.attempts.succeeded(CREATE_EVENTS),
                // It won't go better next time; the others may.
                Err(error) if concerns_one_object(&error) => {
                    self.attempts.requests().failed(CREATE_EVENTS, &error, ROUND);
                }
                Err(error) => return self.attempts.failed(CREATE_EVENTS, &error),
            }
            self.pending.pop_front();
        }
    }
}

// === impl PendingEvent ===

impl PendingEvent {
    /// What it is about.
    fn subject(&self, node_name: &str) -> ObjectReference {
        match &self.pod {
            // Events of a Node are found by its name: the kubelet's own carry it as UID too.
            None => ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node_name.to_owned()),
                uid: Some(node_name.to_owned()),
                ..ObjectReference::default()
            },
            Some(PodRef { uid, namespace, name }) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            },
        }
    }

    fn event(&self) -> Event {
        Event {
            type_: if self.warning { EventType::Warning } else { EventType::Normal },
            reason: self.reason.to_owned(),
            note: Some(self.note.chars().take(1000).collect()),
            action: self.reason.to_owned(),
            // Events that differ in their notes alone are taken for one that happened again.
            secondary: self.card.as_ref().map(|card| ObjectReference {
                kind: Some("GPU".to_owned()),
                name: Some(card.to_string()),
                ..ObjectReference::default()
            }),
        }
    }
}
