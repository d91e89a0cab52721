//! Flags and environment variables of divvy-mps.

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches, Parser};
use divvy_runtime::settings::{AbsolutePath, KeySet as _, LogFilter, LogFormat, Period, Stop, described};

divvy_runtime::keys! {
    /// runDir of divvy-node, which is shared with containers; MPS keeps its files in mps/ below it
    run_dir: AbsolutePath = AbsolutePath::new("/run/divvy"),
    /// The host's root directory in this program's filesystem
    host_root: AbsolutePath = AbsolutePath::new("/"),
    /// Root of the driver's installation on the host, in which nvidia-cuda-mps-control runs
    driver_root: AbsolutePath = AbsolutePath::new("/"),
    /// Longest wait for the control daemon to exit after SIGTERM before it is killed
    drain_timeout: Period = Period::seconds(30),
    /// Log levels by target, such as info,divvy_mps=debug
    log_level: LogFilter = LogFilter::default(),
    /// Log format: plain or json
    log_format: LogFormat = LogFormat::default(),
}

/// Supervise CUDA's MPS control daemon on this node, for isolation tier mps
///
/// Runs the driver's nvidia-cuda-mps-control for all GPUs that aren't in MIG mode, restarts it when it exits, and tells
/// divvy-node whether it is up. GPUs are in compute mode EXCLUSIVE_PROCESS meanwhile; their previous mode is restored on
/// SIGTERM. Startup waits until no process uses the GPUs.
///
/// Stopping this program ends everything that runs on the GPUs through MPS.
#[derive(Debug, Parser)]
#[command(name = "divvy-mps", version, max_term_width = 120)]
struct CommandLine {
    #[command(flatten)]
    keys: Keys,
    /// Only mount a tmpfs at mps/shm in runDir, for the shared memory of MPS and its clients, unless something is mounted
    /// there: clients then can't fill runDir's file system
    #[arg(long)]
    mount_shared_memory: bool,
}

/// What the program is started for.
#[derive(Debug)]
pub enum Task {
    /// To keep MPS up.
    Supervise,
    /// To mount a tmpfs and exit.
    MountSharedMemory,
}

/// Parses `args` (the program's name first); a flag that is absent is taken from `env`.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<(Task, Config), Stop> {
    let CommandLine { keys, mount_shared_memory } =
        CommandLine::from_arg_matches(&command().try_get_matches_from(args)?)?;
    let task = if mount_shared_memory { Task::MountSharedMemory } else { Task::Supervise };
    Ok((task, keys.or(Keys::from_env(env)?).resolve()?))
}

fn command() -> Command {
    described::<Keys>(CommandLine::command())
}

#[cfg(test)]
mod tests {
    use divvy_runtime::settings::EX_USAGE;

    use super::*;

    fn parsed(args: &[&str]) -> Result<(Task, Config), Stop> {
        let args = std::iter::once("divvy-mps").chain(args.iter().copied()).map(OsString::from);
        parse(args, |name| (name == "DRAIN_TIMEOUT").then(|| "7s".into()))
    }

    #[test]
    fn flags_override_environment_and_defaults() {
        let (task, config) = parsed(&["--run-dir=/run/gpus"]).expect("valid");
        assert!(matches!(task, Task::Supervise));
        assert_eq!(config.run_dir.display().to_string(), "/run/gpus");
        assert_eq!(config.driver_root.display().to_string(), "/");
        assert_eq!(config.drain_timeout.get().as_secs(), 7);
        let (task, config) = parsed(&["--drain-timeout=2s", "--mount-shared-memory"]).expect("valid");
        assert!(matches!(task, Task::MountSharedMemory));
        assert_eq!(config.drain_timeout.get().as_secs(), 2);
    }

    #[test]
    fn unknown_flags_exit_with_64() {
        assert_eq!(parsed(&["--slots-per-card=8"]).expect_err("a flag of divvy-node").report(), EX_USAGE);
        assert_eq!(parsed(&["--run-dir=run"]).expect_err("not absolute").report(), EX_USAGE);
    }

    #[test]
    fn help_lists_every_flag_with_variable_and_default() {
        let help = parsed(&["--help"]).expect_err("help").to_string();
        insta::assert_snapshot!(help);
    }
}
