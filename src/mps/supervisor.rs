//! Starts the control daemon, and again whenever it exits, until a signal.

use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use divvy_api::CardId;
use divvy_runtime::driver::nvml_library;
use divvy_runtime::logging::WarnOnce;
use divvy_runtime::program;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::compute_modes::ComputeModes;
use crate::config::Config;
use crate::control::{Control, list};
use crate::directory::MpsDirectory;

/// Between two health checks of a control daemon that is up, and between two attempts to take the GPUs.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Between two health checks of a control daemon that starts.
const START_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for a control daemon that starts.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait before the first restart; doubled each time, until the daemon has been up for [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Keeps one control daemon up.
struct Supervisor {
    directory: MpsDirectory,
    control: Control,
    /// Longest wait for the control daemon to exit.
    drain_timeout: Duration,
    stop: CancellationToken,
}

/// Keeps MPS up until SIGTERM or SIGINT, then stops it. A second signal aborts.
pub(crate) async fn run(config: &Config, context: program::Context) -> anyhow::Result<()> {
    info!(version = env!("CARGO_PKG_VERSION"), "starting divvy-mps");
    let program::Context { mut signals, stop, .. } = context;
    let mut supervised = pin!(keep_mps_up(config, stop.clone()));
    tokio::select! {
        ended = &mut supervised => return ended,
        name = signals.next() => info!(signal = name, "stopping"),
    }
    stop.cancel();
    tokio::select! {
        ended = &mut supervised => ended,
        name = signals.next() => anyhow::bail!("{name} while stopping: aborted; GPUs stay in compute mode EXCLUSIVE_PROCESS"),
    }
}

async fn keep_mps_up(config: &Config, stop: CancellationToken) -> anyhow::Result<()> {
    let directory = MpsDirectory::new(&config.run_dir);
    directory.create().with_context(|| format!("creating directories in run-dir {}", config.run_dir.display()))?;
    let lock = directory.try_lock_supervisor().context("locking the MPS directory")?;
    let _lock = lock.context("another divvy-mps runs on this node")?;
    let driver_root = config.driver_root.on_host(&config.host_root);
    let control = Control::find(&driver_root, &directory)?;
    let modes = ComputeModes::new(nvml_library(&driver_root), directory.compute_modes());
    if let Some(gpus) = take_gpus(&modes, &stop).await? {
        info!(gpus = %list(&gpus), "GPUs set to compute mode EXCLUSIVE_PROCESS");
        let control = control.with_gpus(&gpus);
        Supervisor { directory, control, drain_timeout: config.drain_timeout.get(), stop }.supervise().await;
    }
    let restored = tokio::task::spawn_blocking(move || modes.restore()).await?;
    restored.context("restoring the compute modes of GPUs")
}

/// Waits until no process uses the GPUs, and takes those that MPS can serve; `None`: stopped meanwhile.
async fn take_gpus(modes: &ComputeModes, stop: &CancellationToken) -> anyhow::Result<Option<Vec<CardId>>> {
    let mut warning = WarnOnce::default();
    loop {
        let modes = modes.clone();
        match tokio::task::spawn_blocking(move || modes.set_exclusive()).await? {
            Ok(gpus) => return Ok(Some(gpus)),
            Err(problem) => warning.warn(format!("waiting for the GPUs: {problem:#}")),
        }
        tokio::select! { () = sleep(CHECK_INTERVAL) => {}, () = stop.cancelled() => return Ok(None) }
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// Starts the control daemon, and again whenever it exits, until stopped.
    async fn supervise(&self) {
        let mut backoff = MIN_BACKOFF;
        loop {
            let began = Instant::now();
            let Err(problem) = self.run_once().await else { return };
            if began.elapsed() > MAX_BACKOFF {
                backoff = MIN_BACKOFF;
            }
            error!("{problem:#}; restarting it in {backoff:?}");
            tokio::select! { () = sleep(backoff) => {}, () = self.stop.cancelled() => return }
            backoff = MAX_BACKOFF.min(backoff * 2);
        }
    }

    /// Runs the control daemon from start to exit; an error unless it was stopped.
    async fn run_once(&self) -> anyhow::Result<()> {
        // A supervisor that was killed leaves its daemon behind, beside which ours can't start. No other process holds a GPU by now.
        if self.control.check().await.is_ok() {
            warn!("stopping a control daemon without a supervisor");
            self.control.quit().await;
        }
        let mut child = self.control.start().context("starting the control daemon")?;
        tokio::select! {
            status = child.wait() => anyhow::bail!("control daemon exited at startup: {}", status?),
            up = timeout(START_TIMEOUT, self.until_up()) => {
                if up.is_err() {
                    self.control.kill(&mut child).await;
                    anyhow::bail!("control daemon didn't answer within {START_TIMEOUT:?} and was killed");
                }
            }
            () = self.stop.cancelled() => return self.end(child).await,
        }
        let mut ready = Some(self.directory.mark_ready().context("marking MPS as ready")?);
        info!(program = %self.control, "MPS is up");
        loop {
            tokio::select! {
                status = child.wait() => anyhow::bail!("control daemon exited; clients lost their GPU contexts: {}", status?),
                () = self.stop.cancelled() => {
                    drop(ready);
                    return self.end(child).await;
                }
                () = sleep(CHECK_INTERVAL) => {}
            }
            // A daemon that doesn't answer isn't killed: its clients may still be at work.
            match (self.control.check().await, ready.is_some()) {
                (Ok(()), false) => {
                    ready = Some(self.directory.mark_ready().context("marking MPS as ready")?);
                    info!("control daemon answers again");
                }
                (Err(problem), true) => {
                    ready = None;
                    warn!("control daemon doesn't answer; containers are refused meanwhile: {problem}");
                }
                _ => {}
            }
        }
    }

    async fn until_up(&self) {
        while self.control.check().await.is_err() {
            sleep(START_INTERVAL).await;
        }
    }

    async fn end(&self, mut child: Child) -> anyhow::Result<()> {
        let exited = async {
            self.control.quit().await;
            child.wait().await
        };
        match timeout(self.drain_timeout, exited).await {
            Ok(status) => info!("control daemon exited: {}", status?),
            Err(_late) => {
                self.control.kill(&mut child).await;
                warn!("control daemon didn't exit within {:?} and was killed", self.drain_timeout);
            }
        }
        Ok(())
    }
}
