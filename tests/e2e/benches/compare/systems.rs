//! The systems that get the same work, each as its own installation would start it.

mod divvy;
pub(crate) mod gpushare;
pub(crate) mod hami;
mod nothing;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use anyhow::Context as _;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::pods;
use divvy_e2e::program::Program;
use serde_json::Value;
use tokio::net::TcpStream;

/// Whom the scheduler asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// Nobody.
    Alone,
    /// An extender that answers the names that it is asked about.
    Nothing,
    /// The gpushare extender.
    Gpushare,
    /// HAMi with its chart's flags.
    HamiAsShipped,
    /// HAMi with next to no log, and a client that isn't held back: 5 calls a second are its default.
    Hami,
    /// divvy-webhook.
    Divvy,
}

/// A system that runs; what was started ends with it.
pub(crate) struct Started {
    /// Entry of the scheduler's configuration.
    pub(crate) extender: Option<Value>,
    /// Processes of the system that are only its own.
    programs: Vec<Program>,
    /// What stands for it in this process.
    _server: Option<nothing::Server>,
    /// What plays the device plugins of the nodes.
    _plugins: Option<hami::Plugins>,
}

// === impl System ===

impl System {
    /// Those of `all` whose programs are given; a line says which aren't.
    pub(crate) fn given(all: &[Self]) -> Vec<Self> {
        let is_given = |system: &&Self| match system.program() {
            Some((variable, _)) if std::env::var_os(variable).is_none() => {
                println!("  {} is left out: {variable} isn't set", system.name());
                false
            }
            _ => true,
        };
        all.iter().filter(is_given).copied().collect()
    }

    /// Name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Nothing => "do-nothing",
            Self::Gpushare => "gpushare",
            Self::HamiAsShipped => "HAMi, chart's flags",
            Self::Hami => "HAMi, unlimited client",
            Self::Divvy => "Divvy",
        }
    }

    /// The variable that its program is given by, and the program.
    fn program(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Alone | Self::Nothing | Self::Divvy => None,
            Self::Gpushare => Some((gpushare::PROGRAM, "")),
            Self::HamiAsShipped | Self::Hami => Some((hami::DIRECTORY, "scheduler")),
        }
    }

    /// Path of its program.
    fn path(self) -> anyhow::Result<PathBuf> {
        let (variable, name) = self.program().with_context(|| format!("{} has no program", self.name()))?;
        given(variable, name)
    }

    /// A pod with one of four shares of one GPU. gpushare knows only memory, in GiB.
    pub(crate) fn pod(self, name: String, number: u32) -> anyhow::Result<Value> {
        let number = number as usize;
        if self == Self::Gpushare {
            return gpushare::pod(name, pods::PARTS[number % pods::PARTS.len()].0);
        }
        pods::object(pods::part(name, number))
    }

    /// Starts it, and waits until it can be asked.
    pub(crate) async fn start(self, cluster: &mut Cluster) -> anyhow::Result<Started> {
        let started = Started { extender: None, programs: Vec::new(), _server: None, _plugins: None };
        Ok(match self {
            Self::Alone => started,
            Self::Nothing => {
                let server = nothing::Server::start()?;
                Started { extender: Some(server.extender()), _server: Some(server), ..started }
            }
            Self::Gpushare => {
                let (program, extender) = gpushare::start(cluster, self.path()?).await?;
                Started { extender: Some(extender), programs: vec![program], ..started }
            }
            Self::HamiAsShipped | Self::Hami => {
                let (program, extender) = hami::start(cluster, self.path()?, self == Self::HamiAsShipped).await?;
                let plugins = hami::Plugins::start(cluster)?;
                Started { extender: Some(extender), programs: vec![program], _plugins: Some(plugins), ..started }
            }
            Self::Divvy => Started { extender: Some(divvy::start(cluster).await?), ..started },
        })
    }

    /// Ends it. Returns the memory that was resident, in MiB: of Divvy that of the leader's process.
    pub(crate) async fn stop(self, cluster: &mut Cluster, mut started: Started) -> anyhow::Result<Option<u64>> {
        if self == Self::Divvy {
            return divvy::stop(cluster).await;
        }
        let memory = started.programs.first().and_then(Program::memory).map(|[now, _]| now);
        for program in &mut started.programs {
            program.kill().await?;
        }
        Ok(memory)
    }
}

/// The path in a variable, or the program of this name in the directory that is there.
pub(crate) fn given(variable: &str, name: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable).with_context(|| format!("{variable} isn't set"))?);
    let path = if name.is_empty() { path } else { path.join(name) };
    anyhow::ensure!(path.is_file(), "{variable}: {} isn't a file", path.display());
    path.canonicalize().with_context(|| path.display().to_string())
}

/// A loopback address that is free.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Waits until something listens there.
async fn listens(cluster: &mut Cluster, program: &mut Program, address: SocketAddr) -> anyhow::Result<()> {
    cluster
        .until(&format!("listener at {address}"), PATIENCE, async |_| {
            program.check()?;
            Ok(TcpStream::connect(address).await.ok().map(drop))
        })
        .await
}
