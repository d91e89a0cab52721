//! What the clock thread takes of a core, for containers that are idle, busy, or make it read as much as they can.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use divvy_api::{CardId, Cores, Memory, Share, Terms, Tier};
use divvy_node::config::{KeySet as _, Keys};
use divvy_node::container::Containers;
use divvy_node::container::clock::{self, ClockView, Tenant};
use divvy_node::container::isolation;
use divvy_node_core::ledger::Nonce;
use divvy_node_core::pod::PodRef;
use divvy_node_core::ports::{AllocatedContainer, ContainerSetup as _};
use divvy_region::layout::{self, LINE, SLOTS};
use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

const MEASURED: Duration = Duration::from_secs(4);

struct Case {
    name: &'static str,
    cards: usize,
    /// Of each card.
    containers: usize,
    /// Of each container; the last of them is busy.
    processes: usize,
    /// Of each card.
    busy: usize,
}

fn main() -> anyhow::Result<()> {
    let case = |name, cards, containers, processes, busy| Case { name, cards, containers, processes, busy };
    let cases = [
        case("no containers", 0, 0, 0, 0),
        case("8 cards, 32 idle containers", 8, 4, 2, 0),
        case("1 card, 4 containers, one busy", 1, 4, 2, 1),
        case("1 card, 4 busy containers", 1, 4, 2, 4),
        case("8 cards, 32 busy containers", 8, 4, 2, 4),
        case("8 cards, 32 busy containers of 64 processes", 8, 4, 64, 4),
        case("8 cards, 32 busy containers that request all slots", 8, 4, SLOTS, 4),
    ];
    for case in cases {
        println!("{:<50} {:>6.2} % of a core", case.name, case.measure()? * 100.0);
    }
    Ok(())
}

// === impl Case ===

impl Case {
    /// The part of a core.
    fn measure(&self) -> anyhow::Result<f64> {
        // As /run is.
        let directory = tempfile::tempdir_in("/dev/shm")?;
        let run_dir = directory.path().join("run");
        let delivery = delivery(directory.path(), &run_dir)?;
        let mut tenants = Vec::new();
        for card in 0..self.cards {
            let card: CardId = format!("GPU-{card}").parse()?;
            for container in 0..self.containers {
                tenants.push(self.come(&delivery, &run_dir, &card, container < self.busy)?);
            }
        }
        let stop = CancellationToken::new();
        let view = move |known| {
            (known != 1).then(|| ClockView { revision: 1, tenants: tenants.clone(), ..ClockView::default() })
        };
        clock::start(run_dir, view, stop.clone())?;
        // The first second is settling.
        std::thread::sleep(Duration::from_secs(1));
        let before = used();
        std::thread::sleep(MEASURED);
        let used = used().saturating_sub(before);
        stop.cancel();
        std::thread::sleep(Duration::from_millis(200));
        Ok(used.as_secs_f64() / MEASURED.as_secs_f64())
    }

    fn come(&self, delivery: &Containers, run_dir: &Path, card: &CardId, is_busy: bool) -> anyhow::Result<Tenant> {
        let (nonce, cores) = (Nonce::random(), Cores::new(25));
        delivery.prepare(&AllocatedContainer {
            pod: &PodRef { uid: "u".to_owned(), namespace: "ns".to_owned(), name: "p".to_owned() },
            name: "c",
            nonce,
            shares: vec![(card.clone(), Share { memory: Memory::mib(1), cores, ..Share::default() })],
            terms: Terms { tier: Tier::Shim, ..Terms::default() },
        })?;
        let region = File::options().write(true).open(run_dir.join(format!("containers/{nonce}/region/books")))?;
        region.write_all_at(&u32::try_from(self.processes)?.to_ne_bytes(), 28)?;
        if is_busy {
            let at = layout::use_bytes(1, 0, self.processes).end - LINE + layout::IN_FLIGHT;
            region.write_all_at(&1_000_000_u64.to_ne_bytes(), at as u64)?;
        }
        Ok(Tenant { nonce, priority: None, cards: vec![(card.clone(), cores)] })
    }
}

fn delivery(root: &Path, run_dir: &Path) -> anyhow::Result<Containers> {
    let library = root.join("libdivvy.so");
    fs::write(&library, b"\x7fELF")?;
    let env = |name: &str| match name {
        "NODE_NAME" => Some("n1".into()),
        "LIBDIVVY_PATH" => Some(library.clone().into_os_string()),
        "RUN_DIR" => Some(run_dir.into()),
        "STATE_DIR" => Some(root.join("state").into_os_string()),
        "CDI_DIR" => Some(root.join("cdi").into_os_string()),
        _ => None,
    };
    let config = Keys::from_env(env).and_then(Keys::into_config)?;
    Ok(Containers::new((&config).into(), isolation::select(&config)?.install(&config)?))
}

/// Processor time of this process; but for the clock nothing runs while it is measured.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
