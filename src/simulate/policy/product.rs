//! Divvy's own policies, where the scheduler asks the extender about all hosts and takes its best: what they could come to.
//!
//! Of pods that ask for no cards the extender is asked too, as those of the published figures go by the policy. While it
//! expects nothing they are best-fitted.

use std::sync::Arc;

use divvy_api::annotation::PolicyName;

use super::{Arrival, BestFit, Policy, Scheduler, Scored};
use crate::Rng;
use crate::cluster::{Cards, Cluster, Host, Place};
use crate::extender::Extender;
use crate::target::Target;
use crate::workload::Workload;

/// The extender as it is asked about all hosts.
pub struct Product {
    extender: Extender,
    workload: Arc<Workload>,
    without_cards: Scored<BestFit>,
    scheduler: Scheduler,
}

// === impl Product ===

impl Product {
    /// An extender of these hosts.
    pub fn new(
        name: PolicyName,
        workload: &Arc<Workload>,
        cluster: &Cluster,
        target: &Target,
        scheduler: Scheduler,
    ) -> Self {
        let extender = Extender::new(name, workload, cluster, target);
        let without_cards = Scored::new(BestFit, scheduler.ties, workload);
        Self { extender, workload: Arc::clone(workload), without_cards, scheduler }
    }

    /// The best host of those with room beside their cards.
    fn best(&self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<usize> {
        let kind = &self.workload.kinds[pod.kind];
        let suits = |(_, host): &(usize, &Host)| !host.cards.is_empty() && host.fits_beside_cards(kind);
        let hosts: Vec<usize> = cluster.hosts().iter().enumerate().filter(suits).map(|(at, _)| at).collect();
        let named = self.extender.filter(pod, &hosts, self.scheduler.shortlist);
        self.scheduler.ties.best(named.into_iter().map(|named| (std::cmp::Reverse(named.rank), named.host)), rng)
    }
}

impl Policy for Product {
    fn choose(&mut self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<Place> {
        if self.workload.kinds[pod.kind].cards > 0 {
            let host = self.best(cluster, pod, rng)?;
            return Some(Place { host, cards: self.extender.bind(pod, host)? });
        }
        let place = if self.extender.expects_nothing() {
            self.without_cards.choose(cluster, pod, rng)?
        } else {
            Place { host: self.best(cluster, pod, rng)?, cards: Cards::default() }
        };
        self.extender.watch(pod, place.host);
        Some(place)
    }

    fn ended(&mut self, pod: Arrival) {
        self.extender.ended(pod);
    }

    fn expect(&mut self, target: &Target) {
        self.extender.expect(target);
    }
}
