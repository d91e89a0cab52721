//! Cards that the pod's author, or their health, rules out whatever is free on them.

use divvy_api::annotation::Preferences;

use crate::card::{Card, Reason};

/// Why nothing of the pod is put on this card, if so.
pub(crate) fn barred(card: &Card, preferences: &Preferences) -> Option<Reason> {
    let Preferences { models, avoid_models, cards, avoid_cards, .. } = preferences;
    if (!cards.is_empty() && !cards.contains(&card.id)) || avoid_cards.contains(&card.id) {
        return Some(Reason::Uuid);
    }
    if preferences.wants_instances() && !card.id.is_instance() {
        return Some(Reason::NoInstance);
    }
    if preferences.oversubscribe && card.oversubscription.is_none() {
        return Some(Reason::NoOversubscription);
    }
    if !is_allowed(&card.model, models, avoid_models) {
        return Some(Reason::Model(card.model.to_string()));
    }
    (!card.healthy).then_some(Reason::Unhealthy)
}

/// Whether cards of this model will do; none named: all will.
pub fn is_allowed(model: &str, models: &[String], avoid_models: &[String]) -> bool {
    let named = |models: &[String]| models.iter().any(|pattern| names(pattern, model));
    (models.is_empty() || named(models)) && !named(avoid_models)
}

/// Whether a pattern's words stand side by side in a model's name: "A100" in "NVIDIA A100-SXM4-80GB", but not "T4" in
/// "NVIDIA T400 4GB".
fn names(pattern: &str, model: &str) -> bool {
    let (pattern, model) = (words(pattern), words(model));
    !pattern.is_empty()
        && model.windows(pattern.len()).any(|run| run.iter().zip(&pattern).all(|(a, b)| a.eq_ignore_ascii_case(b)))
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
            assert!(names(pattern, a100), "{pattern}");
        }
        for pattern in ["", " ", "A10", "A100 80GB", "A100X", "A100-SXM4-80GB-X"] {
            assert!(!names(pattern, a100), "{pattern}");
        }
        assert!(!names("T4", "NVIDIA T400 4GB"));
        assert!(names("T4", "Tesla T4"));
    }
}
