use std::collections::BTreeMap;

use divvy_api::ResourceNames;

use crate::tests::*;
use crate::{Context, Pod};

#[test]
fn hami_amounts() {
    let hami = |limits: &[(&str, &str)]| one("{name: hami, limitVariables: false, compute: cap}", limits);
    let (gpu, mem, percent, cores) =
        ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores");
    assert_eq!(hami(&[(gpu, "2"), (mem, "3000"), (cores, "30")]), "as it is");
    assert_eq!(hami(&[(gpu, "1"), (mem, "20k")]), "as it is");
    assert_eq!(hami(&[(gpu, "1")]), "as it is", "whole");
    assert_eq!(one("{name: hami, compute: cap, countAlone: 25%}", &[(gpu, "1")]), "gpu 1, gpumem-percentage 25");
    assert_eq!(one("{name: hami, compute: cap, countAlone: 5000Mi}", &[(gpu, "2")]), "gpu 2, gpumem 5000");
    let factor = "{name: hami, limitVariables: false, compute: cap, memoryFactor: 1024}";
    assert_eq!(one(factor, &[(gpu, "1"), (mem, "3")]), "gpu 1, gpumem 3072");
    assert_eq!(one(factor, &[(gpu, "1"), (mem, "3Gi")]), "as it is", "it says its unit");
    assert_eq!(hami(&[(gpu, "1"), (mem, "3000"), (cores, "0")]), "gpu 1, gpumem 3000");
    assert_eq!(hami(&[(gpu, "1"), (mem, "0"), (percent, "50")]), "gpu 1, gpumem-percentage 50");
    assert_eq!(hami(&[(gpu, "1"), (percent, "101")]), "gpu 1");
    assert_eq!(hami(&[(gpu, "1"), (percent, "0")]), "gpu 1");
    assert!(hami(&[(gpu, "1"), (mem, "3000"), (percent, "50")]).starts_with("gpu 1, gpumem 3000; ! "));
    assert_eq!(hami(&[(gpu, "1"), (cores, "30")]), "gpu 1, gpucores 30, gpumem-percentage 100");
    assert_eq!(
        one("{name: hami, compute: cap, coresAlone: same-as-cores}", &[(gpu, "1"), (cores, "30")]),
        "gpu 1, gpucores 30, gpumem-percentage 30",
        "the cluster may have another defaultMemory"
    );
    assert_eq!(hami(&[(gpu, "1"), (cores, "100")]), "gpu 1, gpucores 100, gpumem-percentage 100");
    assert!(hami(&[(gpu, "1"), (mem, "1000"), (cores, "150")]).starts_with("gpu 1, gpucores 100, gpumem 1000; ! "));
    assert_eq!(hami(&[(mem, "3000")]), "as it is", "one GPU in both");
    assert!(hami(&[(gpu, "1"), (percent, "150")]).contains("is more than all memory of a GPU"));
    assert_eq!(hami(&[("nvidia.com/mig-1g.10gb", "1")]), "as it is");
    assert_eq!(hami(&[("cpu", "1")]), "as it is");
}

#[test]
fn hami_priority_is_the_pods() {
    let hami = "[{name: hami, limitVariables: false, compute: cap}]";
    let prioritised =
        |text: &str| pod(&[&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "3000"), ("nvidia.com/priority", text)]]);
    assert_eq!(says(hami, &prioritised("0")), "gpu 1, gpumem 3000; priority: high");
    assert_eq!(says(hami, &prioritised("1")), "gpu 1, gpumem 3000; priority: low");
    assert!(
        said(hami, &prioritised("0"), false)
            .contains("! spec.containers[0].resources.limits[nvidia.com/priority]: not kept: the namespace")
    );
    assert!(says(hami, &prioritised("2")).contains("2: is unknown: expected 0 for high or 1 for low"));
    assert_eq!(says(hami, &pod(&[&[("nvidia.com/priority", "1")]])), "none; priority: low");
    let mixed = pod(&[
        &[("nvidia.com/gpu", "1"), ("nvidia.com/priority", "0")],
        &[("nvidia.com/gpu", "1"), ("nvidia.com/priority", "1")],
    ]);
    assert!(says(hami, &mixed).contains("\"high\" is asked for too, and a pod can have one"));
}

#[test]
fn hami_annotations() {
    let hami = |annotations: &[(&str, &str)]| {
        says(
            "[{name: hami, limitVariables: false, compute: cap}]",
            &annotated(pod(&[&[("nvidia.com/gpu", "1")]]), annotations),
        )
    };
    assert_eq!(hami(&[("nvidia.com/use-gputype", "A10,V100")]), "-; card-model: *A10*,*V100*");
    assert_eq!(hami(&[("nvidia.com/nouse-gputype", "1080")]), "-; avoid-card-model: *1080*");
    assert!(
        hami(&[("nvidia.com/use-gputype", "A10"), ("nvidia.com/nouse-gputype", "A100")])
            .starts_with("-; card-model: *A10*; ! ")
    );
    assert_eq!(hami(&[("nvidia.com/use-gpuuuid", "GPU-1,GPU-2")]), "-; card-uuid: GPU-1,GPU-2");
    assert_eq!(hami(&[("nvidia.com/nouse-gpuuuid", "GPU-1")]), "-; avoid-card-uuid: GPU-1");
    assert_eq!(hami(&[("nvidia.com/numa-bind", "true")]), "-; numa: strict");
    assert_eq!(hami(&[("hami.io/numa-alignment", "best-effort")]), "-; numa: prefer");
    assert!(
        hami(&[("hami.io/numa-alignment", "best-effort"), ("nvidia.com/numa-bind", "true")])
            .contains("\"strict\" is asked for too")
    );
    assert_eq!(hami(&[("hami.io/node-scheduler-policy", "spread")]), "-; node-policy: spread");
    assert_eq!(hami(&[("hami.io/gpu-scheduler-policy", "topology-aware")]), "-; card-policy: topology");
    assert_eq!(hami(&[("hami.io/gpu-scheduler-policy", "numa")]), "-; numa: prefer");
    assert!(hami(&[("hami.io/gpu-scheduler-policy", "binpack,numa")]).starts_with("-; card-policy: binpack; ! "));
    assert_eq!(hami(&[("hami.io/gpu-scheduler-policy", "mutex")]), "-", "a whole GPU");
    assert_eq!(hami(&[("hami.io/gpu-scheduler-policy", "spread,mutex")]), "-; card-policy: spread");
    assert!(hami(&[("hami.io/gpu-scheduler-policy", "best")]).contains("best: is unknown: expected binpack"));
    assert_eq!(hami(&[("nvidia.com/vgpu-mode", "hami-core")]), "-; tier: shim");
    assert!(hami(&[("nvidia.com/vgpu-mode", "time-slicing")]).contains("is unknown: expected hami-core, mig or mps"));
    assert!(
        hami(&[("hami.io/device-scoring-weights", "{}")])
            .starts_with("-; ! annotation hami.io/device-scoring-weights: has no effect")
    );
    let long = "x".repeat(256 << 10);
    assert!(hami(&[("nvidia.com/use-gputype", &long)]).ends_with("is longer than 4096 bytes"));
}

#[test]
fn hami_variables() {
    let part = || pod(&[&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "3000"), ("nvidia.com/gpucores", "30")]]);
    let hami = |pod: &Pod| says("[{name: hami, limitVariables: false, compute: cap}]", pod);
    assert_eq!(hami(&with_variable(part(), "GPU_CORE_UTILIZATION_POLICY", "default")), "-; compute: burst");
    assert_eq!(hami(&with_variable(part(), "GPU_CORE_UTILIZATION_POLICY", "FORCE")), "as it is");
    assert_eq!(hami(&with_variable(part(), "GPU_CORE_UTILIZATION_POLICY", "disable")), "gpu 1, gpumem 3000");
    assert!(hami(&with_variable(part(), "GPU_CORE_UTILIZATION_POLICY", "never")).contains("never: is unknown"));
    assert!(
        hami(&with_variable(part(), "CUDA_DISABLE_CONTROL", "true"))
            .starts_with("-; ! spec.containers[0].env CUDA_DISABLE_CONTROL: has no effect")
    );
    assert_eq!(says("[hami]", &part()), "-; compute: burst", "as with HAMi");
    assert_eq!(said("[{name: hami, limitVariables: false}]", &part(), false), "as it is");
    let told = translated_in("[hami]", &part(), false).expect("admitted").expect("told");
    assert_eq!(told.record.outputs, ["limit-variables"]);
}

#[test]
fn hami_amounts_that_are_unset_are_one_gpu() {
    let warned = |name: &str| {
        format!(
            "gpu 1; ! spec.containers[0].resources.limits[nvidia.com/{name}]: is no amount, and the container gets a GPU all the same, as with HAMi"
        )
    };
    assert_eq!(said("[hami]", &pod(&[&[("nvidia.com/gpumem-percentage", "0")]]), false), warned("gpumem-percentage"));
    assert_eq!(said("[hami]", &pod(&[&[("nvidia.com/gpumem-percentage", "101")]]), false), warned("gpumem-percentage"));
    assert_eq!(said("[hami]", &pod(&[&[("nvidia.com/gpucores", "0")]]), false), warned("gpucores"));
    let none = pod(&[&[("nvidia.com/gpu", "0"), ("nvidia.com/gpumem", "0")]]);
    assert_eq!(said("[hami]", &none, false), "as it is", "a count of 0 is no GPU there either");
}

#[test]
fn hami_memory_is_read_where_it_is_counted_in_devices() {
    let names = ResourceNames::default().in_units(divvy_api::Memory::mib(256)).expect("a short name");
    let of = |limits: &[(&str, &str)]| {
        let context = Context { names: &names, is_favoured: false };
        let translation =
            translate(&pod(&[limits]), &dialects("[hami]"), context).map_err(|refusal| refusal.to_string())?;
        Ok::<_, String>(translation.and_then(|mut translation| translation.limits.remove(0)))
    };
    let units = amounts(&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem-256mi", "12")]);
    assert_eq!(of(&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "3000")]), Ok(Some(units.clone())));
    assert_eq!(of(&[("nvidia.com/gpumem", "3000")]), Ok(Some(units)));
    assert_eq!(of(&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem-256mi", "12")]), Ok(None), "it is in our words");
    let both = of(&[("nvidia.com/gpumem", "3000"), ("nvidia.com/gpumem-256mi", "12")]);
    assert!(both.is_err_and(|refusal| refusal.contains("both say the same thing")));
    assert!(dialects("[hami]")[0].resources(&names).contains(&"nvidia.com/gpumem".to_owned()), "it is a condition");
    assert!(!dialects("[hami]")[0].resources(&ResourceNames::default()).contains(&"nvidia.com/gpumem".to_owned()));
}

#[test]
fn hami_limit_variables_of_a_pod_are_removed() {
    let limited = with_variable(pod(&[&[("nvidia.com/gpumem", "3000")]]), "CUDA_DEVICE_MEMORY_LIMIT_0", "9000m");
    let mut limited = with_variable(limited, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    // From a ConfigMap, say.
    limited.containers[0].variables.insert("CUDA_DEVICE_SM_LIMIT".to_owned(), None);
    let translation = translated_in("[hami]", &limited, false).expect("admitted").expect("translated");
    let expected = ["CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT"].map(str::to_owned).to_vec();
    assert_eq!(translation.variables, BTreeMap::from([(0, expected)]));
    let warning = "spec.containers[0].env CUDA_DEVICE_SM_LIMIT: removed: it limits nothing; the container's limits do";
    assert!(translation.warnings.iter().any(|said| said == warning), "{:?}", translation.warnings);
    let volcanos = with_variable(pod(&[&[("volcano.sh/vgpu-number", "1")]]), "CUDA_DEVICE_SM_LIMIT", "90");
    let said_of_volcanos = said("[volcano]", &volcanos, false);
    assert!(said_of_volcanos.contains("CUDA_DEVICE_SM_LIMIT: removed"), "{said_of_volcanos}");
    let other = with_variable(pod(&[&[]]), "CUDA_DEVICE_SM_LIMIT", "90");
    assert_eq!(said("[hami]", &other, false), "as it is", "a pod without a GPU");
}

#[test]
fn pod_that_hami_was_told_to_ignore_is_not_translated() {
    let mut pod = pod(&[&[("nvidia.com/gpucores", "30"), ("nvidia.com/priority", "0")]]);
    pod.labels.insert("hami.io/webhook".to_owned(), "ignore".to_owned());
    let warning =
        "-; ! label hami.io/webhook: ignore: the pod is not translated: its limits mean what they mean in Divvy";
    let waits = "; ! spec.containers[0].resources.limits[nvidia.com/priority]: stays, and no node offers it: the pod waits for ever";
    assert_eq!(said("[hami]", &pod, false), format!("{warning}{waits}"));
    pod.labels.insert("hami.io/webhook".to_owned(), "yes".to_owned());
    assert!(said("[hami]", &pod, false).starts_with("gpu 1, gpucores 30"));
}

#[test]
fn instances_stay_what_they_are_beside_other_words() {
    let (profile, amount) = ("nvidia.com/mig-3g.20gb", "1");
    assert_eq!(
        one("hami", &[(profile, amount), ("nvidia.com/gpu", "1")]),
        "as it is",
        "refused where requests are read"
    );
    assert_eq!(
        one("hami", &[(profile, amount), ("nvidia.com/priority", "1")]),
        "mig-3g.20gb 1; ! spec.containers[0].resources.limits[nvidia.com/priority]: has no effect: instances of a MIG profile are the container's alone"
    );
}

#[test]
fn limits_of_whole_gpus_can_not_be_taken_away() {
    let disabled = |limits: &[(&str, &str)]| {
        let pod = with_variable(pod(&[limits]), "CUDA_DISABLE_CONTROL", "true");
        says("[{name: hami, limitVariables: false, compute: cap}]", &pod)
    };
    assert_eq!(disabled(&[("nvidia.com/gpu", "1")]), "as it is", "it has none");
    assert!(
        disabled(&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "9")])
            .contains("CUDA_DISABLE_CONTROL: has no effect")
    );
}

#[test]
fn record_keeps_what_was_written() {
    let uuids = ["GPU-1d97b7c2-0b1c-4e2a-9a51-3f1f5a1a0001"; 4].join(",");
    let chosen = annotated(pod(&[&[("nvidia.com/gpu", "1")]]), &[("nvidia.com/use-gpuuuid", &uuids)]);
    let translation = translated_in("[hami]", &chosen, false).expect("admitted").expect("translated");
    assert_eq!(translation.record.annotations["nvidia.com/use-gpuuuid"], uuids);
    let long = "x".repeat(256 << 10);
    let copied = annotated(pod(&[&[("nvidia.com/gpu", "1")]]), &[("hami.io/vgpu-devices-allocated", &long)]);
    let translation = translated_in("[hami]", &copied, false).expect("admitted").expect("translated");
    assert!(
        translation.record.annotations["hami.io/vgpu-devices-allocated"].len() < 2000,
        "the API server bounds annotations"
    );
}
