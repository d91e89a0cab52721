//! Every row of what other systems' users write, and every trap: the limits that come out, or the words of the refusal.

pub(crate) use divvy_api::names::annotation as key;
use divvy_api::quantity::parse_bytes;
use proptest::prelude::*;

use super::*;

pub(crate) fn dialects(text: &str) -> Vec<Dialect> {
    serde_saphyr::from_str(text).expect(text)
}

pub(crate) fn amounts(pairs: &[(&str, &str)]) -> Amounts {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
}

/// A pod of containers with these limits, and requests as the API server derives them.
pub(crate) fn pod(containers: &[&[(&str, &str)]]) -> Pod {
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

pub(crate) fn annotated(mut pod: Pod, annotations: &[(&str, &str)]) -> Pod {
    pod.annotations.extend(amounts(annotations));
    pod
}

pub(crate) fn with_variable(mut pod: Pod, name: &str, text: &str) -> Pod {
    pod.containers[0].variables.insert(name.to_owned(), Some(text.to_owned()));
    pod
}

/// What becomes of a pod where these are on.
pub(crate) fn translate(pod: &Pod, dialects: &[Dialect], context: Context<'_>) -> Result<Option<Translation>, Refusal> {
    spoken(pod, dialects, context.names)?.map_or(Ok(None), |dialect| dialect.translate(pod, context))
}

pub(crate) fn translated_in(text: &str, pod: &Pod, is_favoured: bool) -> Result<Option<Translation>, Refusal> {
    let names = ResourceNames::default();
    translate(pod, &dialects(text), Context { names: &names, is_favoured })
}

/// What becomes of a pod, in a line: limits container by container, our annotations, warnings.
pub(crate) fn says(text: &str, pod: &Pod) -> String {
    said(text, pod, true)
}

pub(crate) fn said(text: &str, pod: &Pod, is_favoured: bool) -> String {
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

pub(crate) fn one(dialect: &str, limits: &[(&str, &str)]) -> String {
    says(&format!("[{dialect}]"), &pod(&[limits]))
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
fn configuration_names_dialects() {
    for name in ALL.map(|system| system.name) {
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
    assert!(check(&dialects(&all()), &names).is_ok());
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
fn all() -> String {
    let settings = |system: &System| match system.name {
        "hami" => "{name: hami, memoryFactor: 2}",
        "time-slicing" => "{name: time-slicing, replicas: 4}",
        "tensor-fusion" => "{name: tensor-fusion, tflops: 100}",
        name => name,
    };
    format!("[{}]", ALL.map(settings).join(", "))
}

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
    let own = dialect.system().words.requests.iter().flat_map(|key| match key {
        Key::Is(_) => Vec::new(),
        Key::OfContainer(start, infix) => ["c0", "c1"]
            .into_iter()
            .flat_map(|name| ["request", "limit"].map(|end| format!("{start}{name}{infix}{end}")))
            .collect(),
    });
    dialect.system().words.annotations.iter().map(ToString::to_string).chain(own).collect()
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let all = dialects(&all());
    let names = ResourceNames::default();
    let resources: Vec<String> = all.iter().flat_map(|dialect| dialect.resources(&names)).collect();
    let ours = ["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "cpu"];
    let keys: Vec<String> = all.iter().flat_map(written_keys).collect();
    let amount =
        prop_oneof!["[0-9]{1,3}", "[0-9]{1,2}(Gi|Mi|k|G|m)?", "\\PC{0,6}", Just("18446744073709551615".to_owned())];
    let value =
        prop_oneof!["[0-9.]{1,4}", "[1-3]Gi", "(binpack|spread|true|offline|mig|numa|c0|A10|soft)", "\\PC{0,12}"];
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
            // TensorFusion changes no other pods.
            pod.labels.insert("tensor-fusion.ai/enabled".to_owned(), "true".to_owned());
            Pod { annotations, ..pod }
        })
    })
}

proptest! {
    // Without a file of failures: it would stand in src/, where every folder is a crate.
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn translating_twice_changes_nothing(pod in any_pod(), is_favoured: bool) {
        let Ok(Some(translation)) = translated_in(&all(), &pod, is_favoured) else { return Ok(()) };
        let after = applied(&pod, &translation);
        match translated_in(&all(), &after, is_favoured) {
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
        let Ok(Some(translation)) = translated_in(&all(), &pod, is_favoured) else { return Ok(()) };
        let after = applied(&pod, &translation);
        let names = ResourceNames::default();
        for dialect in dialects(&all()) {
            for name in dialect.resources(&names) {
                prop_assert!(!after.containers.iter().any(|container| container.names(&name)), "{name}");
            }
            for key in dialect.system().words.annotations {
                prop_assert!(!after.annotations.contains_key(*key), "{key}");
            }
            let requesting: Vec<_> = dialect.requesting(&after.annotations).collect();
            prop_assert!(requesting.is_empty(), "{requesting:?}");
        }
    }
}

#[test]
fn memory_with_a_decimal_suffix_is_told_what_to_write() {
    let refused = "refused: spec.containers[0].resources.limits[nvidia.com/gpumem]: 8G: is not a whole number: write it as a number of MiB, or with a binary suffix such as 8Gi";
    assert_eq!(said("[hami]", &pod(&[&[("nvidia.com/gpumem", "8G")]]), false), refused);
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
fn every_system_has_a_page_and_every_page_a_system() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let overview = std::fs::read_to_string(format!("{root}docs/dialects/README.md")).expect("the overview");
    for system in ALL {
        assert!(std::fs::exists(format!("{root}{}", system.page())).expect("a file system"), "{}", system.page());
        assert!(
            overview.contains(&format!("[`{0}`]({0}.md)", system.name)),
            "docs/dialects/README.md: {}",
            system.name
        );
    }
    for file in std::fs::read_dir(format!("{root}docs/dialects")).expect("the pages") {
        let path = file.expect("a page").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        assert!(name == "README" || System::named(name).is_some(), "{} is of no system", path.display());
    }
}

#[test]
fn records_of_systems_do_not_contradict_each_other() {
    let mut names = BTreeMap::new();
    for system in ALL {
        assert_eq!(names.insert(system.name, system.title), None, "{} twice", system.name);
        for pattern in system.devices.iter().flat_map(|devices| devices.resources) {
            let resource = pattern.trim_end_matches('*');
            let others = ALL.iter().filter(|other| other.name != system.name).flat_map(|other| other.devices);
            let mut patterns = others.flat_map(|devices| devices.resources);
            assert!(!patterns.any(|other| is_meant(other, resource)), "{resource}: whose?");
        }
    }
}
