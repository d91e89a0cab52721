use crate::tests::*;

#[test]
fn vgpu_manager_annotations() {
    let favoured = |is_favoured: bool, annotations: &[(&str, &str)]| {
        let annotations: Vec<(String, &str)> =
            annotations.iter().map(|(key, text)| (format!("nvidia.com/{key}"), *text)).collect();
        let annotations: Vec<(&str, &str)> = annotations.iter().map(|(key, text)| (&**key, *text)).collect();
        let pod = annotated(pod(&[&[("nvidia.com/vgpu-number", "1"), ("nvidia.com/vgpu-memory", "9")]]), &annotations);
        let said = said("[vgpu-manager]", &pod, is_favoured);
        said.strip_prefix("gpu 1, gpumem 9").unwrap_or(&said).to_owned()
    };
    let manager = |annotations: &[(&str, &str)]| favoured(true, annotations);
    let policies = [("node-scheduler-policy", "spread"), ("device-scheduler-policy", "binpack")];
    assert_eq!(manager(&policies), "; card-policy: binpack; node-policy: spread");
    let types = [("include-gpu-type", "A10, ,l4"), ("exclude-gpu-type", "A100")];
    assert_eq!(manager(&types), "; avoid-card-model: *A100*; card-model: *A10*,*l4*", "both apply");
    let uuids = [("include-gpu-uuid", "GPU-0"), ("exclude-gpu-uuid", " , ")];
    assert_eq!(manager(&uuids), "; card-uuid: GPU-0");
    assert_eq!(manager(&[("device-topology-mode", "numa-strict")]), "; numa: strict");
    assert_eq!(manager(&[("device-topology-mode", "link")]), "; card-policy: topology");
    let both = [("device-topology-mode", "link"), ("device-scheduler-policy", "spread")];
    assert!(
        manager(&both).starts_with("; card-policy: topology; ! annotation nvidia.com/device-scheduler-policy: has no")
    );
    assert!(manager(&[("device-topology-mode", "link-strict")]).contains("link-strict: has no counterpart"));
    assert!(manager(&[("cross-pod-topology", "true")]).ends_with("GPUs are chosen pod by pod"));
    assert!(manager(&[("memory-scheduler-policy", "virtual")]).contains("divvy.dev/oversubscribe"));
    assert_eq!(manager(&[("vgpu-compute-policy", "fixed")]), "");
    assert_eq!(manager(&[("vgpu-compute-policy", "balance")]), "; compute: burst");
    assert!(
        favoured(false, &[("vgpu-compute-policy", "balance")]).contains("not kept: the namespace is not in favoured")
    );
    assert!(manager(&[("vgpu-compute-policy", "none")]).contains("not kept"));
    for key in ["vgpu-compute-policy", "device-topology-mode", "node-scheduler-policy", "device-scheduler-policy"] {
        assert!(manager(&[(key, "best")]).contains("best: is unknown: expected"), "{key}");
        assert_eq!(manager(&[(key, "")]), "", "{key}");
    }
}
