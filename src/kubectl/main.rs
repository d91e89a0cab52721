//! kubectl-divvy: a plugin of kubectl that shows what Divvy shares, and how.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy_kubectl::cli::main()
}
