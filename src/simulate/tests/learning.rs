//! The policy of the benches that learns.

use std::path::Path;
use std::sync::Arc;

use divvy_api::annotation::PolicyName;
use divvy_simulate::Watch;
use divvy_simulate::churn::Churned;
use divvy_simulate::policy::{Name, Scheduler, Ties};
use divvy_simulate::study::{Outcome, Settings, study, study_with};
use divvy_simulate::workload::Workload;

use learning::Learning;

#[path = "../benches/packing/learning.rs"]
mod learning;

fn churned(outcomes: Vec<Vec<Outcome>>) -> Vec<Option<Churned>> {
    outcomes.into_iter().flatten().map(|outcome| outcome.churned).collect()
}

#[test]
fn policies_learn_expected_requests_from_arrivals() {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace").join(name);
    let workload = Arc::new(Workload::read(&file("nodes.csv"), &file("pods.csv")).expect("sound"));
    let settings = Settings {
        policies: vec![Name::Product(PolicyName::LeastFragmentation)],
        seeds: vec![1, 2],
        until: 100,
        churn: Some(1.2),
        scheduler: Scheduler { ties: Ties::Random, shortlist: 16, is_stock: false },
    };
    let watch = Watch::default();
    let told = study(&workload, &settings, &watch).expect("not interrupted");
    let learned = |restarts_after| {
        let outcomes = study_with(&workload, &settings, &watch, &|_, cluster| {
            Box::new(Learning::new(&workload, cluster, settings.scheduler, restarts_after))
        });
        churned(outcomes.expect("not interrupted"))
    };
    assert_ne!(churned(told), learned(None));
    assert_ne!(learned(None), learned(Some(100)));
}
