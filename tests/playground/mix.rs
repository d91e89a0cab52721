//! The playground's own pods: every way to ask for cards, and the mistakes that people make.

use divvy_api::ContainerKind::{App, Init, Sidecar};
use divvy_api::names::annotation as key;
use rand::seq::IndexedRandom as _;
use rand::{Rng, RngExt as _};

use divvy_testkit::pods::Fate::{Refused, Waits};
use divvy_testkit::pods::PodShape;

const MEMORY: &[&str] = &["2Gi", "3000Mi", "4Gi", "6Gi", "8Gi", "12Gi", "16Gi"];
const PERCENT: &[&str] = &["10", "20", "25", "33", "50"];
const CORES: &[&str] = &["5", "10", "20", "25", "30", "40", "50"];

/// A pod that a node can run. `number` makes its name unique.
pub fn ordinary(rng: &mut impl Rng, number: u32) -> PodShape {
    let shape = match rng.random_range(0..100) {
        0..30 => one(rng, "infer", number, &["gpumem", "gpucores"]),
        30..40 => one(rng, "notebook", number, &["gpumem"]),
        40..50 => one(rng, "serve", number, &["gpumem-percentage", "gpucores"]),
        50..55 => one(rng, "bench", number, &["gpucores"]),
        55..65 => {
            PodShape::new(format!("train-{number}")).with(App, "main", &[("gpu", pick(rng, &["1", "1", "2", "4"]))])
        }
        65..73 => spread_over_cards(rng, number),
        73..88 => composite(rng, number),
        88..95 => of_another_system(number),
        _ => PodShape::new(format!("web-{number}")).with(App, "main", &[]),
    };
    with_wishes(rng, shape)
}

/// A pod with several containers.
pub fn composite(rng: &mut impl Rng, number: u32) -> PodShape {
    let (memory, cores) = (pick(rng, MEMORY), pick(rng, CORES));
    let part = [("gpu", "1"), ("gpumem", memory), ("gpucores", cores)];
    match rng.random_range(0..5) {
        0 => PodShape::new(format!("etl-{number}")).with(Init, "fetch", &[]).with(Init, "warm-up", &part).with(
            App,
            "main",
            &[("gpu", "1"), ("gpumem", "4Gi")],
        ),
        1 => PodShape::new(format!("mesh-{number}"))
            .with(Sidecar, "codec", &[("gpu", "1"), ("gpumem", "2Gi"), ("gpucores", "5")])
            .with(App, "main", &part),
        2 => PodShape::new(format!("pair-{number}"))
            .with(App, "left", &part)
            .with(App, "right", &[("gpu", "1"), ("gpumem-percentage", "10")])
            .with(App, "log", &[]),
        3 => PodShape::new(format!("probe-{number}")).with(Init, "check", &[("gpu", "2")]).with(
            App,
            "main",
            &[("gpu", "2"), ("gpumem", memory), ("gpucores", cores)],
        ),
        _ => PodShape::new(format!("stack-{number}"))
            .with(Init, "convert", &part)
            .with(Sidecar, "cache", &[("gpu", "1"), ("gpumem", "2Gi")])
            .with(Init, "compile", &[("gpu", "1"), ("gpucores", "50")])
            .with(App, "serve", &part)
            .with(App, "log", &[]),
    }
}

/// A pod that nobody must run, and of which somebody must say why: it contradicts itself, or is too much for every node.
/// Each kind in `turn`, so that a few pods show many.
pub fn wrong(turn: u32, number: u32) -> PodShape {
    let part = [("gpu", "1"), ("gpumem", "4Gi")];
    let shape = |fate, name: &str| PodShape { fate, ..PodShape::new(format!("{name}-{number}")) };
    let (wrong, never) =
        (|what: &str| shape(Refused, &format!("wrong-{what}")), |what: &str| shape(Waits, &format!("never-{what}")));
    match turn % 14 {
        0 => wrong("both-forms").with(App, "main", &[("gpu", "1"), ("gpumem", "4Gi"), ("gpumem-percentage", "25")]),
        1 => never("memory").with(App, "main", &[("gpu", "1"), ("gpumem", "900Gi")]),
        2 => wrong("policy").with(App, "main", &part).annotated(key::CARD_POLICY, "tight"),
        3 => wrong("suffix").with(App, "main", &[("gpu", "1"), ("gpumem", "8G")]),
        4 => never("cards").with(App, "main", &[("gpu", "16")]),
        5 => never("oversubscribe").with(App, "main", &part).annotated(key::OVERSUBSCRIBE, "true"),
        6 => wrong("cores").with(App, "main", &[("gpu", "1"), ("gpucores", "101")]),
        7 => never("model").with(App, "main", &part).annotated(key::CARD_MODEL, "B300"),
        8 => wrong("card").with(App, "main", &part).annotated(key::CARD_UUID, "0"),
        9 => never("tier").with(App, "main", &part).annotated(key::TIER, "shim"),
        // More than a node has slots: who is asked never gets to ask us.
        10 => never("count").with(App, "main", &[("gpu", "1024"), ("gpumem", "1Gi")]),
        11 => wrong("percentage").with(App, "main", &[("gpu", "1"), ("gpumem-percentage", "120")]),
        12 => wrong("two-kinds").with(App, "main", &[("gpu", "1"), ("mig-1g.10gb", "1")]),
        _ => {
            let request = r#"{"version":"v1","containers":{"main":{"cards":1,"memory":"2Gi","cores":0}}}"#;
            wrong("request").with(App, "main", &[("gpu", "1"), ("gpumem", "4096")]).annotated(key::REQUEST, request)
        }
    }
}

/// A pod of each system whose words are translated in turn, and what is to become of it.
fn of_another_system(turn: u32) -> PodShape {
    let pod = |system: &str, limits: &[(&str, &str)]| {
        let limits: Vec<_> = [("gpu", "1")].into_iter().chain(limits.iter().copied()).collect();
        PodShape::new(format!("{system}-{turn}")).with(App, "main", &limits)
    };
    match turn % 11 {
        0 => pod("hami", &[("gpumem", "3000"), ("gpucores", "30")])
            .written(&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "3000"), ("nvidia.com/gpucores", "30")], &[]),
        1 => pod("nano", &[("gpumem", "1024"), ("gpucores", "20")])
            .written(&[("nano-gpu.io/gpu-core", "20"), ("nano-gpu.io/gpu-memory", "1")], &[]),
        2 => pod("elastic", &[("gpumem", "256")]).written(&[("elasticgpu.io/gpu-memory", "256")], &[]),
        3 => pod("gpushare", &[("gpumem", "3072")]).written(&[("aliyun.com/gpu-mem", "3")], &[]),
        4 => pod("by-model", &[])
            .written(&[("nvidia.com/gpu", "1")], &[("nvidia.com/gpu.model", "NVIDIA H100 80GB HBM3")]),
        5 => pod("gpu-manager", &[("gpumem", "4096"), ("gpucores", "50")])
            .written(&[("tencent.com/vcuda-core", "50"), ("tencent.com/vcuda-memory", "16")], &[]),
        6 => pod("volcano", &[("gpumem", "2000")])
            .written(&[("volcano.sh/vgpu-number", "1"), ("volcano.sh/vgpu-memory", "2000")], &[]),
        7 => pod("kai", &[("gpumem-percentage", "25")]).written(&[], &[("gpu-fraction", "0.25")]),
        8 => pod("koordinator", &[("gpumem-percentage", "30"), ("gpucores", "30")]).written(
            &[
                ("koordinator.sh/gpu.shared", "1"),
                ("koordinator.sh/gpu-core", "30"),
                ("koordinator.sh/gpu-memory-ratio", "30"),
            ],
            &[],
        ),
        9 => pod("vgpu-manager", &[("gpumem", "1024"), ("gpucores", "20")]).written(
            &[("nvidia.com/vgpu-number", "1"), ("nvidia.com/vgpu-cores", "20"), ("nvidia.com/vgpu-memory", "1024")],
            &[],
        ),
        _ => pod("time-slicing", &[("gpumem-percentage", "25")]).written(&[("nvidia.com/gpu.shared", "1")], &[]),
    }
}

fn one(rng: &mut impl Rng, name: &str, number: u32, amounts: &[&'static str]) -> PodShape {
    let amounts = amounts.iter().map(|name| (*name, amount(rng, name)));
    let limits: Vec<_> = [("gpu", "1")].into_iter().chain(amounts).collect();
    PodShape::new(format!("{name}-{number}")).with(App, "main", &limits)
}

fn spread_over_cards(rng: &mut impl Rng, number: u32) -> PodShape {
    let limits = [("gpu", pick(rng, &["2", "2", "3", "4"])), ("gpumem", pick(rng, MEMORY)), ("gpucores", "25")];
    PodShape::new(format!("ring-{number}")).with(App, "main", &limits)
}

/// One pod in five says more than amounts.
fn with_wishes(rng: &mut impl Rng, shape: PodShape) -> PodShape {
    match rng.random_range(0..30) {
        0 => shape.annotated(key::CARD_MODEL, pick(rng, &["H100", "H100,L40S", "V100"])),
        1 => shape.annotated(key::AVOID_CARD_MODEL, "V100"),
        2 => shape.annotated(key::NUMA, "prefer"),
        3 => shape.annotated(key::NUMA, "strict"),
        4 => shape.annotated(key::CARD_POLICY, pick(rng, &["binpack", "spread", "topology", "random"])),
        5 => shape.annotated(key::CARD_POLICY, "least-fragmentation").annotated(key::NODE_POLICY, "spread"),
        _ => shape,
    }
}

fn amount(rng: &mut impl Rng, resource: &str) -> &'static str {
    pick(
        rng,
        match resource {
            "gpumem" => MEMORY,
            "gpumem-percentage" => PERCENT,
            _ => CORES,
        },
    )
}

fn pick(rng: &mut impl Rng, from: &[&'static str]) -> &'static str {
    from.choose(rng).expect("no list here is empty")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn equal_seeds_make_equal_pods() {
        let pods = |seed| {
            let rng = &mut StdRng::seed_from_u64(seed);
            (0..50).flat_map(|n| [ordinary(rng, n), wrong(n, n)]).collect::<Vec<_>>()
        };
        assert_eq!(pods(7), pods(7));
        assert_ne!(pods(7), pods(8));
    }

    #[test]
    fn every_kind_of_pod_occurs_and_ordinary_ones_make_sense() {
        let rng = &mut StdRng::seed_from_u64(1);
        let pods: Vec<_> = (0..1000).map(|number| ordinary(rng, number)).collect();
        let kinds: BTreeSet<_> = pods.iter().filter_map(|pod| pod.name.split('-').next()).collect();
        let all = "bench by elastic etl gpu gpushare hami infer kai koordinator mesh nano notebook pair probe ring serve \
                   stack time train vgpu volcano web";
        assert_eq!(kinds.into_iter().collect::<Vec<_>>().join(" "), all);
        for pod in pods {
            pod.requests().unwrap_or_else(|error| panic!("{}: {error}", pod.name));
        }
    }
}
