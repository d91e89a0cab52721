//! Events about what was found of the cards' use: on the pod whose doing it is, else on the Node.

use std::collections::HashMap;
use std::time::Duration;

use divvy_api::CardId;
use divvy_api::usage::{ContainerRef, Finding, FindingKind};
use tokio::time::Instant;

use super::events::Happening;
use divvy_node_core::pod::PodRef;

/// What stands for so long, or comes again after so long, is told again.
const AGAIN: Duration = Duration::from_secs(3600);

/// When each finding was told. One that ends is remembered too: it may come and go every few seconds.
#[derive(Debug, Default)]
pub(super) struct ToldFindings(HashMap<(FindingKind, CardId, Option<ContainerRef>), Instant>);

// === impl ToldFindings ===

impl ToldFindings {
    /// What is to be told of the findings that stand now.
    pub(super) fn news(&mut self, findings: &[Finding], now: Instant) -> Vec<Happening> {
        self.0.retain(|_, told| now.saturating_duration_since(*told) < AGAIN);
        let mut news = Vec::new();
        for finding in findings {
            let key = (finding.kind, finding.card.clone(), finding.of.clone());
            self.0.entry(key).or_insert_with(|| {
                news.push(happening(finding));
                now
            });
        }
        news
    }
}

fn happening(finding: &Finding) -> Happening {
    let Finding { kind, card, of, message, .. } = finding;
    let remedy = match kind {
        FindingKind::AboveShare => "limits in the container are cooperative: see what it runs, or evict it",
        FindingKind::WithoutLibrary => {
            "programs that are linked statically or to musl load no library: see what it runs, or evict it"
        }
        FindingKind::Foreign => "its memory is missing to those that were promised it",
    };
    Happening {
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

    fn finding(kind: FindingKind, pod: Option<&str>) -> Finding {
        let of = pod.map(|pod| ContainerRef {
            pod_uid: format!("uid-{pod}"),
            namespace: "team".to_owned(),
            pod: pod.to_owned(),
            container: "main".to_owned(),
        });
        let card = "GPU-a".parse().expect("a UUID");
        Finding { kind, card, of, pids: vec![7], bytes: 1, seconds: 10, message: "it does that".to_owned() }
    }

    #[test]
    fn a_finding_is_told_once_and_again_after_an_hour() {
        let (mut told, start) = (ToldFindings::default(), Instant::now());
        let both = [finding(FindingKind::AboveShare, Some("a")), finding(FindingKind::Foreign, None)];
        let mut news =
            |minutes: u64, findings: &[Finding]| told.news(findings, start + Duration::from_secs(60 * minutes)).len();
        assert_eq!(news(0, &both[..1]), 1);
        assert_eq!(news(1, &both), 1, "the other one");
        assert_eq!(news(2, &[]), 0);
        assert_eq!(news(3, &both), 0, "back within the hour");
        assert_eq!(news(60, &both), 1);
        assert_eq!(news(61, &both), 1);
    }

    #[test]
    fn it_is_told_at_the_pod_or_at_the_node() {
        let mut told = ToldFindings::default();
        let findings = [finding(FindingKind::WithoutLibrary, Some("a")), finding(FindingKind::Foreign, None)];
        let news = told.news(&findings, Instant::now());
        let said: Vec<_> =
            news.iter().map(|news| (news.pod.as_ref().map(|pod| &*pod.uid), news.reason, &*news.note)).collect();
        insta::assert_debug_snapshot!(said);
    }
}
