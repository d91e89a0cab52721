//! `divvy-node mps`: keeps CUDA's multi-process service up on this node, beside the daemon and longer than it: the service's
//! clients end with it, and upgrades of the daemon must not touch them.
//!
//! ```text
//! supervisor ──starts──▶ nvidia-cuda-mps-control ──starts──▶ nvidia-cuda-mps-server ◀── processes in containers
//!     │                        ▲ pipe directory ◀────────────────────────────────────────────┘
//!     └── lock on `ready` ◀── divvy-node: up, or containers are refused
//! ```
//!
//! The cards are in compute mode EXCLUSIVE_PROCESS meanwhile: only the service's server opens them, so that nobody works
//! beside it. Cards in MIG mode are left out.

mod control;
mod modes;
mod place;

use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use divvy_api::CardId;
use divvy_runtime::Signals;
use divvy_runtime::logging::WarnOnce;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::control::Control;
use self::modes::Modes;
pub use self::place::Place;
use crate::config::Config;

/// Between two looks at a control daemon that is up, and at cards that aren't free.
const LOOK: Duration = Duration::from_secs(5);
/// Between two looks at one that starts.
const STARTING: Duration = Duration::from_millis(100);
/// Longest wait for one that starts.
const START: Duration = Duration::from_secs(30);
/// Before one that has ended is started again; twice as long each time, until it has been up for [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What the service is kept up with.
struct Supervisor {
    place: Place,
    control: Control,
    /// Longest wait for the service's end.
    patience: Duration,
    stop: CancellationToken,
}

/// Keeps the service up until SIGTERM or SIGINT, then ends it. A second signal aborts.
pub async fn run(config: &Config) -> anyhow::Result<()> {
    info!(version = env!("CARGO_PKG_VERSION"), node = config.node_name.as_str(), "divvy-node mps starts");
    let mut signals = Signals::new().context("listening for signals")?;
    let stop = CancellationToken::new();
    let mut kept_up = pin!(keep_up(config, stop.clone()));
    tokio::select! {
        ended = &mut kept_up => return ended,
        name = signals.next() => info!(signal = name, "stopping"),
    }
    stop.cancel();
    tokio::select! {
        ended = &mut kept_up => ended,
        name = signals.next() => anyhow::bail!("{name} while stopping: aborted; the cards stay in mode EXCLUSIVE_PROCESS"),
    }
}

async fn keep_up(config: &Config, stop: CancellationToken) -> anyhow::Result<()> {
    let place = Place::new(&config.run_dir);
    place.make().with_context(|| format!("making directories in runDir {}", config.run_dir.display()))?;
    let alone = place.request().context("making sure that nobody else does this")?;
    let _alone = alone.context("another `divvy-node mps` runs on this node")?;
    let control = Control::find(&config.driver_root_ctr_path, &place)?;
    let library = config.nvml_library.clone().unwrap_or_else(|| "libnvidia-ml.so.1".into());
    let modes = Modes::new(library, place.modes());
    if let Some(cards) = take_cards(&modes, &stop).await? {
        info!(cards = %list(&cards), "in compute mode EXCLUSIVE_PROCESS");
        let control = control.with_cards(&cards);
        Supervisor { place, control, patience: config.drain_timeout.get(), stop }.supervise().await;
    }
    let restored = tokio::task::spawn_blocking(move || modes.restore()).await?;
    restored.context("giving the cards back their compute modes")
}

/// Waits until nobody uses the cards, who would lose them, and takes those that the service can have; `None`: told to stop.
async fn take_cards(modes: &Modes, stop: &CancellationToken) -> anyhow::Result<Option<Vec<CardId>>> {
    let mut warning = WarnOnce::default();
    loop {
        let modes = modes.clone();
        match tokio::task::spawn_blocking(move || modes.take()).await? {
            Ok(cards) => return Ok(Some(cards)),
            Err(problem) => warning.warn(format!("waiting for the cards: {problem:#}")),
        }
        tokio::select! { () = sleep(LOOK) => {}, () = stop.cancelled() => return Ok(None) }
    }
}

fn list(cards: &[CardId]) -> String {
    cards.iter().map(CardId::as_str).collect::<Vec<_>>().join(",")
}

// === impl Supervisor ===

impl Supervisor {
    /// Starts the control daemon, and again whenever it ends, until told to stop.
    async fn supervise(&self) {
        let mut pause = PAUSE;
        loop {
            let began = Instant::now();
            let Err(problem) = self.one_life().await else { return };
            if began.elapsed() > LONGEST_PAUSE {
                pause = PAUSE;
            }
            error!("{problem:#}; it is started again in {pause:?}");
            tokio::select! { () = sleep(pause) => {}, () = self.stop.cancelled() => return }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// The control daemon from its start to its end; an error unless it was told to end.
    async fn one_life(&self) -> anyhow::Result<()> {
        // Of a supervisor that was killed; ours could not start beside it. No process is on the cards that it could hold.
        if self.control.is_up().await.is_ok() {
            warn!("a control daemon that nobody supervises is told to end");
            self.control.tell_to_end().await;
        }
        let mut child = self.control.start().context("starting the control daemon")?;
        tokio::select! {
            status = child.wait() => anyhow::bail!("the control daemon ended at its start: {}", status?),
            up = timeout(START, self.is_up_at_last()) => {
                if up.is_err() {
                    self.control.kill(&mut child).await;
                    anyhow::bail!("the control daemon didn't answer within {START:?} and was killed");
                }
            }
            () = self.stop.cancelled() => return self.end(child).await,
        }
        let mut announced = Some(self.place.announce().context("saying that the service is up")?);
        info!(program = %self.control, "the service is up");
        loop {
            tokio::select! {
                status = child.wait() => {
                    anyhow::bail!("the control daemon ended, and with it what its clients had on the cards: {}", status?);
                }
                () = self.stop.cancelled() => {
                    drop(announced);
                    return self.end(child).await;
                }
                () = sleep(LOOK) => {}
            }
            // It isn't killed: its clients may still be at work.
            match (self.control.is_up().await, announced.is_some()) {
                (Ok(()), false) => {
                    announced = Some(self.place.announce().context("saying that the service is up")?);
                    info!("the control daemon answers again");
                }
                (Err(problem), true) => {
                    announced = None;
                    warn!("the control daemon doesn't answer, so that no container can start: {problem}");
                }
                _ => {}
            }
        }
    }

    async fn is_up_at_last(&self) {
        while self.control.is_up().await.is_err() {
            sleep(STARTING).await;
        }
    }

    async fn end(&self, mut child: Child) -> anyhow::Result<()> {
        let ended = async {
            self.control.tell_to_end().await;
            child.wait().await
        };
        match timeout(self.patience, ended).await {
            Ok(status) => info!("the control daemon has ended: {}", status?),
            Err(_late) => {
                self.control.kill(&mut child).await;
                warn!("the control daemon didn't end within {:?} and was killed", self.patience);
            }
        }
        Ok(())
    }
}
