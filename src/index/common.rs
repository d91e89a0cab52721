//! What many nodes have in common, kept once: 5 000 equal machines have one table of links.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use divvy_placement::{Link, Links};

/// Models and tables of links that are in use.
#[derive(Debug, Default)]
pub(crate) struct Common {
    models: HashSet<Arc<str>>,
    links: HashMap<Box<[Link]>, Arc<Links>>,
}

// === impl Common ===

impl Common {
    pub(crate) fn model(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.models.get(name) {
            return Arc::clone(known);
        }
        self.models.retain(|model| Arc::strong_count(model) > 1);
        let model: Arc<str> = name.into();
        self.models.insert(Arc::clone(&model));
        model
    }

    /// `link` is asked once a pair, the lower position first.
    pub(crate) fn links(&mut self, cards: usize, link: impl Fn(usize, usize) -> Link) -> Arc<Links> {
        let pairs = (0..cards).flat_map(|a| (a + 1..cards).map(move |b| (a, b)));
        let key: Box<[Link]> = pairs.map(|(a, b)| link(a, b)).collect();
        if let Some(known) = self.links.get(&key) {
            return Arc::clone(known);
        }
        self.links.retain(|_, links| Arc::strong_count(links) > 1);
        let links = Arc::new(Links::new(cards, link));
        self.links.insert(key, Arc::clone(&links));
        links
    }
}
