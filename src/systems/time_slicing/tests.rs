use crate::Dialect;
use crate::tests::*;

#[test]
fn replicas_are_parts() {
    let slices = |limits: &[(&str, &str)]| one("{name: time-slicing, replicas: 4}", limits);
    assert_eq!(slices(&[("nvidia.com/gpu.shared", "1")]), "gpu 1, gpumem-percentage 25");
    assert_eq!(
        slices(&[("nvidia.com/gpu.shared", "2")]),
        "gpu 2, gpumem-percentage 25; ! spec.containers[0].resources.limits[nvidia.com/gpu.shared]: parts of 2 GPUs: with NVIDIA's plugin they could all be of one"
    );
    assert_eq!(slices(&[("nvidia.com/gpu", "1")]), "as it is", "whole GPUs stay whole");
    let plain = "{name: time-slicing, replicas: 3, resource: nvidia.com/gpu}";
    assert_eq!(one(plain, &[("nvidia.com/gpu", "1")]), "gpu 1, gpumem-percentage 33");
    let sized = one(plain, &[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "1Gi")]);
    assert!(sized.contains("limits[nvidia.com/gpumem]: 1Gi: has no place in a replica of nvidia.com/gpu"), "{sized}");
    assert_eq!(
        one("{name: time-slicing, replicas: 4, sharing: mps}", &[("nvidia.com/gpu.shared", "1")]),
        "gpu 1, gpucores 25, gpumem-percentage 25; tier: mps"
    );
}

#[test]
fn time_slicing_traps() {
    let shared = "nvidia.com/gpu.shared";
    let four = "{name: time-slicing, replicas: 4}";
    let refused =
        |text: &str, problem: &str| assert!(text.starts_with("refused: ") && text.contains(problem), "{text}");
    refused(&one(four, &[(shared, "1"), ("nvidia.com/gpumem", "4000")]), "both say the same thing");
    let own = "{name: time-slicing, replicas: 4, resource: nvidia.com/gpu}";
    refused(&one(own, &[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "4000")]), "has no place in a replica");
    assert_eq!(one(own, &[("nvidia.com/gpu", "1")]), "gpu 1, gpumem-percentage 25");
    assert_eq!(one("{name: time-slicing, replicas: 3}", &[(shared, "1")]), "gpu 1, gpumem-percentage 33");
    assert!(one(four, &[(shared, "2")]).contains("parts of 2 GPUs: with NVIDIA's plugin they could all be of one"));
    let mps = "[{name: time-slicing, replicas: 4, sharing: mps}]";
    assert_eq!(says(mps, &pod(&[&[(shared, "1")]])), "gpu 1, gpucores 25, gpumem-percentage 25; tier: mps");
    let stronger = annotated(pod(&[&[(shared, "1")]]), &[(key::TIER, "shim")]);
    assert_eq!(says(mps, &stronger), "gpu 1, gpucores 25, gpumem-percentage 25", "the author's own tier stays");
    for replicas in ["1", "101", "0"] {
        let text = format!("[{{name: time-slicing, replicas: {replicas}}}]");
        assert!(serde_saphyr::from_str::<Vec<Dialect>>(&text).is_err(), "{text}");
    }
}
