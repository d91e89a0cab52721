//! Metrics as a program serves them, and as docs/metrics.md describes them.

use std::collections::{BTreeMap, BTreeSet};

/// The table.
const TABLE: &str = include_str!("../../docs/metrics.md");

/// Metrics by the names that Prometheus stores, those of a histogram without their ends.
pub type Metrics = BTreeMap<String, Metric>;

/// What is to be known of one metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metric {
    /// Gauge, counter or histogram.
    pub kind: String,
    /// Names of its labels; what a histogram tells its buckets by is none.
    pub labels: BTreeSet<String>,
}

/// Compares a page with the table: every metric of both, with its type and its labels. Each must have a value on the page.
pub fn compare(page: &str, program: &str) -> Result<(), String> {
    compare_with(TABLE, page, program)
}

fn compare_with(table: &str, page: &str, program: &str) -> Result<(), String> {
    let (served, documented) = (served(page)?, documented(table, program));
    let names: BTreeSet<_> = served.keys().chain(documented.keys()).collect();
    let differs = |name: &&&String| served.get(**name) != documented.get(**name);
    let differences = names.iter().filter(differs).map(|name| {
        let [here, there] = [&served, &documented].map(|metrics| metrics.get(*name));
        format!("{name}: served as {here:?}, in docs/metrics.md as {there:?}\n")
    });
    let differences: String = differences.collect();
    if differences.is_empty() { Ok(()) } else { Err(differences) }
}

/// Metrics of a page in OpenMetrics' format.
fn served(page: &str) -> Result<Metrics, String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types: BTreeMap<&str, &str> = types.collect();
    let mut metrics = Metrics::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).ok_or_else(|| format!("not a sample: {line}"))?;
        let (series, rest) = line.split_at(end);
        let of = ["_total", "_bucket", "_count", "_sum", ""].map(|suffix| Some((series.strip_suffix(suffix)?, suffix)));
        let known = of.into_iter().flatten().find_map(|(name, suffix)| Some((name, suffix, *types.get(name)?)));
        let (name, suffix, kind) = known.ok_or_else(|| format!("without a type: {line}"))?;
        let name = if suffix == "_total" { series } else { name };
        let metric = metrics.entry(name.to_owned()).or_default();
        kind.clone_into(&mut metric.kind);
        let labels = rest.strip_prefix('{').and_then(|rest| rest.rsplit_once("} ")).map_or("", |(labels, _)| labels);
        metric.labels.extend(label_names(labels).filter(|label| label != "le"));
    }
    let without =
        types.keys().find(|name| !metrics.contains_key(**name) && !metrics.contains_key(&format!("{name}_total")));
    without.map_or(Ok(metrics), |name| Err(format!("{name} has no value on this page")))
}

/// Names in `uuid="GPU-1",model="a, b"`; no value here has a quotation mark.
fn label_names(labels: &str) -> impl Iterator<Item = String> {
    let outside = labels.split('"').step_by(2);
    outside.filter_map(|name| Some(name.trim_start_matches(',').strip_suffix('=')?.to_owned()))
}

/// Metrics of the program in the table.
fn documented(table: &str, program: &str) -> Metrics {
    let rows = table.lines().filter(|line| line.starts_with("| `divvy_"));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let own = cells.filter(|cells| cells.get(5) == Some(&program));
    let metric = |cells: Vec<&str>| {
        let labels = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (cells[1].trim_matches('`').to_owned(), Metric { kind: cells[2].to_owned(), labels })
    };
    own.map(metric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTED: &str = "\
| `divvy_requests_total` | counter | `resource`, `verb`, `code` | answered requests | divvy-small |
| `divvy_objects` | gauge | `resource` | served objects | divvy-small |
| `divvy_watches` | gauge | | open watches | divvy-small |
| `divvy_leader` | gauge | | 1 if this replica leads | divvy-webhook |
";

    const PAGE: &str = r#"# HELP divvy_requests Answered requests.
# TYPE divvy_requests counter
divvy_requests_total{resource="gpuinfos",verb="list",code="200"} 1
# TYPE divvy_objects gauge
divvy_objects{resource="gpuinfos"} 1.0
# TYPE divvy_watches gauge
divvy_watches 0.0
# EOF
"#;

    #[test]
    fn page_is_compared_with_its_rows_of_the_table() {
        let compare_small = |page: &str| compare_with(DOCUMENTED, page, "divvy-small");
        assert_eq!(compare_small(PAGE), Ok(()));
        for (from, to, said) in [
            ("divvy_watches", "divvy_watchers", "divvy_watchers: served as Some"),
            ("watches gauge", "watches counter", "kind: \"counter\""),
            (",code=\"200\"", "", "labels: {\"resource\", \"verb\"}"),
            ("divvy_watches 0.0\n", "", "divvy_watches has no value"),
        ] {
            let refused = compare_small(&PAGE.replace(from, to)).expect_err(said);
            assert!(refused.contains(said), "{refused}");
        }
        assert!(
            compare("# EOF\n", "divvy-webhook")
                .expect_err("nothing is served")
                .contains("divvy_leader: served as None")
        );
    }
}
