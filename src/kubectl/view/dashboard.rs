//! `kubectl divvy dashboard`: a page about the cluster's GPUs, served on the user's own machine with the user's own rights.
//!
//! ```text
//! watches ──GpuNodes, Nodes, pods on their way──▶ state ──what has changed──▶ server ──▶ page, in the browser
//!                                                               explain, top ──▶ ┘ when the page asks
//! ```

mod page;
mod server;
mod state;
mod watches;

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use divvy_index::Index;
use serde::Serialize;
use tokio::net::TcpListener;

use self::server::Server;
use self::state::DashboardState;
use crate::cluster::ClusterArgs;
use crate::config;
use crate::output::{CommandOutput, write_stderr};

/// Serves a page that shows the GPUs of the cluster as they change
///
/// The page shows nodes and GPUs with the pods that hold them, pods that wait and what would help, and problems. It is served
/// on the loopback interface of this machine, at an address with a secret part: everyone who knows it sees what you may see. GpuNodes,
/// Nodes and pods on their way to a node are watched with your own permissions; what containers use of their GPUs is asked of
/// each node's divvy-node when the page shows it, as kubectl divvy top does. Nothing is installed in the cluster, and the page
/// loads nothing from elsewhere. Ctrl-C ends it.
#[derive(Clone, Debug, clap::Args)]
pub struct DashboardArgs {
    /// Local port; 0 is any free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Namespace that Divvy is installed in
    #[arg(long, value_name = "NAME", default_value = divvy_api::installation::NAMESPACE)]
    divvy_namespace: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What the page is told first.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hello {
    /// `v1`: of the messages.
    version: &'static str,
    /// URL of the API server.
    server: String,
    /// Name of the kubeconfig's context.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    divvy_namespace: String,
}

/// Letters of the secret part of the address: 16 of 32 letters are 80 bits.
const SECRET: usize = 16;

/// Watches the cluster and serves the page until Ctrl-C.
pub async fn run(args: DashboardArgs) -> anyhow::Result<CommandOutput> {
    serve(args, |of, url| writeln!(io::stdout(), "Dashboard of {of}: {url}").context("error: standard output")).await
}

/// The same; `announce` is told the URLs of the API server and of the page, once that can be opened.
pub async fn serve(
    args: DashboardArgs,
    announce: impl FnOnce(&str, &str) -> anyhow::Result<()>,
) -> anyhow::Result<CommandOutput> {
    let DashboardArgs { port, divvy_namespace, cluster } = args;
    let cluster = cluster.connect().await?;
    let mut told = CommandOutput::default();
    let config = config::from_cluster(&cluster, &divvy_namespace, &mut told.remarks).await;
    // Whoever has no rights at all shall learn it here and not in the browser.
    cluster.probe_gpu_nodes().await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).await.map_err(|error| anyhow!("error: {address}: {error}"))?;
    let secret = secret();
    let url = format!("http://{}/{secret}/", listener.local_addr()?);
    let hello = Hello {
        version: "v1",
        server: cluster.url().to_owned(),
        context: cluster.context().map(str::to_owned),
        divvy_namespace,
    };
    let cluster = Arc::new(cluster);
    let state = Arc::new(DashboardState::new(Index::new(config.clone())));
    for remark in told.remarks.drain(..) {
        write_stderr(&format!("{remark}\n"));
    }
    announce(&hello.server, &url)?;
    let router = Server { hello, config, cluster: Arc::clone(&cluster), state: Arc::clone(&state) }.router(&secret);
    tokio::select! {
        served = axum::serve(listener, router) => served.context("error: serving the dashboard")?,
        () = watches::follow(&cluster, &state) => {}
        () = state.keep_verdicts() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted.context("error: waiting for Ctrl-C")?,
    }
    Ok(told)
}

/// Letters and digits that nobody guesses, without those that look alike.
fn secret() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    (0..SECRET).map(|_| char::from(LETTERS[usize::from(rand::random::<u8>() % 32)])).collect()
}
