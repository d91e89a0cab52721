use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::*;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulate/tests/trace");

/// A report of the trace, whose decisions took no time.
fn report(policies: &[&str]) -> Report {
    let file = |name: &str| Path::new(TRACE).join(name);
    let workload = Arc::new(Workload::read(&file("nodes.csv"), &file("pods.csv")).expect("sound"));
    let policies = policies.iter().map(|name| policy(name).expect("a policy")).collect();
    let settings = Settings { policies, seeds: vec![1, 2, 3], until: 120 };
    let outcomes = study::study(&workload, &settings, &AtomicU64::default());
    let mut report = Report::new(&workload, &settings, &outcomes);
    for policy in &mut report.policies {
        (policy.decision_us.p50, policy.decision_us.p99) = (12.3, 45.6);
    }
    report
}

#[test]
fn report_is_shown_as_tables() {
    insta::assert_snapshot!("tables", show::tables(&report(&["best-fit", "binpack", "least-fragmentation"])));
}

#[test]
fn invalid_policies_and_runs_name_the_expected_values() {
    assert_eq!(policy("best-fit"), Ok(Name::BestFit));
    assert!(policy("best").expect_err("unknown").contains("best-fit, least-fragmentation"));
    assert_eq!(runs("3"), Ok(3));
    for text in ["", "0", "-1", "10001", "many"] {
        assert!(runs(text).is_err(), "{text}");
    }
}
