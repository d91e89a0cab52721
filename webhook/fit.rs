//! Feasibility by the index, for admission hints and for events on pending pods.

use std::time::Duration;

use divvy_index::demand::Demand;
use divvy_index::Index;

use crate::admission::{Fit, PodDemand};

/// Longest search for nodes during an admission review.
const PATIENCE: Duration = Duration::from_millis(2);

/// Which nodes could take a pod.
pub fn fit(index: &Index, demand: &Demand) -> Fit {
    let outlook = index.feasibility(demand, PATIENCE);
    match (outlook.now, outlook.ever) {
        (Some(true), _) => Fit::Now(outlook.best.iter().map(ToString::to_string).collect()),
        (Some(false), _) | (None, false) => Fit::Nowhere(outlook.to_string()),
        (None, true) => Fit::Unknown,
    }
}

// === impl Demand ===

/// A pod that is about to be created: it has no UID yet, and its priority and CPU are nobody's concern before it is
/// scheduled.
impl From<&PodDemand> for Demand {
    fn from(PodDemand { namespace, name, requests, preferences }: &PodDemand) -> Self {
        Self {
            uid: name.as_str().into(), // the policy random draws by it
            namespace: namespace.clone(),
            name: name.clone(),
            priority: 0,
            containers: requests.clone(),
            preferences: preferences.clone(),
            cpu_milli: 0,
        }
    }
}
