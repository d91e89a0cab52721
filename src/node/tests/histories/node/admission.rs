//! One pod's admission: the kubelet's two calls for each container, and who dies between them.

use divvy_api::{ContainerKind, ContainerSpec};
use divvy_node_core::allocator::{Choice, Refusal};
use fake_kubelet::devices::{Demand, Grant, Ids, Question, Step};
use proptest::prelude::*;

use super::pods::{count, resource};
use super::{Death, Node, slots};
use crate::seen;
use crate::shapes::INSTANCES;

/// How an admission ended.
enum Outcome {
    Admitted,
    Failed,
    /// Nobody saw its end.
    KubeletDied,
}

// === impl Node ===

impl Node {
    pub(super) fn admit(&mut self, at: usize, dies: Option<(usize, Death)>, twice: bool) -> Result<(), TestCaseError> {
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
        let name = &container.name;
        let demand =
            Demand { pod: &view.uid, container: name, resource: resource(&view, name), count: count(&view, name) };
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
        let preferred = self.daemon().propose(&demand.resource.parse().unwrap(), &shown, &choice);
        let Ok(preferred) = not_our_fault(preferred)? else { return Ok(None) };
        let preferred = preferred.iter().map(ToString::to_string).collect();
        Ok(Some(self.devices.settle(demand.resource, question, &preferred, &mut self.rng)))
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
        let answer = self.daemon().allocate(&demand.resource.parse().unwrap(), &shown, &order);
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
                if self.refuses_list {
                    seen("allocated unlisted");
                } else if self.pods.iter().any(|pod| pod.is_rejected() && pod.waits_for(demand)) {
                    seen("allocated behind a rejected pod");
                }
                if demand.resource == INSTANCES {
                    seen("instances allocated");
                }
                self.pods[at].given.insert(demand.container.to_owned(), answer.clone());
                self.devices.insert(demand, Grant { ids, answer });
                Ok(Outcome::Admitted)
            }
        }
    }

    /// Whether the books say that the container has its devices.
    fn booked(&self, demand: Demand<'_>) -> bool {
        let allocator = self.daemon().allocator();
        let entry = allocator.ledger().allocations().pod(demand.pod);
        entry.is_some_and(|entry| entry.holding(demand.container).is_some())
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
