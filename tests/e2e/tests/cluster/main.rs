//! `KUBE_BIN_DIR=… cargo test -p divvy-e2e [-- WORDS]`, as root.

mod bursts;

use std::process::ExitCode;

use divvy_e2e::runner::{self, Scenario};

fn main() -> ExitCode {
    runner::main(&[
        Scenario { name: "a hundred pods bound at once all run", run: |c| Box::pin(bursts::a_hundred_pods(c)) },
        Scenario {
            name: "kubelet and daemon are killed while a hundred pods start",
            run: |c| Box::pin(bursts::with_kills(c)),
        },
    ])
}
