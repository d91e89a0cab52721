//! Why many nodes don't take a pod, in so few words that kube-scheduler, which counts equal reasons, tells them in a line.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_placement::Lacking;

use crate::node::Node;
use crate::question::Question;
use crate::table::View;

/// The texts of one answer.
#[derive(Debug, Default)]
pub(crate) struct Headlines(HashMap<Lacking, Arc<str>, foldhash::fast::RandomState>);

// === impl Headlines ===

impl Headlines {
    /// Why the pod doesn't fit on the node at this place; `None` if it does.
    pub(crate) fn why_not(
        &mut self,
        question: &Question<'_>,
        view: &View,
        (place, node): (u32, &Node),
    ) -> Option<Arc<str>> {
        let lacking = if let Some(lacking) = question.lacking(view, place) {
            lacking
        } else {
            let why_not = node.plan(&node.cards, question).err()?;
            if why_not.of_cards.is_empty() {
                return Some(why_not.reason);
            }
            Lacking::of(&why_not.of_cards)
        };
        Some(Arc::clone(self.0.entry(lacking).or_insert_with(|| lacking.to_string().into())))
    }
}
