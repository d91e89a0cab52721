//! Composes the playground: reads what is asked for, builds, starts the nodes, plays, reports, and leaves nothing behind.

use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use divvy_simulate::trace::{self, TraceError};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Args, EX_USAGE};
use crate::arrivals::{Arrivals, Capacity, Source};
use crate::cluster::{self, Machine, Node};
use crate::console::Console;
use crate::control_plane::ControlPlane;
use crate::dashboard::Dashboard;
use crate::front::Front;
use crate::session::Session;
use crate::webhook::Webhook;
use divvy_testkit::binaries::Binaries;

/// Nodes of the playground's own cluster.
const OWN_NODES: u32 = 4;

/// What is played with.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The nodes.
    pub machines: Vec<Machine>,
    /// The pods.
    pub source: Source,
}

/// The whole program.
pub fn main() -> ExitCode {
    let args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        Err(told) => {
            drop(told.print());
            return if told.use_stderr() { EX_USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    let inputs = match Inputs::read(&args) {
        Ok(inputs) => inputs,
        Err(error) => {
            eprintln!("{error}");
            return EX_USAGE.into();
        }
    };
    match tokio::runtime::Runtime::new().context("starting the runtime").and_then(|runtime| {
        // Whatever still runs then is dropped with the runtime, and daemons are killed when dropped.
        runtime.block_on(async {
            let staying = Cell::new(None);
            tokio::select! {
                sound = play(&args, inputs, &staying) => sound,
                stop = stopped() => stop.and_then(|()| staying.get().context("interrupted")),
            }
        })
    }) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Ctrl-C or SIGTERM.
async fn stopped() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted.context("listening for Ctrl-C")?,
    }
    Ok(())
}

/// Whether every check was passed; told to `staying` too, when all is played and the cluster stays.
async fn play(args: &Args, inputs: Inputs, staying: &Cell<Option<bool>>) -> anyhow::Result<bool> {
    if !args.no_build {
        eprintln!("building divvy-node, divvy-webhook and the fake NVML, as far as they aren't built");
    }
    let binaries = Binaries::get(args.no_build).await?;
    // Not TMPDIR: paths of sockets end at 107 bytes.
    let directory = tempfile::Builder::new().prefix("divvy-").tempdir_in("/tmp").context("making a work directory")?;
    let played = run(args, inputs, &binaries, directory.path(), Console::stdout()).await;
    let sound = played.as_ref().is_ok_and(|session| session.report().checks.broken.is_empty());
    let _directory = if sound { Some(directory) } else { keep(directory) };
    let mut session = played?;
    if let Some(path) = &args.report {
        session.report().write(path)?;
    }
    if args.stays() {
        staying.set(Some(sound));
        session.stay().await?;
    }
    Ok(sound)
}

fn keep(directory: TempDir) -> Option<TempDir> {
    let kept = directory.keep();
    eprintln!("logs are kept: {0}/<n>/divvy-node.log, {0}/divvy-webhook-<a|b>.log", kept.display());
    None
}

/// Starts the cluster in `directory`, plays, and prints the summary. What is returned keeps the cluster running.
pub async fn run(
    args: &Args,
    inputs: Inputs,
    binaries: &Binaries,
    directory: &Path,
    console: Console,
) -> anyhow::Result<Session> {
    let mut session = start(args, inputs, binaries, directory, console).await?;
    session.run().await?;
    Ok(session)
}

/// Starts the cluster in `directory`, and waits until all nodes serve.
pub async fn start(
    args: &Args,
    inputs: Inputs,
    binaries: &Binaries,
    directory: &Path,
    mut console: Console,
) -> anyhow::Result<Session> {
    let Inputs { machines, source } = inputs;
    console.width = machines.iter().map(|machine| machine.name.len()).max().unwrap_or(0);
    console.plain(&format!("starting {}, and {} nodes", control_plane_parts(args), machines.len()));
    let control_plane = ControlPlane::start(directory).await.context("starting the API server")?;
    let webhook = if args.no_webhook {
        None
    } else {
        Some(Webhook::start(binaries, &control_plane, directory).await.context("starting divvy-webhook")?)
    };
    let mut nodes = Vec::new();
    for (number, machine) in machines.into_iter().enumerate() {
        nodes.push(Node::start(machine, number, directory, binaries, args.seed, Some(&control_plane)).await?);
    }
    console.plain("waiting for each divvy-node to register with its kubelet");
    for node in &mut nodes {
        node.registered(0).await?;
        if args.verbose {
            console.node(&node.name, &format!("serves; its log: {}", node.daemon.log.display()));
        }
    }
    let dashboard = if args.dashboard {
        let dashboard = Dashboard::start(&binaries.plugin, &control_plane.kubeconfig).await?;
        console.plain(&dashboard.line);
        Some(dashboard)
    } else {
        None
    };
    let front = match webhook {
        Some(webhook) => Some(open(args, webhook, &control_plane, &nodes, &console).await?),
        None => None,
    };
    let arrivals = Arrivals::new(source, capacity(&nodes), args.load, args.seed);
    console.plain(&format!("{} nodes serve after {:.1} s", nodes.len(), console.elapsed()));
    let mut session = Session::new(args, control_plane, front, nodes, arrivals, console);
    session.dashboard = dashboard;
    Ok(session)
}

/// What is started before the nodes, in words.
fn control_plane_parts(args: &Args) -> &'static str {
    if args.no_webhook { "an API server" } else { "an API server, two divvy-webhook" }
}

/// Has pods come by admission and a scheduler, as soon as the webhook knows all nodes.
async fn open(
    args: &Args,
    mut webhook: Webhook,
    control_plane: &ControlPlane,
    nodes: &[Node],
    console: &Console,
) -> anyhow::Result<Front> {
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    console.plain("waiting for divvy-webhook to know all nodes");
    webhook.ready(&names).await?;
    if args.verbose {
        for (name, log) in webhook.logs() {
            console.node("-", &format!("{name} serves; its log: {}", log.display()));
        }
    }
    Front::start(control_plane, webhook, args.seed).await
}

fn capacity(nodes: &[Node]) -> Capacity {
    let mut memories: Vec<_> = nodes.iter().flat_map(|node| &node.view.cards).map(|card| card.memory).collect();
    memories.sort_unstable();
    Capacity { cards: memories.len(), memory: memories.get(memories.len() / 2).copied().unwrap_or_default() }
}

// === impl Inputs ===

impl Inputs {
    /// Reads the files that are named, and makes up the rest.
    pub fn read(args: &Args) -> Result<Self, TraceError> {
        let Args { node_limit, seed, .. } = *args;
        let source = match &args.pods {
            Some(file) => Source::Trace(trace::pods(file, None)?),
            None => Source::Own,
        };
        let machines = match &args.nodes {
            Some(file) => {
                let mut nodes = trace::nodes(file)?;
                nodes.retain(|node| node.cards > 0);
                cluster::trace_machines(&nodes, node_limit, seed)
            }
            None => cluster::own_machines(node_limit.unwrap_or(OWN_NODES), seed),
        };
        Ok(Self { machines, source })
    }
}
