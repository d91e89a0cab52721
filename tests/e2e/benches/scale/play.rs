//! The program that plays the daemons and kubelets of thousands of nodes, so that its processor time is counted by itself.
//!
//! The daemons' own code: the publisher of each node with its two watches, its client and a token that is bound to its Node, as
//! a kubelet's is; the allocator with its ledger and journal, which follows the plan of the pod's Binding.
//!
//! Played: the kubelet. One watch shows the bound pods of all nodes. A new one is listed, its devices are proposed and allocated,
//! and its status becomes Running; a pod that is deleted is gone from the list at once. There are no containers, no NVML and no
//! gRPC, no Lease and no Node status every few seconds, and one program has one watch where each kubelet has several.

mod cluster;
mod node;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use clap::Parser;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

pub(crate) use self::cluster::daemon_of;
pub(crate) use self::node::{CARDS, SLOTS};

/// First argument of the program that plays.
pub(crate) const PLAY: &str = "--play";

/// Arguments of the program that plays.
#[derive(Debug, Parser)]
struct Args {
    /// An administrator's kubeconfig.
    kubeconfig: PathBuf,
    /// Where each node's ledger is.
    directory: PathBuf,
    /// Where the counts are served.
    address: SocketAddr,
    /// The first node's number.
    first: usize,
    /// Number of nodes.
    count: usize,
}

/// What has happened so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Nodes whose publisher was started.
    pub(crate) nodes: AtomicUsize,
    /// Pods that became Running.
    pub(crate) running: AtomicUsize,
    /// Pods that had their annotation `cards`.
    pub(crate) annotated: AtomicUsize,
    /// Pods that were refused at their admission.
    pub(crate) refused: AtomicUsize,
    /// Pods that ended.
    pub(crate) ended: AtomicUsize,
}

/// Name of a node.
pub(crate) fn name(number: usize) -> String {
    format!("fake-{number}")
}

/// Plays until it is killed, if this program was started for that.
pub(crate) fn main() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) != Some(PLAY) {
        return None;
    }
    let played = run(&Args::parse_from(&args[1..]));
    Some(played.map_or_else(
        |error| {
            println!("daemons: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}

#[tokio::main(worker_threads = 2)]
async fn run(args: &Args) -> anyhow::Result<()> {
    let counts = Arc::new(Counts::default());
    let listener = TcpListener::bind(args.address).await.with_context(|| format!("listening at {}", args.address))?;
    tokio::spawn(serve(listener, Arc::clone(&counts)));
    cluster::play(args, counts).await
}

async fn serve(listener: TcpListener, counts: Arc<Counts>) {
    while let Ok((mut client, _)) = listener.accept().await {
        // Whoever has gone needs no answer.
        drop(client.write_all(counts.all().map(|count| count.to_string()).join(" ").as_bytes()).await);
    }
}

/// Reads the counts that a program serves.
pub(crate) async fn counts(address: SocketAddr) -> anyhow::Result<[usize; 5]> {
    let mut stream = TcpStream::connect(address).await.with_context(|| format!("asking {address}"))?;
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut text).await?;
    let counts: Vec<usize> = text.split(' ').map(str::parse).collect::<Result<_, _>>().context("counts")?;
    <[usize; 5]>::try_from(counts).map_err(|counts| anyhow::anyhow!("five counts are expected, not {counts:?}"))
}

// === impl Counts ===

impl Counts {
    fn all(&self) -> [usize; 5] {
        [&self.nodes, &self.running, &self.annotated, &self.refused, &self.ended]
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// One more.
    pub(crate) fn add(count: &AtomicUsize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}
