//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

/// `EX_USAGE` of BSD's sysexits: wrong flags or files.
pub const EX_USAGE: u8 = 64;

/// Starts a small cluster on this machine, offers it pods and shows who gets which part of which card
///
/// Each node is a kubelet stand-in on real sockets, a fake NVML and a real divvy-node process. Pods come through an API
/// server stand-in, two real divvy-webhook processes and a scheduler stand-in that asks them. Every container's share, and
/// every promise of one, is checked from outside. Exit code: 0, or 1 when a check failed, or 64 for wrong flags or files.
#[derive(Clone, Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(name = "divvy-playground", version, max_term_width = 120)]
pub struct Args {
    /// Nodes as CSV: sn,cpu_milli,memory_mib,gpu,model (CPU and host memory are ignored) [default: an own small mix]
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// Pods as CSV with the 5 or 11 columns of the openb traces (CPU, host memory and times are ignored) [default: an
    /// own mix]
    #[arg(long, value_name = "FILE")]
    pub pods: Option<PathBuf>,
    /// Number of nodes; of a file a sample with the same mix of models [default: all of the file, else 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub node_limit: Option<u32>,
    /// Demand that is offered, in percent of the cluster's cards
    #[arg(long, value_name = "PCT", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub load: u32,
    /// Number of pods that are offered
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub admissions: u32,
    /// Seed of everything that is drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Leave out admission and scheduler: pods are put on nodes straight away, and the nodes decide alone
    #[arg(long)]
    pub no_webhook: bool,
    /// Kill daemons and webhooks, restart kubelets, lose checkpoints and cards, and worse
    #[arg(long)]
    pub chaos: bool,
    /// Keep nodes, pods and daemons running at the end, for kubectl, until Ctrl-C
    #[arg(long)]
    pub stay: bool,
    /// Serve kubectl divvy dashboard of the cluster from the beginning, and stay
    #[arg(long)]
    pub dashboard: bool,
    /// Write a report as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Also print pods that use no card, pods that end, and the log files of daemons and webhooks
    #[arg(long)]
    pub verbose: bool,
    /// Use the divvy-node, divvy-webhook and libfake_nvml.so beside this program as they are
    #[arg(long)]
    pub no_build: bool,
}

// === impl Args ===

impl Args {
    /// Whether the cluster outlives the run.
    pub fn stays(&self) -> bool {
        self.stay || self.dashboard
    }

    /// Reads the command line, the program's name first.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: &[&str]) -> Result<Args, clap::Error> {
        Args::read(["divvy-playground"].iter().chain(flags).map(OsString::from))
    }

    #[test]
    fn without_flags_a_small_cluster_is_shown() {
        let args = read(&[]).expect("no flag is required");
        assert_eq!((args.load, args.admissions, args.seed, args.chaos), (90, 120, 1, false));
    }

    #[test]
    fn numbers_outside_their_range_are_refused() {
        for flags in [["--load", "0"], ["--admissions", "0"], ["--node-limit", "x"], ["--seed", "-1"]] {
            assert!(read(&flags).is_err(), "{flags:?}");
        }
    }
}
