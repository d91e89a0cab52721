//! divvy-playground: a small cluster on one machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy_playground::run::main()
}
