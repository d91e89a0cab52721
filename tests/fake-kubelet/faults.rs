//! What can be made to go wrong, at run time.

use std::time::Duration;

use hyper::StatusCode;

/// Faults of one kubelet; the default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// What `/pods` does instead of answering well.
    pub pods: PodsFault,
    /// Probability, 0 to 1, that the topology manager rejects a pod before any plugin is asked for it.
    pub reject_before_allocate: f64,
    /// Probability, 0 to 1, that a later admit handler rejects a pod after its devices were allocated.
    pub reject_after_allocate: f64,
    /// Probability, 0 to 1, that a container resource is given IDs that live pods hold, without the plugin being asked.
    pub hand_out_twice: f64,
    /// PodResources has no `Get`, as before Kubernetes 1.34.
    pub no_get: bool,
    /// Containers ignore that they are to end.
    pub stubborn: bool,
    /// How long the sync loop is busy with other things before it takes up the next pod: bound, and on no list yet.
    pub lag: Duration,
}

/// Faults of `/pods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodsFault {
    /// Answers well.
    #[default]
    None,
    /// Announces the whole length, sends half of it, closes.
    CutShort,
    /// Answers with this status and a line of text: 403 for a missing right, 500 and so on.
    Status(StatusCode),
    /// Leaves out the pod that was bound last. No kubelet does; what a daemon concludes from it has to be made up for.
    WithoutTheLast,
    /// Answers after this long.
    Slow(Duration),
    /// Doesn't listen; connections that were kept are closed.
    Refused,
}
