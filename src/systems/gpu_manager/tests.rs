use crate::tests::*;

#[test]
fn gpu_manager() {
    let (core, memory) = ("tencent.com/vcuda-core", "tencent.com/vcuda-memory");
    let manager = |limits: &[(&str, &str)]| one("gpu-manager", limits);
    assert_eq!(manager(&[(core, "50"), (memory, "30")]), "gpu 1, gpucores 50, gpumem 7680");
    assert_eq!(manager(&[(core, "200")]), "gpu 2");
    assert!(manager(&[(core, "100"), (memory, "1")]).starts_with("gpu 1; ! "));
    assert!(manager(&[(core, "50")]).ends_with("50: needs tencent.com/vcuda-memory: set it, in units of 256Mi"));
    assert!(manager(&[(core, "150")]).contains("is no multiple of 100"));
    assert!(manager(&[(memory, "30")]).starts_with("none; ! "), "no request there either");
    let limited = annotated(pod(&[&[(core, "50"), (memory, "4")]]), &[("tencent.com/vcuda-core-limit", "80")]);
    assert!(said("[gpu-manager]", &limited, true).starts_with("gpu 1, gpucores 50, gpumem 1024; compute-limit: 80"));
    assert!(said("[gpu-manager]", &limited, false).contains("! annotation tencent.com/vcuda-core-limit: not kept: "));
}
