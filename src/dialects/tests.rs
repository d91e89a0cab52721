//! Every row of what other systems' users write, and every trap: the limits that come out, or the words of the refusal.

use divvy_api::annotation::DialectOutput;
use divvy_api::names::annotation as key;
use divvy_api::quantity::parse_bytes;
use proptest::prelude::*;

use super::*;

fn dialects(text: &str) -> Vec<Dialect> {
    serde_saphyr::from_str(text).expect(text)
}

fn amounts(pairs: &[(&str, &str)]) -> Amounts {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
}

/// A pod of containers with these limits, and requests as the API server derives them.
fn pod(containers: &[&[(&str, &str)]]) -> Pod {
    let containers = containers.iter().enumerate().map(|(at, limits)| Container {
        field: format!("spec.containers[{at}]"),
        name: format!("c{at}"),
        is_app: true,
        limits: amounts(limits),
        requests: amounts(limits),
        ..Container::default()
    });
    Pod { containers: containers.collect(), ..Pod::default() }
}

fn annotated(mut pod: Pod, annotations: &[(&str, &str)]) -> Pod {
    pod.annotations.extend(amounts(annotations));
    pod
}

fn with_variable(mut pod: Pod, name: &str, text: &str) -> Pod {
    pod.containers[0].variables.insert(name.to_owned(), Some(text.to_owned()));
    pod
}

/// What becomes of a pod where these are on.
fn translate(pod: &Pod, dialects: &[Dialect], context: Context<'_>) -> Result<Option<Translation>, Refusal> {
    spoken(pod, dialects, context.names)?.map_or(Ok(None), |dialect| dialect.translate(pod, context))
}

fn translated_in(text: &str, pod: &Pod, is_favoured: bool) -> Result<Option<Translation>, Refusal> {
    let names = ResourceNames::default();
    translate(pod, &dialects(text), Context { names: &names, is_favoured })
}

/// What becomes of a pod, in a line: limits container by container, our annotations, warnings.
fn says(text: &str, pod: &Pod) -> String {
    said(text, pod, true)
}

fn said(text: &str, pod: &Pod, is_favoured: bool) -> String {
    let translation = match translated_in(text, pod, is_favoured) {
        Ok(None) => return "as it is".to_owned(),
        Ok(Some(translation)) => translation,
        Err(refusal) => return format!("refused: {refusal}"),
    };
    let short = |name: &str| name.strip_prefix("nvidia.com/").unwrap_or(name).to_owned();
    let container = |limits: &Option<Amounts>| match limits {
        None => "-".to_owned(),
        Some(limits) if limits.is_empty() => "none".to_owned(),
        Some(limits) => {
            limits.iter().map(|(name, amount)| format!("{} {amount}", short(name))).collect::<Vec<_>>().join(", ")
        }
    };
    let limits: Vec<String> = translation.limits.iter().map(container).collect();
    let ours = translation.annotations.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    let annotations = ours.map(|(key, value)| format!("; {}: {value}", key.strip_prefix("divvy.dev/").unwrap_or(key)));
    let warnings = translation.warnings.iter().map(|warning| format!("; ! {warning}"));
    [limits.join(" | ")].into_iter().chain(annotations).chain(warnings).collect()
}

fn one(dialect: &str, limits: &[(&str, &str)]) -> String {
    says(&format!("[{dialect}]"), &pod(&[limits]))
}

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
fn gpushare() {
    let mem = "aliyun.com/gpu-mem";
    assert_eq!(one("gpushare", &[(mem, "3")]), "gpu 1, gpumem 3072; card-policy: binpack");
    assert_eq!(one("{name: gpushare, unit: Mi}", &[(mem, "300")]), "gpu 1, gpumem 300; card-policy: binpack");
    let two = pod(&[&[(mem, "3")], &[(mem, "3")]]);
    assert_eq!(
        says("[gpushare]", &two),
        "gpu 1, gpumem 3072 | gpu 1, gpumem 3072; card-policy: binpack; same-card: true"
    );
    let spread = annotated(pod(&[&[(mem, "3")]]), &[(key::CARD_POLICY, "spread")]);
    assert_eq!(says("[gpushare]", &spread), "gpu 1, gpumem 3072");
    assert_eq!(
        one("gpushare", &[(mem, "4"), ("aliyun.com/gpu-core.percentage", "25")]),
        "gpu 1, gpucores 25, gpumem 4096; card-policy: binpack"
    );
    let mut ack = pod(&[&[(mem, "8")]]);
    ack.labels.insert("aliyun.com/gpu-count".to_owned(), "2".to_owned());
    assert_eq!(says("[gpushare]", &ack), "gpu 2, gpumem 4096; card-policy: binpack");
    ack.labels.insert("aliyun.com/gpu-count".to_owned(), "3".to_owned());
    assert!(says("[gpushare]", &ack).ends_with("8192Mi can't be divided by 3 GPUs: set a multiple of 3"));
    ack.labels.insert("aliyun.com/gpu-count".to_owned(), "many".to_owned());
    assert_eq!(
        says("[gpushare]", &ack),
        "refused: label aliyun.com/gpu-count: many: is not a number of GPUs: expected 1 to 1024"
    );
    let copied =
        annotated(pod(&[&[(mem, "3")]]), &[("ALIYUN_COM_GPU_MEM_IDX", "0"), ("ALIYUN_COM_GPU_MEM_ASSIGNED", "true")]);
    let translation = translated_in("[gpushare]", &copied, false).expect("admitted").expect("translated");
    assert_eq!(translation.annotations["ALIYUN_COM_GPU_MEM_IDX"], None, "of the pod that this was copied from");
    assert_eq!(translation.record.containers["c0"], amounts(&[(mem, "3")]));
}

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

#[test]
fn volcano_and_vgpu_manager() {
    let volcano = |limits: &[(&str, &str)]| one("volcano", limits);
    assert_eq!(
        volcano(&[
            ("volcano.sh/vgpu-number", "2"),
            ("volcano.sh/vgpu-memory", "3000"),
            ("volcano.sh/vgpu-cores", "50")
        ]),
        "gpu 2, gpucores 50, gpumem 3000"
    );
    assert_eq!(volcano(&[("volcano.sh/vgpu-number", "1")]), "gpu 1, gpumem-percentage 100", "beside others, as there");
    assert_eq!(
        volcano(&[("volcano.sh/vgpu-number", "1"), ("volcano.sh/vgpu-memory-percentage", "50")]),
        "gpu 1, gpumem-percentage 50"
    );
    assert_eq!(
        one("{name: volcano, memoryFactor: 10}", &[("volcano.sh/vgpu-number", "1"), ("volcano.sh/vgpu-memory", "30")]),
        "gpu 1, gpumem 300"
    );
    assert_eq!(volcano(&[("volcano.sh/gpu-memory", "1024")]), "gpu 1, gpumem 1024");
    assert_eq!(volcano(&[("volcano.sh/gpu-number", "2")]), "gpu 2");
    assert!(
        volcano(&[("volcano.sh/vgpu-number", "1"), ("volcano.sh/gpu-memory", "1")]).contains("both say the same thing")
    );
    assert!(volcano(&[("volcano.sh/vgpu-number", "1"), ("nvidia.com/gpu", "1")]).contains("both say the same thing"));
    let mig = annotated(pod(&[&[("volcano.sh/vgpu-number", "1")]]), &[("volcano.sh/vgpu-mode", "mig")]);
    assert_eq!(says("[volcano]", &mig), "gpu 1, gpumem-percentage 100; tier: mig");
    let manager = |limits: &[(&str, &str)]| one("vgpu-manager", limits);
    assert_eq!(
        manager(&[
            ("nvidia.com/vgpu-number", "1"),
            ("nvidia.com/vgpu-cores", "40"),
            ("nvidia.com/vgpu-memory", "4096")
        ]),
        "gpu 1, gpucores 40, gpumem 4096"
    );
}

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
fn kai_asks_by_annotation() {
    let kai = |annotations: &[(&str, &str)]| says("[kai]", &annotated(pod(&[&[], &[]]), annotations));
    assert_eq!(kai(&[("gpu-fraction", "0.5")]), "gpu 1, gpumem-percentage 50 | -");
    assert_eq!(kai(&[("gpu-fraction", "0.333"), ("gpu-fraction-num-devices", "2")]), "gpu 2, gpumem-percentage 33 | -");
    assert_eq!(kai(&[("gpu-memory", "4000"), ("gpu-fraction-container-name", "c1")]), "- | gpu 1, gpumem 4000");
    for fraction in ["1", "1.0", "0", "0.0", "0.001", "-0.5", "half", ".", ""] {
        assert!(kai(&[("gpu-fraction", fraction)]).starts_with("refused: annotation gpu-fraction: "), "{fraction}");
    }
    assert!(kai(&[("gpu-fraction", "0.5"), ("gpu-memory", "1")]).contains("both say the same thing"));
    assert!(kai(&[("gpu-memory", "4Gi")]).contains("is not a number of MiB"));
    assert!(kai(&[("gpu-fraction-num-devices", "2")]).contains("needs gpu-fraction or gpu-memory"));
    assert!(
        kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-container-name", "x")]).contains("x: is no container of the pod")
    );
    let both = annotated(pod(&[&[("nvidia.com/gpu", "1")]]), &[("gpu-fraction", "0.5")]);
    assert!(
        says("[kai]", &both)
            .contains("annotation gpu-fraction and spec.containers[0].resources.limits[nvidia.com/gpu] both say")
    );
}

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
    assert_eq!(told.record.outputs, [DialectOutput::LimitVariables]);
}

#[test]
fn traps_between_two_dialects_and_reviews() {
    let volcano = annotated(pod(&[&[("volcano.sh/vgpu-number", "1")]]), &[("volcano.sh/vgpu-mode", "mig")]);
    assert_eq!(says("[hami, volcano]", &volcano), "gpu 1, gpumem-percentage 100; tier: mig");
    let both = one(
        "volcano",
        &[("volcano.sh/vgpu-number", "1"), ("volcano.sh/vgpu-memory", "9"), ("volcano.sh/vgpu-memory-percentage", "5")],
    );
    assert!(
        both.starts_with("gpu 1, gpumem 9; ! spec.containers[0].resources.limits[volcano.sh/vgpu-memory-percentage]"),
        "{both}"
    );
    let unlimited = pod(&[&[("nvidia.com/gpu", "1"), ("nvidia.com/gpucores", "30")]]);
    let unlimited = with_variable(unlimited, "GPU_CORE_UTILIZATION_POLICY", "Disable");
    let hami = "[{name: hami, limitVariables: false, compute: cap, coresAlone: same-as-cores}]";
    assert_eq!(says(hami, &unlimited), "gpu 1, gpumem-percentage 30");
    let mut added = pod(&[&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "3072")], &[("aliyun.com/gpu-mem", "1")]]);
    added.containers[0].is_totalled = true;
    assert_eq!(says("[gpushare]", &added), "- | gpu 1, gpumem 1024; card-policy: binpack; same-card: true");
}

#[test]
fn two_systems_are_refused_with_both_fields() {
    let mixed = pod(&[&[("nano-gpu.io/gpu-core", "20")], &[("aliyun.com/gpu-mem", "3")]]);
    assert_eq!(
        says("[nano-gpu, gpushare]", &mixed),
        "refused: spec.containers[0].resources.limits[nano-gpu.io/gpu-core] is of nano-gpu and \
         spec.containers[1].resources.limits[aliyun.com/gpu-mem] of gpushare: a pod is translated from one system: remove the words of the other"
    );
    let ours = pod(&[&[("nano-gpu.io/gpu-core", "20"), ("nvidia.com/gpumem", "1Gi")]]);
    assert!(says("[nano-gpu]", &ours).ends_with("both say the same thing, or its opposite: remove one of them"));
    assert_eq!(says("[gpushare]", &pod(&[&[("nano-gpu.io/gpu-core", "20")]])), "as it is", "switched off");
}

#[test]
fn traps_of_elastic_gpu_and_gpushare() {
    let (core, memory) = ("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory");
    let qgpu = |limits: &[(&str, &str)]| one("elastic-gpu", limits);
    assert_eq!(
        qgpu(&[(core, "200"), (memory, "6")]),
        "gpu 2; ! spec.containers[0].resources.limits[tke.cloud.tencent.com/qgpu-memory]: has no effect beside whole GPUs"
    );
    assert_eq!(qgpu(&[(core, "160")]), "gpu 2, gpucores 80, gpumem-percentage 80");
    assert!(
        qgpu(&[(core, "240"), (memory, "50")]).ends_with("50: 51200Mi can't be divided by 3 GPUs: set a multiple of 3")
    );
    let class = |class: &str| {
        says("[elastic-gpu]", &annotated(pod(&[&[(memory, "6")]]), &[("tke.cloud.tencent.com/app-class", class)]))
    };
    assert_eq!(class("online"), "gpu 1, gpumem 6144");
    assert!(class("batch").ends_with("app-class: batch: is unknown: expected online or offline"));

    let percentage = |text: &str| {
        let key = "gpushare.alibabacloud.com/core-percentage";
        says("[gpushare]", &annotated(pod(&[&[("aliyun.com/gpu-mem", "4")]]), &[(key, text)]))
    };
    assert_eq!(percentage("25"), "gpu 1, gpucores 25, gpumem 4096; card-policy: binpack");
    assert!(percentage("101").ends_with("101: is not a percentage: expected 0 to 100"));
    assert_eq!(
        one("gpushare", &[("aliyun.com/gpu-core.percentage", "25")]),
        "gpu 1, gpucores 25, gpumem-percentage 25; card-policy: binpack"
    );
}

#[test]
fn traps_of_volcano_vgpu_manager_and_hami() {
    let volcano = |limits: &[(&str, &str)]| one("volcano", limits);
    assert_eq!(volcano(&[("volcano.sh/vgpu-cores", "40")]), "gpu 1, gpucores 40, gpumem-percentage 100");
    let mode = |mode: &str| {
        says("[volcano]", &annotated(pod(&[&[("volcano.sh/vgpu-number", "1")]]), &[("volcano.sh/vgpu-mode", mode)]))
    };
    assert_eq!(mode("mps"), "gpu 1, gpumem-percentage 100; tier: mps");
    assert!(mode("x").ends_with("x: is unknown: expected hami-core, mig or mps"));

    let manager = |limits: &[(&str, &str)]| one("vgpu-manager", limits);
    assert_eq!(manager(&[("nvidia.com/vgpu-number", "1")]), "gpu 1", "all compute too, as there");
    assert_eq!(one("{name: vgpu-manager, memoryFactor: 10}", &[("nvidia.com/vgpu-memory", "30")]), "gpu 1, gpumem 300");
    let beside = manager(&[("nvidia.com/vgpu-number", "1"), ("nvidia.com/gpu", "1")]);
    assert!(beside.contains("both say the same thing"), "{beside}");

    let hami = |key: &str, text: &str| {
        let written = annotated(pod(&[&[("nvidia.com/gpu", "1")]]), &[(key, text)]);
        says("[{name: hami, limitVariables: false, compute: cap}]", &written)
    };
    for (key, text, end) in [
        ("hami.io/numa-alignment", "strict", "-; numa: strict"),
        ("nvidia.com/numa-bind", "yes", "yes: is unknown: expected true or false"),
        ("hami.io/node-scheduler-policy", "best", "best: is unknown: expected binpack or spread"),
        ("hami.io/gpu-scheduler-policy", "spread", "-; card-policy: spread"),
        ("nvidia.com/vgpu-mode", "mps", "-; tier: mps"),
        ("nvidia.com/use-gputype", "A*", "A*: has a *, which is no part of a model's name"),
    ] {
        let said = hami(key, text);
        assert!(said.ends_with(end), "{key}={text}: {said}");
    }
    let part = [("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "3000"), ("nvidia.com/gpucores", "30")];
    for policies in ["mutex", "binpack,mutex"] {
        let said = says("[hami]", &annotated(pod(&[&part]), &[("hami.io/gpu-scheduler-policy", policies)]));
        assert!(
            said.ends_with("mutex has no counterpart: request whole GPUs for a pod that shares with none"),
            "{said}"
        );
    }
    let mut two = pod(&[&part, &part]);
    for (container, policy) in two.containers.iter_mut().zip(["default", "force"]) {
        container.variables.insert("GPU_CORE_UTILIZATION_POLICY".to_owned(), Some(policy.to_owned()));
    }
    let said = says("[{name: hami, limitVariables: false, compute: cap}]", &two);
    assert!(said.ends_with("cap: is not what another container says, and a pod has one policy"), "{said}");
}

#[test]
fn annotations_of_every_system_that_are_left_over_are_removed() {
    for (dialect, resource, amount, left_over) in [
        ("gpu-manager", "tencent.com/vcuda-core", "100", "tencent.com/gpu-assigned"),
        ("nano-gpu", "nano-gpu.io/gpu-core", "9", "nano-gpu/assume"),
        ("elastic-gpu", "elasticgpu.io/gpu-memory", "9", "elasticgpu.io/assumed"),
        ("volcano", "volcano.sh/vgpu-number", "1", "volcano.sh/vgpu-ids-new"),
        ("koordinator", "koordinator.sh/gpu", "50", "scheduling.koordinator.sh/device-allocated"),
        ("vgpu-manager", "nvidia.com/vgpu-number", "1", "nvidia.com/pre-allocated"),
    ] {
        let copied = annotated(pod(&[&[(resource, amount)]]), &[(left_over, "x")]);
        let translated = translated_in(&format!("[{dialect}]"), &copied, false).expect(dialect).expect(dialect);
        assert_eq!(translated.annotations[left_over], None, "{dialect}");
    }
}

#[test]
fn amounts_that_nothing_has_are_refused() {
    let ends = |dialect: &str, limits: &[(&str, &str)], end: &str| {
        let said = one(dialect, limits);
        assert!(said.ends_with(end), "{dialect}: {said}");
    };
    ends("nano-gpu", &[("nano-gpu.io/gpu-memory", "99999999999999999999")], "is out of range");
    ends("volcano", &[("volcano.sh/vgpu-number", "1025")], "at most 1024 GPUs can be requested");
    let (core, memory) = ("tencent.com/vcuda-core", "tencent.com/vcuda-memory");
    ends("gpu-manager", &[(core, "102500"), (memory, "1")], "102500: at most 1024 GPUs can be requested");
    ends("gpu-manager", &[(core, "150"), (memory, "1")], "or 100 for each whole GPU");
    ends("koordinator", &[("koordinator.sh/gpu", "102500")], "102500: at most 1024 GPUs can be requested");
    ends(
        "volcano",
        &[("volcano.sh/vgpu-number", "1"), ("volcano.sh/vgpu-memory-percentage", "101")],
        "101: a GPU has 100",
    );
    ends("gpushare", &[("aliyun.com/gpu-mem", "16276")], "16276: is more memory than any GPU has");
    let long = annotated(pod(&[&[]]), &[("gpu-fraction", &"0.5".repeat(90_000))]);
    assert!(says("[kai]", &long).ends_with("is longer than 4096 bytes"));
}

#[test]
fn memory_is_in_the_clusters_unit() {
    let names = ResourceNames::default().in_units(divvy_api::Memory::mib(256)).expect("a name");
    let context = Context { names: &names, is_favoured: false };
    let written = pod(&[&[("elasticgpu.io/gpu-memory", "300")]]);
    let translated = translate(&written, &dialects("[elastic-gpu]"), context).expect("admitted").expect("translated");
    assert_eq!(translated.limits[0], Some(amounts(&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem-256mi", "2")])));
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

#[test]
fn requests_follow_limits() {
    let mut alone = pod(&[&[("aliyun.com/gpu-mem", "3")]]);
    alone.containers[0].limits.clear();
    assert!(
        says("[gpushare]", &alone)
            .ends_with("requests[aliyun.com/gpu-mem]: 3: is a request without a limit: set the limit")
    );
    let mut other = pod(&[&[("aliyun.com/gpu-mem", "3")]]);
    other.containers[0].requests = amounts(&[("aliyun.com/gpu-mem", "2")]);
    assert!(says("[gpushare]", &other).contains("3: isn't the request, which is 2"));
    other.containers[0].requests = amounts(&[("aliyun.com/gpu-mem", "3000m")]);
    assert!(says("[gpushare]", &other).starts_with("gpu 1"), "the same quantity");
}

#[test]
fn configuration_names_dialects() {
    for name in Dialect::NAMES {
        let text = if name == "time-slicing" { "{name: time-slicing, replicas: 2}" } else { name };
        assert_eq!(dialects(&format!("[{text}]"))[0].name(), name);
    }
    let wrong = |text: &str| serde_saphyr::from_str::<Vec<Dialect>>(text).expect_err(text).to_string();
    assert!(wrong("[slurm]").contains("unknown variant `slurm`"), "{}", wrong("[slurm]"));
    assert!(wrong("[{name: hami, countAlon: whole}]").contains("countAlon"));
    assert!(wrong("[time-slicing]").contains("replicas"));
    assert!(wrong("[{name: time-slicing, replicas: 1}]").contains("1 replicas: expected 2 to 100"));
    assert!(wrong("[{name: nano-gpu, memoryUnit: 1G}]").contains("did you mean \"1Gi\""));
    let names = ResourceNames::default();
    assert!(check(&dialects("[hami, kai]"), &names).is_ok());
    assert!(check(&dialects("[kai, kai]"), &names).is_err());
    assert!(check(&dialects(ALL), &names).is_ok());
    let replicas_of = |resource: &str| {
        let list = format!("[volcano, {{name: time-slicing, replicas: 2, resource: {resource}}}]");
        check(&dialects(&list), &names).unwrap_err()
    };
    assert_eq!(
        replicas_of("nvidia.com/gpucores"),
        "dialects: time-slicing: nvidia.com/gpucores is a resource of Divvy's own"
    );
    assert_eq!(
        replicas_of("volcano.sh/vgpu-number"),
        "dialects: volcano and time-slicing both translate volcano.sh/vgpu-number"
    );
    let both = check(&dialects("[hami, {name: time-slicing, replicas: 2, resource: nvidia.com/gpu}]"), &names);
    assert_eq!(
        both,
        Err("dialects: hami and time-slicing both say what nvidia.com/gpu means: enable one of them".to_owned())
    );
    let written = serde_json::to_value(dialects("[{name: nano-gpu, memoryUnit: 256Mi}]")).expect("plain values");
    assert_eq!(written, serde_json::json!([{ "name": "nano-gpu", "memoryUnit": "256Mi" }]));
}

/// All systems at once.
const ALL: &str = "[{name: hami, memoryFactor: 2}, nano-gpu, elastic-gpu, gpushare, gpu-model, gpu-manager, volcano, kai, \
                   koordinator, vgpu-manager, {name: time-slicing, replicas: 4}]";

/// The pod as the webhook leaves it: our totals are its amounts now.
fn applied(pod: &Pod, translation: &Translation) -> Pod {
    let mut after = pod.clone();
    for (container, limits) in after.containers.iter_mut().zip(&translation.limits) {
        if let Some(limits) = limits {
            let names = ResourceNames::default();
            let is_gone = |name: &String| names.is_ours(name) || translation.resources.contains(name);
            container.limits.retain(|name, _| !is_gone(name));
            container.limits.extend(limits.clone());
            container.requests.clone_from(&container.limits);
        }
        // Limits of zero are no request, and are removed.
        let is_request =
            |(name, amount): (&String, &String)| ResourceNames::default().is_ours(name) && parse_bytes(amount) != Ok(0);
        container.is_totalled = container.limits.iter().any(is_request);
    }
    after.annotations.insert(key::DIALECT.to_owned(), annotation::encode(&translation.record));
    for (key, value) in &translation.annotations {
        match value {
            Some(value) => drop(after.annotations.insert(key.clone(), value.clone())),
            None => drop(after.annotations.remove(key)),
        }
    }
    after
}

/// Annotations that users of a system write, those of two containers among them.
fn written_keys(dialect: &Dialect) -> Vec<String> {
    let own = dialect.requesting_annotations().iter().flat_map(|key| match key {
        Key::Is(_) => Vec::new(),
        Key::OfContainer(start, infix) => ["c0", "c1"]
            .into_iter()
            .flat_map(|name| ["request", "limit"].map(|end| format!("{start}{name}{infix}{end}")))
            .collect(),
    });
    dialect.system().inputs().iter().map(ToString::to_string).chain(own).collect()
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let all = dialects(ALL);
    let names = ResourceNames::default();
    let resources: Vec<String> = all.iter().flat_map(|dialect| dialect.resources(&names)).collect();
    let ours = ["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "cpu"];
    let keys: Vec<String> = all.iter().flat_map(written_keys).collect();
    let amount =
        prop_oneof!["[0-9]{1,3}", "[0-9]{1,2}(Gi|Mi|k|G|m)?", "\\PC{0,6}", Just("18446744073709551615".to_owned())];
    let value = prop_oneof!["[0-9.]{1,4}", "[1-3]Gi", "(binpack|spread|true|offline|mig|numa|c0|A10)", "\\PC{0,12}"];
    (0..all.len()).prop_flat_map(move |of| {
        let theirs = all[of].resources(&names);
        let theirs = if theirs.is_empty() { vec!["nvidia.com/gpu".to_owned()] } else { theirs };
        let name = prop_oneof![
            8 => prop::sample::select(theirs),
            1 => prop::sample::select(resources.clone()),
            2 => prop::sample::select(ours.map(str::to_owned).to_vec()),
        ];
        let limits = prop::collection::btree_map(name, amount.clone(), 0..4);
        let container = (limits, prop::option::weighted(0.1, "(default|force|disable|x)"));
        let own = written_keys(&all[of]);
        let key = if own.is_empty() {
            prop::sample::select(keys.clone()).boxed()
        } else {
            prop_oneof![8 => prop::sample::select(own), 1 => prop::sample::select(keys.clone())].boxed()
        };
        let annotations = prop::collection::btree_map(key, value.clone(), 0..3);
        (prop::collection::vec(container, 1..3), annotations).prop_map(|(containers, annotations)| {
            let mut pod = pod(&vec![&[][..]; containers.len()]);
            for (container, (limits, policy)) in pod.containers.iter_mut().zip(containers) {
                container
                    .variables
                    .extend(policy.map(|policy| ("GPU_CORE_UTILIZATION_POLICY".to_owned(), Some(policy))));
                container.requests.clone_from(&limits);
                container.limits = limits;
            }
            Pod { annotations, ..pod }
        })
    })
}

proptest! {
    // Without a file of failures: it would stand in src/, where every folder is a crate.
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn translating_twice_changes_nothing(pod in any_pod(), is_favoured: bool) {
        let Ok(Some(translation)) = translated_in(ALL, &pod, is_favoured) else { return Ok(()) };
        let after = applied(&pod, &translation);
        match translated_in(ALL, &after, is_favoured) {
            Ok(None) => {}
            Ok(Some(again)) => {
                prop_assert!(again.limits.iter().all(Option::is_none), "{again:?}");
                prop_assert!(again.annotations.is_empty() && again.record.outputs.is_empty(), "{again:?}");
            }
            Err(refusal) => prop_assert!(false, "{refusal}"),
        }
    }

    #[test]
    fn nothing_foreign_is_left(pod in any_pod(), is_favoured: bool) {
        let Ok(Some(translation)) = translated_in(ALL, &pod, is_favoured) else { return Ok(()) };
        let after = applied(&pod, &translation);
        let names = ResourceNames::default();
        for dialect in dialects(ALL) {
            for name in dialect.resources(&names) {
                prop_assert!(!after.containers.iter().any(|container| container.names(&name)), "{name}");
            }
            for key in dialect.system().inputs() {
                prop_assert!(!after.annotations.contains_key(*key), "{key}");
            }
            let requesting: Vec<_> = dialect.requesting(&after.annotations).collect();
            prop_assert!(requesting.is_empty(), "{requesting:?}");
        }
    }
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
fn memory_with_a_decimal_suffix_is_told_what_to_write() {
    let refused = "refused: spec.containers[0].resources.limits[nvidia.com/gpumem]: 8G: is not a whole number: write it as a number of MiB, or with a binary suffix such as 8Gi";
    assert_eq!(said("[hami]", &pod(&[&[("nvidia.com/gpumem", "8G")]]), false), refused);
}

#[test]
fn kai_limits_beyond_the_request_are_told_to_have_no_effect() {
    let annotations = [
        ("gpu-memory", "4000"),
        ("gpu-memory.limit", "8Gi"),
        ("nvidia.com/container.c0.gpu-memory.limit", "8Gi"),
        ("nvidia.com/container.c0.gpu-memory.request", "4000Mi"),
        ("nvidia.com/container.c0.other", "left"),
    ];
    let pod = annotated(pod(&[&[]]), &annotations);
    assert_eq!(
        says("[kai]", &pod),
        "gpu 1, gpumem 4000; ! annotation gpu-memory.limit: has no effect: a pod has no more memory than it requests; \
         ! annotation nvidia.com/container.c0.gpu-memory.limit: has no effect: a pod has no more memory than it requests"
    );
    let translation = translated_in("[kai]", &pod, false).expect("admitted").expect("translated");
    let removed = translation.annotations.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.as_str());
    assert_eq!(removed.collect::<Vec<_>>(), annotations.map(|(key, _)| key)[..4]);
}

/// A container's own annotation of KAI.
fn own(end: &str) -> String {
    format!("nvidia.com/container.c1.{end}")
}

/// What becomes of a pod of two containers with these annotations, where `own.` stands for those of the second one.
fn kai_says(annotations: &[(&str, &str)]) -> String {
    let keys: Vec<String> =
        annotations.iter().map(|(key, _)| key.strip_prefix("own.").map_or_else(|| (*key).to_owned(), own)).collect();
    let annotations: Vec<(&str, &str)> =
        keys.iter().zip(annotations).map(|(key, (_, value))| (&**key, *value)).collect();
    says("[kai]", &annotated(pod(&[&[], &[]]), &annotations))
}

#[test]
fn kai_memory_of_a_container_is_its_request() {
    let (request, limit) = ("own.gpu-memory.request", "own.gpu-memory.limit");
    for (text, mib) in [
        ("512Mi", "512"),
        ("1Gi", "1024"),
        ("7680Mi", "7680"),
        ("4096M", "3907"),
        ("1048577", "2"),
        (" 1.5Gi ", "1536"),
    ] {
        assert_eq!(kai_says(&[(request, text)]), format!("- | gpu 1, gpumem {mib}"));
        assert_eq!(kai_says(&[(limit, text)]), format!("- | gpu 1, gpumem {mib}"), "it is the request too");
        assert_eq!(kai_says(&[(request, text), (limit, text)]), format!("- | gpu 1, gpumem {mib}"));
    }
    assert_eq!(
        kai_says(&[(request, "4Gi"), (limit, "8Gi")]),
        "- | gpu 1, gpumem 4096; ! annotation nvidia.com/container.c1.gpu-memory.limit: has no effect: a pod has no more memory than it requests"
    );
    assert_eq!(kai_says(&[(request, "1Gi"), ("gpu-fraction-num-devices", "2")]), "- | gpu 2, gpumem 1024");
    assert_eq!(kai_says(&[(request, "1Gi"), ("gpu-fraction-container-name", "c1")]), "- | gpu 1, gpumem 1024");
    let earlier = "nvidia.cdi.k8s.io/c1.gpu-memory.request";
    assert_eq!(kai_says(&[(earlier, "1Gi")]), "- | gpu 1, gpumem 1024");
    assert_eq!(kai_says(&[(earlier, "1Gi"), (request, "1024Mi")]), "- | gpu 1, gpumem 1024");
    let mut init = annotated(pod(&[&[], &[]]), &[("nvidia.com/container.c0.gpu-memory.request", "1Gi")]);
    init.containers[0].is_app = false;
    assert_eq!(says("[kai]", &init), "gpu 1, gpumem 1024 | -");
    assert_eq!(says("[nano-gpu]", &init), "as it is", "switched off");
}

#[test]
fn kai_memory_of_a_container_that_is_wrong_is_refused() {
    let (request, limit) = ("own.gpu-memory.request", "own.gpu-memory.limit");
    let of = |key: &str, text: &str, problem: &str| {
        let said = kai_says(&[(key, text)]);
        let key = key.strip_prefix("own.").map_or_else(|| key.to_owned(), own);
        assert_eq!(said, format!("refused: annotation {key}: {text}: {problem}"));
    };
    for key in [request, limit] {
        of(key, "4096", "is less than 1Mi: a number without a suffix is in bytes");
        of(key, "1048575", "is less than 1Mi: a number without a suffix is in bytes");
        of(key, "0", "is less than 1Mi: a number without a suffix is in bytes");
        of(key, "half", "is not an amount of memory: expected a quantity such as 8Gi");
        of(key, "-1Gi", "is not an amount of memory: expected a quantity such as 8Gi");
        of(key, "5Ti", "is more memory than any GPU has");
    }
    let unknown = "is unknown: expected nvidia.com/container.c1.gpu-memory.request or …limit";
    of("own.gpu-memory.requests", "1Gi", unknown);
    of("nvidia.com/container.c7.gpu-memory.request", "1Gi", "c7 is no container of the pod");
    let nobody = "names no container: expected nvidia.com/container.CONTAINER.gpu-memory.request";
    of("nvidia.com/container.gpu-memory.request", "1Gi", nobody);
    assert_eq!(
        kai_says(&[(request, "8Gi"), (limit, "4Gi")]),
        "refused: annotation nvidia.com/container.c1.gpu-memory.limit: 4Gi: is less than annotation nvidia.com/container.c1.gpu-memory.request requests: leave one of them out"
    );
    let other = "nvidia.com/container.c0.gpu-memory.request";
    assert!(kai_says(&[(other, "1Gi"), (limit, "1Gi")]).starts_with(&format!(
        "refused: annotation {}: 1Gi: is of another container than annotation {other}, and one can have",
        own("gpu-memory.limit")
    )));
}

#[test]
fn kai_memory_of_a_container_is_written_once() {
    let request = "own.gpu-memory.request";
    let twice = |first: &str, second: &str, said: &str| {
        let both = "both say the same thing, or its opposite: remove one of them";
        assert_eq!(said, format!("refused: annotation {first} and {second} {both}"));
    };
    let key = &format!("annotation {}", own("gpu-memory.request"));
    twice("gpu-fraction", key, &kai_says(&[("gpu-fraction", "0.5"), (request, "1Gi")]));
    let named = ("gpu-fraction-container-name", "c1");
    assert_eq!(kai_says(&[("gpu-memory", "1024"), (request, "1Gi"), named]), "- | gpu 1, gpumem 1024");
    twice("gpu-memory", key, &kai_says(&[("gpu-memory", "1000"), (request, "1Gi"), named]));
    twice("gpu-memory", key, &kai_says(&[("gpu-memory", "1024"), (request, "1Gi")]));
    let other = ("gpu-fraction-container-name", "c0");
    twice("gpu-fraction-container-name", key, &kai_says(&[(request, "1Gi"), other]));
    let earlier = "nvidia.cdi.k8s.io/c1.gpu-memory.request";
    twice(earlier, key, &kai_says(&[(earlier, "2Gi"), (request, "1Gi")]));
    let mut whole = annotated(pod(&[&[], &[("nvidia.com/gpu", "1")]]), &[(&own("gpu-memory.request"), "1Gi")]);
    let limit = "spec.containers[1].resources.limits[nvidia.com/gpu]";
    twice(&own("gpu-memory.request"), limit, &says("[kai]", &whole));
    whole.containers[1].limits = amounts(&[("nano-gpu.io/gpu-core", "20")]);
    assert!(says("[kai, nano-gpu]", &whole).contains("a pod is translated from one system"));
}

#[test]
fn kai_words_beside_a_containers_memory() {
    let beside = |key: &str, text: &str| kai_says(&[("own.gpu-memory.request", "1Gi"), (key, text)]);
    for key in ["own.gpu-compute.mode", "kai.scheduler/gpu-compute-sharing-mode"] {
        let written = key.strip_prefix("own.").map_or_else(|| key.to_owned(), own);
        assert_eq!(beside(key, "time-slicing"), "- | gpu 1, gpumem 1024");
        assert_eq!(
            beside(key, "sm-sharing"),
            format!(
                "- | gpu 1, gpumem 1024; ! annotation {written}: has no effect: how pods share compute is up to the isolation tier of the node"
            )
        );
        for text in ["mps", ""] {
            let problem = "is unknown: expected time-slicing or sm-sharing";
            assert_eq!(beside(key, text), format!("refused: annotation {written}: {text}: {problem}"));
        }
    }
    let portion = "kai.scheduler/container.c1.gpu-memory.portion.limit";
    assert_eq!(
        kai_says(&[("gpu-fraction", "0.5"), (portion, "0.9")]),
        format!(
            "gpu 1, gpumem-percentage 50 | -; ! annotation {portion}: has no effect: a pod has no more memory than it requests"
        )
    );
    // Whose they are without a request.
    assert_eq!(kai_says(&[("own.gpu-compute.mode", "sm-sharing"), (portion, "0.9")]), "as it is");
}

#[test]
fn kai_annotations_of_a_bound_pod_are_removed() {
    let (chosen, request, cdi) = (own("gpus.devices"), own("gpu-memory.request"), "nvidia.cdi.k8s.io/container.c1");
    let alone = annotated(pod(&[&[], &[]]), &[(cdi, "management.nvidia.com/gpu=all"), (&chosen, "GPU-0")]);
    assert_eq!(says("[kai]", &alone), "as it is", "it requests nothing");
    let copied = annotated(alone, &[(&request, "1Gi")]);
    assert_eq!(says("[kai]", &copied), "- | gpu 1, gpumem 1024", "silently");
    let translation = translated_in("[kai]", &copied, false).expect("admitted").expect("translated");
    assert_eq!(translation.annotations, [(request.clone(), None), (chosen.clone(), None)].into(), "CDI's stays");
    let fraction = [("gpu-fraction", "0.5"), ("gpu-fraction-container-name", "c1")];
    let fraction = annotated(copied, &fraction);
    assert_eq!(says("[kai]", &fraction), "- | gpu 1, gpumem-percentage 50", "of which the request is the binder's");
    let translation = translated_in("[kai]", &fraction, false).expect("admitted").expect("translated");
    assert!(translation.annotations.contains_key(&request) && translation.annotations.contains_key(&chosen));
}

#[test]
fn kai_traps() {
    let kai = |annotations: &[(&str, &str)]| says("[kai]", &annotated(pod(&[&[], &[]]), annotations));
    assert_eq!(
        kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-container-name", "c1")]),
        "- | gpu 1, gpumem-percentage 50"
    );
    assert_eq!(kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "2")]), "gpu 2, gpumem-percentage 50 | -");
    let refused =
        |text: &str, problem: &str| assert!(text.starts_with("refused: ") && text.contains(problem), "{text}");
    refused(&kai(&[("gpu-fraction-container-name", "c1")]), "needs gpu-fraction or gpu-memory");
    refused(&kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "0")]), "is not a number of GPUs");
    refused(&kai(&[("gpu-fraction", "1")]), "is not a part of a GPU");
    refused(&kai(&[("gpu-memory", "0")]), "is not a number of MiB");
    refused(&kai(&[("gpu-memory", "4Gi")]), "is not a number of MiB");
    refused(&kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-container-name", "c9")]), "is no container of the pod");
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

#[test]
fn count_of_zero_switches_a_gpu_off() {
    let hami = &[("nvidia.com/gpu", "0"), ("nvidia.com/gpumem", "1000"), ("nvidia.com/priority", "1")];
    assert_eq!(one("hami", hami), "none; priority: low");
    assert_eq!(one("volcano", &[("volcano.sh/vgpu-number", "0"), ("volcano.sh/vgpu-memory", "1000")]), "none");
    let manager = [("nvidia.com/vgpu-number", "0"), ("nvidia.com/vgpu-memory", "1000")];
    assert_eq!(one("vgpu-manager", &manager), "gpu 1, gpumem 1000", "as there");
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
