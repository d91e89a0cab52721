//! The command line, and how the process ends.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::admin::{debug_bundle, doctor, migrate, simulate};
use crate::output::{CommandOutput, Misused, write_stderr};
use crate::text::plain;
use crate::view::{dashboard, explain, gpushare, inspect, quota, top};

/// Shows how Divvy shares the GPUs of a cluster
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-divvy",
    bin_name = "kubectl divvy",
    version,
    max_term_width = 120,
    after_help = "Exit code: 0, 64 for wrong flags and for files that can't be simulated, 1 for whatever else goes wrong."
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Inspect(inspect::InspectArgs),
    Explain(explain::ExplainArgs),
    Doctor(doctor::DoctorArgs),
    Top(top::TopArgs),
    Quota(quota::QuotaArgs),
    Migrate(migrate::MigrateArgs),
    Simulate(simulate::SimulateArgs),
    Dashboard(dashboard::DashboardArgs),
    DebugBundle(debug_bundle::DebugBundleArgs),
    /// By the name of the program alone.
    #[command(skip)]
    Gpushare(gpushare::GpushareArgs),
}

/// As sysexits.h has it, and the daemons.
const EX_USAGE: u8 = 64;

/// The program.
pub fn main() -> ExitCode {
    let called =
        std::env::args_os().next().and_then(|program| Some(Path::new(&program).file_name()? == gpushare::PROGRAM));
    let command = if called == Some(true) {
        gpushare::GpushareArgs::try_parse().map(Command::Gpushare)
    } else {
        CommandLine::try_parse().map(|CommandLine { command }| command)
    };
    let command = match command {
        Ok(command) => command,
        Err(wrong) if wrong.use_stderr() => {
            write_stderr(&wrong.render().to_string());
            return ExitCode::from(EX_USAGE);
        }
        Err(help) => return CommandOutput { answer: help.render().to_string(), ..CommandOutput::default() }.end(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let told = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            match command {
                Command::Gpushare(args) => Ok(gpushare::run(args).await),
                Command::Inspect(args) => inspect::run(args).await,
                Command::Explain(args) => explain::run(args).await,
                Command::Doctor(args) => doctor::run(args).await,
                Command::Top(args) => top::run(args).await,
                Command::Quota(args) => quota::run(args).await,
                Command::Migrate(args) => migrate::run(args).await,
                Command::Simulate(args) => simulate::run(args).await,
                Command::Dashboard(args) => dashboard::run(args).await,
                Command::DebugBundle(args) => debug_bundle::run(args).await,
            }
        })
    });
    match told {
        Ok(told) => told.end(),
        Err(error) if error.is::<Misused>() => {
            write_stderr(&format!("{}\n", plain(&error.to_string())));
            ExitCode::from(EX_USAGE)
        }
        Err(error) => CommandOutput::failed(&error).end(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn help_of_each_command_matches_snapshot() {
        for command in
            ["inspect", "explain", "doctor", "top", "quota", "migrate", "simulate", "dashboard", "debug-bundle"]
        {
            let help = CommandLine::try_parse_from(["kubectl-divvy", command, "--help"]).expect_err("help");
            insta::assert_snapshot!(command, help.to_string());
        }
    }

    #[test]
    fn explain_takes_a_pod_name_or_a_file() {
        let parsed =
            |args: &[&str]| CommandLine::try_parse_from(["kubectl-divvy", "explain"].iter().chain(args)).is_ok();
        assert!(parsed(&["train-0", "-n", "team", "-o", "wide", "--config", "divvy.yaml"]));
        assert!(parsed(&["-f", "-", "-o", "json"]));
        assert!(!parsed(&[]));
        assert!(!parsed(&["train-0", "-f", "pod.yaml"]));
    }

    #[test]
    fn inspect_takes_names_or_a_selector() {
        let parsed =
            |args: &[&str]| CommandLine::try_parse_from(["kubectl-divvy", "inspect"].iter().chain(args)).is_ok();
        assert!(parsed(&["node-1", "node-2", "-o", "json", "-n", "team", "--request-timeout", "5"]));
        assert!(parsed(&["-l", "pool=a", "--request-timeout=1m"]));
        assert!(!parsed(&["node-1", "-l", "pool=a"]));
        assert!(!parsed(&["-o", "xml"]));
        assert!(!parsed(&["--request-timeout", "soon"]));
    }
}
