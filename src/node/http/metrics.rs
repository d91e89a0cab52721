//! Gauges computed at scrape time, so that no series outlives its pod.
//!
//! Facts that aren't numbers, such as the tier, are labels of info gauges with value 1.

mod ledger;
mod usage;

use std::sync::Arc;

use divvy_api::usage::NodeUsage;
use divvy_node_core::allocator::SharedAllocator;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::ledger::LedgerCollector;
use self::usage::Usage;
use super::ConfigStatus;
use crate::container::Containers;
use crate::kubelet::registration::RegistrationStatus;

/// Registers gauges of the ledger and of the measured use of containers.
pub fn register(
    registry: &mut Registry,
    allocator: SharedAllocator,
    containers: Arc<Containers>,
    registration: watch::Receiver<RegistrationStatus>,
    config: watch::Receiver<ConfigStatus>,
    usage: watch::Receiver<Arc<NodeUsage>>,
) {
    registry.register_collector(Box::new(LedgerCollector { allocator, containers, registration, config }));
    registry.register_collector(Box::new(Usage(usage)));
}
