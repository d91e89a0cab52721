//! Random: any host, and there any card.

use std::sync::Arc;

use rand::seq::{IndexedRandom as _, IteratorRandom as _};

use divvy_simulate::Rng;
use divvy_simulate::cluster::{Cluster, Place};
use divvy_simulate::policy::Policy;
use divvy_simulate::workload::{Arrival, Kind, Workload};

/// As published beside FGD. A card fits that has enough of both compute and memory.
#[derive(Clone, Debug)]
pub struct Random {
    kinds: Arc<[Kind]>,
    /// Hosts that would do for the pod in question.
    fitting: Vec<usize>,
}

// === impl Random ===

impl Random {
    /// For pods of these kinds.
    pub fn new(workload: &Workload) -> Self {
        Self { kinds: workload.kinds.as_slice().into(), fitting: Vec::new() }
    }
}

impl Policy for Random {
    fn choose(&mut self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<Place> {
        let kind = &self.kinds[pod.kind];
        self.fitting.clear();
        self.fitting.extend(cluster.hosts().iter().enumerate().filter(|(_, host)| host.fits(kind)).map(|(at, _)| at));
        let host = *self.fitting.choose(rng)?;
        let cards = cluster.hosts()[host].fitting(kind).sample(rng, kind.cards as usize);
        Some(Place { host, cards: cards.into_iter().collect() })
    }
}
