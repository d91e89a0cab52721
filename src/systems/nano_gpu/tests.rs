use crate::tests::*;

#[test]
fn nano_gpu() {
    let nano = |limits: &[(&str, &str)]| one("{name: nano-gpu, memoryUnit: 1Gi}", limits);
    assert_eq!(
        nano(&[("nano-gpu.io/gpu-core", "20"), ("nano-gpu.io/gpu-memory", "1")]),
        "gpu 1, gpucores 20, gpumem 1024"
    );
    assert_eq!(nano(&[("nano-gpu.io/gpu-core", "20")]), "gpu 1, gpucores 20, gpumem-percentage 20");
    assert_eq!(nano(&[("nano-gpu.io/gpu-memory", "4")]), "gpu 1, gpumem 4096");
    assert_eq!(nano(&[("nano-gpu/gpu-percent", "50")]), "gpu 1, gpucores 50, gpumem-percentage 50");
    assert_eq!(nano(&[("nano-gpu.io/gpu-core", "100")]), "gpu 1");
    assert_eq!(nano(&[("nano-gpu.io/gpu-core", "0")]), "none");
    assert_eq!(
        nano(&[("nano-gpu.io/gpu-core", "100"), ("nano-gpu.io/gpu-memory", "8")]),
        "gpu 1; ! spec.containers[0].resources.limits[nano-gpu.io/gpu-memory]: has no effect: 100 is a whole GPU here, with all of its memory"
    );
    assert_eq!(
        nano(&[("nano-gpu.io/gpu-core", "150")]),
        "refused: spec.containers[0].resources.limits[nano-gpu.io/gpu-core]: 150: a GPU has 100"
    );
    assert_eq!(
        one("nano-gpu", &[("nano-gpu.io/gpu-memory", "1")]),
        "gpu 1, gpumem 1024; ! spec.containers[0].resources.limits[nano-gpu.io/gpu-memory]: counted in units of 1Gi: nano-gpu doesn't say what it counts in; memoryUnit of its dialect does"
    );
    assert!(
        nano(&[("nano-gpu.io/gpu-core", "20"), ("nano-gpu/gpu-percent", "20")]).contains("both say the same thing")
    );
    assert!(
        nano(&[("nano-gpu.io/gpu-memory", "8Gi")]).ends_with("8Gi: is not a whole number: write it without a suffix")
    );
    assert!(nano(&[("nano-gpu.io/gpu-memory", "99999999999999")]).ends_with("is more memory than any GPU has"));
}
