//! The match conditions that both webhook configurations need: CEL that the API server evaluates before it calls, so that a
//! pod that requests no GPUs is never delayed by the webhook, not even while it is down.
//!
//! Every access to a field that may be absent is optional (`?`), because an error in a condition counts as a failed
//! call. No engine runs these here; the same question in Rust is `Pod::is_ours` of divvy-webhook, and a real API server is
//! asked in `tests/e2e`.

use divvy_api::ResourceNames;
use divvy_api::names::PREFIX;

/// An entry of `webhooks[].matchConditions` (`admissionregistration.k8s.io/v1`). All of a webhook's must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MatchCondition {
    /// Shown in the API server's errors and metrics.
    pub(crate) name: &'static str,
    /// CEL over `object`, `oldObject`, `request` and `authorizer`.
    pub(crate) expression: String,
}

/// Conditions for new `pods` and `pods/ephemeralcontainers`: those that name one of Divvy's resources in any container, or carry one of its annotations.
pub(crate) fn for_pods(names: &ResourceNames) -> Vec<MatchCondition> {
    vec![MatchCondition { name: "requests-gpus", expression: asks_for_cards("object", names) }]
}

/// Conditions for the same in namespaces that hide GPUs: all other pods.
pub(crate) fn for_others(names: &ResourceNames) -> Vec<MatchCondition> {
    vec![MatchCondition { name: "requests-no-gpus", expression: format!("!{}", asks_for_cards("object", names)) }]
}

/// Conditions for new and changed `pods`, and `pods/ephemeralcontainers`: the same, and of changes those that are looked at. Controllers
/// take their finalizers off a pod, and open its scheduling gates, whether or not we are there.
pub(crate) fn for_changes(names: &ResourceNames) -> Vec<MatchCondition> {
    let changed = format!(
        "oldObject == null || request.?subResource.orValue('') == 'ephemeralcontainers' ||\n\
         [[object, oldObject], [oldObject, object]].exists(pair,\n\
         \x20 pair[0].metadata.?annotations.orValue({{}}).exists(key, key.startsWith('{PREFIX}') &&\n\
         \x20   pair[0].metadata.?annotations[?key] != pair[1].metadata.?annotations[?key]))"
    );
    let changed = MatchCondition { name: "annotations-changed", expression: changed };
    for_pods(names).into_iter().chain([changed]).collect()
}

/// Conditions for workloads: those whose template is such a pod.
pub(crate) fn for_templates(names: &ResourceNames) -> Vec<MatchCondition> {
    // A CronJob's template stands in its job's spec.
    let template = "object.spec.?jobTemplate.?spec.orValue(object.spec).template";
    // What a controller is told nobody reads, and the author of its owner has been told: ReplicaSets of a Deployment,
    // Jobs of a CronJob.
    let by_people = "!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))";
    // Controllers also write annotations of the workload itself.
    let changed = "oldObject == null || object.spec != oldObject.spec";
    vec![
        MatchCondition { name: "requests-gpus", expression: asks_for_cards(template, names) },
        MatchCondition { name: "written-by-people", expression: by_people.to_owned() },
        MatchCondition { name: "spec-changed", expression: changed.to_owned() },
    ]
}

/// Whether the pod, or the template of one, that `pod` denotes concerns us. A list of one with `exists` gives it a name.
fn asks_for_cards(pod: &str, names: &ResourceNames) -> String {
    let ResourceNames { count, memory, memory_unit: _, memory_percentage, cores } = names;
    let domain = count.domain();
    format!(
        "[{pod}].exists(pod,\n\
         \x20 pod.?metadata.?annotations.orValue({{}}).exists(key, key.startsWith('{PREFIX}')) ||\n\
         \x20 (pod.?spec.?containers.orValue([]) + pod.?spec.?initContainers.orValue([])\n\
         \x20   + pod.?spec.?ephemeralContainers.orValue([])).exists(container,\n\
         \x20   [container.?resources.?limits.orValue({{}}), container.?resources.?requests.orValue({{}})].exists(amounts,\n\
         \x20     amounts.exists(name, name.startsWith('{domain}/mig-') ||\n\
         \x20       name in ['{count}', '{memory}', '{memory_percentage}', '{cores}']))))"
    )
}

#[test]
fn match_conditions_as_written() {
    let text = |conditions: Vec<MatchCondition>| {
        let lines = conditions.iter().map(|condition| format!("# {}\n{}", condition.name, condition.expression));
        lines.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(text(for_pods(&ResourceNames::default())), @r#"
    # requests-gpus
    [object].exists(pod,
      pod.?metadata.?annotations.orValue({}).exists(key, key.startsWith('divvy.dev/')) ||
      (pod.?spec.?containers.orValue([]) + pod.?spec.?initContainers.orValue([])
        + pod.?spec.?ephemeralContainers.orValue([])).exists(container,
        [container.?resources.?limits.orValue({}), container.?resources.?requests.orValue({})].exists(amounts,
          amounts.exists(name, name.startsWith('nvidia.com/mig-') ||
            name in ['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores']))))
    "#);
    let [asks, changed] = &*for_changes(&ResourceNames::default()) else { panic!("two conditions") };
    assert_eq!(*asks, for_pods(&ResourceNames::default())[0]);
    insta::assert_snapshot!(text(vec![changed.clone()]), @"
    # annotations-changed
    oldObject == null || request.?subResource.orValue('') == 'ephemeralcontainers' ||
    [[object, oldObject], [oldObject, object]].exists(pair,
      pair[0].metadata.?annotations.orValue({}).exists(key, key.startsWith('divvy.dev/') &&
        pair[0].metadata.?annotations[?key] != pair[1].metadata.?annotations[?key]))
    ");
    insta::assert_snapshot!(text(for_templates(&ResourceNames::default())), @r#"
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
    let expression = &for_pods(&names)[0].expression;
    assert!(
        expression.contains("'example.com/mig-'") && expression.contains("['example.com/card', 'nvidia.com/gpumem',")
    );
}
