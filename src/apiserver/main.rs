//! divvy-apiserver: the aggregated API of GPUs and their pods.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy_apiserver::run::main()
}
