//! Contract suites: the same tests against a stand-in and against the real program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::runtime::Runtime;

use crate::api::Api;
use crate::certs::Pki;
use crate::control_plane::ControlPlane;
use crate::files::{Files, Ports, Programs};
use crate::network::Network;

/// Outcomes of the tests against one implementation.
#[derive(Debug)]
pub struct Report {
    whose: &'static str,
    passed: usize,
    failed: usize,
}

/// A real etcd and API server on loopback ports, and a scheduler that isn't started yet; killed when dropped.
#[derive(Debug)]
pub struct RealApiServer {
    /// The programs.
    pub control_plane: ControlPlane,
    /// Certificates of the programs.
    pub pki: Pki,
    /// Ports of the programs.
    pub ports: Ports,
    /// Directory of the run.
    pub files: Files,
}

/// Whether the command line names a test, or none at all.
pub fn is_chosen(name: &str) -> bool {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    words.is_empty() || words.iter().any(|word| name.contains(&**word))
}

/// Runs a suite's tests against the stand-in and, if `KUBE_BIN_DIR` has the programs, beside a real API server. Both
/// functions run the chosen tests and return whether all passed.
pub fn suite(
    real_name: &'static str,
    tests: impl Iterator<Item = &'static str> + Clone,
    on_stand_in: impl FnOnce(&Runtime) -> bool,
    on_real: impl FnOnce(&Runtime, RealApiServer) -> bool,
) -> ExitCode {
    let chosen = tests.filter(|name| is_chosen(name));
    if list(chosen.clone()) {
        return ExitCode::SUCCESS;
    }
    let runtime = Runtime::new().expect("a runtime");
    let mut passed = on_stand_in(&runtime);
    match Programs::find() {
        Err(reason) => ignore(real_name, chosen, &reason),
        Ok(programs) => {
            let directory = tempfile::Builder::new().prefix("divvy-contract-").tempdir().expect("a directory");
            let real = runtime.block_on(RealApiServer::start(&programs, directory.path())).expect("it starts");
            passed &= on_real(&runtime, real);
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the names of the tests and returns true, if that is what the command line asks for.
pub fn list(names: impl IntoIterator<Item = &'static str>) -> bool {
    let asked = std::env::args().any(|arg| arg == "--list");
    if asked {
        names.into_iter().for_each(|name| println!("{name}: test"));
    }
    asked
}

/// Prints that tests are ignored, and why.
pub fn ignore(whose: &str, names: impl IntoIterator<Item = &'static str>, reason: &anyhow::Error) {
    let count = names.into_iter().map(|name| println!("test {whose}::{name} ... ignored")).count();
    println!("\n{whose}: skipped: {reason:#}");
    println!("\ntest result: ok. 0 passed; 0 failed; {count} ignored");
}

// === impl Report ===

impl Report {
    /// Starts a report of the tests against this implementation.
    pub fn new(whose: &'static str) -> Self {
        Self { whose, passed: 0, failed: 0 }
    }

    /// Runs a test and prints its outcome.
    pub fn run(&mut self, name: &str, runtime: &Runtime, test: impl Future<Output = ()>) {
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test)));
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {}::{name} ... {word} ({:.1?})", self.whose, started.elapsed());
        if outcome.is_ok() { self.passed += 1 } else { self.failed += 1 }
    }

    /// Prints the sum, and returns whether all tests passed.
    pub fn finish(self) -> bool {
        let Self { passed, failed, .. } = self;
        let word = if failed == 0 { "ok" } else { "FAILED" };
        println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored");
        failed == 0
    }
}

// === impl RealApiServer ===

impl RealApiServer {
    /// Starts etcd and kube-apiserver, and waits until they are ready.
    pub async fn start(programs: &Programs, directory: &Path) -> anyhow::Result<Self> {
        let files = Files::new(directory.to_owned());
        files.directory("logs")?;
        let (ports, pki) = (Ports::free()?, Pki::create(&files, "node-a", &Network::LOOPBACK)?);
        let mut control_plane = ControlPlane::new(programs, &files, &pki, &ports, &Network::LOOPBACK)?;
        control_plane.etcd.start()?;
        control_plane.api.start()?;
        let api = Api::new(&pki, ports.api)?;
        let ready = async {
            while !api.is_ready().await {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), ready).await.context("waiting for kube-apiserver")?;
        Ok(Self { control_plane, pki, ports, files })
    }

    /// Reads the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.pki.kubeconfig("admin", self.ports.api)?)?)
    }
}
