//! Gauges computed at scrape time, so that no series outlives its pod.
//!
//! Facts that aren't numbers, such as the tier, are labels of info gauges with value 1.

mod ledger;
mod readings;
mod usage;

use std::sync::Arc;

use divvy_node_core::allocator::SharedAllocator;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::ledger::LedgerCollector;
use self::readings::Readings;
use self::usage::Usage;
use crate::container::Containers;
use crate::nvml::GpuReadings;
use crate::states::States;

/// Registers metrics of the ledger, of the GPUs' sensors and of the measured use of containers.
pub fn register(
    registry: &mut Registry,
    allocator: SharedAllocator,
    containers: Arc<Containers>,
    states: States,
    readings: watch::Receiver<Arc<Vec<GpuReadings>>>,
) {
    let usage = states.usage.clone();
    registry.register_collector(Box::new(LedgerCollector { allocator, containers, states }));
    registry.register_collector(Box::new(Readings(readings)));
    registry.register_collector(Box::new(Usage(usage)));
}
