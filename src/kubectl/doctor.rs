//! `kubectl divvy doctor`: checks of the installation, in the order in which its parts depend on each other.

mod certificate;
mod check;
mod cluster;
mod dialects;
mod facts;
mod leftovers;
mod nodes;
mod pods;
mod systems;
mod webhook;

use serde::Serialize;

pub use self::check::{Check, State};
use self::facts::Facts;
use crate::cluster::{Cluster, ClusterArgs};
use crate::output::{CommandOutput, Format, format};

/// Checks the installation of Divvy part by part, and shows how to repair what is broken
///
/// Each check is ok, a warning, FAILED, or not checked, where you lack permission or nothing can be seen from here.
/// Only reads; the replicas of the webhook are queried at port 9403 through the API server, which requires permission to
/// get pods/proxy.
///
/// Exit code: 1 if a check failed.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Namespace that Divvy is installed in
    #[arg(short, long, value_name = "NAME", default_value = "divvy-system")]
    namespace: String,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Findings of all checks. Fields are added without notice; one that changes its meaning, or goes, comes with another `version`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `v1`: of this structure.
    pub version: &'static str,
    /// From the API server outward.
    pub checks: Vec<Check>,
}

/// Checks the cluster and formats the result.
pub async fn run(args: Args) -> anyhow::Result<CommandOutput> {
    let Args { namespace, output, cluster } = args;
    let report = examine(&cluster.connect().await?, namespace, true).await;
    let answer = format(&report, output, |_| report.to_string())?;
    let incomplete = report.checks.iter().any(|check| check.state == State::Failed);
    Ok(CommandOutput { answer, incomplete, ..CommandOutput::default() })
}

/// Checks the cluster without a look at the webhook's Secret.
pub(crate) async fn examine_without_secrets(cluster: &Cluster, namespace: String) -> Report {
    examine(cluster, namespace, false).await
}

async fn examine(cluster: &Cluster, namespace: String, with_secrets: bool) -> Report {
    let checks = match cluster.read("/version").await {
        Err(refused) => vec![Check::failed("API server", refused.to_string(), "choose another server with --context")],
        Ok(version) => {
            let facts = Box::pin(Facts::gather(cluster, namespace, with_secrets)).await; // large: it holds every answer
            std::iter::once(cluster::api_server(&version)).chain(all(&facts)).collect()
        }
    };
    Report { version: "v1", checks }
}

/// Every link but the API server.
fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![cluster::definition(facts), cluster::namespace(facts)];
    checks.extend(cluster::configuration(facts));
    checks.push(cluster::daemons(facts));
    checks.extend(nodes::nodes(facts));
    checks.push(cluster::policies(facts));
    checks.extend(webhook::webhook(facts));
    checks.extend(webhook::soft_taints(facts));
    checks.extend(webhook::hidden(facts));
    checks.extend(dialects::dialects(facts));
    checks.extend(leftovers::of_divvy(facts));
    checks.extend(leftovers::of_aggregated_api(facts));
    checks.extend(leftovers::of_others(facts));
    checks.extend([pods::waiting(facts), cluster::toolkit()]);
    checks
}

#[cfg(test)]
mod tests;
