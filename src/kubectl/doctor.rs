//! `kubectl divvy doctor`: the installation, link by link.

mod certificate;
mod check;
mod cluster;
mod facts;
mod nodes;
mod pods;
mod webhook;

use clap::ValueEnum;
use serde::Serialize;

pub use self::check::{Check, State};
use self::facts::Facts;
use crate::cluster::{Cluster, ClusterArgs};
use crate::output::CommandOutput;

/// Checks the installation of Divvy link by link, and says what to do about what is broken
///
/// Each link is ok, a warning, FAILED, or not checked, where your rights don't suffice or nothing can be seen from here.
/// Reads alone; the replicas of the webhook are asked at port 9403 through the API server, which takes the right to get
/// pods/proxy.
///
/// Exit code: 1 if a link failed.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where Divvy is installed
    #[arg(short, long, value_name = "NAME", default_value = "divvy-system")]
    namespace: String,
    /// Another form of the answer
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Output>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For programs: fields as documented at divvy_kubectl::doctor
    Json,
    /// The same as YAML
    Yaml,
}

/// What was found. Fields are added without notice; one that changes its meaning, or goes, comes with another `version`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `v1`: of this structure.
    pub version: &'static str,
    /// From the API server outward.
    pub checks: Vec<Check>,
}

/// Looks at the cluster and puts what it finds into words.
pub async fn run(args: Args) -> anyhow::Result<CommandOutput> {
    let Args { namespace, output, cluster } = args;
    let report = examine(&cluster.connect().await?, namespace).await;
    let answer = match output {
        Some(Output::Json) => format!("{}\n", serde_json::to_string_pretty(&report)?),
        Some(Output::Yaml) => serde_saphyr::to_string(&report)?,
        None => report.to_string(),
    };
    let incomplete = report.checks.iter().any(|check| check.state == State::Failed);
    Ok(CommandOutput { answer, incomplete, ..CommandOutput::default() })
}

async fn examine(cluster: &Cluster, namespace: String) -> Report {
    let checks = match cluster.read("/version").await {
        Err(refused) => vec![Check::failed("API server", refused.to_string(), "choose another server with --context")],
        Ok(version) => {
            let facts = Box::pin(Facts::gather(cluster, namespace)).await; // large: it holds every answer
            std::iter::once(cluster::api_server(&version)).chain(all(&facts)).collect()
        }
    };
    Report { version: "v1", checks }
}

/// Every link but the API server.
fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![cluster::definition(facts), cluster::namespace(facts), cluster::daemons(facts)];
    checks.extend(nodes::nodes(facts));
    checks.push(cluster::policies(facts));
    checks.extend(webhook::webhook(facts));
    checks.extend([pods::waiting(facts), cluster::toolkit()]);
    checks
}

#[cfg(test)]
mod tests;
