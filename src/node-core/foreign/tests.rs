use divvy_api::{Card, Links, Memory, MigInstance};
use proptest::prelude::*;

use super::*;
use crate::inventory::MigPlace;
use crate::pod::Phase;

const A: &str = "GPU-64802636-abba-4985-bf52-71560a48ec7c";
const B: &str = "GPU-1d97f3a2-0b5e-4f7e-9a53-1c6a3d2f8e11";
const INSTANCES: [&str; 2] = ["MIG-0a3b4c5d-0b5e-4f7e-9a53-1c6a3d2f8e11", "MIG-1a3b4c5d-0b5e-4f7e-9a53-1c6a3d2f8e11"];

type Gpu = (Card, DeviceInfo);

fn card(id: &str, minor: impl Into<Option<u32>>) -> Gpu {
    let card = Card::healthy(id.parse().expect("a UUID"), Memory::mib(1000));
    (card, DeviceInfo { minor: minor.into(), ..DeviceInfo::default() })
}

/// The first of two GPUs cut into two instances.
fn partitioned() -> Vec<Gpu> {
    let instance = |(gi, id): (u32, &&str)| {
        let (card, device) = card(id, 0);
        let mig = MigInstance { profile: "1g.10gb".parse().expect("a profile"), by_profile: true };
        let place = MigPlace { gpu: A.parse().expect("a UUID"), gi, ci: 0 };
        (Card { mig: Some(mig), ..card }, DeviceInfo { place: Some(place), ..device })
    };
    (0..).zip(&INSTANCES).map(instance).chain([card(B, 1)]).collect()
}

/// A pod of an init container `prepare` and an app container `main`.
fn pod(annotations: &[(&str, &str)]) -> Pod {
    let text = |text: &str| text.replace("$A", A).replace("$B", B);
    let container =
        |name: &str, kind| ContainerSpec { name: name.to_owned(), kind, index: 0, limits: BTreeMap::default() };
    Pod {
        uid: "u".to_owned(),
        namespace: "default".to_owned(),
        name: "p".to_owned(),
        annotations: annotations.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect(),
        containers: vec![container("prepare", ContainerKind::Init), container("main", ContainerKind::App)],
        phase: Phase::Running,
        states: BTreeMap::default(),
    }
}

fn devices(container: &str, resource: &str, ids: &[&str]) -> DeviceRecord {
    DeviceRecord {
        namespace: "default".to_owned(),
        pod: "p".to_owned(),
        container: container.to_owned(),
        resource: resource.to_owned(),
        devices: ids.iter().map(|id| id.replace("$A", A).replace("$B", B)).collect(),
    }
}

fn found(pod: &Pod, record: DeviceRecord, node: &[Gpu]) -> String {
    let name = |card: CardId| card.as_str().replace(A, "A").replace(B, "B");
    let cards = ForeignDevices::new(pod, record).cards(pod, &Inventory::new(node.to_vec(), Links::default()));
    cards.map_or_else(|| "unclear".to_owned(), |cards| cards.into_iter().map(name).collect::<Vec<_>>().join(" "))
}

/// Resource, device IDs, annotations, and the cards that these mean.
type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

#[test]
fn cards_are_found_by_each_systems_own_words() {
    // B sorts before A.
    let node = [card(A, 0), card(B, 1)];
    let (hami, paradigm) = ("hami.io/vgpu-devices-allocated", "4pd.io/vgpu-ids-new");
    let (gpushare, ack) = ("ALIYUN_COM_GPU_MEM_IDX", "scheduler.framework.gpushare.allocation");
    let cases: &[Case<'_>] = &[
        ("nvidia.com/gpu", &["$A"], &[], "A"),
        ("nvidia.com/gpu", &["$A::1", "$B::0"], &[], "B A"),
        ("nvidia.com/gpu.shared", &["$B::31", "$B::2"], &[], "B"),
        ("nvidia.com/gpu", &["GPU-0"], &[], "GPU-0"),
        ("nvidia.com/gpu", &["nvidia0"], &[], "unclear"),
        ("nvidia.com/gpu", &[], &[], "unclear"),
        // The kubelet draws these IDs; what HAMi's scheduler has chosen is used.
        ("nvidia.com/gpu", &["$A-3"], &[(hami, "$B,NVIDIA-NVIDIA L4,3000,30:;")], "B"),
        ("nvidia.com/gpu", &["$A-3"], &[("hami.sh/vgpu-devices-allocated", "$B,NVIDIA,3000,30:")], "B"),
        ("nvidia.com/gpu", &["$A-3", "$A-0"], &[(paradigm, "$A,NVIDIA,3000,30:$B,NVIDIA,3000,30:;")], "B A"),
        ("nvidia.com/gpu", &["$A-3"], &[(hami, ";$B,NVIDIA,3000,30:;"), (paradigm, "$A,NVIDIA,1,1:;")], "B A"),
        ("nvidia.com/gpu", &["$A-3"], &[(hami, "$B[0-1],NVIDIA,3000,30:;")], "B"),
        ("nvidia.com/gpu", &["$A-3"], &[(hami, ";")], "unclear"),
        ("nvidia.com/gpu", &["$A-3"], &[(hami, "MLU-1,MLU370,1,1:;")], "unclear"),
        ("nvidia.com/gpu", &["$A-3", "$B-0"], &[], "B A"),
        ("nvidia.com/gpu", &["$A::3"], &[(hami, "$B,NVIDIA,3000,30:;")], "A"),
        // Another name of Divvy's own resource.
        ("example.com/card", &["$A-3"], &[(hami, "$B,NVIDIA,3000,30:;")], "B"),
        ("volcano.sh/vgpu-number", &["$A-3"], &[("volcano.sh/vgpu-ids-new", "$B,NVIDIA,3000,0:;")], "B"),
        ("volcano.sh/vgpu-number", &["$A-3"], &[], "unclear"),
        ("volcano.sh/gpu-memory", &["$A-3"], &[("volcano.sh/gpu-index", "1")], "B"),
        ("aliyun.com/gpu-mem", &["$A-_-3"], &[(gpushare, "1")], "B"),
        ("aliyun.com/gpu-mem", &["$A-_-3"], &[(gpushare, "-1")], "unclear"),
        ("aliyun.com/gpu-mem", &["$A-_-3"], &[(gpushare, "2")], "unclear"),
        ("aliyun.com/gpu-mem", &["$A-_-3"], &[], "unclear"),
        ("aliyun.com/gpu-mem", &["$A-_-3"], &[(ack, r#"{"0":{"0":3},"1":{"1":2}}"#)], "B A"),
        ("aliyun.com/gpu-mem", &["$A-_-3"], &[(ack, "{}")], "unclear"),
        ("nano-gpu.io/gpu-core", &["pgpu0-12"], &[("nano-gpu.io/gpu-main", "1")], "B"),
        ("nano-gpu/gpu-percent", &["nano-0-12"], &[("nano-gpu/container-main", "0")], "A"),
        ("nano-gpu/gpu-percent", &["nano-0-12"], &[("nano-gpu/container-other", "0")], "unclear"),
        ("elasticgpu.io/gpu-core", &["0-12"], &[("elasticgpu.io/container-main", "0, 1")], "B A"),
        ("elasticgpu.com/gpu-memory", &["0-12"], &[("elasticgpu.com/container-main", "first")], "unclear"),
        ("tencent.com/vcuda-core", &["0"], &[("tencent.com/predicate-gpu-idx-0", "1")], "B"),
        ("tencent.com/vcuda-core", &["0"], &[("tencent.com/predicate-gpu-idx-1", "1")], "unclear"),
        ("tke.cloud.tencent.com/qgpu-core", &["0"], &[], "unclear"),
        ("nvidia.com/vgpu-number", &["$A"], &[], "unclear"),
    ];
    for (resource, ids, annotations, expected) in cases {
        let found = found(&pod(annotations), devices("main", resource, ids), &node);
        assert_eq!(found, *expected, "{resource} {ids:?} {annotations:?}");
    }
}

#[test]
fn number_means_minor_or_index_of_a_complete_node() {
    let nano = |number: &str, node: &[Gpu]| {
        found(&pod(&[("nano-gpu/container-main", number)]), devices("main", "nano-gpu/gpu-percent", &["x"]), node)
    };
    assert_eq!(nano("0", &[card(A, 1), card(B, 0)]), "B A", "the minor of one and the index of the other");
    assert_eq!(nano("0", &[card(A, 0), card(B, 2)]), "unclear", "a GPU has gone");
    assert_eq!(nano("0", &[card(A, 0), card(B, None)]), "unclear");
    assert_eq!(nano("0", &[]), "unclear");
    assert_eq!(nano("0", &partitioned()), INSTANCES.join(" "));
    assert_eq!(nano("1", &partitioned()), "B");
}

#[test]
fn partitioned_gpu_stands_for_its_instances() {
    assert_eq!(found(&pod(&[]), devices("main", "nvidia.com/gpu", &["$A", "$B"]), &partitioned()), {
        format!("B {}", INSTANCES.join(" "))
    });
}

#[test]
fn init_container_is_not_the_app_container_of_its_position() {
    let pod = pod(&[("tencent.com/predicate-gpu-idx-0", "1"), ("nano-gpu/container-prepare", "0")]);
    let node = [card(A, 0), card(B, 1)];
    assert_eq!(found(&pod, devices("prepare", "tencent.com/vcuda-core", &["0"]), &node), "unclear");
    assert_eq!(found(&pod, devices("prepare", "nano-gpu/gpu-percent", &["0"]), &node), "A");
    assert_eq!(found(&pod, devices("gone", "nano-gpu/gpu-percent", &["0"]), &node), "unclear");
}

#[test]
fn foreign_devices_are_told_from_slots() {
    let names = ResourceNames::default();
    let is_foreign = |resource: &str, ids: &[&str]| is_foreign(&names, &devices("main", resource, ids));
    assert!(is_foreign("nvidia.com/gpu", &["$A-0"]));
    assert!(is_foreign("aliyun.com/gpu-mem", &["$A-_-0"]));
    assert!(is_foreign("nvidia.com/gpu.shared", &["$A::0"]));
    for slots in [["$A::0"], ["$A"], ["GPU-1-0"], ["nvidia0"], ["MIG-1"]] {
        assert!(!is_foreign("nvidia.com/gpu", &slots), "{slots:?}");
    }
    assert!(!is_foreign("rdma/hca", &["mlx5_0"]));
    let own = ResourceNames { count: "example.com/card".parse().expect("a resource"), ..names.clone() };
    assert!(super::is_foreign(&own, &devices("main", "nvidia.com/gpu", &["$A"])));
    assert!(hides_cards("nano-gpu/gpu-percent") && !hides_cards("nvidia.com/gpu") && !hides_cards("rdma/hca"));
}

#[test]
fn annotations_that_name_cards_are_read() {
    for key in ["hami.io/vgpu-devices-allocated", "nano-gpu/container-x", "ALIYUN_COM_GPU_MEM_IDX"] {
        assert!(divvy_systems::names_gpus(key), "{key}");
    }
    for key in ["hami.io/vgpu-node", "nano-gpu/assume", "ALIYUN_COM_GPU_MEM_IDX2", ""] {
        assert!(!divvy_systems::names_gpus(key), "{key}");
    }
    assert_eq!(keys("nano-gpu/gpu-percent"), "nano-gpu.io/gpu-<name> or nano-gpu/container-<name>");
}

/// Devices of all systems.
fn devices_of_systems() -> impl Iterator<Item = &'static divvy_systems::Devices> {
    divvy_systems::ALL.into_iter().flat_map(|system| system.devices)
}

proptest! {
    /// Texts of the systems' own pieces, in any order.
    #[test]
    fn any_text_has_cards_of_the_node_or_is_unclear(
        resource in prop::sample::select(devices_of_systems().flat_map(|devices| devices.resources).map(|name| name.replace('*', "x")).collect::<Vec<_>>()),
        ids in prop::collection::vec("(GPU-|MIG-|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|[-:_0-9]|\\PC){0,6}", 0..3),
        texts in prop::collection::vec("(GPU-[0-9a-f]{1,4}|[0-9]{1,12}|[],:;\\[{}\"-]|\\PC){0,8}", 0..13),
        minors in prop::collection::vec(prop::option::weighted(0.9, 0..4_u32), 0..5),
    ) {
        let keys = devices_of_systems().flat_map(|devices| devices.gpus.keys()).copied().chain(uuids_of_drawn_ids()).map(|key| key.replace(NAME, "main").replace(INDEX, "0"));
        let keys: Vec<String> = keys.collect();
        let annotations: Vec<(&str, &str)> = keys.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
        let node = minors.iter().enumerate().map(|(at, minor)| card(&format!("GPU-{at}"), *minor));
        let node = Inventory::new(node, Links::default());
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let pod = pod(&annotations);
        let cards = ForeignDevices::new(&pod, devices("main", &resource, &ids)).cards(&pod, &node);
        prop_assert!(cards.is_none_or(|cards| !cards.is_empty()));
    }
}
