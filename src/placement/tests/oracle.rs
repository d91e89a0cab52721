//! The kubelet and the arithmetic of a pod, played out slot by slot, without any of the crate's reasoning.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::annotation::Numa;
use divvy_api::card::ComputeMode;
use divvy_api::gpunode::{Oversubscription, Scales};
use divvy_api::pod::ContainerKind;
use divvy_api::{Card, ContainerRequest, Cores, GpuRequest, Health, Memory, MigProfile, NodeCards, Share, Tier};

use crate::{Held, NodeState, PodRequest};

/// Card and number.
type Slot = (usize, u32);

/// A pod under admission.
#[derive(Clone, Default)]
pub(crate) struct Play {
    /// By resource.
    reuse: BTreeMap<Option<MigProfile>, BTreeSet<Slot>>,
    /// Slots of each container so far.
    pub(crate) got: Vec<BTreeSet<Slot>>,
    next: BTreeMap<usize, u32>,
}

/// Whether a plan holds in every sequence of draws.
pub(crate) fn survives(state: &NodeState, pod: &PodRequest<'_>, chosen: &[Vec<usize>]) -> bool {
    let allowed = |at: usize, card: &usize| {
        let is_asked_for = |card: &Card| card.requested_profile() == pod.containers[at].profile.as_ref();
        state.cards().get(*card).is_some_and(|card| is_allowed(card, &state.node, pod) && is_asked_for(card))
    };
    let mut open = chosen.iter().enumerate().skip(pod.allocated.len());
    chosen.len() == pod.containers.len()
        && !is_apart(state, pod, chosen)
        && open.all(|(at, cards)| cards.iter().all(|card| allowed(at, card)))
        && plays(pod, chosen).is_some_and(|plays| {
            plays.iter().all(|play| fits(state, pod, play)) && host_memory_suffices(state, pod, &plays)
        })
}

/// Whether a pod that wants one card is given something of another.
fn is_apart(state: &NodeState, pod: &PodRequest<'_>, chosen: &[Vec<usize>]) -> bool {
    let given: BTreeSet<usize> = chosen.iter().skip(pod.allocated.len()).flatten().copied().collect();
    let holders = pod.allocated.iter().zip(pod.containers).filter(|(_, container)| container.request.is_some());
    let held = holders.flat_map(|(held, _)| held).copied().filter(|card| *card < state.cards().len());
    pod.preferences.same_card
        && !given.is_empty()
        && given.iter().copied().chain(held).collect::<BTreeSet<_>>().len() > 1
}

/// Whether the node has as much host memory as the pod may come to need, card by card, or needs already.
fn host_memory_suffices(state: &NodeState, pod: &PodRequest<'_>, plays: &[Play]) -> bool {
    let host = |upto: usize| -> u64 {
        let at_most = |card: usize| plays.iter().map(|play| host_peak(state, card, pod, play, upto)).max();
        (0..state.cards().len()).filter_map(at_most).sum()
    };
    let all = state.node.oversubscription.map_or(0, |of| of.host_memory.as_mib());
    let held: u64 = state.held.iter().map(|held| held.host.as_mib()).sum();
    let left = all.saturating_sub(held + state.host_elsewhere.as_mib());
    host(pod.containers.len()) <= left.max(host(pod.allocated.len()))
}

/// What the first containers need at once of the host's memory for what they hold of a card, in MiB.
fn host_peak(state: &NodeState, card: usize, pod: &PodRequest<'_>, play: &Play, upto: usize) -> u64 {
    let holders: Vec<_> = play.holders(pod, card).filter(|(at, _)| *at < upto).collect();
    let sum = |alive: Vec<(usize, &ContainerRequest)>| {
        alive.into_iter().map(|holder| share(state, card, pod, holder).host.as_mib()).sum()
    };
    phases(&holders).into_iter().map(sum).max().unwrap_or(0)
}

/// Whether any plan does, by trying all.
pub(crate) fn some_plan_survives(state: &NodeState, pod: &PodRequest<'_>) -> bool {
    try_all(state, pod, &mut Vec::new())
}

/// Every way in which the kubelet may serve the pod; `None` if it asks for other numbers of cards than were chosen.
pub(crate) fn plays(pod: &PodRequest<'_>, chosen: &[Vec<usize>]) -> Option<Vec<Play>> {
    let mut plays = vec![Play::default()];
    for (at, container) in pod.containers.iter().enumerate() {
        let next: Option<Vec<Vec<Play>>> =
            plays.into_iter().map(|play| play.next(pod, at, container, chosen)).collect();
        plays = next?.concat();
    }
    Some(plays)
}

fn try_all(state: &NodeState, pod: &PodRequest<'_>, chosen: &mut Vec<Vec<usize>>) -> bool {
    let at = chosen.len();
    if at == pod.containers.len() {
        return true;
    }
    let positions: BTreeSet<usize> = (0..state.cards().len()).collect();
    let missing = if at < pod.allocated.len() { 0 } else { missing(pod, at) };
    subsets(&positions, missing).into_iter().any(|set| {
        chosen.push(set.into_iter().collect());
        let so_far = PodRequest { containers: &pod.containers[..=at], ..*pod };
        let found = survives(state, &so_far, chosen) && try_all(state, pod, chosen);
        chosen.pop();
        found
    })
}

/// How many cards the kubelet will ask for: the pool's size doesn't depend on the draws.
fn missing(pod: &PodRequest<'_>, at: usize) -> usize {
    let mut play = Play::default();
    for (before, container) in pod.containers.iter().enumerate().take(at) {
        let invented = 1000 * (before + 1)..;
        let chosen: Vec<Vec<usize>> = (0..=before)
            .map(|_| invented.clone().take(wanted(container).saturating_sub(play.pool(container).len())).collect())
            .collect();
        play = play.next(pod, before, container, &chosen).expect("as many as asked for").remove(0);
    }
    wanted(&pod.containers[at]).saturating_sub(play.pool(&pod.containers[at]).len())
}

fn wanted(container: &ContainerRequest) -> usize {
    container.request.map_or(0, |request| request.cards as usize)
}

pub(crate) fn subsets<T: Ord + Copy>(of: &BTreeSet<T>, size: usize) -> Vec<BTreeSet<T>> {
    let Some(first) = of.first().copied().filter(|_| size > 0) else {
        return if size == 0 { vec![BTreeSet::new()] } else { vec![] };
    };
    let rest: BTreeSet<T> = of.iter().copied().skip(1).collect();
    let with = subsets(&rest, size - 1).into_iter().map(|mut set| {
        set.insert(first);
        set
    });
    with.chain(subsets(&rest, size)).collect()
}

// === impl Play ===

impl Play {
    fn pool(&self, container: &ContainerRequest) -> BTreeSet<Slot> {
        self.reuse.get(&container.profile).cloned().unwrap_or_default()
    }

    fn next(
        &self,
        pod: &PodRequest<'_>,
        at: usize,
        container: &ContainerRequest,
        chosen: &[Vec<usize>],
    ) -> Option<Vec<Self>> {
        let (wanted, pool) = (wanted(container), self.pool(container));
        if let Some(facts) = pod.allocated.get(at) {
            let cards: BTreeSet<usize> = facts.iter().copied().filter(|_| container.request.is_some()).collect();
            let mut after = self.clone();
            let slots = cards
                .into_iter()
                .map(|card| pool.iter().find(|slot| slot.0 == card).copied().unwrap_or_else(|| after.new_slot(card)))
                .collect();
            return Some(vec![after.with(container, slots)]);
        }
        let missing = wanted.saturating_sub(pool.len());
        if chosen[at].len() != missing {
            return None;
        }
        let mut after = self.clone();
        let new: Vec<Slot> = chosen[at].iter().map(|card| after.new_slot(*card)).collect();
        let draws = subsets(&pool, wanted - missing).into_iter();
        Some(draws.map(|drawn| after.clone().with(container, drawn.into_iter().chain(new.clone()).collect())).collect())
    }

    fn with(mut self, container: &ContainerRequest, slots: BTreeSet<Slot>) -> Self {
        let pool = self.reuse.entry(container.profile.clone()).or_default();
        if container.kind == ContainerKind::Init {
            pool.extend(&slots);
        } else {
            pool.retain(|slot| !slots.contains(slot));
        }
        self.got.push(slots);
        self
    }

    fn new_slot(&mut self, card: usize) -> Slot {
        let next = self.next.entry(card).or_default();
        *next += 1;
        (card, *next)
    }

    fn holders<'a>(
        &'a self,
        pod: &'a PodRequest<'_>,
        card: usize,
    ) -> impl Iterator<Item = (usize, &'a ContainerRequest)> {
        let holds = move |at: usize| self.got[at].iter().any(|slot| slot.0 == card);
        pod.containers.iter().enumerate().filter(move |(at, _)| holds(*at))
    }
}

fn is_allowed(card: &Card, node: &NodeCards, pod: &PodRequest<'_>) -> bool {
    let wishes = pod.preferences;
    let is_instance = card.id.as_str().starts_with("MIG-");
    card.health == Health::Healthy
        && (!wishes.oversubscribe || (node.oversubscription.is_some() && card.tier == Tier::Shim))
        && match wishes.tier {
            None | Some(Tier::Accounting) => true,
            Some(Tier::Shim) => card.tier != Tier::Accounting,
            Some(Tier::Mps) => matches!(card.tier, Tier::Mps | Tier::Mig),
            Some(Tier::Mig) => is_instance,
        }
        && !wishes.avoid_cards.contains(&card.id)
        && (wishes.cards.is_empty() || wishes.cards.contains(&card.id))
}

fn fits(state: &NodeState, pod: &PodRequest<'_>, play: &Play) -> bool {
    let open = pod.allocated.len()..pod.containers.len();
    let distinct =
        |at: usize| play.got[at].iter().map(|slot| slot.0).collect::<BTreeSet<_>>().len() == play.got[at].len();
    let touched: BTreeSet<usize> = open.clone().flat_map(|at| play.got[at].iter().map(|slot| slot.0)).collect();
    open.clone().all(distinct)
        && open.clone().all(|at| play.got[at].iter().all(|slot| is_taken(state, slot.0, pod, at)))
        && open.clone().all(|at| is_near(state.cards(), pod, play, at))
        && touched.into_iter().filter(|card| *card < state.cards().len()).all(|card| card_fits(state, card, pod, play))
}

/// Whether the driver has room for the container's context beside others.
fn is_taken(state: &NodeState, card: usize, pod: &PodRequest<'_>, at: usize) -> bool {
    let is_known = pod.shares.get(at).is_some_and(|shares| shares.iter().any(|(other, _)| *other == card));
    let Some(mode) = state.cards().get(card).map(|card| card.compute_mode) else { return true };
    is_known || mode == ComputeMode::Default || share(state, card, pod, (at, &pod.containers[at])).exclusive
}

fn is_near(cards: &[Card], pod: &PodRequest<'_>, play: &Play, at: usize) -> bool {
    let nodes: BTreeSet<Option<u32>> =
        play.got[at].iter().map(|slot| cards.get(slot.0).and_then(|card| card.numa)).collect();
    pod.preferences.numa != Some(Numa::Strict) || play.got[at].len() < 2 || (nodes.len() == 1 && !nodes.contains(&None))
}

fn is_whole(node: &NodeCards, pod: &PodRequest<'_>) -> bool {
    node.undivided || pod.preferences.tier == Some(Tier::Mig)
}

/// How a node's memory is oversubscribed for a pod; `None` too where a node has ceased to do so for what the pod still holds.
fn oversubscription(node: &NodeCards, pod: &PodRequest<'_>) -> Option<Oversubscription> {
    node.oversubscription.filter(|_| pod.preferences.oversubscribe)
}

fn asked(card: &Card, container: &ContainerRequest) -> Share {
    container.request.expect("holds a card").share_on(card.memory)
}

/// What a container takes of a card, or has taken.
fn share(state: &NodeState, card: usize, pod: &PodRequest<'_>, (at, container): (usize, &ContainerRequest)) -> Share {
    let known = pod.shares.get(at).and_then(|shares| shares.iter().find(|(other, _)| *other == card));
    if let Some((_, known)) = known {
        return *known;
    }
    let card = &state.cards()[card];
    let asked = asked(card, container);
    match oversubscription(&state.node, pod) {
        _ if is_whole(&state.node, pod) => GpuRequest::whole(1).share_on(card.memory),
        Some(of) if !asked.exclusive => {
            let memory = asked.memory.as_mib();
            // The least that the scale makes the memory of.
            let on_card = (0..memory).find(|mib| mib * u64::from(of.memory_scale) >= memory * 100);
            Share { host: Memory::mib(memory - on_card.unwrap_or(memory - 1)), ..asked }
        }
        _ => asked,
    }
}

/// Containers that are alive at the same time.
fn phases<'a>(holders: &[(usize, &'a ContainerRequest)]) -> Vec<Vec<(usize, &'a ContainerRequest)>> {
    let beside = |init: usize| {
        let sidecar =
            |(at, container): &&(usize, &ContainerRequest)| *at < init && container.kind == ContainerKind::Sidecar;
        holders.iter().filter(sidecar).chain(holders.iter().filter(move |(at, _)| *at == init)).copied().collect()
    };
    let is_init = |(_, container): &&(usize, &ContainerRequest)| container.kind == ContainerKind::Init;
    let mut phases: Vec<Vec<(usize, &ContainerRequest)>> =
        holders.iter().filter(is_init).map(|(at, _)| beside(*at)).collect();
    phases.push(holders.iter().filter(|holder| !is_init(holder)).copied().collect());
    phases
}

fn card_fits(state: &NodeState, position: usize, pod: &PodRequest<'_>, play: &Play) -> bool {
    let (card, held) = (&state.cards()[position], &state.held[position]);
    let share = |holder: (usize, &ContainerRequest)| share(state, position, pod, holder);
    let is_part = !is_whole(&state.node, pod) && oversubscription(&state.node, pod).is_none();
    let is_enough = |(at, container): (usize, &ContainerRequest)| {
        is_part || at < pod.allocated.len() || asked(card, container).memory <= card.memory
    };
    let mixes = |(at, container): (usize, &ContainerRequest)| {
        let is_oversubscribed = share((at, container)).host > Memory::ZERO;
        at >= pod.allocated.len() && held.pods > 0 && is_oversubscribed != (held.host > Memory::ZERO)
    };
    let slots: BTreeSet<Slot> = play.got.iter().flatten().copied().filter(|slot| slot.0 == position).collect();
    let alone = play.holders(pod, position).any(|holder| share(holder).exclusive);
    let holders: Vec<(usize, &ContainerRequest)> = play.holders(pod, position).collect();
    let phase_fits = |alive: &Vec<(usize, &ContainerRequest)>| {
        let shares: Vec<Share> = alive.iter().map(|holder| share(*holder)).collect();
        let facts = alive.iter().all(|(at, _)| *at < pod.allocated.len());
        amounts_fit(card, held, &shares) && (facts || are_compatible(&shares))
    };
    play.holders(pod, position).all(is_enough)
        && slots.len() + held.slots as usize <= card.slots as usize
        && !held.exclusive
        && (!alone || held.pods == 0)
        && !play.holders(pod, position).any(mixes)
        && phases(&holders).iter().all(phase_fits)
}

fn amounts_fit(card: &Card, held: &Held, alive: &[Share]) -> bool {
    let memory: Memory =
        alive.iter().map(|share| Memory::mib(share.memory.as_mib() - share.host.as_mib())).chain([held.memory]).sum();
    let cores: Cores = alive.iter().map(|share| share.cores).chain([held.cores]).sum();
    let Scales { memory: memory_scale, cores: cores_scale } = card.scales;
    memory.as_mib() * 100 <= card.memory.as_mib() * u64::from(memory_scale) && cores.units() <= cores_scale
}

fn are_compatible(alive: &[Share]) -> bool {
    alive.len() < 2 || alive.iter().all(|share| !share.exclusive)
}
