//! What the daemon is doing now, as its tasks tell it; beside the ledger it is what metrics, pages and the API server show.

use std::sync::Arc;

use divvy_api::usage::NodeUsage;
use divvy_node_core::serving::ServingProblem;
use tokio::sync::watch;

use crate::kubelet::advertise::Offer;
use crate::kubelet::registration::RegistrationStatus;

/// The present states.
#[derive(Clone, Debug)]
pub struct States {
    /// Registration with the kubelet.
    pub registration: watch::Receiver<RegistrationStatus>,
    /// Devices that are registered, as last listed.
    pub offers: watch::Receiver<Arc<Vec<Offer>>>,
    /// Why no pod can be served, if none can.
    pub serving: watch::Receiver<Option<ServingProblem>>,
    /// Configuration in effect.
    pub config: watch::Receiver<ConfigStatus>,
    /// Measured use of the containers.
    pub usage: watch::Receiver<Arc<NodeUsage>>,
}

/// Effective configuration, as `/config` shows it.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// The configuration as YAML.
    pub text: String,
    /// Error of the current file, if an earlier one is in effect.
    pub problem: Option<String>,
}
