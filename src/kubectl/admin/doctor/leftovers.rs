//! What is left in the cluster of Divvy or of another system that shares GPUs, and other systems that run beside Divvy.

use std::collections::BTreeSet;

use divvy_api::ResourceNames;
use divvy_api::gpunode::GpuNodeReport;
use divvy_api::installation::{DAEMON, POLICIES};
use divvy_api::names::annotation::{GENERATION, LABELS};
use divvy_api::names::taint;
use divvy_systems::{Mark, Program};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::finding::{Finding, State, Verdict};
use super::objects::{AGGREGATED, Agent, ForeignObject, Objects};
use crate::cluster::Refusal;
use crate::text::listed;
use crate::view::inspect::NodeView;

/// Most nodes that are named.
const MOST: usize = 3;
/// The Job and the DaemonSet of deploy/uninstall need a namespace, the account of divvy-node and both ConfigMaps.
const UNINSTALL: &str = "install Divvy again: kubectl apply -f deploy/manifests/; or remove it: kubectl apply what is gone of \
    00-namespace.yaml, cluster-config.yaml, node-config.yaml and node-rbac.yaml of deploy/manifests, then kubectl apply -f \
    deploy/uninstall/";
/// Label by which the GPU operator selects the nodes of its device plugin.
const OPERATORS_PLUGIN: &str = "nvidia.com/gpu.deploy.device-plugin";
/// Label of GPU feature discovery.
const FEATURE_DISCOVERY: &str = "nvidia.com/gfd.timestamp";

/// Nodes, by name, that carry what divvy-node writes or have a `GpuNode`, and that no divvy-node runs on. None while a pod of
/// the DaemonSet is missing, as during an upgrade: any of them could be where it belongs.
pub(super) fn without_daemon(objects: &Objects) -> BTreeSet<String> {
    let (Ok(agents), Ok(nodes)) = (&objects.agents, &objects.nodes) else { return BTreeSet::new() };
    let daemons: Vec<&Agent> = agents.iter().filter(|agent| agent.name == DAEMON).collect();
    if daemons.iter().any(|agent| agent.nodes.len() < agent.wanted) {
        return BTreeSet::new();
    }
    let reported: BTreeSet<String> = gpu_nodes(objects).iter().map(GpuNodeReport::name_any).collect();
    let resources = objects.names();
    let has_traces = |node: &&NodeView| {
        reported.contains(&node.name_any())
            || is_tainted(node, objects)
            || !Traces::of_divvy(node, &resources).is_empty()
    };
    let mut names: BTreeSet<String> = nodes.iter().filter(has_traces).map(NodeView::name_any).collect();
    if daemons.is_empty() {
        names.extend(reported);
    }
    names.retain(|name| daemons.iter().all(|agent| !agent.nodes.contains(name)));
    names
}

/// Whether it can be told which nodes divvy-node and other systems run on; nothing to say if it can.
pub(super) fn unseen(objects: &Objects) -> Result<Option<Verdict>, &Refusal> {
    objects.agents.as_ref().map(|_| None)
}

/// Leftovers of Divvy; nothing to say if there are none.
pub(super) fn of_divvy(objects: &Objects) -> Option<Verdict> {
    // A refusal has a line of its own.
    let agents = objects.agents.as_ref().ok()?;
    let names = Vec::from_iter(without_daemon(objects));
    let is_left = |name: String| names.binary_search(&name).is_ok();
    let nodes: Vec<&NodeView> = objects.nodes.iter().flatten().filter(|node| is_left(node.name_any())).collect();
    let mut traces = Traces::default();
    let resources = objects.names();
    for node in &nodes {
        traces.extend(Traces::of_divvy(node, &resources));
    }
    let is_tainted = nodes.iter().any(|node| is_tainted(node, objects));
    let reports = gpu_nodes(objects).iter().filter(|object| is_left(object.name_any())).count();
    let mut parts = traces.words();
    parts.extend(is_tainted.then(|| "soft taints".to_owned()));
    parts.extend((reports > 0).then(|| counted(reports, "GpuNode")));
    if agents.iter().any(|agent| agent.name == DAEMON) {
        if names.is_empty() {
            return None;
        }
        let node = target(&names);
        let mut commands = traces.removal(node);
        commands.extend((reports > 0).then(|| format!("kubectl delete gpunode {node}")));
        commands
            .extend(taint::SOFT.iter().filter(|_| is_tainted).map(|key| format!("kubectl taint node {node} {key}-")));
        let found = format!("divvy-node doesn't run on {}; left there: {}", located(&names), parts.join("; "));
        let remedy =
            format!("if it should run there, a label that DaemonSet {DAEMON} selects; else {}", commands.join("; "));
        return Some(Verdict::warning(found, remedy));
    }
    let on_nodes = (!names.is_empty()).then(|| format!("on {}: {}", located(&names), parts.join("; ")));
    let policies = objects.policies.iter().flatten().filter(|policy| POLICIES.contains(&&*policy.name_any())).count();
    let left: Vec<String> =
        on_nodes.into_iter().chain((policies > 0).then(|| format!("{policies} admission policies"))).collect();
    let remedy = if is_tainted || !traces.is_empty() || objects.has_webhook() {
        UNINSTALL.to_owned()
    } else {
        let policies = (policies > 0).then_some("kubectl delete --ignore-not-found -f deploy/manifests/policy.yaml");
        let reports = (reports > 0).then_some("kubectl delete crd gpunodes.divvy.dev");
        [policies, reports].into_iter().flatten().collect::<Vec<_>>().join("; ")
    };
    let found = || format!("no divvy-node runs anywhere; left {}", left.join("; "));
    (!left.is_empty()).then(|| Verdict::warning(found(), remedy))
}

/// The aggregated API while nobody answers; nothing to say if it is served, or switched off.
pub(super) fn of_aggregated_api(objects: &Objects) -> Option<Verdict> {
    let mut apis = objects.foreign.iter().flatten().filter(|object| object.program == AGGREGATED);
    let unavailable = apis.find_map(|object| Some((&object.name, object.unavailable.as_deref()?)));
    unavailable.map(|(name, why)| {
        let found =
            format!("{name} isn't available ({why}): API discovery reports errors, and namespaces aren't deleted");
        let namespace = &objects.namespace;
        let switched =
            format!("set aggregatedApi of divvy-webhook in {namespace} to on: deploy/aggregated-api/README.md");
        Verdict::failed(found, format!("{switched}; to switch it off: kubectl delete {}", name.replace('/', " ")))
    })
}

/// For each program of another system what it left, and whether it runs where Divvy does.
pub(super) fn of_others(objects: &Objects) -> Vec<Finding> {
    let unseen =
        objects.foreign.as_ref().err().map(|refused| Verdict::unseen(refused).about("objects of other GPU systems"));
    // A refusal has a line of its own.
    let Ok(agents) = &objects.agents else { return unseen.into_iter().collect() };
    let of_programs = Program::all().flat_map(|program| {
        let presence = Presence::new(program, agents, objects);
        [presence.conflict(), presence.leftovers()].into_iter().flatten()
    });
    unseen.into_iter().chain(of_programs).collect()
}

/// A program of another system in this cluster.
struct Presence<'a> {
    program: &'static Program,
    /// DaemonSets of it that have pods.
    agents: Vec<&'a Agent>,
    objects: Vec<&'a ForeignObject>,
    /// Nodes with a divvy-node.
    divvy: BTreeSet<&'a String>,
    nodes: &'a [NodeView],
    names: ResourceNames,
}

impl<'a> Presence<'a> {
    fn new(program: &'static Program, agents: &'a [Agent], objects: &'a Objects) -> Self {
        let is_own = |agent: &&Agent| {
            !agent.nodes.is_empty() && Program::with_daemon_set(&agent.name).is_some_and(|it| it.name == program.name)
        };
        Self {
            program,
            agents: agents.iter().filter(is_own).collect(),
            objects: objects.foreign.iter().flatten().filter(|object| object.program == program.name).collect(),
            divvy: agents.iter().filter(|agent| agent.name == DAEMON).flat_map(|agent| &agent.nodes).collect(),
            nodes: objects.nodes.as_deref().unwrap_or_default(),
            names: objects.names(),
        }
    }

    fn conflict(&self) -> Option<Finding> {
        let mut found = Vec::new();
        let mut commands = Vec::new();
        for Agent { namespace, name, nodes, is_operators, .. } in &self.agents {
            let both: Vec<String> = nodes.iter().filter(|node| self.divvy.contains(node)).cloned().collect();
            if !both.is_empty() {
                found.push(format!(
                    "DaemonSet {namespace}/{name} runs beside divvy-node on {}: only one system may allocate a node's GPUs",
                    located(&both)
                ));
                commands.push(if *is_operators {
                    // A deleted one is created again; this label keeps its pods off the node.
                    format!("kubectl label --overwrite node {} {OPERATORS_PLUGIN}=false", target(&both))
                } else {
                    format!("kubectl -n {namespace} delete daemonset {name}")
                });
            }
        }
        commands.dedup();
        let in_use = |object: &&&ForeignObject| {
            object.name.contains("webhook") && object.service.as_ref().is_some_and(|(_, is_there)| *is_there)
        };
        for object in self.objects.iter().filter(in_use).filter(|_| !self.divvy.is_empty()) {
            found.push(format!("{} sends pods that request GPUs to another scheduler", object.name));
            commands.push(format!("kubectl delete {}", object.name));
        }
        let remedy = || format!("keep it off Divvy's nodes and pods, or remove it: {}", commands.join("; "));
        (!found.is_empty())
            .then(|| Verdict::warning(found.join("; "), remedy()).about(format!("conflict with {}", self.program.name)))
    }

    fn leftovers(&self) -> Option<Finding> {
        let mut found = Vec::new();
        let mut commands = Vec::new();
        let mut state = State::Warning;
        let mut names = Vec::new();
        let mut traces = Traces::default();
        for node in self.nodes {
            let name = node.name_any();
            let runs = self.agents.iter().any(|agent| agent.nodes.contains(&name));
            let has_divvy = self.divvy.contains(&name);
            if runs || (self.program.only_beside_divvy && !has_divvy) {
                continue;
            }
            let mut of_node = Traces::of_program(self.program, node);
            if has_divvy || [GENERATION, LABELS].iter().any(|key| node.annotations().contains_key(*key)) {
                of_node.resources.retain(|key| !self.names.is_ours(key));
            }
            if !of_node.is_empty() {
                names.push(name);
                traces.extend(of_node);
            }
        }
        if !names.is_empty() {
            found.push(format!("on {}, where it doesn't run: {}", located(&names), traces.words().join("; ")));
            commands.extend(traces.removal(target(&names)));
        }
        for ForeignObject { name, service, refuses, .. } in &self.objects {
            match service {
                Some((service, false)) => {
                    let effect = if *refuses { ", so what it reviews is refused" } else { "" };
                    found.push(format!("{name} calls Service {service}, which doesn't exist{effect}"));
                    if *refuses {
                        state = State::Failed;
                    }
                }
                None if self.agents.is_empty() => found.push(name.clone()),
                _ => continue,
            }
            commands.push(format!("kubectl delete {name}"));
        }
        let verdict = Verdict { state, found: found.join("; "), remedy: Some(commands.join("; ")) };
        (!found.is_empty()).then(|| verdict.about(format!("leftovers of {}", self.program.name)))
    }
}

/// Keys on Nodes by which a program is recognised.
#[derive(Default)]
struct Traces<'a> {
    annotations: BTreeSet<&'a str>,
    labels: BTreeSet<&'a str>,
    resources: BTreeSet<&'a str>,
}

impl<'a> Traces<'a> {
    /// What divvy-node writes. Amounts without its annotations are another system's if there are signs of one that has
    /// amounts of these names.
    fn of_divvy(node: &'a NodeView, names: &ResourceNames) -> Self {
        let mut traces = Self::default();
        traces.add(&[Mark::Annotation(GENERATION), Mark::Annotation(LABELS)], node);
        let has_amounts = |program: &&Program| program.shared.iter().any(|mark| matches!(mark, Mark::Resource(_)));
        let is_anothers = Program::all().filter(has_amounts).any(|program| !Self::of_program(program, node).is_empty());
        if !traces.is_empty() || !is_anothers {
            let amounts = [&names.memory, &names.memory_percentage, &names.cores];
            traces.resources.extend(node.resources().filter(|key| amounts.iter().any(|name| name.as_str() == *key)));
        }
        traces.labels.extend(own_labels(node).filter(|key| node.labels().contains_key(*key)));
        traces
    }

    fn of_program(program: &Program, node: &'a NodeView) -> Self {
        let mut traces = Self::default();
        traces.add(program.marks, node);
        if !traces.is_empty() {
            traces.add(program.shared, node);
        }
        traces.labels.retain(|key| own_labels(node).all(|own| own != *key));
        traces
    }

    fn add(&mut self, marks: &[Mark], node: &'a NodeView) {
        for mark in marks {
            let keys = match mark {
                Mark::Annotation(_) => &mut self.annotations,
                Mark::Label(_) => &mut self.labels,
                Mark::Resource(_) => &mut self.resources,
            };
            keys.extend(mark.keys(node.annotations(), node.labels(), node.resources()));
        }
    }

    fn extend(&mut self, other: Self) {
        self.annotations.extend(other.annotations);
        self.labels.extend(other.labels);
        self.resources.extend(other.resources);
    }

    fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.labels.is_empty() && self.resources.is_empty()
    }

    fn words(&self) -> Vec<String> {
        let kinds = [("annotation", &self.annotations), ("label", &self.labels), ("resource", &self.resources)];
        let words = |(kind, keys): (&str, &BTreeSet<&str>)| {
            let plural = if keys.len() == 1 { "" } else { "s" };
            format!("{kind}{plural} {}", listed(&keys.iter().copied().collect::<Vec<_>>(), MOST))
        };
        kinds.into_iter().filter(|(_, keys)| !keys.is_empty()).map(words).collect()
    }

    /// Commands that remove them from a node.
    fn removal(&self, node: &str) -> Vec<String> {
        let without = |keys: &BTreeSet<&str>| keys.iter().map(|key| format!("{key}-")).collect::<Vec<_>>().join(" ");
        let named = [("annotate", &self.annotations), ("label", &self.labels)].into_iter();
        let mut commands: Vec<String> = named
            .filter(|(_, keys)| !keys.is_empty())
            .map(|(verb, keys)| format!("kubectl {verb} node {node} {}", without(keys)))
            .collect();
        if !self.resources.is_empty() {
            let gone: Map<String, Value> = self.resources.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
            let patch = json!({ "status": { "allocatable": gone, "capacity": gone } });
            commands.push(format!("kubectl patch node {node} --subresource=status --type=merge -p '{patch}'"));
        }
        commands
    }
}

/// Labels that divvy-node has written, as the Node's annotation lists them. With feature discovery there they are its own.
fn own_labels(node: &NodeView) -> impl Iterator<Item = &str> {
    let list = node.annotations().get(LABELS).filter(|_| !node.labels().contains_key(FEATURE_DISCOVERY));
    list.into_iter().flat_map(|list| list.split(','))
}

/// Whether it has soft taints, and no webhook manages them.
fn is_tainted(node: &NodeView, objects: &Objects) -> bool {
    node.has_soft_taint() && !objects.has_webhook()
}

fn gpu_nodes(objects: &Objects) -> &[GpuNodeReport] {
    objects.gpu_nodes.as_deref().unwrap_or_default()
}

/// Name for a command: the node's, if it is the only one.
fn target(names: &[String]) -> &str {
    if let [name] = names { name } else { "NODE" }
}

/// How many nodes, and the names of some.
fn located(names: &[String]) -> String {
    format!("{} ({})", counted(names.len(), "node"), listed(names, MOST))
}

fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
