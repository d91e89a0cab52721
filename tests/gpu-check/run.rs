//! Any program in a container of its own: `hack/gpu-check run`.
//!
//! What the daemon does for a container is done by the daemon's own code: the directories, the clock page and what it says of
//! contexts, and the overhead file. Each second a line tells what the container's region and the driver say.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use divvy_api::usage::{ContainerRef, ContainerUsage, RegionUsage};
use divvy_api::{CardId, Compute, Cores, Memory, Share, Terms, Tier};
use divvy_node::config::{KeySet as _, Keys};
use divvy_node::container::clock::{self, ClockView};
use divvy_node::container::{Containers, isolation};
use divvy_node::usage::{DriverMemoryTable, Overheads, Processes};
use divvy_node_core::ledger::Nonce;
use divvy_node_core::pod::PodRef;
use divvy_node_core::ports::{AllocatedContainer, ContainerSetup as _};
use divvy_region::clock::DriverMemory;
use divvy_region::snapshot::{Snapshot, Totals};
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::container::{Site, read_region, totals};
use crate::figures::now;
use crate::report::Report;
use crate::tenant::Tenant;

/// Between two lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// Kernels of those beside the program, ns.
const BESIDE_KERNEL_NS: u64 = 1_000_000;
/// Memory of each of those, MiB, beside what its context takes.
const BESIDE_MIB: u64 = 64;
/// Longer than anybody waits, ns.
const HOUR_NS: u64 = 3_600_000_000_000;
/// Exit code of a shell for a program that can't be run, and what is added to the number of a signal.
const NOT_RUN: u8 = 127;
const SIGNALLED: i32 = 128;

/// Run a program with a share of the GPU, and print each second what the library and the driver say of it.
///
/// The program runs in a directory of its own; words that name files are made absolute. The exit code is the program's, 1 if
/// it looked up functions of the driver that the library doesn't know, 64 wrong usage, 127 if it can't be run.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Percent of the GPU's compute
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100))]
    cores: u32,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    memory: u64,
    /// Part of the memory that may lie in host memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    host: u64,
    /// Whether compute that others leave idle may be used
    #[arg(long, default_value = "cap", value_parser = PossibleValuesParser::new(["cap", "burst"]).map(|word| compute(&word)))]
    compute: Compute,
    /// Containers that are always busy beside it, and have equal parts of the rest of the GPU's compute
    #[arg(long, value_name = "N", default_value_t = 0)]
    beside: u32,
    /// MiB that a context is charged with, instead of the figure that is shipped for the model
    #[arg(long, value_name = "MIB")]
    context: Option<u64>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// A node with one card, by the daemon's own code.
pub(crate) struct Node<'a> {
    site: &'a Site,
    run_dir: PathBuf,
    card: CardId,
    containers: Containers,
    tenants: Vec<clock::Tenant>,
}

/// Containers that are always busy, and the clock thread, until this is dropped.
pub(crate) struct Beside {
    _busy: Vec<Tenant>,
    clock: CancellationToken,
}

/// One container of the node.
pub(crate) struct Prepared {
    nonce: Nonce,
    root: PathBuf,
    share: Share,
    region: File,
}

/// What was seen at one moment.
struct Sample {
    totals: Totals,
    /// Processes with a slot, by their PIDs.
    pids: HashSet<u32>,
    /// Bytes of those by the driver; `None`: it doesn't tell.
    driver: Option<u64>,
    /// Bytes of the card in use by all.
    card: Option<u64>,
}

/// Runs a program until it ends.
pub(crate) fn run(arguments: &RunArguments, site: &Site, model: &str, report: &mut Report) -> Result<ExitCode> {
    let RunArguments { cores, memory, host, compute, beside, context, program } = arguments;
    let mut node = Node::new(site, "run")?;
    ensure!(host <= memory, "--host {host}: must not exceed --memory {memory}");
    let tested = node.prepare("program", Share { host: Memory::mib(*host), ..part(*memory, *cores) }, *compute)?;
    let _beside = Beside::start(&mut node, *beside, (100 - cores) / (*beside).max(1), model, *context)?;
    let nvml = site.nvml();
    let words = program.iter().map(absolute).collect::<Result<Vec<_>>>()?;
    let (name, rest) = words.split_first().context("a program")?;
    ignore_interrupts();
    let mut child = match tested.command(site, Path::new(name)).args(rest).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("gpu-check: {}: {error}", name.display());
            return Ok(ExitCode::from(NOT_RUN));
        }
    };
    let last = watch(&node, &tested, nvml.as_ref(), &mut child, report)?;
    let status = child.wait()?;
    if last.unknown > 0 {
        let times = last.unknown;
        eprintln!("gpu-check: the program looked up driver functions that the library doesn't know, {times} times");
    }
    let code = status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or(0));
    Ok(match u8::try_from(code).unwrap_or(1) {
        0 if last.unknown > 0 => ExitCode::FAILURE,
        code => ExitCode::from(code),
    })
}

/// So many MiB and percent of a GPU.
pub(crate) fn part(memory: u64, cores: u32) -> Share {
    Share { memory: Memory::mib(memory), cores: Cores::new(cores), ..Share::default() }
}

fn compute(word: &str) -> Compute {
    if word == "burst" { Compute::Burst } else { Compute::Cap }
}

/// Prints a line each second until the program has ended; the totals then.
fn watch(
    node: &Node<'_>,
    tested: &Prepared,
    nvml: Option<&Nvml>,
    child: &mut Child,
    report: &mut Report,
) -> Result<Totals> {
    eprintln!(
        "{:>6} {:>9} {:>9} {:>9} {:>9} {:>7} {:>10} {:>10} {:>5} {:>7}",
        "s", "books MiB", "contexts", "driver", "overhead", "compute", "launches/s", "held ms/s", "OOMs", "unknown"
    );
    let began = Instant::now();
    // As the daemon with its default probeInterval has it.
    let mut overheads = Overheads::over(Duration::from_secs(10));
    let mut before: Option<Totals> = None;
    loop {
        let is_over = end_within(child, INTERVAL)?.is_some();
        let sample = tested.sample(node, nvml)?;
        let totals = sample.totals;
        let overhead = tested.follow_overhead(node, &mut overheads, &sample);
        let past = before.unwrap_or_default();
        let grown = |of: fn(&Totals) -> u64| of(&totals).saturating_sub(of(&past));
        let launches = grown(|totals| totals.launches + totals.graph_launches);
        let compute = grown(|totals| totals.usage.busy_ns) / 10_000_000;
        let held_ms = grown(|totals| totals.throttled_ns) / 1_000_000;
        let seconds = began.elapsed().as_secs_f64();
        let driver = sample.driver.map_or_else(|| "-".to_owned(), |bytes| (bytes >> 20).to_string());
        eprintln!(
            "{seconds:>6.1} {:>9} {:>9} {driver:>9} {:>9} {compute:>5} % {launches:>10} {held_ms:>10} {:>5} {:>7}",
            totals.usage.committed >> 20,
            totals.usage.contexts >> 20,
            overhead >> 20,
            totals.ooms,
            totals.unknown,
        );
        report.keep(&json!({
            "seconds": seconds, "books": totals.usage.committed, "contexts": totals.usage.contexts,
            "managed": totals.usage.managed, "imported": totals.usage.imported, "driver": sample.driver,
            "card": sample.card, "overhead": overhead, "busy_ns": totals.usage.busy_ns, "launches": totals.launches,
            "graph_launches": totals.graph_launches, "throttled_ns": totals.throttled_ns, "ooms": totals.ooms,
            "unknown": totals.unknown, "processes": sample.pids.len(),
        }))?;
        before = Some(totals);
        if is_over {
            return Ok(totals);
        }
    }
}

/// Waits for a program's end, but for no longer than this; how it ended, if it did.
pub(crate) fn end_within(child: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + time;
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() >= deadline {
            return Ok(ended);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A word of the program's, made absolute if it names a file.
fn absolute(word: &OsString) -> Result<OsString> {
    let path = Path::new(word);
    let is_file = path.is_relative() && path.exists();
    Ok(if is_file { fs::canonicalize(path)?.into_os_string() } else { word.clone() })
}

/// Ctrl-C is the program's: its container is cleared away when it has ended.
fn ignore_interrupts() {
    extern "C" fn nothing(_signal: i32) {}
    // SAFETY: a handler that does nothing. It is not the program's, as exec sets handlers back.
    unsafe { libc::signal(libc::SIGINT, nothing as *const () as libc::sighandler_t) };
}

// === impl Node ===

impl<'a> Node<'a> {
    /// A node in a directory of this name.
    pub(crate) fn new(site: &'a Site, name: &str) -> Result<Self> {
        let root = site.directory().join(name);
        let run_dir = root.join("run");
        let env = |name: &str| match name {
            "NODE_NAME" => Some("gpu-check".into()),
            "LIBDIVVY_PATH" => Some(site.library().into()),
            "RUN_DIR" => Some(run_dir.clone().into_os_string()),
            "STATE_DIR" => Some(root.join("state").into_os_string()),
            "CDI_DIR" => Some(root.join("cdi").into_os_string()),
            _ => None,
        };
        let config = Keys::from_env(env).and_then(Keys::into_config)?;
        let containers = Containers::new((&config).into(), isolation::select(&config)?.install(&config)?);
        Ok(Self { site, card: site.uuid.parse()?, run_dir, containers, tenants: Vec::new() })
    }

    /// Prepares a container.
    pub(crate) fn prepare(&mut self, name: &str, share: Share, compute: Compute) -> Result<Prepared> {
        let nonce = Nonce::random();
        self.containers.prepare(&AllocatedContainer {
            pod: &PodRef { uid: name.to_owned(), namespace: "gpu-check".to_owned(), name: name.to_owned() },
            name: "main",
            nonce,
            shares: vec![(self.card.clone(), share)],
            terms: Terms { tier: Tier::Shim, compute, ..Terms::default() },
        })?;
        let root = self.run_dir.join(format!("containers/{nonce}"));
        let region = File::options().read(true).write(true).open(root.join("region/books"))?;
        self.tenants.push(clock::Tenant { nonce, priority: None, cards: vec![(self.card.clone(), share.cores)] });
        Ok(Prepared { nonce, root, share, region })
    }

    /// What contexts and graphs are charged with on a card of this model.
    fn driver_memory(&self, model: &str, context_mib: Option<u64>) -> Result<DriverMemory> {
        let driver = self.site.nvml().and_then(|nvml| nvml.sys_driver_version().ok()).unwrap_or_default();
        let shipped = DriverMemoryTable::shipped(model, &driver);
        let context_bytes = context_mib.map_or(Some(shipped.context_bytes), |mib| mib.checked_mul(1 << 20));
        Ok(DriverMemory { context_bytes: context_bytes.context("--context: too much")?, ..shipped })
    }

    fn start_clock(&self, figures: DriverMemory, stop: CancellationToken) -> Result<()> {
        let view = ClockView {
            revision: 1,
            tenants: self.tenants.clone(),
            driver_memory: HashMap::from([(self.card.clone(), figures)]),
        };
        clock::start(self.run_dir.clone(), move |known| (known != 1).then(|| view.clone()), stop)?;
        // A context that is made before the page is written would be charged nothing.
        let page = self.run_dir.join("clocks").join(self.card.as_str());
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::read(&page)?.iter().take(8).all(|byte| *byte == 0) {
            ensure!(Instant::now() < deadline, "{}: the clock thread doesn't write it", page.display());
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

// === impl Beside ===

impl Beside {
    /// Starts the clock for all containers of the node, and so many more with so many percent each.
    pub(crate) fn start(
        node: &mut Node<'_>,
        count: u32,
        cores: u32,
        model: &str,
        context_mib: Option<u64>,
    ) -> Result<Self> {
        let figures = node.driver_memory(model, context_mib)?;
        let mib = BESIDE_MIB + (figures.context_bytes >> 20);
        let others = (0..count).map(|number| node.prepare(&format!("beside-{number}"), part(mib, cores), Compute::Cap));
        let others: Vec<Prepared> = others.collect::<Result<_>>()?;
        let clock = CancellationToken::new();
        node.start_clock(figures, clock.clone())?;
        let mut busy = Vec::new();
        for other in &others {
            let command = other.command(node.site, &std::env::current_exe()?);
            let mut tenant = Tenant::start(command, node.site.place).context("a container beside the program")?;
            tenant.tell(&format!("work {BESIDE_KERNEL_NS} {} {}", now(), now() + HOUR_NS))?;
            busy.push(tenant);
        }
        Ok(Self { _busy: busy, clock })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.clock.cancel();
    }
}

// === impl Prepared ===

impl Prepared {
    /// A program in it, held by the library.
    pub(crate) fn command(&self, site: &Site, program: &Path) -> Command {
        site.command_in(program, &self.root)
    }

    /// Makes its programs clients of the multi-process service whose sockets are in a directory.
    pub(crate) fn use_service(&self, pipe: &Path) -> Result<()> {
        let limits = self.root.join("limits/limits");
        let text = fs::read_to_string(&limits)?;
        fs::write(&limits, text.replace("\ntier shim\n", "\ntier mps\n"))?;
        // The library that is built for tests looks in the container's directory.
        Ok(symlink(pipe, self.root.join("mps"))?)
    }

    /// What its region says.
    pub(crate) fn totals(&self) -> Result<Totals> {
        totals(&Snapshot::new(&read_region(&self.region)?)?)
    }

    fn sample(&self, node: &Node<'_>, nvml: Option<&Nvml>) -> Result<Sample> {
        let bytes = read_region(&self.region)?;
        let snapshot = Snapshot::new(&bytes)?;
        let totals = totals(&snapshot)?;
        let pids: HashSet<u32> = snapshot.owners().map(|(_, owner)| owner.pid).collect();
        let card = nvml.and_then(|nvml| nvml.device_by_uuid(node.card.as_str()).ok());
        let processes = card.as_ref().and_then(|card| card.running_compute_processes().ok()).unwrap_or_default();
        let own = processes.iter().filter(|process| pids.contains(&process.pid));
        let bytes: Vec<u64> = own
            .filter_map(|process| match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            })
            .collect();
        let driver = (!bytes.is_empty()).then(|| bytes.iter().sum());
        let used = card.and_then(|card| card.memory_info().ok()).map(|memory| memory.used);
        Ok(Sample { totals, pids, driver, card: used })
    }

    /// Measures the overhead and writes the file, as the daemon does; how much it is.
    fn follow_overhead(&self, node: &Node<'_>, overheads: &mut Overheads, sample: &Sample) -> u64 {
        let Totals { usage, launches, .. } = sample.totals;
        let region = RegionUsage {
            used_bytes: usage.committed,
            imported_bytes: usage.imported,
            managed_bytes: usage.managed,
            context_bytes: usage.contexts,
            launches,
            ..RegionUsage::default()
        };
        let of = ContainerRef {
            pod_uid: "program".to_owned(),
            namespace: "gpu-check".to_owned(),
            pod: "program".to_owned(),
            container: "main".to_owned(),
        };
        let mut lines = [ContainerUsage {
            of,
            card: node.card.clone(),
            share: self.share,
            region: Some(region),
            driver_bytes: sample.driver,
            overhead_bytes: 0,
        }];
        let slots = sample.pids.iter().map(|pid| (*pid, 0)).collect();
        let processes = Processes { slots, driver: sample.pids.clone() };
        overheads.take(self.nonce, &mut lines, processes, &node.run_dir, Instant::now());
        lines[0].overhead_bytes
    }
}
