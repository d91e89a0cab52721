use super::*;
use crate::admission::conditions::{MatchCondition, for_changes, for_pods, for_templates};

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

/// Which pods come here, as the conditions say it and `is_ours` repeats it.
#[test]
fn match_conditions_select_pods_by_resource_or_annotation() {
    let comes = |pod: Value| serde_json::from_value::<Pod>(pod).expect("a pod").is_ours(&ResourceNames::default());
    let with = |list: &str, resources: Value| json!({ "spec": { list: [{}, { "resources": resources }] } });
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for name in ["gpu", "gpumem", "gpumem-percentage", "gpucores", "mig-1g.10gb"] {
            let amounts = json!({ format!("nvidia.com/{name}"): "0" });
            assert!(
                comes(with(list, json!({ "limits": amounts }))) && comes(with(list, json!({ "requests": amounts })))
            );
        }
        assert!(!comes(with(
            list,
            json!({ "limits": { "cpu": "1", "nvidia.com/gpu.shared": "1" }, "requests": null })
        )));
    }
    assert!(comes(json!({ "metadata": { "annotations": { "divvy.dev/numa": "strict" } } })));
    for stranger in [
        json!({}),
        json!({ "metadata": null, "spec": null }),
        json!({ "metadata": { "annotations": { "divvy": "" } } }),
    ] {
        assert!(!comes(stranger));
    }
}
