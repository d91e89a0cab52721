//! One cluster, one policy, and the pods that come to it.

use std::collections::HashMap;
use std::time::Instant;

use crate::Rng;
use crate::cluster::{Cluster, Place};
use crate::policy::Policy;
use crate::target::Target;
use crate::workload::{Arrival, Kind, Workload};

/// A run under way.
pub struct Run<'a> {
    workload: &'a Workload,
    cluster: Cluster,
    policy: Box<dyn Policy + 'a>,
    rng: Rng,
    /// By serial number.
    placed: HashMap<u64, (usize, Place)>,
    /// What fragments are measured by, whatever the policy expects.
    target: &'a Target,
    /// By host, and their sum; in thousandths of cards.
    fragments: Vec<f64>,
    fragmented: f64,
    /// Duration of each decision about a pod with cards, in ns.
    pub decisions: Vec<u32>,
}

// === impl Run ===

impl<'a> Run<'a> {
    /// With nobody there yet. `rng` is for the policy's draws.
    pub fn new(
        workload: &'a Workload,
        cluster: Cluster,
        policy: Box<dyn Policy + 'a>,
        target: &'a Target,
        rng: Rng,
    ) -> Self {
        let fragments: Vec<f64> = cluster.hosts().iter().map(|host| target.fragmented(host)).collect();
        let fragmented = fragments.iter().sum();
        Self {
            workload,
            cluster,
            policy,
            rng,
            placed: HashMap::new(),
            target,
            fragments,
            fragmented,
            decisions: Vec::new(),
        }
    }

    /// The cluster as it is now.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Free capacity of no use to the expected requests, in percent of all cards.
    pub fn fragmented(&self) -> f64 {
        100.0 * self.fragmented / self.workload.capacity() as f64
    }

    /// Thousandths of cards that pods of a kind ask for.
    pub fn demand(&self, kind: usize) -> f64 {
        self.workload.kinds[kind].demand()
    }

    /// A second passes, before the pods that come then.
    pub fn tick(&mut self) {
        self.policy.tick(&self.cluster);
    }

    /// A pod comes, or comes again; whether it was placed.
    pub fn offer(&mut self, serial: u64, kind: usize) -> bool {
        let workload = self.workload;
        let start = Instant::now();
        let place = self.policy.choose(&self.cluster, Arrival { serial, kind }, &mut self.rng);
        let spec: &Kind = &workload.kinds[kind];
        if spec.cards > 0 {
            self.decisions.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        let Some(place) = place else { return false };
        self.cluster.place(spec, place);
        self.placed.insert(serial, (kind, place));
        self.measure(place.host);
        true
    }

    /// A pod that was placed goes.
    pub fn end(&mut self, serial: u64) {
        if let Some((kind, place)) = self.placed.remove(&serial) {
            self.cluster.remove(&self.workload.kinds[kind], place);
            self.policy.ended(Arrival { serial, kind });
            self.measure(place.host);
        }
    }

    fn measure(&mut self, host: usize) {
        let now = self.target.fragmented(&self.cluster.hosts()[host]);
        self.fragmented += now - std::mem::replace(&mut self.fragments[host], now);
    }
}
