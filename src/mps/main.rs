//! divvy-mps: supervises CUDA's MPS control daemon on one node.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy_mps::main()
}
