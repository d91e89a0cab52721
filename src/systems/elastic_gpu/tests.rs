use divvy_api::ResourceNames;

use crate::Context;
use crate::tests::*;

#[test]
fn elastic_gpu() {
    let elastic = |limits: &[(&str, &str)]| one("elastic-gpu", limits);
    assert_eq!(elastic(&[("elasticgpu.io/gpu-memory", "256")]), "gpu 1, gpumem 256");
    assert_eq!(elastic(&[("elasticgpu.io/gpu-core", "200")]), "gpu 2");
    assert_eq!(elastic(&[("elasticgpu.com/gpu-core", "30")]), "gpu 1, gpucores 30, gpumem-percentage 30");
    assert_eq!(
        elastic(&[("elasticgpu.io/gpu-core", "50"), ("elasticgpu.io/gpu-memory", "1024")]),
        "gpu 1, gpucores 50, gpumem 1024"
    );
    assert!(elastic(&[("elasticgpu.io/gpu-core", "100"), ("elasticgpu.io/gpu-memory", "1")]).starts_with("gpu 1; ! "));
    assert!(elastic(&[("elasticgpu.io/gpu-core", "150")]).starts_with(
        "refused: spec.containers[0].resources.limits[elasticgpu.io/gpu-core]: 150: is no multiple of 100"
    ));
    assert_eq!(one("{name: elastic-gpu, floor: true}", &[("elasticgpu.io/gpu-core", "150")]), "gpu 1");
    assert!(
        elastic(&[("elasticgpu.io/gpu-core", "1"), ("elasticgpu.com/gpu-core", "1")])
            .contains("both say the same thing")
    );
    assert!(
        elastic(&[("elasticgpu.io/gpu-core", "1"), ("tke.cloud.tencent.com/qgpu-core", "1")])
            .contains("both say the same thing")
    );
}

#[test]
fn qgpu_counts_gib_and_totals() {
    let qgpu = |limits: &[(&str, &str)]| one("elastic-gpu", limits);
    let (core, memory) = ("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory");
    assert_eq!(qgpu(&[(core, "30"), (memory, "6")]), "gpu 1, gpucores 30, gpumem 6144");
    assert_eq!(qgpu(&[(core, "160"), (memory, "60")]), "gpu 2, gpucores 80, gpumem 30720");
    assert_eq!(qgpu(&[(core, "200")]), "gpu 2");
    assert!(qgpu(&[(core, "161"), (memory, "60")]).ends_with("161 can't be divided by 2 GPUs: set a multiple of 2"));
    let greedy = pod(&[&[("tke.cloud.tencent.com/qgpu-core-greedy", "50"), (memory, "6")]]);
    let greedy = annotated(greedy, &[("tke.cloud.tencent.com/app-class", "offline")]);
    assert_eq!(
        says("[elastic-gpu]", &greedy),
        "gpu 1, gpumem 6144; priority: low; ! spec.containers[0].resources.limits[tke.cloud.tencent.com/qgpu-core-greedy]: 50 isn't guaranteed, nor a ceiling here: the container gets what others leave"
    );
}

#[test]
fn memory_is_in_the_clusters_unit() {
    let names = ResourceNames::default().in_units(divvy_api::Memory::mib(256)).expect("a name");
    let context = Context { names: &names, is_favoured: false };
    let written = pod(&[&[("elasticgpu.io/gpu-memory", "300")]]);
    let translated = translate(&written, &dialects("[elastic-gpu]"), context).expect("admitted").expect("translated");
    assert_eq!(translated.limits[0], Some(amounts(&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem-256mi", "2")])));
}
