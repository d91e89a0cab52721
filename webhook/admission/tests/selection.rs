use super::*;

/// Which pods come here, as the match conditions in `deploy/` say it and `is_ours` repeats it.
#[test]
fn match_conditions_select_pods_by_resource_or_annotation() {
    let comes = |pod: Value| serde_json::from_value::<Pod>(pod).expect("a pod").is_ours(&Settings::default());
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
    let gated = |name: &str| json!({ "spec": { "schedulingGates": [{}, { "name": name }] } });
    assert!(comes(gated("divvy.dev/placement")) && !comes(gated("other")));
    for stranger in [
        json!({}),
        json!({ "metadata": null, "spec": null }),
        json!({ "metadata": { "annotations": { "divvy": "" } } }),
    ] {
        assert!(!comes(stranger));
    }
}

#[test]
fn annotations_of_containers_select_pods_of_their_dialect() {
    let comes = |dialects: Value, key: &str| {
        let dialects = serde_json::from_value(dialects).expect("dialects");
        let pod = json!({ "metadata": { "annotations": { key: "1Gi" } } });
        serde_json::from_value::<Pod>(pod).expect("a pod").is_ours(&Settings { dialects, ..Settings::default() })
    };
    for key in ["nvidia.com/container.main.gpu-memory.request", "nvidia.cdi.k8s.io/main.gpu-memory.limit"] {
        assert!(comes(json!(["hami", "kai"]), key) && !comes(json!(["hami"]), key) && !comes(json!([]), key), "{key}");
    }
    for key in ["nvidia.cdi.k8s.io/container.main", "nvidia.com/container.main.gpus.devices"] {
        assert!(!comes(json!(["kai"]), key), "{key}");
    }
}
