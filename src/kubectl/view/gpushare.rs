//! `kubectl inspect gpushare [-d] [NODE]`, for people and scripts that know gpushare's command line: its columns, from Divvy's
//! data.
//!
//! gpushare's plugin of kubectl (`cmd/inspect` of gpushare-device-plugin at 4e26f1a) is a program of the name
//! `kubectl-inspect_gpushare`; a link of that name to this program does the same.

mod columns;
mod tables;

use clap::Parser;
use k8s_openapi::jiff::Timestamp;

use self::tables::Machine;
use crate::cluster::ClusterArgs;
use crate::output::CommandOutput;
use crate::view::inspect::{NodeReport, fetch};

/// Name of the program, as kubectl finds it.
pub(crate) const PROGRAM: &str = "kubectl-inspect_gpushare";

/// Shows the GPU memory of nodes in the columns of gpushare
#[derive(Debug, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl inspect gpushare", version)]
pub(crate) struct GpushareArgs {
    /// The pods of each node
    #[arg(short)]
    details: bool,
    /// Unit of memory, rounded up for what is allocated and down for what there is
    #[arg(long, value_enum, default_value_t = Unit::GiB)]
    unit: Unit,
    /// Node to show [default: all]
    #[arg(value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Unit of `aliyun.com/gpu-mem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Unit {
    #[value(name = "GiB")]
    GiB,
    #[value(name = "MiB")]
    MiB,
}

/// Asks the cluster and puts the answer into gpushare's words.
pub(crate) async fn run(args: GpushareArgs) -> CommandOutput {
    let GpushareArgs { details, unit, node, cluster } = args;
    let found = async { fetch::fetch(&cluster.connect().await?, &Vec::from_iter(node), None).await };
    let found = match found.await {
        Ok(found) => found,
        // There without an end of line, on standard output.
        Err(error) => {
            return CommandOutput {
                answer: format!("Failed due to {error:#}"),
                incomplete: true,
                ..CommandOutput::default()
            };
        }
    };
    if let Some(missing) = found.missing.first() {
        return CommandOutput {
            answer: format!("Failed due to {missing}"),
            incomplete: true,
            ..CommandOutput::default()
        };
    }
    let mib = match unit {
        Unit::GiB => 1024,
        Unit::MiB => 1,
    };
    let now = Timestamp::now();
    let machine = |found| Machine::new(&NodeReport::new(found, now), found.host.internal_address(), mib);
    let mut machines: Vec<Machine> = found.nodes.iter().map(machine).collect();
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    let answer = if details {
        tables::details(&machines)
    } else {
        tables::summary(&machines, if unit == Unit::GiB { "GiB" } else { "MiB" })
    };
    CommandOutput { answer, ..CommandOutput::default() }
}
