//! Why a pod that waits to be planned has no place: by all that the planner looks at, in kube-scheduler's words.

use std::sync::Arc;

use super::feasibility::{Feasibility, grouped};
use crate::demand::Demand;
use crate::fit::{Query, ReasonSummaries};
use crate::nodes::Node;
use crate::snapshot::Snapshot;

// === impl Snapshot ===

impl Snapshot {
    /// Why a pod that waits has no place, with its group's reason if that waits as a whole; `None` if a node would take it. Takes
    /// up to a microsecond for each node.
    pub fn why_unplaced(&self, demand: &Demand) -> Option<String> {
        if let Some(reason) = &self.pod.group_waits {
            return Some(reason.to_string());
        }
        let query = Query::new(demand, &self.config);
        let view = &self.view;
        let mut summaries = ReasonSummaries::default();
        let mut why_not = |place: u32| {
            let node = view.node(place)?;
            let by_gpus = || summaries.why_not(&query, view, (place, node));
            node.why_not_open(demand).or_else(|| node.why_over_quota(&query, self.exceeded())).or_else(by_gpus)
        };
        let reasons: Vec<Arc<str>> = view.all().filter_map(|asked| why_not(asked.place)).collect();
        let nodes = view.len();
        (reasons.len() == nodes).then(|| {
            let reasons = grouped(reasons.into_iter());
            Feasibility { now: Some(false), ever: true, nodes, asked: nodes, reasons, ..Feasibility::default() }
                .to_string()
        })
    }
}

// === impl Node ===

impl Node {
    /// Why the scheduler wouldn't give it the pod, whatever its GPUs, in the words of kube-scheduler's plugins `NodeAffinity`,
    /// `TaintToleration`, `NodeUnschedulable` and `NodeResourcesFit`.
    fn why_not_open(&self, demand: &Demand) -> Option<Arc<str>> {
        let selection = &demand.scheduling.selection;
        if let Some(object) = &self.object
            && let Some(reason) = selection.reason(&self.name, &object.labels, &object.taints)
        {
            return Some(reason.into());
        }
        if !self.is_open_to(demand) {
            return Some(self.unschedulable?.reason().into());
        }
        let lacking = self.free.as_ref().and_then(|free| free.lacks(&demand.requests));
        let reason = lacking.map(|resource| format!("Insufficient {resource}").into());
        reason.or_else(|| (!self.takes(demand)).then(|| "Too many pods".into()))
    }
}
