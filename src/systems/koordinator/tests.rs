use crate::tests::*;

#[test]
fn koordinator_counts_totals() {
    let koordinator = |limits: &[(&str, &str)]| one("koordinator", limits);
    let (shared, core, memory, ratio) = (
        "koordinator.sh/gpu.shared",
        "koordinator.sh/gpu-core",
        "koordinator.sh/gpu-memory",
        "koordinator.sh/gpu-memory-ratio",
    );
    assert_eq!(koordinator(&[(shared, "2"), (core, "100"), (memory, "4Gi")]), "gpu 2, gpucores 50, gpumem 2048");
    assert_eq!(koordinator(&[(memory, "8589934592"), (core, "30")]), "gpu 1, gpucores 30, gpumem 8192");
    assert_eq!(koordinator(&[(core, "50"), (ratio, "50")]), "gpu 1, gpucores 50, gpumem-percentage 50");
    assert_eq!(koordinator(&[("koordinator.sh/gpu", "50")]), "gpu 1, gpucores 50, gpumem-percentage 50");
    assert_eq!(koordinator(&[("koordinator.sh/gpu", "200")]), "gpu 2");
    assert_eq!(koordinator(&[(ratio, "200")]), "gpu 2");
    assert_eq!(koordinator(&[(ratio, "50")]), "gpu 1, gpumem-percentage 50");
    assert!(
        koordinator(&[(core, "50")]).contains("50: needs koordinator.sh/gpu-memory or koordinator.sh/gpu-memory-ratio")
    );
    assert!(koordinator(&[("koordinator.sh/gpu", "150")]).contains("is no multiple of 100"));
    assert!(koordinator(&[("koordinator.sh/gpu", "50"), (core, "50")]).contains("both say the same thing"));
    assert!(koordinator(&[(memory, "1Gi"), (ratio, "50")]).contains("both say the same thing"));
}

#[test]
fn koordinator_traps() {
    let koordinator = |limits: &[(&str, &str)]| one("koordinator", limits);
    let refused =
        |text: &str, problem: &str| assert!(text.starts_with("refused: ") && text.contains(problem), "{text}");
    let totals =
        [("koordinator.sh/gpu.shared", "2"), ("koordinator.sh/gpu-core", "100"), ("koordinator.sh/gpu-memory", "4Gi")];
    assert_eq!(koordinator(&totals), "gpu 2, gpucores 50, gpumem 2048");
    refused(
        &koordinator(&[("koordinator.sh/gpu.shared", "3"), ("koordinator.sh/gpu-memory", "4Gi")]),
        "can't be divided by 3 GPUs",
    );
    assert_eq!(koordinator(&[("koordinator.sh/gpu-memory-ratio", "300")]), "gpu 3");
    refused(&koordinator(&[("koordinator.sh/gpu-memory-ratio", "150")]), "is no multiple of 100");
    refused(&koordinator(&[("koordinator.sh/gpu-core", "50")]), "needs koordinator.sh/gpu-memory");
    assert_eq!(koordinator(&[("koordinator.sh/gpu-memory", "1")]), "gpu 1, gpumem 1", "it is a byte, rounded up");
    assert_eq!(
        koordinator(&[("koordinator.sh/gpu-core", "100"), ("koordinator.sh/gpu-memory", "4Gi")]),
        "gpu 1, gpucores 100, gpumem 4096; ! spec.containers[0].resources.limits[koordinator.sh/gpu-core]: is all compute of each GPU, which no other pod shares then: set 99 to share it"
    );
    let pod = pod(&[&[("koordinator.sh/gpu", "100")]]);
    let partition = annotated(pod.clone(), &[("scheduling.koordinator.sh/gpu-partition-spec", "{}")]);
    assert_eq!(
        says("[koordinator]", &partition),
        "gpu 1; ! annotation scheduling.koordinator.sh/gpu-partition-spec: has no effect: divvy.dev/card-policy: topology asks for GPUs with fast links"
    );
    let hinted = |hint| {
        says("[koordinator]", &annotated(pod.clone(), &[("scheduling.koordinator.sh/device-allocate-hint", hint)]))
    };
    refused(&hinted(r#"{"gpu":{"selector":{}}}"#), "chooses GPUs by labels that they don't have here");
    refused(&hinted("gpu"), "chooses GPUs by labels that they don't have here");
    assert_eq!(hinted(r#"{"rdma":{"vfSelector":{}}}"#), "gpu 1", "of other devices");
    let joint = annotated(pod.clone(), &[("scheduling.koordinator.sh/device-joint-allocate", "{}")]);
    assert!(says("[koordinator]", &joint).ends_with("not kept for GPUs: Divvy doesn't choose them by what is near"));
}

#[test]
fn koordinator_annotations_hold_for_gpus_in_our_words() {
    let says =
        |annotation: (&str, &str)| says("[koordinator]", &annotated(pod(&[&[("nvidia.com/gpu", "1")]]), &[annotation]));
    let partition = says(("scheduling.koordinator.sh/gpu-partition-spec", "{}"));
    assert!(partition.starts_with("-; ! annotation") && partition.contains("has no effect"), "{partition}");
    let hint = says(("scheduling.koordinator.sh/device-allocate-hint", r#"{"gpu": {}}"#));
    assert!(hint.contains("chooses GPUs by labels"), "{hint}");
    assert_eq!(says(("scheduling.koordinator.sh/device-allocate-hint", r#"{"rdma": {}}"#)), "as it is");
}

#[test]
fn misspelt_resource_beside_others_is_told() {
    let misspelt = [
        ("koordinator.sh/gpu-shared", "1"),
        ("koordinator.sh/gpu-core", "50"),
        ("koordinator.sh/gpu-memory-ratio", "50"),
        ("koordinator.sh/rdma", "50"),
    ];
    assert_eq!(
        one("koordinator", &misspelt),
        "gpu 1, gpucores 50, gpumem-percentage 50; ! spec.containers[0].resources.limits[koordinator.sh/gpu-shared]: is none of the resources that Divvy translates: it stays, and the pod waits for a node that offers it"
    );
}
