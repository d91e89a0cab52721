//! Skeleton of `compare`.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy_e2e::runner::main(&[])
}
