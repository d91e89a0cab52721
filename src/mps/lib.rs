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
use std::time::Duration;

use divvy_runtime::settings::Stop;
use tracing::error;

use config::Task;
pub use directory::{Lock, MpsDirectory};

/// The whole program. Exit codes: 0 after SIGTERM, or once shared memory is mounted; 1 after a failure, 64 for bad flags.
pub fn main() -> ExitCode {
    match launch() {
        Ok(code) => code,
        Err(stop) => ExitCode::from(stop.report()),
    }
}

fn launch() -> Result<ExitCode, Stop> {
    let (task, config) = config::parse(std::env::args_os(), |name| std::env::var_os(name))?;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: starting the runtime: {error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    divvy_runtime::logging::init(&config.log_level, config.log_format);
    let result = match task {
        Task::Supervise => runtime.block_on(supervisor::run(&config)),
        Task::MountSharedMemory => MpsDirectory::new(&config.run_dir).mount_shared_memory(),
    };
    // Threads that hang in an NVML call can't be joined.
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    })
}
