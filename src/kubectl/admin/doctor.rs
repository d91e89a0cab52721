//! `kubectl divvy doctor`: checks of the installation, in the order in which its parts depend on each other.

mod certificate;
mod cluster;
mod dialects;
mod finding;
mod leftovers;
mod nodes;
mod objects;
mod pods;
mod webhook;

use divvy_api::config::Scheduling;
use serde::Serialize;

use self::Judge::{One, Perhaps, Quiet, Several};
use self::Place::{Everywhere, Extender, NoWebhook, Webhook};
pub use self::finding::{Finding, State, Verdict};
use self::objects::Objects;
use crate::cluster::{Cluster, ClusterArgs, Refusal};
use crate::output::{CommandOutput, Format, format};

/// A check of the installation.
struct Check {
    /// What it is about; empty where its findings say so.
    link: &'static str,
    place: Place,
    judge: Judge,
}

/// Where a check has something to say.
enum Place {
    Everywhere,
    /// Where the webhook is installed.
    Webhook,
    /// Where it is installed and the scheduler should call it.
    Extender,
    NoWebhook,
}

/// Judges what was read of the cluster. What is needed and couldn't be read is the error.
enum Judge {
    One(fn(&Objects) -> Result<Verdict, &Refusal>),
    /// Not everywhere there is something to say.
    Perhaps(fn(&Objects) -> Result<Option<Verdict>, &Refusal>),
    /// The same, but what couldn't be read has a line of another check.
    Quiet(fn(&Objects) -> Option<Verdict>),
    /// On links of their own.
    Several(fn(&Objects) -> Vec<Finding>),
}

/// All checks behind the API server's, in the order in which the parts depend on each other.
const CHECKS: &[Check] = &[
    Check { link: "CRD gpunodes.divvy.dev", place: Everywhere, judge: One(cluster::definition) },
    Check { link: "namespace", place: Everywhere, judge: One(cluster::namespace) },
    Check { link: "ConfigMap divvy-config", place: Everywhere, judge: Perhaps(cluster::configuration) },
    Check { link: "DaemonSet divvy-node", place: Everywhere, judge: One(cluster::daemons) },
    Check { link: "", place: Everywhere, judge: Several(nodes::nodes) },
    Check { link: "admission policies", place: Everywhere, judge: One(cluster::policies) },
    Check { link: "webhook", place: NoWebhook, judge: One(webhook::absence) },
    Check { link: "Deployment divvy-webhook", place: Webhook, judge: One(webhook::replicas) },
    Check { link: "Service divvy-webhook", place: Webhook, judge: One(webhook::service) },
    Check { link: "Service divvy-extender", place: Extender, judge: One(webhook::extender_service) },
    Check { link: "mutating webhook", place: Webhook, judge: One(webhook::mutating) },
    Check { link: "validating webhook", place: Webhook, judge: One(webhook::validating) },
    Check { link: "webhook answers", place: Webhook, judge: One(webhook::answers) },
    Check { link: "Lease divvy-webhook", place: Webhook, judge: One(webhook::lease) },
    Check { link: "scheduler", place: Webhook, judge: One(pods::scheduler) },
    Check { link: "soft taints", place: Everywhere, judge: Quiet(webhook::soft_taints) },
    Check { link: "hidden GPUs", place: Everywhere, judge: Perhaps(webhook::hidden) },
    Check { link: "dialects", place: Everywhere, judge: Perhaps(dialects::reviewed) },
    Check { link: "dialects that are off", place: Everywhere, judge: Quiet(dialects::unused) },
    Check { link: "", place: Everywhere, judge: Several(dialects::units) },
    Check { link: "quotas of other systems", place: Everywhere, judge: Perhaps(dialects::quotas) },
    Check { link: "", place: Everywhere, judge: Several(dialects::limits_in_quotas) },
    Check { link: "leftovers", place: Everywhere, judge: Perhaps(leftovers::unseen) },
    Check { link: "leftovers of Divvy", place: Everywhere, judge: Quiet(leftovers::of_divvy) },
    Check { link: "aggregated API", place: Everywhere, judge: Quiet(leftovers::of_aggregated_api) },
    Check { link: "", place: Everywhere, judge: Several(leftovers::of_others) },
    Check { link: "waiting pods", place: Everywhere, judge: One(pods::waiting) },
    Check { link: "container toolkit", place: Everywhere, judge: One(|_| Ok(cluster::toolkit())) },
];

/// Checks the installation of Divvy part by part, and shows how to repair what is broken
///
/// Each check is ok, a warning, FAILED, or not checked, where you lack permission or nothing can be seen from here.
/// Only reads; the replicas of the webhook are queried at port 9403 through the API server, which requires permission to
/// get pods/proxy.
///
/// Exit code: 1 if a check failed.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// Namespace that Divvy is installed in
    #[arg(short, long, value_name = "NAME", default_value = divvy_api::installation::NAMESPACE)]
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
pub struct DoctorReport {
    /// `v1`: of this structure.
    pub version: &'static str,
    /// From the API server outward.
    pub checks: Vec<Finding>,
}

/// Checks the cluster and formats the result.
pub async fn run(args: DoctorArgs) -> anyhow::Result<CommandOutput> {
    let DoctorArgs { namespace, output, cluster } = args;
    let report = examine(&cluster.connect().await?, namespace, true).await;
    let answer = format(&report, output, |_| report.to_string())?;
    let incomplete = report.checks.iter().any(|finding| finding.verdict.state == State::Failed);
    Ok(CommandOutput { answer, incomplete, ..CommandOutput::default() })
}

/// Checks the cluster without a look at the webhook's Secret.
pub(crate) async fn examine_without_secrets(cluster: &Cluster, namespace: String) -> DoctorReport {
    examine(cluster, namespace, false).await
}

async fn examine(cluster: &Cluster, namespace: String, with_secrets: bool) -> DoctorReport {
    let link = "API server";
    let checks = match cluster.read("/version").await {
        Err(refused) => {
            vec![Verdict::failed(refused.to_string(), "choose another server with --context").about(link)]
        }
        Ok(version) => {
            let objects = Box::pin(Objects::read(cluster, namespace, with_secrets)).await; // large: it holds every answer
            std::iter::once(cluster::api_server(&version).about(link)).chain(all(&objects)).collect()
        }
    };
    DoctorReport { version: "v1", checks }
}

/// Findings of all checks but the API server's.
fn all(objects: &Objects) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check.findings(objects)).collect()
}

// === impl Check ===

impl Check {
    fn findings(&self, objects: &Objects) -> Vec<Finding> {
        if !self.place.is_here(objects) {
            return Vec::new();
        }
        let verdict = match self.judge {
            Several(judge) => return judge(objects),
            Perhaps(judge) => judge(objects).transpose(),
            Quiet(judge) => judge(objects).map(Ok),
            One(judge) => Some(judge(objects)),
        };
        let verdict = verdict.map(|verdict| verdict.unwrap_or_else(Verdict::unseen));
        verdict.map(|verdict| verdict.about(self.link)).into_iter().collect()
    }
}

// === impl Place ===

impl Place {
    fn is_here(&self, objects: &Objects) -> bool {
        match self {
            Everywhere => true,
            Webhook => objects.has_webhook(),
            Extender => objects.has_webhook() && objects.scheduling() == Scheduling::Extender,
            NoWebhook => !objects.has_webhook(),
        }
    }
}

#[cfg(test)]
mod tests;
