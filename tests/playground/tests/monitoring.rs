//! `deploy/monitoring` on a real Prometheus that scrapes a playground: each query of the dashboard and of prometheus-adapter's
//! rules has an answer, and each rule can be evaluated. Without a program `prometheus` in `PATH` nothing is tested.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use divvy_api::container::REGION_MOUNT;
use divvy_playground::args::Args;
use divvy_playground::console::Console;
use divvy_playground::run::{Inputs, run};
use divvy_playground::session::Session;
use divvy_region::layout;
use divvy_testkit::binaries::Binaries;
use divvy_testkit::pages::page;
use divvy_testkit::process::own_address;
use fake_nvml::RemappedRows;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

/// As long as any query may take to have an answer: rates need several scrapes.
const PATIENCE: Duration = Duration::from_secs(90);
const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/monitoring");

/// A Prometheus, killed when dropped.
struct Prometheus {
    address: SocketAddr,
    log: PathBuf,
    _child: Child,
}

fn program() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&paths).map(|place| place.join("prometheus")).find(|program| program.is_file());
    if found.is_none() {
        eprintln!("skipped: no prometheus in PATH (Debian's package prometheus has it)");
    }
    found
}

// === impl Prometheus ===

impl Prometheus {
    /// Scrapes these targets every second, each with labels of its own, and evaluates all rules.
    fn start(program: &Path, directory: &Path, targets: &[(SocketAddr, Value)]) -> Self {
        let groups = targets.iter().map(|(address, labels)| json!({ "targets": [address], "labels": labels }));
        let groups: Vec<Value> = groups.collect();
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [format!("{MONITORING}/rules.yaml"), format!("{MONITORING}/hami.yaml")],
            // As deploy/monitoring/pod-monitor.yaml has it.
            "scrape_configs": [{ "job_name": "divvy", "honor_labels": true, "static_configs": groups }],
        });
        let (file, log) = (directory.join("prometheus.yml"), directory.join("prometheus.log"));
        fs::write(&file, config.to_string()).unwrap();
        let address = SocketAddr::from((own_address(), 9090));
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", file.display())).arg(format!("--web.listen-address={address}"));
        command.arg(format!("--storage.tsdb.path={}", directory.join("tsdb").display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).kill_on_drop(true);
        Self { address, log, _child: command.spawn().unwrap() }
    }

    /// Result of a question to its API; nothing while it doesn't answer.
    async fn ask(&self, path: &str) -> Result<Value, String> {
        let text = page(self.address, path).await.map_err(|error| format!("{error:#}"))?;
        Ok(serde_json::from_str::<Value>(&text).unwrap()["data"].take())
    }

    /// That the query has an answer, or why not.
    async fn answers(&self, query: &Query) -> Result<(), String> {
        let found = match query {
            Query::Expression(expression) => {
                let answer = self.ask(&format!("api/v1/query?query={}", encoded(expression))).await?;
                answer["result"].as_array().map_or(0, Vec::len)
            }
            Query::Label { of, label } => {
                let path = format!("api/v1/label/{label}/values?match%5B%5D={}", encoded(of));
                self.ask(&path).await?.as_array().map_or(0, Vec::len)
            }
        };
        if found > 0 { Ok(()) } else { Err("no series".to_owned()) }
    }
}

/// A query of the dashboard, with values for its variables.
#[derive(Debug)]
enum Query {
    Expression(String),
    /// Values of a label of these series.
    Label {
        of: String,
        label: String,
    },
}

/// Queries of panels and of variables.
fn queries(dashboard: &Value) -> Vec<Query> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions = targets.map(|target| Query::Expression(substituted(target["expr"].as_str().unwrap())));
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter().filter(|it| it["type"] == "query");
    let labels = variables.map(|variable| {
        let text = substituted(variable["query"]["query"].as_str().unwrap());
        let arguments = text.strip_prefix("label_values(").and_then(|text| text.strip_suffix(')')).unwrap();
        let (of, label) = arguments.rsplit_once(", ").unwrap();
        Query::Label { of: of.to_owned(), label: label.to_owned() }
    });
    expressions.chain(labels).collect()
}

/// What prometheus-adapter asks by its rules, of all pods of all namespaces.
fn adapter_queries() -> Vec<Query> {
    let text = fs::read_to_string(format!("{MONITORING}/prometheus-adapter.yaml")).unwrap();
    let config: Value = serde_saphyr::from_str(&text).unwrap();
    let query = |rule: &Value| {
        let (series, _) = rule["seriesQuery"].as_str().unwrap().split_once('{').unwrap();
        let query = rule["metricsQuery"].as_str().unwrap().replace("<<.Series>>", series);
        Query::Expression(
            query.replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", "namespace=~\".+\",pod=~\".+\""),
        )
    };
    config["rules"].as_array().unwrap().iter().map(query).collect()
}

/// What Grafana asks when all values of all variables are chosen.
fn substituted(query: &str) -> String {
    let names = ["cluster", "node", "model", "namespace"];
    let text = names.iter().fold(query.to_owned(), |text, name| text.replace(&format!("\"${name}\""), "\".*\""));
    let text = text.replace("$__rate_interval", "10s");
    assert!(!text.contains('$'), "a variable without a value: {text}");
    text
}

fn encoded(query: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    query.bytes().map(byte).collect()
}

/// Gives a container with one GPU what libdivvy would write, and a GPU an XID and a replaced row.
fn make_rare_things_happen(session: &mut Session) {
    let mut regions = 0;
    for node in session.nodes() {
        let view = node.kubelet.view();
        let containers = view.pods.values().flat_map(|pod| &pod.containers);
        let given = containers.filter(|container| container.devices.values().map(BTreeSet::len).sum::<usize>() == 1);
        let mounts = given.filter_map(|container| container.given.as_ref()).flat_map(|given| &given.mounts);
        for region in mounts.filter(|mount| mount.container_path == REGION_MOUNT) {
            let mut bytes = vec![0; layout::size(1)];
            bytes[..layout::LINE].copy_from_slice(&layout::header(1, 0).unwrap());
            fs::write(Path::new(&region.host_path).join("books"), bytes).unwrap();
            regions += 1;
        }
        let card = node.scenario.cards[0].uuid.clone();
        node.change_scenario(|scenario| {
            scenario.push_xid(Some(&card), 31);
            let rows = RemappedRows { uncorrected: 1, pending: true, ..RemappedRows::default() };
            scenario.cards[0].sensors.remapped_rows = Some(rows);
        })
        .unwrap();
    }
    assert!(regions > 0, "no container has a region: draw other pods");
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_queries_have_answers_and_rules_evaluate() {
    let Some(program) = program() else { return };
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(format!("{MONITORING}/grafana/divvy.json")).unwrap()).unwrap();
    let flags = "divvy-playground --node-limit 2 --admissions 40 --load 120 --seed 5 --stay";
    let args = Args::read(flags.split(' ').map(OsString::from)).unwrap();
    let binaries = Binaries::get(false).await.unwrap();
    let directory = tempfile::Builder::new().prefix("divvy-").tempdir_in("/tmp").unwrap();
    let inputs = Inputs::read(&args).unwrap();
    let mut session = run(&args, inputs, &binaries, directory.path(), Console::new(std::io::sink())).await.unwrap();

    let node = |name: &str| json!({ "cluster": "playground", "node": name });
    let daemons = session.nodes().iter().map(|at| (at.daemon.pages(), node(&at.name))).collect::<Vec<_>>();
    let webhooks = session.webhook_pages().into_iter().map(|address| (address, node("control-plane")));
    let targets: Vec<_> = daemons.into_iter().chain(webhooks).collect();
    let prometheus = Prometheus::start(&program, directory.path(), &targets);
    make_rare_things_happen(&mut session);

    let mut open = queries(&dashboard);
    open.extend(adapter_queries());
    assert!(open.len() > 50, "{}", open.len());
    let start = Instant::now();
    while !open.is_empty() {
        let mut unanswered = Vec::new();
        let mut reasons = Vec::new();
        for query in open {
            if let Err(reason) = prometheus.answers(&query).await {
                reasons.push(format!("{query:?}: {reason}"));
                unanswered.push(query);
            }
        }
        open = unanswered;
        let log = || fs::read_to_string(&prometheus.log).unwrap();
        assert!(open.is_empty() || start.elapsed() < PATIENCE, "{reasons:#?}\n{}", log());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let rules = prometheus.ask("api/v1/rules").await.unwrap();
    let rules = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let failed: Vec<&Value> = rules.clone().filter(|rule| rule["health"] != "ok").collect();
    assert!(rules.count() > 50 && failed.is_empty(), "{failed:#?}");
    for recorded in
        ["hami_host_gpu_utilization_ratio", "hami_gpu_core_allocated_ratio", "hami_vgpu_core_allocated_ratio"]
    {
        assert_eq!(prometheus.answers(&Query::Expression(recorded.to_owned())).await, Ok(()), "{recorded}");
    }
}
