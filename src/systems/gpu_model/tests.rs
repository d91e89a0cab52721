use crate::tests::*;

#[test]
fn gpu_model_is_the_whole_name() {
    let model =
        |key: &str, model: &str| says("[gpu-model]", &annotated(pod(&[&[("nvidia.com/gpu", "2")]]), &[(key, model)]));
    assert_eq!(model("nvidia.com/gpu.model", " Tesla T4 "), "-; card-model: =Tesla T4");
    assert_eq!(model("nvidia-gpu-scheduler/gpu.model", "A100"), "-; card-model: =A100");
    assert!(model("nvidia.com/gpu.model", "").starts_with("refused: annotation nvidia.com/gpu.model: "));
    let twice =
        annotated(pod(&[&[("nvidia.com/gpu", "2")]]), &[("nvidia.com/gpu.model", "T4"), (key::CARD_MODEL, "T4")]);
    assert_eq!(
        says("[gpu-model]", &twice),
        "refused: annotation nvidia.com/gpu.model and annotation divvy.dev/card-model both say the same thing, or its opposite: remove one of them"
    );
}

#[test]
fn one_model_is_named_once() {
    let gpus = || pod(&[&[("nvidia.com/gpu", "2")]]);
    let both = |first, second| {
        let annotations = [("nvidia.com/gpu.model", first), ("nvidia-gpu-scheduler/gpu.model", second)];
        says("[gpu-model]", &annotated(gpus(), &annotations))
    };
    assert_eq!(both("T4", "T4"), "-; card-model: =T4");
    assert!(both("T4", "L4").contains("is asked for too, and a pod can have one"), "{}", both("T4", "L4"));
    for several in ["T4,L4", "Tesla *"] {
        let said = says("[gpu-model]", &annotated(gpus(), &[("nvidia.com/gpu.model", several)]));
        assert!(said.contains("is not the name of one model"), "{said}");
    }
}
