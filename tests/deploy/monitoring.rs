//! `deploy/monitoring`: alerts and dashboard use metrics that exist, each alert has a paragraph and a test, and what serves
//! metrics is scraped. promtool says when alerts fire; `tests/playground` runs the dashboard's queries.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{configuration, objects};

/// Names of the series that docs/metrics.md has, which the programs' own tests compare with what they serve.
fn served() -> BTreeSet<String> {
    let text = objects::text("docs/metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `divvy_"));
    let cells = rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')).collect::<Vec<_>>());
    let series = cells.flat_map(|cells| match cells[2] {
        "histogram" => ["bucket", "count", "sum"].map(|end| format!("{}_{end}", cells[1])).into(),
        _ => vec![cells[1].to_owned()],
    });
    series.collect()
}

fn alerts() -> Vec<Value> {
    let rules = &objects::read("deploy/monitoring/rules.yaml")[0];
    let groups = rules["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// Divvy's metrics in an expression.
fn metrics_of(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("divvy_")).collect()
}

#[test]
fn alerts_use_metrics_that_the_programs_serve() {
    let served = served();
    for alert in alerts() {
        let expression = alert["expr"].as_str().unwrap();
        let own = metrics_of(expression);
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

#[test]
fn xid_alert_leaves_out_the_xids_that_daemons_ignore() {
    let ignored = configuration::fields(&configuration::node()).remove("ignoredXids").unwrap();
    let ignored = ignored.as_array().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join("|");
    let alert = alerts().into_iter().find(|alert| alert["alert"] == "DivvyGpuXid").unwrap();
    assert_eq!(alert["expr"].as_str().unwrap().matches(&format!("xid!~\"{ignored}\"")).count(), 3, "{ignored}");
}

#[test]
fn recording_rules_for_hami_use_metrics_that_the_programs_serve() {
    let (text, served) = (objects::text("deploy/monitoring/hami.yaml"), served());
    let used = metrics_of(&text);
    assert!(used.len() > 10 && used.iter().all(|name| served.contains(*name)), "{used:?}");
}

/// Entries of the adapter's configuration.
fn adapter_rules() -> Vec<Value> {
    objects::read("deploy/monitoring/prometheus-adapter.yaml")[0]["rules"].as_array().unwrap().clone()
}

/// Names of the metrics that the adapter makes, in the order of its rules.
fn adapted() -> Vec<String> {
    adapter_rules().iter().map(|rule| rule["name"]["as"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn adapter_rules_use_metrics_that_the_programs_serve() {
    let served = served();
    for rule in adapter_rules() {
        let [series, query] = ["seriesQuery", "metricsQuery"].map(|field| metrics_of(rule[field].as_str().unwrap()));
        assert!(series.iter().chain(&query).all(|name| served.contains(*name)), "{rule}");
        assert_eq!(series.len(), 1, "{rule}");
    }
}

#[test]
fn metrics_for_autoscalers_are_those_of_the_adapter_rules() {
    let table = objects::text("docs/metrics.md");
    let rows = table.lines().filter_map(|row| row.strip_prefix("| `gpu_")?.split_once('`'));
    assert_eq!(rows.map(|(name, _)| format!("gpu_{name}")).collect::<Vec<_>>(), adapted());
    let example = objects::read("deploy/examples/autoscaling.yaml");
    let autoscaler = objects::find(&example, "HorizontalPodAutoscaler /infer");
    for metric in autoscaler["spec"]["metrics"].as_array().unwrap() {
        let name = metric["pods"]["metric"]["name"].as_str().unwrap();
        assert!(adapted().iter().any(|adapted| adapted == name), "{name}");
    }
    let target = &autoscaler["spec"]["scaleTargetRef"];
    assert_eq!(target["name"], objects::find(&example, "Deployment /infer")["metadata"]["name"]);
}

#[test]
fn dashboard_panels_use_its_variables_and_served_metrics() {
    let text = objects::text("deploy/monitoring/grafana/divvy.json");
    let (dashboard, served) = (serde_json::from_str::<Value>(&text).unwrap(), served());
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let own = metrics_of(expression);
            assert!(!own.is_empty() && own.iter().all(|name| served.contains(*name)), "{expression}");
            assert_eq!(expression.matches("cluster=~\"$cluster\"").count(), own.len(), "{expression}");
            assert_eq!(target["datasource"]["uid"], "${datasource}");
        }
    }
}

#[test]
fn pods_that_serve_metrics_are_scraped() {
    let monitor = &objects::read("deploy/monitoring/pod-monitor.yaml")[0]["spec"];
    let names = monitor["selector"]["matchExpressions"][0]["values"].as_array().unwrap();
    let port = &monitor["podMetricsEndpoints"][0]["port"];
    let workloads = objects::all("deploy/manifests");
    let mut scraped = Vec::new();
    for pod in workloads.iter().filter_map(|workload| workload.pointer("/spec/template")) {
        let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|it| it["name"] == *port), "{ports:?}");
        scraped.push(pod["metadata"]["labels"]["app.kubernetes.io/name"].clone());
    }
    scraped.sort_by_key(ToString::to_string);
    let mut wanted = names.clone();
    wanted.sort_by_key(ToString::to_string);
    assert_eq!(scraped, wanted);
}
