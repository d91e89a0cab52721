//! `kubectl divvy debug-bundle`: what a maintainer needs to look for a fault, in one archive and without secrets.
//!
//! ```text
//! objects ──▶ keep: the fields that are named ───────────────┐
//! doctor ─────────────────────────────────────────────────────┼▶ redact ──▶ archive ──▶ FILE.tar.gz
//! programs ──▶ pages by port forward, logs ──────────────────┘
//! ```

mod archive;
mod keep;
mod objects;
mod programs;
mod redact;

use divvy_api::installation::{DAEMON, MPS};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::StreamExt as _;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use self::archive::{Archive, Part, exists};
use self::objects::{ObjectFiles, Pod, json_part};
use crate::admin::doctor;
use crate::cluster::{Cluster, ClusterArgs, is_name};
use crate::output::{CommandOutput, Misused, write_stderr};

/// Gathers what a maintainer needs to look for a fault into one archive, without secrets
///
/// The archive has versions, the findings of doctor, GpuNodes, GpuQuotas, Nodes, the pods that request GPUs, Divvy's own
/// objects, events about these, and of each pod of Divvy its log, metrics, configuration, threads and state. contents.txt in it
/// lists what is there, what is missing and why. Everything is read with your own permissions; pages of the pods are read as
/// kubectl port-forward does.
///
/// No Secret is read. Environment variables, arguments, volumes and certificates of pods stay out, as do annotations that aren't
/// Divvy's, and what looks like a token, a key or a password is replaced. Names of pods, namespaces and nodes stay in: look
/// through the archive before you hand it on.
///
/// Exit code: 1 if something is missing; the archive is written all the same.
#[derive(Clone, Debug, clap::Args)]
pub struct DebugBundleArgs {
    /// Nodes whose daemons are asked [default: all]
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// File to write, also if there is one by that name [default: divvy-debug-TIME.tar.gz, unless it exists]
    #[arg(short, long, value_name = "FILE.tar.gz")]
    output: Option<PathBuf>,
    /// Namespace that Divvy is installed in
    #[arg(short, long, value_name = "NAME", default_value = divvy_api::installation::NAMESPACE)]
    namespace: String,
    /// MiB from the end of each log
    #[arg(long, value_name = "MIB", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    log_limit: u16,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Pods that are asked at the same time.
const AT_ONCE: usize = 8;
/// Longest wait for one answer, unless a flag says otherwise: a daemon that hangs is to be in the list, and not in the way.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most of what is missing that is said on standard error too.
const SAID: usize = 10;

/// Writes the archive. Until it is complete it has another name, and is removed if that doesn't come to be.
pub async fn run(args: DebugBundleArgs) -> anyhow::Result<CommandOutput> {
    let DebugBundleArgs { nodes, output, namespace, log_limit, cluster } = args;
    if !is_name(&namespace) {
        return Err(Misused::new(format!("{namespace:?} is not the name of a namespace")).into());
    }
    let now = Timestamp::now();
    let stem = format!("divvy-debug-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let (path, replace) = match output {
        Some(path) => (path, true),
        None => (PathBuf::from(format!("{stem}.tar.gz")), false),
    };
    let shown = path.display();
    if !replace && exists(&path) {
        return Err(anyhow!("error: {shown} exists: name it with --output to replace it"));
    }
    let cluster = cluster.connect().await?.patient(PATIENCE);
    let time = now.as_second().try_into().unwrap_or(0);
    let mut archive = Archive::new(&path, &stem, time).with_context(|| format!("error: {shown}"))?;
    tokio::select! {
        gathered = gather(&cluster, &namespace, &nodes, usize::from(log_limit) << 20, &mut archive) => {
            gathered.with_context(|| format!("error: {shown}"))?;
        }
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("error: waiting for Ctrl-C")?;
            return Err(anyhow!("error: interrupted: {shown} isn't written"));
        }
    }
    let head = head(&cluster, &namespace, &nodes, now);
    let mut told = CommandOutput { incomplete: !archive.is_complete(), ..CommandOutput::default() };
    let missing = archive.missing();
    told.remarks.extend(missing.iter().take(SAID).map(|line| format!("warning: missing: {line}")));
    if missing.len() > SAID {
        told.remarks.push(format!("warning: … and {} more: see contents.txt", missing.len() - SAID));
    }
    let length = archive.finish(&path, replace, &head).with_context(|| format!("error: {shown}"))?;
    told.answer = format!(
        "{shown}: {} KiB. It has the state, pages and logs of Divvy and reduced objects of the cluster, with names of pods and \
         nodes but no Secrets: look through it before you hand it on.\n",
        length.div_ceil(1 << 10)
    );
    Ok(told)
}

async fn gather(
    cluster: &Cluster,
    namespace: &str,
    nodes: &[String],
    most: usize,
    archive: &mut Archive,
) -> std::io::Result<()> {
    write_stderr("reading objects of the cluster\n");
    let mut objects = ObjectFiles::new(cluster, namespace);
    let pods = objects.read().await;
    objects.parts.iter().try_for_each(|part| archive.add(part))?;
    if pods.as_ref().is_some_and(Vec::is_empty) {
        let why = format!("no pod of Divvy is there in namespace {namespace}: name another with --namespace");
        archive.add(&Part::new(&["pods"], Err(why)))?;
    }
    let pods = pods.unwrap_or_default();
    write_stderr("running the checks of doctor\n");
    let report = doctor::examine_without_secrets(cluster, namespace.to_owned()).await;
    archive.add(&Part::new(&["doctor.txt"], Ok(report.to_string().into_bytes())))?;
    archive.add(&json_part(&["doctor.json"], Ok(json!(report))))?;
    let pods: Vec<&Pod> = pods.iter().filter(|pod| is_asked(pod, nodes)).collect();
    for node in nodes.iter().filter(|node| !pods.iter().any(|pod| pod.program == DAEMON && pod.node == **node)) {
        let why = format!("no pod of divvy-node is there in namespace {namespace}");
        archive.add(&Part::new(&["nodes", node], Err(why)))?;
    }
    write_stderr(&format!("asking {} pods of Divvy\n", pods.len()));
    let asked = pods.into_iter().map(|pod| async move { (pod, programs::ask(cluster, namespace, pod, most).await) });
    let mut answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
    while let Some((pod, parts)) = answers.next().await {
        let missing = parts.iter().filter(|part| part.content.is_err()).count();
        write_stderr(&format!(
            "{}: {} of {} parts\n",
            crate::text::plain(&pod.name),
            parts.len() - missing,
            parts.len()
        ));
        parts.iter().try_for_each(|part| archive.add(part))?;
    }
    Ok(())
}

/// Whether a pod is asked when these nodes are named: what isn't of one node always is.
fn is_asked(pod: &Pod, nodes: &[String]) -> bool {
    let is_of_node = matches!(pod.program.as_str(), DAEMON | MPS);
    nodes.is_empty() || !is_of_node || nodes.contains(&pod.node)
}

/// What the list of contents begins with.
fn head(cluster: &Cluster, namespace: &str, nodes: &[String], now: Timestamp) -> String {
    let nodes = if nodes.is_empty() { "all".to_owned() } else { nodes.join(", ") };
    format!(
        "kubectl divvy debug-bundle {}, {now}\nAPI server: {}\nDivvy's namespace: {namespace}\nNodes: {nodes}\n\n\
         Left out on purpose: Secrets, ConfigMaps that aren't Divvy's; environment variables, arguments, images (but Divvy's \
         own), volumes and\ntexts of containers; annotations that aren't Divvy's; certificates; what looks like a token, a key or \
         a password.\n",
        env!("CARGO_PKG_VERSION"),
        cluster.url(),
    )
}
