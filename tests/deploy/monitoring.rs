//! The alerts of `deploy/monitoring`: metrics that exist, and a paragraph and a test for each. promtool says when they fire.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::objects;

/// What the programs serve, as their own tests have recorded it.
const SERVED: [&str; 2] = [
    "src/node/tests/daemon/snapshots/daemon__pages__metrics_readyz_and_configz_answer.snap",
    "webhook/tests/process/snapshots/process__starting__metrics.snap",
];

/// Names of the series, from lines such as `# TYPE divvy_leader gauge`.
fn served() -> BTreeSet<String> {
    let text = SERVED.map(objects::text).concat();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let series = types.flat_map(|(name, kind)| match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "count", "sum"].map(|end| format!("{name}_{end}")).into(),
        _ => vec![name.to_owned()],
    });
    series.collect()
}

fn alerts() -> Vec<Value> {
    let rules = &objects::read("deploy/monitoring/rules.yaml")[0];
    let groups = rules["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

#[test]
fn alerts_use_metrics_that_the_programs_serve() {
    let served = served();
    for alert in alerts() {
        let expression = alert["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let own: Vec<&str> = words.filter(|word| word.starts_with("divvy_")).collect();
        assert!(own.iter().all(|name| served.contains(*name)), "{own:?} of {expression}");
        // Those of kube-state-metrics and kube-apiserver.
        let is_others = ["kube_", "aggregator_"].iter().any(|prefix| expression.contains(prefix));
        assert!(!own.is_empty() || is_others, "{expression}");
    }
}

#[test]
fn every_alert_is_explained_and_tested() {
    let (operate, tests) = (objects::text("docs/operate.md"), objects::text("deploy/monitoring/tests.yaml"));
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(operate.contains(&format!("\n#### {name}\n")), "docs/operate.md has no paragraph on {name}");
        assert!(tests.contains(&format!("alertname=\"{name}\",severity=")), "{name} isn't tested");
        let annotations = &alert["annotations"];
        assert_eq!(annotations["runbook"], format!("docs/operate.md#{}", name.to_lowercase()));
        assert!(annotations["summary"].is_string() && annotations["description"].is_string(), "{name}");
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
    }
    let explained = operate.matches("\n#### Divvy").count();
    assert_eq!(explained, alerts().len(), "docs/operate.md explains an alert that isn't there");
}
