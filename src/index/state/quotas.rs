//! `GpuQuota`s, and what the pods of each namespace hold of each model.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use divvy_api::gpuquota::{Amount, GpuQuotaSpec, Limits, counted};
use divvy_api::pod::peak;
use divvy_api::{Card, GpuRequest, Share, Totals};
use divvy_placement::{Hardware, Taken, is_allowed};

use crate::demand::{Demand, Exceeded, pattern};
use crate::nodes::Holder;

/// The quotas, and the counts that they are compared with.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    /// By namespace and name.
    by_namespace: BTreeMap<String, BTreeMap<String, Quota>>,
    /// What is held on each node, also on one whose report can't be read any more.
    on_nodes: HashMap<Arc<str>, Vec<Counted>>,
    /// Sums by namespace and model.
    held: HashMap<Arc<str>, BTreeMap<Arc<str>, Totals>>,
    /// Namespaces that may hold more than before, by their quotas or as pods have gone, since the planner has looked.
    pub(crate) gained: BTreeSet<Arc<str>>,
}

/// What a namespace with quotas holds of each model.
#[derive(Debug)]
pub(crate) struct Holding {
    namespace: Arc<str>,
    held: BTreeMap<Arc<str>, Totals>,
}

/// A `GpuQuota`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Quota {
    /// Models that count; none: all, as of a quota that can't be read.
    models: Vec<String>,
    /// Or why they can't be read: then nothing more is given out.
    limits: Result<Limits, Arc<str>>,
}

/// What one pod holds of the GPUs of one model on a node.
#[derive(Clone, Debug)]
struct Counted {
    uid: Arc<str>,
    namespace: Arc<str>,
    model: Arc<str>,
    totals: Totals,
}

/// A quota and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// Namespace of the quota.
    pub namespace: String,
    /// Name of the quota.
    pub name: String,
    /// Models that count, as the quota names them.
    pub models: Vec<String>,
    /// Limits, or why they can't be read.
    pub limits: Result<Limits, Arc<str>>,
    /// What pods hold, and what is reserved for pods on their way to a node.
    pub used: Totals,
}

// === impl Quotas ===

impl Quotas {
    pub(crate) fn apply(&mut self, namespace: &str, name: &str, spec: Result<&GpuQuotaSpec, String>) {
        let quota = match spec.and_then(|spec| Ok((spec.models.clone(), spec.limits()?))) {
            Ok((models, limits)) => Quota { models, limits: Ok(limits) },
            Err(problem) => Quota { models: Vec::new(), limits: Err(problem.into()) },
        };
        let known = self.by_namespace.entry(namespace.to_owned()).or_default();
        if known.insert(name.to_owned(), quota.clone()) != Some(quota) {
            self.gained.insert(namespace.into());
        }
    }

    pub(crate) fn delete(&mut self, namespace: &str, name: &str) {
        let Some(quotas) = self.by_namespace.get_mut(namespace) else { return };
        quotas.remove(name);
        self.gained.insert(namespace.into());
        if quotas.is_empty() {
            self.by_namespace.remove(namespace);
        }
    }

    /// Whether the namespace has a quota.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        self.by_namespace.contains_key(namespace)
    }

    /// Namespaces and names of all quotas.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_namespace.iter().flat_map(|(namespace, quotas)| quotas.keys().map(|name| (&**namespace, &**name)))
    }

    /// Replaces what is held on a node.
    pub(crate) fn hold(&mut self, node: &Arc<str>, cards: &[Card], holders: &[&Holder]) {
        let before = self.holdings_on(node);
        self.take_off(node, |_| false);
        let mut on_node = Vec::new();
        for holder in holders {
            on_node.extend(by_card(cards, &holder.on).map(|(model, totals)| Counted {
                uid: Arc::clone(&holder.uid),
                namespace: Arc::clone(&holder.namespace),
                model: Arc::clone(model),
                totals,
            }));
        }
        for Counted { namespace, model, totals, .. } in &on_node {
            let models = self.held.entry(Arc::clone(namespace)).or_default();
            let held = models.entry(Arc::clone(model)).or_default();
            *held = held.each(*totals, u64::saturating_add);
        }
        self.on_nodes.insert(Arc::clone(node), on_node);
        for before in &before {
            self.compare(before);
        }
    }

    /// Forgets what is held on a node, except by pods that stay.
    pub(crate) fn retain(&mut self, node: &str, stays: impl Fn(&str) -> bool) {
        let before = self.holdings_on(node);
        self.take_off(node, stays);
        for before in &before {
            self.compare(before);
        }
    }

    /// What a namespace holds, if it has a quota.
    pub(crate) fn holding(&self, namespace: &str) -> Option<Holding> {
        let namespace = self.has(namespace).then(|| Arc::from(namespace))?;
        let held = self.held.get(&namespace).cloned().unwrap_or_default();
        Some(Holding { namespace, held })
    }

    /// Notes whether the namespace holds less than it did.
    pub(crate) fn compare(&mut self, Holding { namespace, held: before }: &Holding) {
        let now = self.held.get(namespace);
        let is_less = |(model, before): (&Arc<str>, &Totals)| {
            let now = now.and_then(|now| now.get(model)).copied().unwrap_or_default();
            Amount::ALL.iter().any(|amount| amount.in_totals(&now) < amount.in_totals(before))
        };
        if before.iter().any(is_less) {
            self.gained.insert(Arc::clone(namespace));
        }
    }

    fn holdings_on(&self, node: &str) -> Vec<Holding> {
        if self.by_namespace.is_empty() {
            return Vec::new();
        }
        let on_node = self.on_nodes.get(node).into_iter().flatten();
        let namespaces: BTreeSet<&Arc<str>> = on_node.map(|counted| &counted.namespace).collect();
        namespaces.into_iter().filter_map(|namespace| self.holding(namespace)).collect()
    }

    fn take_off(&mut self, node: &str, stays: impl Fn(&str) -> bool) {
        let Some((node, on_node)) = self.on_nodes.remove_entry(node) else { return };
        let (staying, going): (Vec<_>, Vec<_>) = on_node.into_iter().partition(|counted| stays(&counted.uid));
        if !staying.is_empty() {
            self.on_nodes.insert(node, staying);
        }
        for Counted { namespace, model, totals, .. } in going {
            let Some(models) = self.held.get_mut(&namespace) else { continue };
            if let Some(held) = models.get_mut(&model) {
                *held = held.each(totals, u64::saturating_sub);
                if *held == Totals::default() {
                    models.remove(&model);
                }
            }
            if models.is_empty() {
                self.held.remove(&namespace);
            }
        }
    }

    /// Every quota, with its use.
    pub(crate) fn all(&self) -> Vec<QuotaUse> {
        let quotas = self.by_namespace.iter().flat_map(|(namespace, quotas)| {
            quotas.iter().map(move |(name, quota)| QuotaUse {
                namespace: namespace.clone(),
                name: name.clone(),
                models: quota.models.clone(),
                limits: quota.limits.clone(),
                used: self.used(namespace, quota, &[]),
            })
        });
        quotas.collect()
    }

    /// What counts for a quota, without the pod's own part.
    fn used(&self, namespace: &str, quota: &Quota, own: &[&Counted]) -> Totals {
        let models = self.held.get(namespace).into_iter().flatten();
        let held = models.filter(|(model, _)| quota.counts(model)).map(|(_, totals)| totals);
        let held = held.fold(Totals::default(), |sum, totals| sum.each(*totals, u64::saturating_add));
        let own = own.iter().filter(|counted| quota.counts(&counted.model));
        own.fold(held, |sum, counted| sum.each(counted.totals, u64::saturating_sub))
    }

    /// Models of these kinds of which the pod may have no GPUs, as its namespace would hold too much of them. What the pod has
    /// `reserved` on a node already doesn't count against itself. A pod counts as if all its GPUs were of the one model.
    pub(crate) fn exceeded(&self, demand: &Demand, kinds: &[&Hardware], reserved: Option<&str>) -> Vec<Exceeded> {
        let Some(quotas) = self.by_namespace.get(&demand.namespace) else { return Vec::new() };
        let counted = reserved.and_then(|node| self.on_nodes.get(node)).into_iter().flatten();
        let own: Vec<&Counted> = counted.filter(|counted| counted.uid == demand.uid).collect();
        let used = quotas.iter().map(|(name, quota)| (name, quota, self.used(&demand.namespace, quota, &own)));
        let used: Vec<_> = used.collect();
        let mut exceeded: Vec<Exceeded> = Vec::new();
        for kind in kinds {
            let is_known = exceeded.iter().any(|known| known.model == kind.model);
            let preferences = &demand.preferences;
            if is_known || !is_allowed(&kind.model, &preferences.models, &preferences.avoid_models) {
                continue;
            }
            let wanted = wanted(demand, kind);
            let mut by = used.iter().filter(|(_, quota, _)| quota.counts(&kind.model));
            let reason = by.find_map(|(name, quota, used)| quota.problem(name, &wanted, used));
            exceeded.extend(reason.map(|reason| Exceeded { model: Arc::clone(&kind.model), reason: reason.into() }));
        }
        exceeded
    }

    /// Why the pod may not take this of a node's cards, if so. Unlike [`exceeded`](Self::exceeded) this judges all that it would
    /// hold there, of each model and on each card.
    pub(crate) fn problem(&self, namespace: &str, cards: &[Card], takes: &[Taken]) -> Option<Arc<str>> {
        let problem = |(name, quota): (&String, &Quota)| {
            let counted = by_card(cards, takes).filter(|(model, _)| quota.counts(model));
            let wanted = counted.fold(Totals::default(), |sum, (_, totals)| sum.each(totals, u64::saturating_add));
            quota.problem(name, &wanted, &self.used(namespace, quota, &[]))
        };
        self.by_namespace.get(namespace)?.iter().find_map(problem).map(Arc::from)
    }

    /// Patterns of those models of a node that count for a quota, and of which the pod takes nothing: it hasn't been judged
    /// by them.
    pub(crate) fn not_judged(&self, namespace: &str, cards: &[Card], takes: &[Taken]) -> Vec<String> {
        let Some(quotas) = self.by_namespace.get(namespace) else { return Vec::new() };
        let used: BTreeSet<&Arc<str>> = by_card(cards, takes).map(|(model, _)| model).collect();
        let models: BTreeSet<&Arc<str>> = cards.iter().map(|card| &card.model).collect();
        let counts = |model: &&&Arc<str>| quotas.values().any(|quota| quota.counts(model));
        models.difference(&used).filter(counts).map(|model| pattern(model)).collect()
    }

    /// Why the pod can have no GPU before others of its namespace end, whichever models nodes have or may come to have. A quota
    /// on some models refuses only pods that name those.
    pub(crate) fn used_up(&self, demand: &Demand) -> Option<Arc<str>> {
        let named = &demand.preferences.models;
        if named.is_empty() {
            return self.used_up_for(demand, None);
        }
        let problems: Option<Vec<Arc<str>>> = named.iter().map(|name| self.used_up_for(demand, Some(name))).collect();
        problems?.into_iter().next()
    }

    /// Why the quotas that count all models refuse the pod which it allows by this pattern; `None`: all models at all.
    fn used_up_for(&self, demand: &Demand, named: Option<&String>) -> Option<Arc<str>> {
        let wanted = least(demand);
        let mut quotas = self.by_namespace.get(&demand.namespace)?.iter().filter(|(_, quota)| quota.counts_all(named));
        let problem = quotas.find_map(|(name, quota)| {
            let used = self.used(&demand.namespace, quota, &[]);
            quota.problem(name, &wanted, &used)
        });
        problem.map(Arc::from)
    }

    /// Why no `least` of these pods of a namespace can have GPUs at the same time, whichever models nodes have. A pod counts for
    /// the quotas of all models, and for those of all models that it names.
    pub(crate) fn used_up_by(&self, namespace: &str, pods: &[Arc<Demand>], least: usize) -> Option<Arc<str>> {
        let problem = |(name, quota): (&String, &Quota)| {
            let amounts: Vec<Totals> = pods.iter().map(|demand| quota.least_of(demand)).collect();
            let wanted = sum_of_least(&amounts, least);
            quota.problem(name, &wanted, &self.used(namespace, quota, &[]))
        };
        self.by_namespace.get(namespace)?.iter().find_map(problem).map(Arc::from)
    }
}

// === impl Quota ===

impl Quota {
    fn counts(&self, model: &str) -> bool {
        is_allowed(model, &self.models, &[])
    }

    /// The least that counts of a pod, on whichever GPUs it gets.
    fn least_of(&self, demand: &Demand) -> Totals {
        let named = &demand.preferences.models;
        let counts = || !named.is_empty() && named.iter().all(|named| self.counts_all(Some(named)));
        if self.counts_all(None) || counts() { least(demand) } else { Totals::default() }
    }

    /// Whether all models count that a pod allows by this pattern; `None`: all models at all.
    fn counts_all(&self, named: Option<&String>) -> bool {
        let Some(named) = named.filter(|_| !self.models.is_empty()) else { return self.models.is_empty() };
        if let Some(model) = named.strip_prefix('=') {
            return self.counts(model);
        }
        // Words match longer names too, which have all words that the pattern has. Of other patterns nobody knows.
        let words = self.models.iter().filter(|pattern| !pattern.contains(['=', '*']));
        let words: Vec<String> = words.cloned().collect();
        !words.is_empty() && !named.contains('*') && is_allowed(named, &words, &[])
    }

    /// Why a pod that wants so much is too much for it, in the words of `resourcequota/controller.go`.
    fn problem(&self, name: &str, wanted: &Totals, used: &Totals) -> Option<String> {
        let limits = match &self.limits {
            Ok(limits) => limits,
            Err(problem) => return Some(format!("GpuQuota {name} can't be read: {problem}")),
        };
        let is_beyond = |amount: &&Amount| {
            let wanted = amount.in_totals(wanted);
            let used = amount.in_totals(used);
            wanted > 0 && limits.limit(**amount).is_some_and(|hard| used.saturating_add(wanted) > hard)
        };
        let beyond: Vec<&Amount> = Amount::ALL.iter().filter(is_beyond).collect();
        let each = |value: &dyn Fn(Amount) -> u64| {
            let texts = beyond.iter().map(|amount| format!("{}={}", amount.key(), amount.text(value(**amount))));
            texts.collect::<Vec<_>>().join(",")
        };
        (!beyond.is_empty()).then(|| {
            format!(
                "exceeded GpuQuota {name}, requested: {}, used: {}, limited: {}",
                each(&|amount| amount.in_totals(wanted)),
                each(&|amount| amount.in_totals(used)),
                each(&|amount| limits.limit(amount).unwrap_or_default())
            )
        })
    }
}

/// What counts of each card that a pod takes something of, with the card's model.
fn by_card<'c>(cards: &'c [Card], takes: &'c [Taken]) -> impl Iterator<Item = (&'c Arc<str>, Totals)> {
    let known = takes.iter().filter_map(|taken| Some((cards.get(taken.card)?, taken)));
    known.map(|(card, taken)| (&card.model, counted(&taken.share, card.memory, taken.slots)))
}

/// The least that a pod holds at its peak, of whichever models.
fn least(demand: &Demand) -> Totals {
    peak(demand.containers.iter().filter_map(|container| {
        let request = container.request?;
        let is_whole = request.is_exclusive() || demand.preferences.wants_instances();
        let whole = if is_whole { GpuRequest::whole(request.cards).totals() } else { Totals::default() };
        let cards = request.cards.into();
        let something = Totals { memory: cards, percent: cards, ..Totals::default() };
        Some((container.kind, request.totals().each(whole, u64::max).each(something, u64::max)))
    }))
}

/// No more than any so many of these have together, amount by amount.
fn sum_of_least(all: &[Totals], count: usize) -> Totals {
    let sum = |amount: fn(&Totals) -> u64| {
        let mut amounts: Vec<u64> = all.iter().map(amount).collect();
        amounts.sort_unstable();
        amounts.into_iter().take(count).fold(0, u64::saturating_add)
    };
    Totals {
        count: sum(|totals| totals.count),
        memory: sum(|totals| totals.memory),
        percent: sum(|totals| totals.percent),
        cores: sum(|totals| totals.cores),
    }
}

/// What a pod would hold if all its GPUs were of this kind, at its peak.
fn wanted(demand: &Demand, kind: &Hardware) -> Totals {
    let is_whole = kind.undivided || demand.preferences.wants_instances();
    peak(demand.containers.iter().filter_map(|container| {
        let request = container.request?;
        let share = request.share_on(kind.memory);
        let share = Share { exclusive: share.exclusive || is_whole, ..share };
        let all =
            counted(&share, kind.memory, 1).each(Totals::default(), |one, _| one.saturating_mul(request.cards.into()));
        Some((container.kind, all))
    }))
}
