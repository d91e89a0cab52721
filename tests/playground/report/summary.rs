//! The report for people.

use super::{Latency, Refusals, Report, Reservations, Waited};
use crate::checks::Invariant;
use crate::text::{clip, wrap};

/// Where the texts of a section begin.
const INDENT: usize = 13;
/// Reasons that are shown of one kind.
const REASONS: usize = 8;

/// Sections with a name each.
struct Sections(String);

// === impl Report ===

impl Report {
    /// A summary for people.
    pub fn summary(&self) -> String {
        let refused: u64 = self.refused.values().map(|refusals| refusals.count).sum();
        let waited = match self.waited.given_up {
            0 => String::new(),
            given_up => format!(", {given_up} found no node in time"),
        };
        let head = format!(
            "{} pods submitted to {} nodes with {} GPUs in {:.1} s: {} ran ({} without a GPU), {refused} refused{waited}; {:.0} % of the GPUs allocated",
            self.offered,
            self.settings.nodes,
            self.settings.cards,
            self.seconds,
            self.admitted,
            self.admitted_without_cards,
            self.held_percent
        );
        let mut sections = Sections(wrap(&head, 0) + "\n");
        self.refused.iter().for_each(|(kind, refusals)| sections.refused(kind, refusals));
        sections.counted("failed later", &self.failed_later);
        if self.overlooked > 0 {
            sections.add("overlooked", &format!("{} by a kubelet without its checkpoint", self.overlooked));
        }
        if self.settings.webhook {
            sections.waited(&self.waited);
            sections.reserved(&self.reservations);
        }
        sections.calls(self);
        sections.counted("written", &self.writes);
        sections.written_a_pod(self);
        sections.counted("chaos", &self.chaos);
        sections.checks(self);
        sections.0
    }
}

// === impl Sections ===

impl Sections {
    fn add(&mut self, name: &str, text: &str) {
        let line = format!("  {name:<width$}{text}", width = INDENT - 2);
        self.0.push_str(&wrap(&line, INDENT));
        self.0.push('\n');
    }

    /// The most frequent reasons, each with its number.
    fn reasons<'a>(&mut self, reasons: impl IntoIterator<Item = (&'a String, &'a u64)>) {
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (text, count) in reasons.iter().take(REASONS) {
            let line = format!("{:INDENT$}{count:>3}  {text}", "");
            self.0.push_str(&clip(wrap(&line, INDENT + 5), 2));
            self.0.push('\n');
        }
        if reasons.len() > REASONS {
            self.add("", &format!("and {} more reasons (--report FILE has all)", reasons.len() - REASONS));
        }
    }

    fn refused(&mut self, kind: &str, Refusals { count, texts }: &Refusals) {
        let by = if kind == "admission" { "at admission" } else { kind };
        self.add("refused", &format!("{count} {by}:"));
        self.reasons(texts);
    }

    fn waited(&mut self, waited: &Waited) {
        let Waited { pods, explained, told, placed, given_up: _, texts } = waited;
        let text = format!(
            "{pods} pods had to wait, {placed} of them got a node later; reasons for {explained} from divvy-webhook (/explain), for {told} from the scheduler alone{}",
            if texts.is_empty() { "" } else { ":" }
        );
        self.add("waiting", &text);
        self.reasons(texts);
    }

    fn reserved(&mut self, Reservations { counted, seen }: &Reservations) {
        let all = seen.kept + seen.moved + seen.refused;
        let words = [
            ("kept", "kept"),
            ("moved", "moved"),
            ("ended", "ended before a report of their node"),
            ("expired", "expired"),
        ];
        let counted = words.map(|(own, said)| format!("{} {said}", counted.get(own).copied().unwrap_or_default()));
        self.add(
            "reserved",
            &format!(
                "GPUs for {all} pods: {} got these, {} got others, {} were refused by their node",
                seen.kept, seen.moved, seen.refused
            ),
        );
        self.add("", &format!("counted by divvy-webhook: {}", counted.join(", ")));
    }

    fn calls(&mut self, report: &Report) {
        for (name, (method, Latency { calls, failed, p50_us, p99_us })) in
            ["calls", "", ""].into_iter().zip(&report.latencies)
        {
            self.add(name, &format!("{calls:>4} {method:<22} p50 {p50_us} µs, p99 {p99_us} µs; {failed} more failed"));
        }
        if cfg!(debug_assertions) {
            self.add("", "of an unoptimised build; with --release they are several times faster");
        }
    }

    fn counted(&mut self, name: &str, counts: &std::collections::BTreeMap<String, u64>) {
        if !counts.is_empty() {
            let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
            self.add(name, &counts.join(", "));
        }
    }

    /// Writes that come with pods; events and leases don't.
    fn written_a_pod(&mut self, report: &Report) {
        let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let pods = number(report.admitted - report.admitted_without_cards);
        if pods == 0.0 {
            return;
        }
        let each = |resources: &[&str]| {
            number(resources.iter().filter_map(|resource| report.writes.get(*resource)).sum()) / pods
        };
        let all = each(&["bindings", "pods", "gpunodes.divvy.dev", "nodes"]);
        let nodes = each(&["nodes"]);
        self.add(
            "",
            &format!("for each pod with GPUs {all:.1} of bindings, pods, GpuNodes and Nodes; {nodes:.1} of Nodes"),
        );
    }

    fn checks(&mut self, report: &Report) {
        let what = |invariant: &Invariant| match invariant {
            Invariant::I1 => "shares fit on their GPU",
            Invariant::I2 => "all records of a container agree",
            Invariant::I4 => "slots stay listed",
            Invariant::I5 => "reservations fit on their GPUs",
            Invariant::Reservation => "reservations are kept",
            Invariant::Refusal => "invalid requests are refused with a reason",
            Invariant::Recovery => "killed processes are back",
        };
        let checked = report.checks.checked.iter().map(|(own, count)| format!("{count} {} ({own})", what(own)));
        self.add("checks", &checked.collect::<Vec<_>>().join(", "));
        for broken in &report.checks.broken {
            self.0.push_str(&wrap(&broken.to_string(), 2));
            self.0.push('\n');
        }
        if report.checks.broken.is_empty() {
            self.add("", "no check failed");
        }
    }
}
