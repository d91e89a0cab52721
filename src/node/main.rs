//! divvy-node: shares the GPUs of one node.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy_node::run::main()
}
