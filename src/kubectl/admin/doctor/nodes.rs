//! The nodes: whether each with cards reports them, takes pods, and offers what it reports.

use std::collections::{BTreeMap, HashMap};

use divvy_api::gpunode::GpuNodeReport;
use divvy_api::installation::{DAEMON, pods_of};
use divvy_api::quantity::parse_memory_total;
use divvy_api::{Memory, ResourceName, ResourceNames, Tier};
use kube::ResourceExt as _;

use super::finding::{Finding, State, Verdict};
use super::leftovers;
use super::objects::Objects;
use crate::cluster::Refusal;
use crate::text::listed;
use crate::view::inspect::report::NodeReport;
use crate::view::inspect::{FoundNode, Host, NodeView};

/// By which `daemonset.yaml` knows nodes with cards.
const LABELS: [&str; 4] = [
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "nvidia.com/gpu.present",
];
/// Most nodes in trouble that are shown.
const MOST: usize = 20;

/// A line for each node in trouble, one for all that are well, and one for how shares are enforced. Nodes that divvy-node left
/// have a line elsewhere.
pub(super) fn nodes(objects: &Objects) -> Vec<Finding> {
    let left = leftovers::without_daemon(objects);
    let gpu_nodes: Vec<&GpuNodeReport> = match &objects.gpu_nodes {
        Ok(gpu_nodes) => gpu_nodes.iter().filter(|object| !left.contains(&object.name_any())).collect(),
        // The CRD's own check says so.
        Err(Refusal::UnknownKind) => return Vec::new(),
        Err(refused) => return vec![Verdict::unseen(refused).about("GpuNodes")],
    };
    let mut checks = Vec::new();
    checks.extend(objects.nodes.as_ref().err().map(|refused| Verdict::unseen(refused).about("Nodes")));
    let known = objects.nodes.as_ref().ok();
    let named = known.into_iter().flatten().map(|node| (node.name_any(), node));
    let hosts: HashMap<String, &NodeView> = named.filter(|(name, _)| !left.contains(name)).collect();
    let resources = objects.names();
    let without_report = |node: &&NodeView| without_report(node, &gpu_nodes, &resources, objects);
    let mut troubled: Vec<Finding> = hosts.values().filter_map(without_report).collect();
    let all = troubled.len() + gpu_nodes.len();
    let mut reports = Vec::new();
    for object in gpu_nodes {
        let host = hosts.get(&object.name_any()).copied();
        let report = report(object, host, known.is_some(), objects);
        troubled.extend(judge(&report, host, &resources.memory));
        reports.push(report);
    }
    if all == 0 && left.is_empty() {
        let label = "kubectl label node NAME nvidia.com/gpu.present=true, or install node feature discovery";
        return vec![Verdict::warning("none has GPUs, as far as labels and resources show", label).about("nodes")];
    }
    let well = all - troubled.len();
    if well > 0 {
        let found = format!("{well} of {all} with GPUs report them, take pods and advertise what they report");
        checks.push(Verdict::ok(found).about("nodes"));
    }
    troubled.sort_by_key(|finding| (finding.verdict.state != State::Failed, finding.link.clone()));
    let more = troubled.len().saturating_sub(MOST);
    troubled.truncate(MOST);
    checks.extend(troubled);
    if more > 0 {
        let found = format!("{more} more are in trouble");
        checks.push(Verdict::warning(found, "kubectl divvy inspect shows all of them").about("nodes"));
    }
    checks.extend(tiers(&reports));
    checks
}

fn link(name: &str) -> String {
    format!("node {name}")
}

/// A Node that has cards by its labels or resources, and says nothing of them.
fn without_report(
    node: &NodeView,
    gpu_nodes: &[&GpuNodeReport],
    names: &ResourceNames,
    objects: &Objects,
) -> Option<Finding> {
    let name = node.name_any();
    let label = LABELS.into_iter().find(|label| node.labels().get(*label).is_some_and(|value| value == "true"));
    let resource =
        || node.resources().find(|resource| names.counts_cards(resource) && node.capacity(resource) != Some("0"));
    let sign = label.or_else(resource)?;
    if gpu_nodes.iter().any(|object| object.name_any() == name) {
        return None;
    }
    let found = format!("has {sign} and no GpuNode: divvy-node doesn't run there, or can't write it");
    let remedy = format!(
        "kubectl -n {} get pods -l {} --field-selector spec.nodeName={name}, and the \
         pod's log",
        objects.namespace,
        pods_of(DAEMON)
    );
    Some(Verdict::failed(found, remedy).about(link(&name)))
}

fn report(object: &GpuNodeReport, host: Option<&NodeView>, all_known: bool, objects: &Objects) -> NodeReport {
    let host = match host {
        Some(node) => Host::There(Box::new(node.clone())),
        None if all_known => Host::Gone,
        None => Host::Unknown,
    };
    let found = FoundNode { name: object.name_any(), gpu_node: object.clone(), host };
    NodeReport::new(&found, objects.now)
}

/// What is wrong with a node; nothing, if it is well.
fn judge(report: &NodeReport, host: Option<&NodeView>, memory: &ResourceName) -> Option<Finding> {
    let NodeReport { name, takes_pods, problems, conditions, totals, cards, .. } = report;
    let inspect = format!("kubectl divvy inspect {name}");
    if !problems.is_empty() {
        let draining = conditions.iter().any(|condition| condition.type_ == "Draining" && condition.status == "True");
        let cordoned = host.is_some_and(NodeView::is_cordoned) && problems.len() == 1;
        let is_wanted = *takes_pods || draining || cordoned;
        let state = if is_wanted { State::Warning } else { State::Failed };
        let conflict = conditions.iter().any(|condition| condition.reason == "AnotherPlugin");
        let remedy = if conflict {
            "remove the other device plugin from this node: two that allocate one GPU overfill it".to_owned()
        } else {
            inspect
        };
        return Some(Verdict { state, found: problems.join("; "), remedy: Some(remedy) }.about(link(name)));
    }
    let ailing = cards.iter().filter(|card| card.health != "Missing").filter_map(|card| {
        let unsaid = Some("unhealthy").filter(|_| card.health != "Healthy");
        Some(format!("{}: {}", card.uuid, card.reason.as_deref().or(unsaid)?))
    });
    let ailing: Vec<String> = ailing.collect();
    if !ailing.is_empty() {
        let some = ailing.len();
        let all = totals.cards;
        let found = format!("{some} of {all} GPUs take no new pods, or no parts: {}", listed(&ailing, 3));
        return Some(Verdict::warning(found, inspect).about(link(name)));
    }
    let remedy = "look again in a second; if it stays, the log of its divvy-node says why it can't patch nodes/status";
    disagreement(report, host?, memory).map(|found| Verdict::warning(found, remedy).about(link(name)))
}

/// Where the Node's amount of memory doesn't follow from the report: it is what is free, and what is held in MiB; with host
/// memory in place of the GPUs', as far as that is free or held.
fn disagreement(report: &NodeReport, node: &NodeView, resource: &ResourceName) -> Option<String> {
    let memory = report.totals.memory_mi;
    let text = node.capacity(resource.as_str());
    let Some(amount) = text.and_then(|text| parse_memory_total(text).ok()) else {
        return (memory.capacity > 0).then(|| {
            format!(
                "its Node offers no {resource}: pods that ask for it wait, unless memory is advertised as devices or \
                 under another name"
            )
        });
    };
    let amount = amount.as_mib();
    let held = report.cards.iter().map(|card| card.host_memory_mi).sum::<Memory>();
    let free = report.oversubscription.map_or(0, |oversubscription| oversubscription.host_memory_mi.free);
    let most = [memory.free, memory.held, held.as_mib(), free].into_iter().fold(0, u64::saturating_add);
    (amount < memory.free || amount > most).then(|| {
        format!("its Node offers {resource}: {amount}, by its GpuNode that should be {} to {most}", memory.free)
    })
}

/// What holds a process to its share, by how many nodes.
fn tiers(reports: &[NodeReport]) -> Option<Finding> {
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    for tier in reports.iter().filter_map(|report| report.tier.as_deref()) {
        *nodes.entry(tier).or_default() += 1;
    }
    let meaning = |tier: &str| tier.parse().map_or("unknown to this plugin", Tier::enforcement);
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let line = |(tier, nodes): (&&str, &usize)| format!("{tier} on {nodes} node{}: {}", plural(*nodes), meaning(tier));
    let mut lines: Vec<String> = nodes.iter().map(line).collect();
    let mut gpus: BTreeMap<&str, usize> = BTreeMap::new();
    for tier in reports.iter().flat_map(|report| &report.cards).filter_map(|card| card.tier.as_deref()) {
        *gpus.entry(tier).or_default() += 1;
    }
    lines.extend(gpus.iter().map(|(tier, gpus)| {
        format!("{tier} for {gpus} GPU{} of nodes with a weaker one: {}", plural(*gpus), meaning(tier))
    }));
    let shares = reports.iter().flat_map(|report| &report.cards).flat_map(|card| &card.shares);
    let whole = shares.filter(|share| share.by_hardware).count();
    if whole > 0 {
        lines.push(format!(
            "mig for {whole} whole instance{}, on whatever node: {}",
            plural(whole),
            Tier::Mig.enforcement()
        ));
    }
    (!lines.is_empty()).then(|| Verdict::ok(lines.join("; ")).about("enforcement"))
}
