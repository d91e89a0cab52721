use std::path::Path;
use std::sync::atomic::AtomicU64;

use divvy_simulate::churn::Unplaced;

use super::*;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulate/tests/trace");

/// A report of the trace, whose decisions took no time.
fn report(policies: &[&str], churn: Option<f64>, unplaced: Unplaced) -> Report {
    let file = |name: &str| Path::new(TRACE).join(name);
    let workload = Arc::new(Workload::read(&file("nodes.csv"), &file("pods.csv")).expect("sound"));
    let settings = Settings {
        policies: policies.iter().map(|name| policy(name).expect("a policy")).collect(),
        seeds: vec![1, 2, 3],
        until: 120,
        churn,
        unplaced,
        scheduler: Scheduler { ties: Ties::Fixed, shortlist: SHORTLIST },
    };
    let outcomes = study::study(&workload, &settings, &AtomicU64::default());
    let mut report = Report::of(&workload, &settings, &outcomes);
    for policy in &mut report.policies {
        (policy.decision_us.p50, policy.decision_us.p99) = (12.3, 45.6);
    }
    report
}

#[test]
fn report_is_shown_as_tables() {
    insta::assert_snapshot!(
        "tables",
        show::tables(&report(&["best-fit", "fgd", "least-fragmentation"], Some(0.9), Unplaced::Dropped))
    );
    let filling = report(&["random"], None, Unplaced::Dropped);
    assert!(!show::tables(&filling).contains("come and go"));
    let tables = show::tables(&filling);
    assert!(tables.starts_with("26 nodes with 101 GPUs, 240 pods; 3 runs"), "{tables}");
}

#[test]
fn wait_of_pods_is_shown_where_they_wait() {
    insta::assert_snapshot!("waiting", show::tables(&report(&["best-fit"], Some(0.9), Unplaced::Waits)));
}

#[test]
fn invalid_policies_and_loads_name_the_expected_values() {
    assert_eq!(policy("fgd"), Ok(Name::Fgd));
    assert!(policy("best").expect_err("unknown").contains("best-fit, packing, random, fgd, least-fragmentation"));
    assert_eq!(load("0.95"), Ok(0.95));
    for text in ["", "0", "-1", "11", "NaN", "inf", "much"] {
        assert!(load(text).is_err(), "{text}");
    }
}
