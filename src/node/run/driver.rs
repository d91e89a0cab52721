//! Releases the driver while it is being replaced.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::apiserver::desired::Desired;
use crate::nvml::DriverControl;

/// Signals for an administrator on the node: SIGUSR1 releases the driver, SIGUSR2 reverts that.
pub(super) struct DriverSignals {
    release: Signal,
    resume: Signal,
}

impl DriverSignals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { release: signal(SignalKind::user_defined1())?, resume: signal(SignalKind::user_defined2())? })
    }
}

/// Keeps NVML closed while that is requested by the cluster or by signal. A signal is valid until the process ends.
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
