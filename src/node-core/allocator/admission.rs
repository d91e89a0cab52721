//! The pod under admission, and what was decided for it at its first call.

use divvy_api::annotation::{self, DialectAnnotation, Planned, Preferences, RequestAnnotation};
use divvy_api::limits::pod_requests;
use divvy_api::names::annotation::{DIALECT, PLANNED, REQUEST};
use divvy_api::{Card, CardId, ContainerRequest, NodeCards, Share, Tier};
use divvy_placement::{ContainerPlan, Misfit, NodeState, Plan, PodRequest, Policy, plan, verify};
use tracing::{info, warn};

use super::propose::Proposal;
use super::{AllocationSettings, Refusal};
use crate::pod::{Pod, PodRef};

/// A pod whose containers are being served.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) pod: PodRef,
    /// In admission order, one a container.
    pub(super) requests: Vec<ContainerRequest>,
    pub(super) preferences: Preferences,
    /// What its author wrote for another system; `None` too where that can't be read, as it decides nothing.
    pub(super) dialect: Option<DialectAnnotation>,
    /// The cards that are to be chosen for each container, by UUID: positions change with the inventory. Empty before
    /// there is a plan.
    chosen: Vec<Vec<CardId>>,
    pub(super) proposed: Option<Proposal>,
}

/// What the first containers of a pod hold.
#[derive(Debug, Default)]
pub(super) struct Allocated {
    /// Positions of cards, by container.
    pub(super) cards: Vec<Vec<usize>>,
    /// Shares of these cards.
    pub(super) shares: Vec<Vec<(usize, Share)>>,
}

// === impl Allocated ===

impl Allocated {
    pub(super) fn new(shares: Vec<Vec<(usize, Share)>>) -> Self {
        let cards = shares.iter().map(|shares| shares.iter().map(|(card, _)| *card).collect()).collect();
        Self { cards, shares }
    }
}

// === impl Admission ===

impl Admission {
    /// What the pod asks for; refused if that contradicts itself, or if this node can't give it.
    pub(super) fn read(
        pod: &Pod,
        settings: &AllocationSettings,
        served: Tier,
        node: &NodeCards,
    ) -> Result<Self, Refusal> {
        let text = |key: &str| pod.annotations.get(key);
        let request: Option<RequestAnnotation> = text(REQUEST).map(|text| annotation::decode(text)).transpose()?;
        let requests = pod_requests(&settings.names, settings.defaults, request.as_ref(), &pod.containers)?;
        let mut preferences = Preferences::from_annotations(&pod.annotations)?;
        let has_instances = || node.cards.iter().any(|card| card.id.is_instance());
        if let Some(wanted) = preferences.tier.filter(|wanted| !served.serves(*wanted, has_instances)) {
            return Err(Refusal::Tier { wanted, offered: served });
        }
        if preferences.oversubscribe {
            if served != Tier::Shim {
                return Err(Refusal::Oversubscribe { tier: served });
            }
            node.oversubscription.ok_or(Refusal::NotOversubscribed)?;
        }
        let planned = text(PLANNED).and_then(|text| planned(text, pod, settings));
        let chosen = planned.as_ref().map(|planned| chosen(planned, &requests)).unwrap_or_default();
        preferences.avoid_models.extend(planned.into_iter().flat_map(|planned| planned.avoid_models));
        let dialect = text(DIALECT).and_then(|text| annotation::decode(text).ok());
        Ok(Self { pod: pod.reference(), requests, preferences, dialect, chosen, proposed: None })
    }

    /// The plan that was made before if it still fits, else a new one. `allocated`: what the first containers hold.
    pub(super) fn plan(
        &self,
        state: &NodeState,
        allocated: &Allocated,
        settings: &AllocationSettings,
    ) -> Result<Plan, Refusal> {
        let Allocated { cards: held, shares } = allocated;
        let request =
            PodRequest { containers: &self.requests, allocated: held, shares, preferences: &self.preferences };
        let anew = |misfit: &Misfit| info!(pod = %self.pod, %misfit, "planned GPUs don't fit any more: planning again");
        let fits = |made: &Plan| verify(state, &request, made).inspect_err(anew).is_ok();
        if let Some(made) = self.made(&state.node, held).filter(fits) {
            return Ok(made);
        }
        let name = self.preferences.card_policy.unwrap_or(settings.policy.name);
        Ok(plan(state, &request, &Policy { name, ..settings.policy })?)
    }

    /// Cards that are to be chosen for any of its containers.
    pub(super) fn cards(&self) -> Vec<&CardId> {
        self.chosen.iter().flatten().collect()
    }

    /// Keeps a plan for the pod's next call.
    pub(super) fn remember(&mut self, plan: &Plan, cards: &[Card]) {
        let ids = |container: &ContainerPlan| container.chosen.iter().map(|at| cards[*at].id.clone()).collect();
        self.chosen = plan.containers.iter().map(ids).collect();
    }

    /// The plan that was made before, in present positions; `None` if a card is gone.
    fn made(&self, node: &NodeCards, allocated: &[Vec<usize>]) -> Option<Plan> {
        let position = |id: &CardId| node.position(id);
        let container = |(at, planned): (usize, &Vec<CardId>)| {
            let held = allocated.get(at).cloned();
            let chosen = held.or_else(|| planned.iter().map(position).collect())?;
            Some(ContainerPlan { chosen, ..ContainerPlan::default() })
        };
        let containers = self.chosen.iter().enumerate().map(container).collect::<Option<Vec<_>>>()?;
        (!containers.is_empty()).then_some(Plan { containers })
    }
}

/// The extender's plan, if it was made for this node; one that can't be read is as good as none.
fn planned(text: &str, pod: &Pod, settings: &AllocationSettings) -> Option<Planned> {
    let planned: Planned = annotation::decode(text).inspect_err(|error| warn!(%pod, %error, "planned again")).ok()?;
    (planned.node == settings.node_name).then_some(planned)
}

/// The plan's cards for each request.
fn chosen(planned: &Planned, requests: &[ContainerRequest]) -> Vec<Vec<CardId>> {
    let of_request =
        |request: &ContainerRequest| planned.containers.get(&request.name).map(|cards| cards.chosen.clone());
    requests.iter().map(|request| of_request(request).unwrap_or_default()).collect()
}
