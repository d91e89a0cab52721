//! `kubectl divvy migrate`: what pods of other GPU-sharing systems would become, before anything is changed.
//!
//! ```text
//! API server ─fetch─┐
//!                   ├▶ objects ──translate──▶ report ──▶ tables, or JSON and YAML
//! manifests ──read──┘
//! ```
//!
//! The translation is the one of admission.

mod fetch;
mod read;
mod report;
mod show;
mod steps;
mod warnings;

use std::path::PathBuf;

use divvy_systems::Dialect;

use self::report::MigrateReport;
use crate::cluster::ClusterArgs;
use crate::config;
use crate::output::{CommandOutput, Format, Misused, format};
use crate::text::first_line;

/// Shows what pods of other GPU-sharing systems would become, before anything is changed
///
/// Node by node which systems have pods there, workload by workload what its pods would request and what they would lose,
/// which quotas stop matching or start counting, and the order of steps. Reads nodes, pods, ResourceQuotas and LimitRanges of
/// all namespaces. Resource names and defaults are those of the ConfigMap divvy-config; where there is none, and with
/// --check, --config names a file like it, or the defaults hold.
///
/// Of a cluster only the pods that exist are read. The templates of its workloads are read with
/// kubectl get deploy,sts,ds,jobs,cronjobs -A -o yaml | kubectl divvy migrate --check -
///
/// Exit code: 1 if a workload would be refused, or something couldn't be read.
#[derive(Clone, Debug, clap::Args)]
pub struct MigrateArgs {
    /// File of manifests to look at instead of a cluster, - for standard input
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Systems and their settings, as in the webhook's configuration, such as '[hami, {name: gpushare, unit: Mi}]'
    /// [default: all but time-slicing, whose replicas nobody knows]
    #[arg(long, value_name = "YAML", value_parser = dialects, hide_default_value = true)]
    dialects: Option<Dialects>,
    /// Namespace that Divvy is installed in, or will be
    #[arg(long, value_name = "NAME", default_value = divvy_api::installation::NAMESPACE)]
    divvy_namespace: String,
    /// File with the content of the ConfigMap divvy-config, instead of the cluster's
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Debug)]
struct Dialects(Vec<Dialect>);

fn dialects(text: &str) -> Result<Dialects, String> {
    serde_saphyr::from_str(text).map(Dialects).map_err(|error| first_line(&error))
}

/// Reads, translates and formats.
pub async fn run(args: MigrateArgs) -> anyhow::Result<CommandOutput> {
    let MigrateArgs { check, dialects, divvy_namespace, config, output, cluster } = args;
    let dialects = dialects.map_or_else(|| Dialect::defaults().collect(), |Dialects(dialects)| dialects);
    let mut config = config.map(|file| config::from_file(&file)).transpose()?;
    let mut remarks = Vec::new();
    let objects = if let Some(file) = check {
        read::file(&file, &mut remarks).map_err(|error| Misused::new(format!("{}: {error:#}", file.display())))?
    } else {
        let cluster = cluster.connect().await?;
        if config.is_none() {
            config = Some(config::from_cluster(&cluster, &divvy_namespace, &mut remarks).await);
        }
        fetch::objects(&cluster, &mut remarks).await?
    };
    let report = MigrateReport::new(&objects, &dialects, &config.unwrap_or_default());
    let answer = format(&report, output, |_| show::text(&report))?;
    let incomplete = !remarks.is_empty() || report.workloads.iter().any(|workload| workload.refused.is_some());
    Ok(CommandOutput { answer, remarks, incomplete })
}

#[cfg(test)]
mod tests;
