//! Cards that the pod's author, or their health, rules out whatever is free on them.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use divvy_api::annotation::Preferences;
use divvy_api::{Card, CardId, NodeCards, Tier};
use foldhash::fast::RandomState;

use crate::reason::Reason;

/// A pod's preferences, prepared for many cards: a model is compared with the patterns once, however many cards are of it.
#[derive(Clone, Debug)]
pub(crate) struct Wishes<'a> {
    preferences: &'a Preferences,
    cards: HashSet<&'a CardId, RandomState>,
    avoid_cards: HashSet<&'a CardId, RandomState>,
    /// Whether cards of a model will do, of those that have come so far.
    models: RefCell<HashMap<Arc<str>, bool, RandomState>>,
}

// === impl Wishes ===

impl<'a> Wishes<'a> {
    pub(crate) fn new(preferences: &'a Preferences) -> Self {
        let Preferences { cards, avoid_cards, .. } = preferences;
        let cards = cards.iter().collect();
        let avoid_cards = avoid_cards.iter().collect();
        Self { preferences, cards, avoid_cards, models: RefCell::default() }
    }

    /// Why nothing of the pod is put on this card of the node, if so.
    pub(crate) fn barred(&self, card: &Card, node: &NodeCards) -> Option<Reason> {
        let Self { preferences, cards, avoid_cards, .. } = self;
        if (!cards.is_empty() && !cards.contains(&card.id)) || avoid_cards.contains(&card.id) {
            return Some(Reason::Uuid);
        }
        if preferences.wants_instances() && !card.id.is_instance() {
            return Some(Reason::NoInstance);
        }
        if preferences.tier.is_some_and(|wanted| !card.tier.serves(wanted, || card.id.is_instance())) {
            return Some(Reason::Tier(card.tier));
        }
        // No other tier limits host memory.
        if preferences.oversubscribe && (node.oversubscription.is_none() || card.tier != Tier::Shim) {
            return Some(Reason::NoOversubscription);
        }
        if !self.allows(&card.model) {
            return Some(Reason::Model(card.model.to_string()));
        }
        (!card.is_healthy()).then_some(Reason::Unhealthy)
    }

    fn allows(&self, model: &Arc<str>) -> bool {
        let Preferences { models, avoid_models, .. } = self.preferences;
        if models.is_empty() && avoid_models.is_empty() {
            return true;
        }
        let mut known = self.models.borrow_mut();
        known.get(model).copied().unwrap_or_else(|| {
            let allowed = is_allowed(model, models, avoid_models);
            known.insert(Arc::clone(model), allowed);
            allowed
        })
    }
}

/// Whether cards of this model will do; none named: all will.
pub fn is_allowed(model: &str, models: &[String], avoid_models: &[String]) -> bool {
    let named = |models: &[String]| models.iter().any(|pattern| matches_model(pattern, model));
    (models.is_empty() || named(models)) && !named(avoid_models)
}

/// Whether a pattern's words stand side by side in a model's name: "A100" in "NVIDIA A100-SXM4-80GB", but not "T4" in
/// "NVIDIA T400 4GB". With `=` in front it is the whole name; with `*`, which stands for any text, a whole name too.
pub fn matches_model(pattern: &str, model: &str) -> bool {
    #[cfg(any(test, feature = "count-matchings"))]
    MATCHINGS.set(MATCHINGS.get() + 1);
    if let Some(name) = pattern.strip_prefix('=') {
        return name.trim().eq_ignore_ascii_case(model.trim());
    }
    if pattern.contains('*') {
        return matches_glob(&pattern.to_ascii_lowercase(), &model.to_ascii_lowercase());
    }
    let pattern = words(pattern);
    let model = words(model);
    !pattern.is_empty()
        && model.windows(pattern.len()).any(|run| run.iter().zip(&pattern).all(|(a, b)| a.eq_ignore_ascii_case(b)))
}

#[cfg(any(test, feature = "count-matchings"))]
thread_local! {
    static MATCHINGS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many models this thread has compared with a pattern, for tests of what a query costs.
#[cfg(any(test, feature = "count-matchings"))]
pub fn matchings() -> u64 {
    MATCHINGS.get()
}

/// Whether there can be a model that the pattern matches.
pub fn is_model_pattern(pattern: &str) -> bool {
    !words(pattern.strip_prefix('=').unwrap_or(pattern)).is_empty()
}

/// Whether the texts between the pattern's `*` follow one another in the name, the first at its start and the last at its end.
fn matches_glob(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for text in middle.split('*') {
        let Some(at) = left.find(text) else { return false };
        left = &left[at + text.len()..];
    }
    left.ends_with(end)
}

fn words(text: &str) -> Vec<&str> {
    text.split([' ', '-', '_']).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_pattern_matches_whole_words() {
        let a100 = "NVIDIA A100-SXM4-80GB";
        for pattern in ["A100", "a100", "nvidia a100", "A100-SXM4", "A100_SXM4 80gb", a100] {
            assert!(matches_model(pattern, a100), "{pattern}");
        }
        for pattern in ["", " ", "A10", "A100 80GB", "A100X", "A100-SXM4-80GB-X"] {
            assert!(!matches_model(pattern, a100), "{pattern}");
        }
        assert!(!matches_model("T4", "NVIDIA T400 4GB"));
        for pattern in [
            "=nvidia a100-sxm4-80gb",
            "= NVIDIA A100-SXM4-80GB ",
            "*",
            "*A10*",
            "*sxm4-80*",
            "nvidia*80GB",
            "*a100**80gb",
            "n*a*-*b",
        ] {
            assert!(matches_model(pattern, a100), "{pattern}");
        }
        for pattern in ["=A100", "=", "A10*", "*A100", "*A100*SXM5*", "nvidia a100*nvidia a100-sxm4-80gb", "*80gb*80gb"]
        {
            assert!(!matches_model(pattern, a100), "{pattern}");
        }
        assert!(matches_model("T4", "Tesla T4"));
    }
}
