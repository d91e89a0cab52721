//! What admission asks the index.

use divvy_index::demand::Demand;
use divvy_index::{Index, Outlook, Question};

use crate::admission::{Fit, Obstacle, PodDemand, Shortage};

/// Which nodes could take a pod that is about to be created.
pub fn fit(index: &Index, asked: &PodDemand) -> Fit {
    let demand = Demand {
        uid: asked.name.as_str().into(), // it has none yet; the policy random draws by it
        namespace: asked.namespace.clone(),
        name: asked.name.clone(),
        priority: 0,
        containers: asked.claims.clone(),
        preferences: asked.preferences.clone(),
    };
    let policies = demand.policies(&index.reading().policy);
    let Outlook { now, ever, best, nodes, asked, reasons } = index.outlook(&Question::new(&demand, &policies));
    let obstacle = |(reason, nodes): (std::sync::Arc<str>, usize)| Obstacle { nodes, reason: reason.to_string() };
    let shortage = || Shortage { nodes, asked, obstacles: reasons.into_iter().map(obstacle).collect() };
    match (now, ever) {
        (Some(true), _) => Fit::Now(best.iter().map(ToString::to_string).collect()),
        (_, false) => Fit::Never(shortage()),
        (Some(false), true) => Fit::Later(shortage()),
        (None, true) => Fit::Unknown,
    }
}
