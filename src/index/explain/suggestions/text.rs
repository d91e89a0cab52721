//! Suggestions in sentences, and commands that follow them.

use divvy_api::{CardId, GpuRequest, MemoryAmount, ResourceNames};

use super::{Change, ChangedRequest, EndingPod, MOST};
use crate::pod::PodEnd;

/// The change, with what the node has then.
pub(super) fn sentence(change: &Change, node: &str, names: &ResourceNames) -> String {
    match change {
        Change::RemoveSchedulingGates { gates } => format!(
            "no scheduler looks at the pod before its scheduling gates are removed by what has set them: {}",
            gates.join(", ")
        ),
        Change::Uncordon => format!("{node} has GPUs for it, and is cordoned"),
        Change::UncordonGpus { gpus } => {
            let list = listed(gpus.iter().map(CardId::as_str));
            let are = if gpus.len() == 1 { "is" } else { "are" };
            format!("{list} of {node} would do, and {are} cordoned (spec.unschedulableCards of its GpuNode)")
        }
        Change::NodeSelection { reason } => format!("{node} has GPUs for it, but {reason}"),
        Change::Quota { reason } => format!("{node} has GPUs for it, but its namespace may have no more: {reason}"),
        Change::Preempt { pods } => format!(
            "{node} could run it without pods of lower priority: {}; they are evicted for it where preemption is on, \
             unless preemptionPolicy is Never",
            named(pods, EndingPod::to_string)
        ),
        Change::EndOfPods { pods } => {
            let ends = if pods.len() == 1 { "ends" } else { "end" };
            format!("{node} has GPUs for it once {} {ends}", named(pods, with_end))
        }
        Change::SmallerRequest { containers } => {
            let requests: Vec<String> = containers.iter().map(|changed| smaller(changed, names)).collect();
            format!("{node} has GPUs for it now if {}", requests.join(", and "))
        }
        Change::DropAnnotation { key, value } => {
            format!("{node} has GPUs for it now without the annotation {key}: {value}")
        }
        Change::NodeReady { reason } => format!("{node} has GPUs for it once it takes pods ({reason})"),
        Change::HealthyGpus { gpus } => {
            let list = listed(gpus.iter().map(CardId::as_str));
            let are = if gpus.len() == 1 { "is" } else { "are" };
            format!("{node} has GPUs for it once {list} {are} healthy")
        }
    }
}

/// The command that makes the change, or shows what is in its way.
pub(super) fn command(change: &Change, node: &str) -> Option<String> {
    match change {
        Change::Uncordon => Some(format!("kubectl uncordon {node}")),
        Change::UncordonGpus { .. } => Some(format!("kubectl edit gpunode {node}")),
        Change::NodeReady { .. } | Change::HealthyGpus { .. } => Some(format!("kubectl divvy inspect {node}")),
        _ => None,
    }
}

/// One container's smaller request, in the names of the resources that change.
fn smaller(ChangedRequest { container, from, to }: &ChangedRequest, names: &ResourceNames) -> String {
    if *from == GpuRequest::whole(from.cards) && from.cards == to.cards {
        let part = format!("{} and {} {}", memory(to, names), names.cores, to.cores);
        let whole = if from.cards == 1 { "a whole GPU" } else { "whole GPUs" };
        return format!("{container} asks for {part} instead of {whole}");
    }
    let mut amounts = Vec::new();
    if from.cards != to.cards {
        amounts.push(format!("{} {} instead of {}", names.count, to.cards, from.cards));
    }
    if from.memory != to.memory {
        amounts.push(format!("{} instead of {}", memory(to, names), plain(from.memory)));
    }
    if from.cores != to.cores {
        amounts.push(format!("{} {} instead of {}", names.cores, to.cores, from.cores));
    }
    format!("{container} asks for {}", amounts.join(" and "))
}

fn memory(request: &GpuRequest, names: &ResourceNames) -> String {
    let name = match request.memory {
        MemoryAmount::Absolute(_) => &names.memory,
        MemoryAmount::Percent(_) => &names.memory_percentage,
    };
    format!("{name} {}", plain(request.memory))
}

/// As in a limit: a percentage has no sign.
fn plain(memory: MemoryAmount) -> String {
    memory.to_string().trim_end_matches('%').to_owned()
}

fn with_end(pod: &EndingPod) -> String {
    match pod.end {
        PodEnd::Deleted { at } => format!("{pod} (is being deleted, gone by {at})"),
        PodEnd::Deadline { at } => format!("{pod} (its deadline is {at})"),
        PodEnd::Completes => format!("{pod} (ends by itself)"),
        PodEnd::Open => format!("{pod} (runs until it is deleted)"),
        PodEnd::Unknown => pod.to_string(),
    }
}

fn named(pods: &[EndingPod], name: fn(&EndingPod) -> String) -> String {
    listed(pods.iter().map(name))
}

/// The first few of these, and how many more there are.
fn listed<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> String {
    let mut texts: Vec<String> = texts.map(|text| text.as_ref().to_owned()).collect();
    let more = texts.len().saturating_sub(MOST);
    texts.truncate(MOST);
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    match texts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => texts.concat(),
    }
}
