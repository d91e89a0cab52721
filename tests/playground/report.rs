//! What came of it all, for people and as JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use crate::args::Args;
use crate::checks::Tally;
use crate::webhook::Predictions;
use fake_kubelet::{Call, Method, Refusal};

mod summary;

/// Everything that is reported.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What was asked for.
    pub settings: Settings,
    /// Pods offered.
    pub offered: u64,
    /// Pods that a node admitted.
    pub admitted: u64,
    /// Those of them that use no card.
    pub admitted_without_cards: u64,
    /// Those that request a card and got none, because a kubelet without its checkpoint overlooked the request.
    pub overlooked: u64,
    /// Pods that nobody took, by the kind of reason.
    pub refused: BTreeMap<String, Refusals>,
    /// Pods for which there was no room when they came.
    pub waited: Waited,
    /// Reservations of cards.
    pub reservations: Reservations,
    /// Admitted pods that a kubelet failed later, by kind and reason.
    pub failed_later: BTreeMap<String, u64>,
    /// Invariants: how often checked, and which were broken.
    pub checks: Tally,
    /// What was done to the nodes, by kind.
    pub chaos: BTreeMap<String, u64>,
    /// Starts of daemons after a kill.
    pub daemon_restarts: u64,
    /// Starts of kubelets after a kill.
    pub kubelet_restarts: u64,
    /// The kubelets' calls to the daemons, by name.
    pub latencies: BTreeMap<String, Latency>,
    /// What daemons and webhooks wrote to the API server, by resource; `bindings` are of pods.
    pub writes: BTreeMap<String, u64>,
    /// Part of the cards held at the end, in percent: the larger of memory and cores of each card, on average.
    pub held_percent: f64,
    /// How long it took.
    pub seconds: f64,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// `--nodes`.
    pub node_file: Option<String>,
    /// `--pods`.
    pub pod_file: Option<String>,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of cards.
    pub cards: usize,
    /// `--load`.
    pub load_percent: u32,
    /// `--admissions`.
    pub admissions: u32,
    /// `--seed`.
    pub seed: u64,
    /// `--chaos`.
    pub chaos: bool,
    /// Unless `--no-webhook`.
    pub webhook: bool,
}

/// Pods for which the scheduler found no node at first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waited {
    /// How many.
    pub pods: u64,
    /// Those of them for which `/explain` gave a reason.
    pub explained: u64,
    /// Others of them for which `FailedScheduling` gave one.
    pub told: u64,
    /// Those of them that found a node later.
    pub placed: u64,
    /// Those of them that nobody waited for any longer.
    pub given_up: u64,
    /// The reasons of `/explain`, word for word, and how often each was given.
    pub texts: BTreeMap<String, u64>,
}

/// What became of reservations of cards.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reservations {
    /// As the webhook counts it (`divvy_reservation_outcomes_total`): without what a replica didn't live to see.
    pub counted: Predictions,
    /// As it is seen from outside, when nodes admit pods.
    pub seen: Seen,
}

/// Pods with reserved cards, by what their nodes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Pods that hold the cards of `divvy.dev/planned`.
    pub kept: u64,
    /// Pods that hold others.
    pub moved: u64,
    /// Pods that a node refused.
    pub refused: u64,
}

/// Pods that were refused for one kind of reason.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Refusals {
    /// How many.
    pub count: u64,
    /// The reasons, word for word, and how often each was given.
    pub texts: BTreeMap<String, u64>,
}

/// Time from the kubelet's question to the decoded answer, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Calls that ended well.
    pub calls: usize,
    /// Calls that were refused or cut off.
    pub failed: usize,
    /// Half of the good ones took no longer.
    pub p50_us: u64,
    /// 99 of 100 took no longer.
    pub p99_us: u64,
}

/// A reason for a refusal, apart from what the kubelet wraps it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// A daemon's own kinds, and `admission`, `insufficient-devices`, `plugin-away`, `node-fit` and `unschedulable`.
    pub kind: String,
    /// Word for word.
    pub text: String,
}

// === impl Reason ===

impl Reason {
    /// The API server didn't take it.
    pub fn admission(text: &str) -> Self {
        let own = text.split_once("denied the request: ").map_or(text, |(_, own)| own);
        Self { kind: "admission".to_owned(), text: own.to_owned() }
    }

    /// Nobody asked a node.
    pub fn unschedulable(text: String) -> Self {
        Self { kind: "unschedulable".to_owned(), text }
    }
}

impl From<&Refusal> for Reason {
    fn from(refusal: &Refusal) -> Self {
        let Refusal { reason, message } = refusal;
        if let Some((kind, text)) = message.split_once("divvy: ").and_then(|(_, own)| own.split_once(": ")) {
            let text = text.strip_suffix(", which is unexpected").unwrap_or(text);
            return Self { kind: kind.to_owned(), text: text.to_owned() };
        }
        let kind = match message {
            _ if reason != "UnexpectedAdmissionError" => "node-fit",
            _ if message.contains("devices unavailable") || message.contains("no healthy devices") => {
                "insufficient-devices"
            }
            _ => "plugin-away",
        };
        Self { kind: kind.to_owned(), text: format!("{reason}: {message}") }
    }
}

// === impl Report ===

impl Report {
    /// The report's beginning.
    pub fn new(args: &Args, nodes: usize, cards: usize) -> Self {
        let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let settings = Settings {
            node_file: path(&args.nodes),
            pod_file: path(&args.pods),
            nodes,
            cards,
            load_percent: args.load,
            admissions: args.admissions,
            seed: args.seed,
            chaos: args.chaos,
            webhook: !args.no_webhook,
        };
        Self { settings, ..Self::default() }
    }

    /// A pod was refused.
    pub fn refuse(&mut self, reason: Reason) {
        let refusals = self.refused.entry(reason.kind).or_default();
        refusals.count += 1;
        *refusals.texts.entry(reason.text).or_default() += 1;
    }

    /// Takes over the kubelets' calls.
    pub fn time(&mut self, calls: &[Call]) {
        for method in [Method::GetPreferredAllocation, Method::Allocate, Method::PreStartContainer] {
            let calls = calls.iter().filter(|call| call.method == method);
            let (failed, good): (Vec<_>, Vec<_>) = calls.partition(|call| call.error.is_some());
            let latency = Latency::of(good.iter().map(|call| call.took).collect(), failed.len());
            self.latencies.insert(format!("{method:?}"), latency);
        }
    }

    /// Writes it as JSON.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).context("writing the report as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }
}

// === impl Latency ===

impl Latency {
    fn of(mut good: Vec<Duration>, failed: usize) -> Self {
        good.sort_unstable();
        let at = |percent: usize| good.get((good.len() * percent / 100).min(good.len().saturating_sub(1)));
        let micros = |percent| at(percent).map_or(0, |took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        Self { calls: good.len(), failed, p50_us: micros(50), p99_us: micros(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(reason: &str, message: &str) -> (String, String) {
        let reason = Reason::from(&Refusal { reason: reason.to_owned(), message: message.to_owned() });
        (reason.kind, reason.text)
    }

    #[test]
    fn reasons_are_taken_out_of_what_the_kubelet_wraps_them_in() {
        let wrapped = "Allocate failed due to rpc error: code = InvalidArgument desc = divvy: request: spec.containers[0]: \"8G\" is ambiguous, which is unexpected";
        let unwrapped = ("request".to_owned(), "spec.containers[0]: \"8G\" is ambiguous".to_owned());
        assert_eq!(reason("UnexpectedAdmissionError", wrapped), unwrapped);
        let kind = |message| reason("UnexpectedAdmissionError", message).0;
        assert_eq!(
            kind("Allocate failed due to requested number of devices unavailable for x"),
            "insufficient-devices"
        );
        assert_eq!(kind("Allocate failed due to endpoint x has been stopped, which is unexpected"), "plugin-away");
        assert_eq!(reason("OutOfcpu", "Node didn't have enough resource: cpu").0, "node-fit");
    }

    #[test]
    fn percentiles_are_of_the_good_calls() {
        let took = |range: std::ops::RangeInclusive<u64>| range.rev().map(Duration::from_micros).collect();
        assert_eq!(Latency::of(took(1..=200), 3), Latency { calls: 200, failed: 3, p50_us: 101, p99_us: 199 });
        assert_eq!(Latency::of(vec![], 0), Latency::default());
    }
}
