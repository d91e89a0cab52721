//! Lets go of the driver while somebody replaces it.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::apiserver::desired::Desired;
use crate::nvml::DriverControl;

/// By hand, on the node: SIGUSR1 lets go of the driver, SIGUSR2 takes that back.
pub(super) struct DriverSignals {
    release: Signal,
    resume: Signal,
}

impl DriverSignals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { release: signal(SignalKind::user_defined1())?, resume: signal(SignalKind::user_defined2())? })
    }
}

/// Keeps NVML closed as long as the cluster or somebody on the node asks for it. A signal is forgotten with the process.
pub(super) async fn follow(
    mut desired: watch::Receiver<Desired>,
    mut signals: DriverSignals,
    driver: DriverControl,
    stop: CancellationToken,
) {
    let mut signalled = false;
    loop {
        let by_signal = signalled.then(|| "SIGUSR1".to_owned());
        driver.release(by_signal.or_else(|| desired.borrow_and_update().driver_release()));
        tokio::select! {
            Ok(()) = desired.changed() => {}
            _ = signals.release.recv() => signalled = true,
            _ = signals.resume.recv() => signalled = false,
            () = stop.cancelled() => return,
        }
    }
}
