//! Gauges computed at scrape time, so that no series outlives its pod.
//!
//! What is not an amount is an info gauge of value 1, and its labels say it: the tier, the device-list strategies.

mod ledger;
mod usage;

use std::sync::Arc;

use divvy_api::usage::NodeUsage;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::ledger::Ledger;
use self::usage::Usage;
use super::ConfigStatus;
use crate::kubelet::plugin::SharedAllocator;
use crate::kubelet::registration::Standing;

/// Adds to `registry`, whose prefix they take, gauges of what `allocator` holds and of what containers use.
pub fn register(
    registry: &mut Registry,
    allocator: SharedAllocator,
    standing: watch::Receiver<Standing>,
    config: watch::Receiver<ConfigStatus>,
    usage: watch::Receiver<Arc<NodeUsage>>,
) {
    registry.register_collector(Box::new(Ledger { allocator, standing, config }));
    registry.register_collector(Box::new(Usage(usage)));
}
