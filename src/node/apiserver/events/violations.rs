//! Events about share violations: on the pod that commits them, else on the Node.

use std::collections::HashMap;
use std::time::Duration;

use divvy_api::CardId;
use divvy_api::usage::{ContainerRef, ShareViolation, ViolationKind};
use tokio::time::Instant;

use super::PendingEvent;
use divvy_node_core::pod::PodRef;

/// Time after which a violation that is still active, or active again, is reported again.
const AGAIN: Duration = Duration::from_secs(3600);

/// Times at which violations were reported. Those that have ended are kept: they may come and go every few seconds.
#[derive(Debug, Default)]
pub(super) struct ReportedViolations(HashMap<(ViolationKind, CardId, Option<ContainerRef>), Instant>);

// === impl ReportedViolations ===

impl ReportedViolations {
    /// Events for the active violations that are due to be reported.
    pub(super) fn news(&mut self, findings: &[ShareViolation], now: Instant) -> Vec<PendingEvent> {
        self.0.retain(|_, reported| now.saturating_duration_since(*reported) < AGAIN);
        let mut news = Vec::new();
        for finding in findings {
            let key = (finding.kind, finding.card.clone(), finding.of.clone());
            self.0.entry(key).or_insert_with(|| {
                news.push(event(finding));
                now
            });
        }
        news
    }
}

fn event(finding: &ShareViolation) -> PendingEvent {
    let ShareViolation { kind, card, of, message, .. } = finding;
    let remedy = match kind {
        ViolationKind::AboveShare => "libdivvy is a cooperative limit: check what the container runs, or evict the pod",
        ViolationKind::WithoutLibrary => {
            "statically linked and musl programs don't load libdivvy: check what the container runs, or evict the pod"
        }
        ViolationKind::UnhookedFunction => "update Divvy to a release that knows the node's driver",
        ViolationKind::Foreign => "this memory is missing to the containers it was allocated to",
    };
    PendingEvent {
        pod: of.as_ref().map(|of| PodRef {
            uid: of.pod_uid.clone(),
            namespace: of.namespace.clone(),
            name: of.pod.clone(),
        }),
        card: Some(card.clone()),
        warning: true,
        reason: kind.reason(),
        note: format!("{message}; {remedy}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: ViolationKind, pod: Option<&str>) -> ShareViolation {
        let of = pod.map(|pod| ContainerRef {
            pod_uid: format!("uid-{pod}"),
            namespace: "team".to_owned(),
            pod: pod.to_owned(),
            container: "main".to_owned(),
        });
        let card = "GPU-a".parse().expect("a UUID");
        ShareViolation { kind, card, of, pids: vec![7], bytes: 1, seconds: 10, message: "it does that".to_owned() }
    }

    #[test]
    fn violation_event_repeats_after_an_hour() {
        let (mut reported, start) = (ReportedViolations::default(), Instant::now());
        let both = [finding(ViolationKind::AboveShare, Some("a")), finding(ViolationKind::Foreign, None)];
        let mut news = |minutes: u64, findings: &[ShareViolation]| {
            reported.news(findings, start + Duration::from_secs(60 * minutes)).len()
        };
        assert_eq!(news(0, &both[..1]), 1);
        assert_eq!(news(1, &both), 1, "the other one");
        assert_eq!(news(2, &[]), 0);
        assert_eq!(news(3, &both), 0, "back within the hour");
        assert_eq!(news(60, &both), 1);
        assert_eq!(news(61, &both), 1);
    }

    #[test]
    fn violation_event_is_on_the_pod_or_the_node() {
        let mut reported = ReportedViolations::default();
        let findings = [finding(ViolationKind::WithoutLibrary, Some("a")), finding(ViolationKind::Foreign, None)];
        let news = reported.news(&findings, Instant::now());
        let said: Vec<_> =
            news.iter().map(|news| (news.pod.as_ref().map(|pod| &*pod.uid), news.reason, &*news.note)).collect();
        insta::assert_debug_snapshot!(said);
    }
}
