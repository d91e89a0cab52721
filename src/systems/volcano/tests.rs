use crate::tests::*;

#[test]
fn volcano_chooses_gpus_by_annotation() {
    let chosen = |dialects: &str, annotations: &[(&str, &str)]| {
        says(
            dialects,
            &annotated(pod(&[&[("volcano.sh/vgpu-number", "1"), ("volcano.sh/vgpu-memory", "9")]]), annotations),
        )
    };
    let uuids = [("volcano.sh/vgpu-use-gpuuuid", "GPU-0,, GPU-1,"), ("volcano.sh/vgpu-nouse-gpuuuid", "GPU-2")];
    assert_eq!(chosen("[volcano]", &uuids), "gpu 1, gpumem 9; avoid-card-uuid: GPU-2; card-uuid: GPU-0,GPU-1");
    // Words that it has from HAMi.
    for dialects in ["[volcano]", "[hami, volcano]", "[volcano, hami]"] {
        assert_eq!(chosen(dialects, &[("nvidia.com/use-gputype", "A100")]), "gpu 1, gpumem 9; card-model: *A100*");
    }
    let both = [("nvidia.com/use-gputype", "A100"), ("hami.io/gpu-scheduler-policy", "spread")];
    assert!(chosen("[hami, volcano]", &both).contains("a pod is translated from one system"));
    assert_eq!(
        chosen("[volcano]", &[("volcano.sh/vgpu-podgroup-policy", "spread")]),
        "gpu 1, gpumem 9; ! annotation volcano.sh/vgpu-podgroup-policy: has no effect: GPUs are chosen pod by pod"
    );
}
