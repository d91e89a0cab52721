//! Divvy beside others, with the same work. `hack/compare` runs it; docs/compare.md has the last run.

mod client;
mod extender;
mod figures;
mod node;
mod nodes;
mod parts;
mod plugins;
mod registration;
mod scheduler;
mod shapes;
mod systems;

fn main() -> std::process::ExitCode {
    divvy_e2e::runner::main(&parts::ALL)
}
