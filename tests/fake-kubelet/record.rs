//! What happened so far: calls, registrations, boots.

use std::time::{Duration, Instant};

use super::devices::Ids;

/// What happened so far, in order.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) calls: Vec<Call>,
    pub(crate) registrations: Vec<Registered>,
    pub(crate) pod_lists: u64,
    pub(crate) unanswered: usize,
    pub(crate) boots: Vec<Instant>,
    pub(crate) gone: Vec<Gone>,
}

/// A pod that isn't here any more.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One call to a plugin, seen from the kubelet.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which one.
    pub method: Method,
    /// UID of the pod it was made for.
    pub pod: String,
    /// Container it was made for.
    pub container: String,
    /// Resource it was made for.
    pub resource: String,
    /// IDs in the request; for GetPreferredAllocation the available ones.
    pub ids: Ids,
    /// When it was sent.
    pub started: Instant,
    /// Until its answer was decoded.
    pub took: Duration,
    /// As the kubelet logs it.
    pub error: Option<String>,
}

/// Calls that are made for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Which IDs the plugin would like to give.
    GetPreferredAllocation,
    /// Which IDs it gives.
    Allocate,
    /// Before each start.
    PreStartContainer,
}

/// A registration that came to its first list.
#[derive(Clone, Debug)]
pub struct Registered {
    /// Whose.
    pub resource: String,
    /// When the plugin was connected, just before Register was answered.
    pub connected: Instant,
    /// When its first list was taken.
    pub listed: Instant,
}
