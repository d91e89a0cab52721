//! Crates depend in one direction, and the daemon's core can't name an HTTP error, a gRPC type or a Kubernetes client.

use std::fmt::Write;

use crate::workspace::{Crate, crates};

/// Which of Divvy's crates each of Divvy's crates may depend on. Crates below `tests` may use all of them.
const ALLOWED: &[(&str, &[&str])] = &[
    ("divvy-region", &[]),
    ("divvy-api", &["divvy-region"]),
    ("divvy-proto", &[]),
    ("divvy-shim", &["divvy-region"]),
    ("divvy-placement", &["divvy-api"]),
    ("divvy-runtime", &["divvy-api"]),
    ("divvy-mps", &["divvy-api", "divvy-runtime"]),
    ("divvy-node-core", &["divvy-api", "divvy-placement", "divvy-systems"]),
    (
        "divvy-node",
        &[
            "divvy-api",
            "divvy-mps",
            "divvy-node-core",
            "divvy-placement",
            "divvy-proto",
            "divvy-region",
            "divvy-runtime",
            "divvy-systems",
        ],
    ),
    ("divvy-systems", &["divvy-api"]),
    ("divvy-index", &["divvy-api", "divvy-placement"]),
    ("divvy-simulate", &["divvy-api", "divvy-index", "divvy-placement"]),
    (
        "divvy-kubectl",
        &["divvy-api", "divvy-index", "divvy-placement", "divvy-runtime", "divvy-simulate", "divvy-systems"],
    ),
    ("divvy-webhook", &["divvy-api", "divvy-index", "divvy-placement", "divvy-runtime", "divvy-systems"]),
];

/// What crates must not depend on, because they decide and leave talking to others.
const BANNED: &[(&str, &[&str])] = &[
    ("divvy-api", &["axum", "hyper", "nvml-wrapper", "tokio", "tonic"]),
    ("divvy-placement", &["axum", "hyper", "kube", "nvml-wrapper", "tokio", "tonic"]),
    ("divvy-systems", &["axum", "hyper", "kube", "nvml-wrapper", "tokio", "tonic"]),
    ("divvy-index", &["axum", "hyper", "kube", "nvml-wrapper", "tokio", "tonic"]),
    ("divvy-node-core", &["axum", "hyper", "kube", "nvml-wrapper", "tokio", "tonic"]),
];

#[test]
fn dependencies_point_one_way() {
    let mut offenders = String::new();
    for krate in crates().iter().filter(|krate| krate.is_product()) {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == krate.name) else {
            writeln!(
                offenders,
                "{}: unknown crate: say in tests/structure/crates.rs what it may depend on",
                krate.name
            )
            .unwrap();
            continue;
        };
        for dependency in ours(krate).filter(|dependency| !allowed.contains(dependency)) {
            writeln!(offenders, "{} depends on {dependency}; it may depend on: {}", krate.name, allowed.join(", "))
                .unwrap();
        }
    }
    assert!(offenders.is_empty(), "dependencies against the layers:\n{offenders}");
}

#[test]
fn deciding_crates_do_no_io() {
    let mut offenders = String::new();
    for krate in crates() {
        let banned = BANNED.iter().filter(|(name, _)| *name == krate.name).flat_map(|(_, banned)| *banned);
        for banned in banned.filter(|banned| krate.dependencies.iter().any(|it| it == *banned)) {
            writeln!(offenders, "{} depends on {banned}", krate.name).unwrap();
        }
    }
    assert!(offenders.is_empty(), "dependencies that belong into an adapter:\n{offenders}");
}

fn ours(krate: &Crate) -> impl Iterator<Item = &str> {
    let ours = |name: &&String| name.starts_with("divvy-") || name.starts_with("fake-");
    krate.dependencies.iter().filter(ours).map(String::as_str)
}
