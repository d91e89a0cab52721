//! Thousands of nodes beside a real control plane: `KUBE_BIN_DIR=… cargo bench -p divvy-e2e --bench scale [-- WORDS]`, as root.

mod figures;
mod fleet;
mod play;
mod rounds;
mod scale;

use std::process::ExitCode;

fn main() -> ExitCode {
    play::main().unwrap_or_else(|| divvy_e2e::runner::main(&scale::SCENARIOS))
}
