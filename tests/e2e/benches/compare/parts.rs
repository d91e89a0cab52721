//! What is compared. Each part takes the cluster apart, so each has a run of its own.

use divvy_e2e::cluster::Cluster;
use divvy_e2e::runner::{Installed, Run, Scenario};

use crate::{extender, node, registration, scheduler, shapes};

/// All parts.
pub(crate) const ALL: [Scenario; 5] = [
    part("extender", |c| Box::pin(extender::calls(c))),
    part("scheduler", |c| Box::pin(scheduler::pods_a_second(c))),
    part("node", |c| Box::pin(node::costs(c))),
    part("registration", |c| Box::pin(registration::after_restarts(c))),
    part("shapes", |c| Box::pin(shapes::at_once(c))),
];

/// Repetitions of each measurement, which take turns with those of the other systems; `DIVVY_E2E_ROUNDS` sets another number.
pub(crate) fn rounds() -> usize {
    std::env::var("DIVVY_E2E_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

const fn part(name: &'static str, run: for<'a> fn(&'a mut Cluster) -> Run<'a>) -> Scenario {
    Scenario { name, only_when_named: true, installed: Installed::AsProcesses, run }
}
