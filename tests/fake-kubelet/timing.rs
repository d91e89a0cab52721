//! How long a node takes.

use std::time::Duration;

/// Durations of what a real node takes its time for. Each is drawn between half of it and one and a half.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between a good PreStartContainer and the container's start.
    pub start: Duration,
    /// How long an ordinary init container runs.
    pub init_run: Duration,
    /// Between the order to stop and the end of the last container.
    pub stop: Duration,
    /// Until a failed container start is tried again (10 to 15 s on a real node).
    pub retry: Duration,
    /// Between the appearance of kubelet.sock and the first admission.
    pub admit_after_boot: Duration,
    /// Until the stream of a closed connection ends, as grpc-go leaves it to a goroutine that is woken up.
    pub close: Duration,
    /// Until the API server shows the status of a rejected pod: a PATCH, and the event of a watch. `/pods` has it once the
    /// sync loop has nothing left to admit.
    pub status: Duration,
    /// Between two statuses of the Node, each with the devices as they are then (`nodeStatusUpdateFrequency`).
    pub node_status: Duration,
    /// How long a resource whose plugin went away keeps its capacity.
    pub endpoint_grace: Duration,
}

// === impl Timing ===

impl Default for Timing {
    fn default() -> Self {
        Self {
            start: Duration::from_millis(2),
            init_run: Duration::from_millis(10),
            stop: Duration::from_millis(10),
            retry: Duration::from_millis(100),
            admit_after_boot: Duration::from_millis(100),
            close: Duration::from_millis(10),
            status: Duration::from_millis(20),
            node_status: Duration::from_secs(10),
            endpoint_grace: Duration::from_secs(300),
        }
    }
}
