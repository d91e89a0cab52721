//! divvy-webhook: the cluster side of Divvy.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy_webhook::run::main()
}
