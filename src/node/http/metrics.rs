//! Gauges computed at scrape time, so that no series outlives its pod.
//!
//! What is not an amount is an info gauge of value 1, and its labels say it: the tier, the device-list strategies.

mod ledger;
mod usage;

use std::sync::Arc;

use divvy_api::usage::NodeUsage;
use divvy_node_core::allocator::SharedAllocator;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::ledger::Ledger;
use self::usage::Usage;
use super::ConfigStatus;
use crate::container::Containers;
use crate::kubelet::registration::Standing;

/// Adds to `registry`, whose prefix they take, gauges of what `allocator` holds and of what containers use.
pub fn register(
    registry: &mut Registry,
    allocator: SharedAllocator,
    containers: Arc<Containers>,
    standing: watch::Receiver<Standing>,
    config: watch::Receiver<ConfigStatus>,
    usage: watch::Receiver<Arc<NodeUsage>>,
) {
    registry.register_collector(Box::new(Ledger { allocator, containers, standing, config }));
    registry.register_collector(Box::new(Usage(usage)));
}
