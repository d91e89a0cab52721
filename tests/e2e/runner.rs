//! Runs scenarios, one after another on one cluster, and says how each ended.

use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_testkit::binaries::Binaries;

use crate::cluster::Cluster;
use crate::files::{Files, Programs};
use crate::installation::Installation;
use crate::namespace;

/// What one run of a scenario is.
pub type Run<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// A scenario: it finds a cluster without pods, and leaves one.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// A sentence.
    pub name: &'static str,
    /// Whether a run without arguments passes it over.
    pub only_when_named: bool,
    /// How Divvy is installed.
    pub installed: Installed,
    /// What happens.
    pub run: for<'a> fn(&'a mut Cluster) -> Run<'a>,
}

/// The installations that a scenario makes sense with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// Processes, which it kills, stops or configures.
    AsProcesses,
    /// Pods.
    AsPods,
    /// Either.
    Anyhow,
}

/// Runs the scenarios whose names contain one of the arguments, or all that aren't only run when named. Keeps the run's directory where one fails, or
/// if `DIVVY_E2E_KEEP` is set.
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    if std::env::args().any(|arg| arg == "--list") {
        for scenario in scenarios {
            println!("{}: test", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    let result = match namespace::inner() {
        Some(directory) => inside(&directory, scenarios),
        None => outside(scenarios),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            println!("e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A duration in seconds from the environment.
pub fn seconds(variable: &str, default: u64) -> Duration {
    let set = std::env::var(variable).ok().and_then(|text| text.parse().ok());
    Duration::from_secs(set.unwrap_or(default))
}

fn chosen(scenarios: &[Scenario], installation: &Installation) -> Vec<Scenario> {
    let other = if installation.is_of_pods() { Installed::AsProcesses } else { Installed::AsPods };
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |scenario: &&Scenario| {
        if words.is_empty() {
            !scenario.only_when_named
        } else {
            words.iter().any(|word| scenario.name.contains(&**word))
        }
    };
    scenarios.iter().filter(|scenario| scenario.installed != other).filter(wanted).copied().collect()
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")
}

fn outside(scenarios: &[Scenario]) -> anyhow::Result<ExitCode> {
    let found = Programs::find().and_then(|programs| Installation::find(&programs));
    let installation = match found.and_then(|installation| root().map(|()| installation)) {
        Ok(installation) => installation,
        Err(reason) if Installation::is_demanded() => return Err(reason),
        Err(reason) => {
            for scenario in chosen(scenarios, &Installation::Processes) {
                println!("test {} ... skipped: {reason:#}", scenario.name);
            }
            return Ok(ExitCode::SUCCESS);
        }
    };
    runtime()?.block_on(Binaries::get(false))?;
    let directory = tempfile::Builder::new().prefix("divvy-e2e-").tempdir()?;
    let status = namespace::enter(directory.path(), &installation.network())?;
    if !status.success() || std::env::var_os("DIVVY_E2E_KEEP").is_some() {
        println!("e2e: logs are in {}", Files::new(directory.keep()).logs().display());
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A mount namespace is root's to make.
pub fn root() -> anyhow::Result<()> {
    let own = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let effective = own.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    anyhow::ensure!(effective == Some("0"), "it takes root to start a kubelet");
    Ok(())
}

fn inside(directory: &Path, scenarios: &[Scenario]) -> anyhow::Result<ExitCode> {
    namespace::end_with_the_outer_process();
    runtime()?.block_on(async {
        let started = Instant::now();
        let (programs, binaries) = (Programs::find()?, Binaries::get(true).await?);
        let installation = Installation::find(&programs)?;
        let scenarios = chosen(scenarios, &installation);
        let cluster = Cluster::start(&programs, Files::new(directory.to_owned()), &binaries, installation).await;
        let mut cluster = cluster.context("starting the cluster")?;
        println!("e2e: cluster up after {:.1?}", started.elapsed());
        let mut failed = Vec::new();
        for scenario in scenarios {
            let started = Instant::now();
            let result = (scenario.run)(&mut cluster).await;
            let outcome = result.as_ref().err().map_or("ok".to_owned(), |error| format!("FAILED: {error:#}"));
            println!("test {} ... {outcome} ({:.1?})", scenario.name, started.elapsed());
            if result.is_err() {
                failed.push(scenario.name);
                if let Err(error) = cluster.repair().await {
                    println!("e2e: the cluster can't be used further: {error:#}");
                    break;
                }
            }
        }
        for name in &failed {
            println!("e2e: failed: {name}");
        }
        Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
