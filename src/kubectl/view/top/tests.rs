use divvy_api::usage::{ContainerRef, RegionUsage, ShareViolation, ViolationKind};
use divvy_api::{Cores, Share};

use super::*;

fn of(namespace: &str, pod: &str) -> ContainerRef {
    let text = str::to_owned;
    ContainerRef { pod_uid: text("u"), namespace: text(namespace), pod: text(pod), container: text("main") }
}

fn usage(
    pod: &str,
    card: &str,
    share: (u64, u32, bool),
    region: Option<RegionUsage>,
    driver: Option<u64>,
) -> ContainerUsage {
    let (memory, cores, exclusive) = share;
    ContainerUsage {
        of: of("team", pod),
        card: card.parse().expect("a UUID"),
        share: Share { memory: Memory::mib(memory), cores: Cores::new(cores), exclusive, ..Share::default() },
        region,
        driver_bytes: driver,
        overhead_bytes: if region.is_some() { 512 << 20 } else { 0 },
    }
}

#[test]
fn each_container_is_one_line() {
    let (a, b) = ("GPU-1d97b7c2-0b1c-4e2a-9a51-3f1f5a1a0001", "GPU-1d97b7c2-9999-4e2a-9a51-3f1f5a1a0002");
    let region = RegionUsage { used_bytes: 3 << 30, busy_percent: Some(29), processes: 2, ..RegionUsage::default() };
    let first = RegionUsage { busy_percent: None, ..region };
    let finding = ShareViolation {
        kind: ViolationKind::AboveShare.to_string(),
        card: a.parse().expect("a UUID"),
        of: Some(of("team", "zeta")),
        pids: vec![1],
        bytes: 1,
        seconds: 11,
        message: "it uses more".to_owned(),
    };
    let nodes = vec![
        NodeUsage {
            node: "n1".to_owned(),
            containers: vec![
                usage("zeta", a, (8192, 30, false), Some(region), Some(5 << 30)),
                usage("eta", a, (8192, 0, false), Some(first), None),
                usage("beta", b, (24_576, 100, true), None, Some(1000 << 20)),
            ],
            findings: vec![finding],
            unmeasured: None,
        },
        NodeUsage {
            node: "n2".to_owned(),
            containers: vec![usage("alpha", a, (100, 10, false), None, None)],
            unmeasured: Some("NVML is old".to_owned()),
            ..NodeUsage::default()
        },
    ];
    let report = TopReport { version: "v1", nodes };
    insta::assert_snapshot!(render(&report, true) + &warnings(&report).collect::<Vec<_>>().join("\n"));
    assert_eq!(render(&report, false).lines().count(), 4);
}
