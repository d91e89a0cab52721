//! `kubectl divvy quota`: what namespaces may hold of GPUs of some models, and what they hold.

use std::time::Instant;

use divvy_api::gpuquota::Amount;
use divvy_index::pod::PodView;
use divvy_index::{Index, QuotaUse};
use kube::api::ListParams;
use serde::Serialize;

use crate::cluster::{ClusterArgs, Refusal};
use crate::config;
use crate::output::{CommandOutput, TableArgs};
use crate::text::{Row, table};
use crate::view::explain::fetch::{take_nodes, take_quotas};

/// Shows GpuQuotas and what counts for them
///
/// A GpuQuota limits what all pods of its namespace hold of GPUs of some models. USED is what the nodes' daemons report,
/// and what is reserved for pods on their way to a node. Of a whole GPU all its memory, 100 percent and 100 cores count.
#[derive(Clone, Debug, clap::Args)]
pub struct QuotaArgs {
    /// GpuQuotas to show [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Namespace of the GpuQuotas [default: the context's]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// GpuQuotas of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "names"])]
    all_namespaces: bool,
    /// Namespace that Divvy is installed in
    #[arg(long, value_name = "NAME", default_value = divvy_api::installation::NAMESPACE)]
    divvy_namespace: String,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Quotas and their use. Fields are added without notice; one that changes its meaning, or goes, comes with another
/// `version`.
#[derive(Debug, Serialize)]
struct QuotaReport {
    /// `v1`: of this structure.
    version: &'static str,
    quotas: Vec<Quota>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Quota {
    namespace: String,
    name: String,
    /// As the quota names them; none: all models.
    models: Vec<String>,
    /// Why its limits can't be read, so that the namespace gets no more GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    amounts: Vec<Use>,
}

/// Use of one amount; memory is in MiB.
#[derive(Debug, Serialize)]
struct Use {
    #[serde(rename = "resource")]
    amount: &'static str,
    used: u64,
    /// Absent where the quota doesn't limit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hard: Option<u64>,
    #[serde(skip)]
    is: Amount,
}

/// Pods that hold what their nodes report, or will.
const ON_NODES: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Reads the quotas and what counts for them, and puts it into words.
pub async fn run(args: QuotaArgs) -> anyhow::Result<CommandOutput> {
    let QuotaArgs { names, namespace, all_namespaces, divvy_namespace, table, cluster } = args;
    let cluster = cluster.connect().await?;
    let own = || namespace.unwrap_or_else(|| cluster.client().default_namespace().to_owned());
    let namespace = (!all_namespaces).then(own);
    let mut told = CommandOutput::default();
    let index = Index::new(config::from_cluster(&cluster, &divvy_namespace, &mut told.remarks).await);
    take_quotas(&cluster, &index, namespace.as_deref()).await?;
    take_nodes(&cluster, &index).await.map_err(Refusal::of_gpu_nodes)?;
    match cluster.pods::<PodView>(namespace.as_deref(), ListParams::default().fields(ON_NODES)).await {
        Ok(pods) => pods.iter().for_each(|pod| index.apply_pod(pod, Instant::now())),
        Err(refused) => {
            let warning =
                "GPUs reserved for pods that haven't started yet aren't counted, and what nodes report is believed";
            told.remarks.push(format!("warning: {warning}: {refused}"));
            believe(&index);
        }
    }
    let mut quotas = index.quotas();
    let missing = names.iter().filter(|name| quotas.iter().all(|quota| quota.name != **name));
    for name in missing {
        told.remarks.push(format!("Error from server (NotFound): gpuquotas.divvy.dev \"{name}\" not found"));
        told.incomplete = true;
    }
    quotas.retain(|quota| names.is_empty() || names.contains(&quota.name));
    if quotas.is_empty() && names.is_empty() {
        let place = namespace.as_ref().map(|name| format!(" in {name} namespace")).unwrap_or_default();
        told.remarks.push(format!("No GpuQuotas found{place}"));
    }
    let report = QuotaReport { version: "v1", quotas: quotas.into_iter().map(Quota::new).collect() };
    told.remarks.extend(report.quotas.iter().filter_map(Quota::warning));
    told.answer = table.format(&report, |wide, with_heads| render(&report, wide, with_heads))?;
    Ok(told)
}

/// Counts all shares that nodes report, as the pods can't be read.
fn believe(index: &Index) {
    for node in index.snapshot().nodes() {
        for holder in &node.holders {
            let [uid, namespace] = [&holder.uid, &holder.namespace].map(ToString::to_string);
            let pod = PodView { uid, namespace, node: Some(node.name.to_string()), ..PodView::default() };
            index.apply_pod(&pod, Instant::now());
        }
    }
}

/// A line for each amount that is limited, with `wide` for the others too.
fn render(report: &QuotaReport, wide: bool, with_heads: bool) -> String {
    let amounts = report.quotas.iter().flat_map(|quota| quota.amounts.iter().map(move |amount| (quota, amount)));
    let shown = amounts.filter(|(_, amount)| wide || amount.hard.is_some());
    table(shown.map(|(quota, amount)| row(quota, amount)).collect(), with_heads)
}

fn row(quota: &Quota, amount: &Use) -> Row {
    vec![
        ("NAMESPACE", quota.namespace.clone()),
        ("NAME", quota.name.clone()),
        ("MODELS", if quota.models.is_empty() { "*".to_owned() } else { quota.models.join(",") }),
        ("RESOURCE", amount.amount.to_owned()),
        ("USED", amount.is.text(amount.used)),
        ("HARD", amount.hard.map(|hard| amount.is.text(hard)).unwrap_or_default()),
    ]
}

// === impl Quota ===

impl Quota {
    fn new(quota: QuotaUse) -> Self {
        let QuotaUse { namespace, name, models, limits, used } = quota;
        let hard = |amount| limits.as_ref().ok().and_then(|limits| limits.limit(amount));
        let amounts =
            Amount::ALL.map(|is| Use { amount: is.key(), used: is.in_totals(&used), hard: hard(is), is }).into();
        Self { namespace, name, models, amounts, problem: limits.as_ref().err().map(ToString::to_string) }
    }

    fn warning(&self) -> Option<String> {
        let Self { namespace, name, .. } = self;
        let problem = self.problem.as_ref()?;
        Some(format!(
            "warning: GpuQuota {namespace}/{name} can't be read, so the namespace gets no more GPUs: {problem}"
        ))
    }
}
