//! Gauges computed at scrape time, so that no series outlives its pod.
//!
//! Facts that aren't numbers, such as the tier, are labels of info gauges with value 1.

mod ledger;
mod readings;
mod usage;

use std::sync::Arc;

use divvy_api::usage::NodeUsage;
use divvy_node_core::allocator::SharedAllocator;
use divvy_node_core::serving::ServingProblem;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::ledger::LedgerCollector;
use self::readings::Readings;
use self::usage::Usage;
use super::ConfigStatus;
use crate::container::Containers;
use crate::kubelet::registration::RegistrationStatus;
use crate::nvml::GpuReadings;

/// States that are gauges.
#[derive(Clone, Debug)]
pub struct States {
    /// Registration with the kubelet.
    pub registration: watch::Receiver<RegistrationStatus>,
    /// Why no pod can be served, if none can.
    pub serving: watch::Receiver<Option<ServingProblem>>,
    /// Configuration in effect.
    pub config: watch::Receiver<ConfigStatus>,
}

/// Registers metrics of the ledger, of the GPUs' sensors and of the measured use of containers.
pub fn register(
    registry: &mut Registry,
    allocator: SharedAllocator,
    containers: Arc<Containers>,
    states: States,
    readings: watch::Receiver<Arc<Vec<GpuReadings>>>,
    usage: watch::Receiver<Arc<NodeUsage>>,
) {
    registry.register_collector(Box::new(LedgerCollector { allocator, containers, states }));
    registry.register_collector(Box::new(Readings(readings)));
    registry.register_collector(Box::new(Usage(usage)));
}
