//! divvy-mps: keeps CUDA's Multi-Process Service (MPS) up on one node, for isolation tier `mps`.
//!
//! It runs beside divvy-node and longer: clients of MPS end with its control daemon, so upgrades of divvy-node must not touch
//! it.
//!
//! ```text
//! divvy-mps ──starts──▶ nvidia-cuda-mps-control ──starts──▶ nvidia-cuda-mps-server ◀── processes in containers
//!     │                        ▲ pipe directory ◀────────────────────────────────────────────┘
//!     └── lock on `ready` ◀── divvy-node: held, or containers are refused
//! ```
//!
//! Meanwhile the GPUs are in compute mode EXCLUSIVE_PROCESS: only the MPS server opens them, so no process can bypass it. GPUs in
//! MIG mode are left out.
//!
//! [`MpsDirectory`] is what divvy-mps and divvy-node agree on.

mod compute_modes;
pub mod config;
mod control;
mod directory;
mod supervisor;

use std::process::ExitCode;

use divvy_runtime::Next;
use divvy_runtime::program::{self, Program, Workers};
use divvy_runtime::settings::Stop;

use config::Task;
pub use directory::{Lock, MpsDirectory};

/// The whole program, which is over at once after `--mount-shared-memory`.
pub fn main() -> ExitCode {
    program::main(Workers::One, launch)
}

fn launch(program: Program) -> Result<ExitCode, Stop> {
    let (task, config) = config::parse(std::env::args_os(), |name| std::env::var_os(name))?;
    let log = divvy_runtime::logging::init(&config.log_level, config.log_format);
    Ok(program.run(log, async |context| {
        match task {
            Task::Supervise => supervisor::run(&config, context).await?,
            Task::MountSharedMemory => MpsDirectory::new(&config.run_dir).mount_shared_memory()?,
        }
        Ok(Next::Exit)
    }))
}
