//! Match conditions of both webhook configurations: CEL that the API server evaluates before it calls, so that a pod that
//! requests no GPUs, in whatever words are translated, is never delayed by the webhook, not even while it is down.
//!
//! Every access to a field that may be absent is optional (`?`), because an error in a condition counts as a failed call.

use divvy_api::ResourceNames;
use divvy_api::names::{GATE, PREFIX};
use serde::Serialize;

use crate::{Dialect, Key};

/// An entry of `webhooks[].matchConditions` (`admissionregistration.k8s.io/v1`). All of a webhook's must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchCondition {
    /// Shown in the API server's errors and metrics.
    pub name: &'static str,
    /// CEL over `object`, `oldObject`, `request` and `authorizer`.
    pub expression: String,
}

/// The webhook, as its token identifies it; the chart puts another namespace in.
const ACCOUNT: &str = "system:serviceaccount:divvy-system:divvy-webhook";
/// Priority classes of the pods without which a cluster, and with it the webhook, doesn't start
/// (`scheduling.SystemPriorityClasses`).
pub const CRITICAL: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// Conditions of one of Divvy's webhooks, by its name; `None` for any other.
pub fn match_conditions(webhook: &str, names: &ResourceNames, dialects: &[Dialect]) -> Option<Vec<MatchCondition>> {
    Some(match webhook {
        "mutate.divvy.dev" => for_pods(names, dialects),
        "hide.divvy.dev" => for_others(names, dialects),
        "validate.divvy.dev" => for_changes(names, dialects),
        "jobs.divvy.dev" => for_jobs(names, dialects),
        "templates.divvy.dev" => for_templates(names, dialects),
        _ => return None,
    })
}

/// Conditions for new `pods` and `pods/ephemeralcontainers`: those that name a resource of Divvy's or of these dialects in any
/// container, or carry one of Divvy's annotations, or one by which a dialect requests GPUs, or Divvy's scheduling gate, which is
/// taken from those that request none.
fn for_pods(names: &ResourceNames, dialects: &[Dialect]) -> Vec<MatchCondition> {
    vec![MatchCondition { name: "requests-gpus", expression: concerns_us(names, dialects) }]
}

/// Conditions for the same in namespaces that hide GPUs: all other pods, but those that the webhook's own pods may need first,
/// such as the network's. Those would wait for each other for ever.
fn for_others(names: &ResourceNames, dialects: &[Dialect]) -> Vec<MatchCondition> {
    let expression = format!("!{}", concerns_us(names, dialects));
    let critical = quoted(CRITICAL.map(str::to_owned).into_iter());
    let not_needed_first = format!(
        "!object.?spec.?hostNetwork.orValue(false) &&\n\
         \x20 !(object.?spec.?priorityClassName.orValue('') in [{critical}])"
    );
    vec![
        MatchCondition { name: "requests-no-gpus", expression },
        MatchCondition { name: "not-needed-first", expression: not_needed_first },
    ]
}

/// Conditions for new and changed `pods`, and `pods/ephemeralcontainers`: the same, and of changes those that are looked at. What
/// the leader writes when it opens the gate is for an admission policy to judge, not for the webhook itself. Controllers take their finalizers off a pod, and open its scheduling gates, whether or not we are there.
fn for_changes(names: &ResourceNames, dialects: &[Dialect]) -> Vec<MatchCondition> {
    let changed = format!(
        "oldObject == null || request.?subResource.orValue('') == 'ephemeralcontainers' ||\n\
         [[object, oldObject], [oldObject, object]].exists(pair,\n\
         \x20 pair[0].metadata.?annotations.orValue({{}}).exists(key, key.startsWith('{PREFIX}') &&\n\
         \x20   pair[0].metadata.?annotations[?key] != pair[1].metadata.?annotations[?key]))"
    );
    let changed = MatchCondition { name: "annotations-changed", expression: changed };
    let expression = format!("request.userInfo.username != '{ACCOUNT}'");
    let by_others = MatchCondition { name: "not-by-the-webhook", expression };
    for_pods(names, dialects).into_iter().chain([changed, by_others]).collect()
}

/// Conditions for Jobs: those whose template is such a pod. Controllers make them too.
fn for_jobs(names: &ResourceNames, dialects: &[Dialect]) -> Vec<MatchCondition> {
    let expression = requests_gpus("object.spec.template", "", names, dialects);
    vec![MatchCondition { name: "requests-gpus", expression }, spec_changed()]
}

/// Conditions for workloads: those whose template is such a pod.
fn for_templates(names: &ResourceNames, dialects: &[Dialect]) -> Vec<MatchCondition> {
    // A CronJob's template stands in its job's spec.
    let template = "object.spec.?jobTemplate.?spec.orValue(object.spec).template";
    // What a controller is told nobody reads, and the author of its owner has been told: ReplicaSets of a Deployment,
    // Jobs of a CronJob.
    let by_people = "!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))";
    vec![
        MatchCondition { name: "requests-gpus", expression: requests_gpus(template, "", names, dialects) },
        MatchCondition { name: "written-by-people", expression: by_people.to_owned() },
        spec_changed(),
    ]
}

/// Leaves out the changes of controllers that write annotations of the workload itself, or its status.
fn spec_changed() -> MatchCondition {
    MatchCondition { name: "spec-changed", expression: "oldObject == null || object.spec != oldObject.spec".to_owned() }
}

/// Whether a pod concerns us.
fn concerns_us(names: &ResourceNames, dialects: &[Dialect]) -> String {
    let by_gate =
        format!("  pod.?spec.?schedulingGates.orValue([]).exists(gate, gate.?name.orValue('') == '{GATE}') ||\n");
    requests_gpus("object", &by_gate, names, dialects)
}

/// Whether the pod, or the template of one, that `pod` denotes requests GPUs, carries an annotation of Divvy's, or is as `others`
/// says: an alternative in front of `||`, or none. A list of one with `exists` gives the pod a name.
fn requests_gpus(pod: &str, others: &str, names: &ResourceNames, dialects: &[Dialect]) -> String {
    let ResourceNames { count, memory, memory_unit: _, memory_percentage, cores } = names;
    let domain = count.domain();
    let ours = [count, memory, memory_percentage, cores].map(ToString::to_string);
    let theirs = dialects.iter().flat_map(|dialect| dialect.resources(names));
    let resources = quoted(ours.into_iter().chain(theirs));
    let by_annotation = by_annotation(dialects);
    format!(
        "[{pod}].exists(pod,\n\
         \x20 pod.?metadata.?annotations.orValue({{}}).exists(key, {by_annotation}) ||\n{others}\
         \x20 (pod.?spec.?containers.orValue([]) + pod.?spec.?initContainers.orValue([])\n\
         \x20   + pod.?spec.?ephemeralContainers.orValue([])).exists(container,\n\
         \x20   [container.?resources.?limits.orValue({{}}), container.?resources.?requests.orValue({{}})].exists(amounts,\n\
         \x20     amounts.exists(name, name.startsWith('{domain}/mig-') ||\n\
         \x20       name in [{resources}]))))"
    )
}

/// Whether the `key` of an annotation is Divvy's, or one by which these dialects request GPUs.
fn by_annotation(dialects: &[Dialect]) -> String {
    let ours = format!("key.startsWith('{PREFIX}')");
    let mut whole = Vec::new();
    let mut of_containers = Vec::new();
    for key in dialects.iter().flat_map(|dialect| dialect.system().words.requests) {
        match key {
            Key::Is(key) => whole.push((*key).to_owned()),
            Key::OfContainer(start, infix) => {
                of_containers.push(format!("(key.startsWith('{start}') && key.contains('{infix}'))"));
            }
        }
    }
    let whole = (!whole.is_empty()).then(|| format!("key in [{}]", quoted(whole.into_iter())));
    let all: Vec<String> = [ours].into_iter().chain(whole).chain(of_containers).collect();
    all.join(" || ")
}

/// A list as CEL writes it. Names of resources and annotations have no quotation marks.
fn quoted(items: impl Iterator<Item = String>) -> String {
    items.map(|item| format!("'{item}'")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match_conditions_as_written() {
        let text = |conditions: Vec<MatchCondition>| {
            let lines = conditions.iter().map(|condition| format!("# {}\n{}", condition.name, condition.expression));
            lines.collect::<Vec<_>>().join("\n")
        };
        insta::assert_snapshot!(text(for_pods(&ResourceNames::default(), &[])), @r#"
        # requests-gpus
        [object].exists(pod,
          pod.?metadata.?annotations.orValue({}).exists(key, key.startsWith('divvy.dev/')) ||
          pod.?spec.?schedulingGates.orValue([]).exists(gate, gate.?name.orValue('') == 'divvy.dev/placement') ||
          (pod.?spec.?containers.orValue([]) + pod.?spec.?initContainers.orValue([])
            + pod.?spec.?ephemeralContainers.orValue([])).exists(container,
            [container.?resources.?limits.orValue({}), container.?resources.?requests.orValue({})].exists(amounts,
              amounts.exists(name, name.startsWith('nvidia.com/mig-') ||
                name in ['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores']))))
        "#);
        let [asks, changed, by_others] = &*for_changes(&ResourceNames::default(), &[]) else { panic!("three") };
        assert_eq!(*asks, for_pods(&ResourceNames::default(), &[])[0]);
        insta::assert_snapshot!(text(vec![changed.clone(), by_others.clone()]), @"
        # annotations-changed
        oldObject == null || request.?subResource.orValue('') == 'ephemeralcontainers' ||
        [[object, oldObject], [oldObject, object]].exists(pair,
          pair[0].metadata.?annotations.orValue({}).exists(key, key.startsWith('divvy.dev/') &&
            pair[0].metadata.?annotations[?key] != pair[1].metadata.?annotations[?key]))
        # not-by-the-webhook
        request.userInfo.username != 'system:serviceaccount:divvy-system:divvy-webhook'
        ");
        insta::assert_snapshot!(text(for_jobs(&ResourceNames::default(), &[])), @"
        # requests-gpus
        [object.spec.template].exists(pod,
          pod.?metadata.?annotations.orValue({}).exists(key, key.startsWith('divvy.dev/')) ||
          (pod.?spec.?containers.orValue([]) + pod.?spec.?initContainers.orValue([])
            + pod.?spec.?ephemeralContainers.orValue([])).exists(container,
            [container.?resources.?limits.orValue({}), container.?resources.?requests.orValue({})].exists(amounts,
              amounts.exists(name, name.startsWith('nvidia.com/mig-') ||
                name in ['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores']))))
        # spec-changed
        oldObject == null || object.spec != oldObject.spec
        ");
        insta::assert_snapshot!(text(for_templates(&ResourceNames::default(), &[])), @r#"
        # requests-gpus
        [object.spec.?jobTemplate.?spec.orValue(object.spec).template].exists(pod,
          pod.?metadata.?annotations.orValue({}).exists(key, key.startsWith('divvy.dev/')) ||
          (pod.?spec.?containers.orValue([]) + pod.?spec.?initContainers.orValue([])
            + pod.?spec.?ephemeralContainers.orValue([])).exists(container,
            [container.?resources.?limits.orValue({}), container.?resources.?requests.orValue({})].exists(amounts,
              amounts.exists(name, name.startsWith('nvidia.com/mig-') ||
                name in ['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores']))))
        # written-by-people
        !object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))
        # spec-changed
        oldObject == null || object.spec != oldObject.spec
        "#);
    }

    #[test]
    fn match_conditions_use_configured_resource_names() {
        let names = ResourceNames { count: "example.com/card".parse().expect("a name"), ..ResourceNames::default() };
        let expression = &for_pods(&names, &[])[0].expression;
        assert!(
            expression.contains("'example.com/mig-'")
                && expression.contains("['example.com/card', 'nvidia.com/gpumem',")
        );
    }

    #[test]
    fn match_conditions_have_the_words_of_dialects() {
        let dialects: Vec<Dialect> = serde_saphyr::from_str("[hami, kai, gpushare, gpu-model]").expect("names");
        let expression = &for_pods(&ResourceNames::default(), &dialects)[0].expression;
        assert!(
            expression.contains(
                "key.startsWith('divvy.dev/') || key in ['gpu-fraction', 'gpu-memory'] || \
                 (key.startsWith('nvidia.com/container.') && key.contains('.gpu-memory.')) || \
                 (key.startsWith('nvidia.cdi.k8s.io/') && key.contains('.gpu-memory.'))) ||"
            ),
            "{expression}"
        );
        let names =
            "'nvidia.com/gpucores', 'nvidia.com/priority', 'aliyun.com/gpu-mem', 'aliyun.com/gpu-core.percentage']";
        assert!(expression.contains(names), "{expression}");
    }
}
