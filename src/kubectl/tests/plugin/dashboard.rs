//! `kubectl divvy dashboard`, asked as a browser asks it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use divvy_testkit::process::resident;
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;
use tokio::process::{Child, Command};

use crate::{Bench, PROGRAM};

/// Longest wait for a message.
const PATIENCE: Duration = Duration::from_secs(60);

struct Dashboard {
    program: Child,
    /// `127.0.0.1:PORT`.
    address: String,
    /// `/SECRET/`.
    path: String,
}

/// The messages of a page that is open.
struct Messages(BufReader<TcpStream>);

impl Dashboard {
    async fn start(bench: &Bench) -> Self {
        let mut program =
            bench.command(PROGRAM, "dashboard").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = tokio::io::BufReader::new(program.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        let (_, url) = line.rsplit_once(" http://").unwrap_or_else(|| panic!("{line}"));
        let (address, path) = url.split_once('/').unwrap();
        Self { program, address: address.to_owned(), path: format!("/{path}") }
    }

    /// Status line and headers, and the body, of a page that ends.
    fn get(&self, path: &str) -> (String, String) {
        let mut answer = String::new();
        self.open(path).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn open(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // In HTTP/1.0 a body has no chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).unwrap();
        stream
    }

    fn events(&self) -> Messages {
        Messages(BufReader::new(self.open(&format!("{}events", self.path))))
    }
}

impl Messages {
    /// The next message with this name that fulfils a condition.
    fn until(&mut self, name: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut event = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the messages have ended");
            if let Some(text) = line.strip_prefix("event: ") {
                text.trim_end().clone_into(&mut event);
            }
            let Some(data) = line.strip_prefix("data: ").filter(|_| event == name) else { continue };
            let data: Value = serde_json::from_str(data).unwrap();
            if is_it(&data) {
                return data;
            }
        }
    }
}

fn has_node(name: &str) -> impl Fn(&Value) -> bool {
    move |message| message["set"].as_array().unwrap().iter().any(|node| node["name"] == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_told_what_changes() {
    let bench = Bench::with_pods().await;
    let mut dashboard = Dashboard::start(&bench).await;
    let mut messages = dashboard.events();
    let hello = messages.until("hello", |_| true);
    assert_eq!((&hello["version"], &hello["divvyNamespace"]), (&json!("v1"), &json!("divvy-system")));
    // What was reserved for the pod on its way is of its node, and the two that wait are there with their verdicts.
    let reserved = messages.until("nodes", |message| message.to_string().contains("reservations"));
    let nodes = reserved["set"].as_array().unwrap();
    let reservation = &nodes.iter().find(|node| node["name"] == "node-2").unwrap()["reservations"][0];
    assert_eq!((&reservation["pod"], &reservation["memoryMi"]), (&json!("on-its-way"), &json!(8192)), "{reservation}");
    let status = messages.until("status", |status| status["synced"] == true);
    assert_eq!(status["problems"], json!([]));
    let mut again = dashboard.events();
    let pods = again.until("pods", |message| message.to_string().contains("short of memory"));
    let large = pods["set"].as_array().unwrap().iter().find(|pod| pod["name"] == "large").unwrap();
    assert_eq!(
        (&large["phase"], &large["asks"]),
        (&json!("waiting"), &json!("1 GPU with 20Gi memory and 0 cores each"))
    );

    // A node that changes is sent alone, one that is gone by its name.
    bench.server.edit("GpuNode", "", "node-1", |node| node["status"]["shares"] = json!([])).unwrap();
    let changed = messages.until("nodes", has_node("node-1"));
    assert_eq!(changed["set"].as_array().unwrap().len(), 1, "{changed}");
    bench.node("node-3", &[], &json!([]));
    messages.until("nodes", has_node("node-3"));
    bench.server.delete("GpuNode", "", "node-3", None).unwrap();
    let gone = messages.until("nodes", |message| message["gone"] != json!([]));
    assert_eq!(gone["gone"], json!(["node-3"]));
    messages.until("pods", |message| message.to_string().contains("best now: node-1"));
    bench.server.delete("Pod", "team-a", "large", None).unwrap();
    messages.until("pods", |message| message["gone"] == json!([large["uid"]]));

    let process = dashboard.program.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &process]).status().await.unwrap().success());
    let ended = tokio::time::timeout(PATIENCE, dashboard.program.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_and_answers_are_behind_the_secret_path() {
    let bench = Bench::with_pods().await;
    let dashboard = Dashboard::start(&bench).await;
    let (head, body) = dashboard.get(&dashboard.path);
    assert!(head.starts_with("HTTP/1.0 200 OK") && body.starts_with("<!doctype html>"), "{head}");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    for path in ["/", "/events", "/explain?namespace=team-a&name=small", "/main.js", "/aaaaaaaaaaaaaaaa/"] {
        let (head, _) = dashboard.get(path);
        assert!(head.starts_with("HTTP/1.0 404 "), "{path}: {head}");
    }
    let ask = |question: &str| {
        let (head, body) = dashboard.get(&format!("{}{question}", dashboard.path));
        (head.lines().next().unwrap_or_default().to_owned(), serde_json::from_str::<Value>(&body).unwrap_or_default())
    };
    let (head, explained) = ask("explain?namespace=team-a&name=large");
    assert_eq!((&*head, &explained["version"]), ("HTTP/1.0 200 OK", &json!("v1")));
    assert!(explained["suggestions"][0]["text"].is_string(), "{explained}");
    let (head, refused) = ask("explain?namespace=team-a&name=nope");
    assert_eq!(
        (&*head, &refused["error"]),
        ("HTTP/1.0 404 Not Found", &json!("Error from server (NotFound): pods \"nope\" not found"))
    );
    let (head, refused) = ask("usage?node=node-1");
    assert_eq!(head, "HTTP/1.0 404 Not Found");
    assert!(refused["error"].as_str().unwrap().contains("no pod of divvy-node is on node node-1"), "{refused}");
    assert!(ask("explain?namespace=team-a").0.starts_with("HTTP/1.0 400 "));
    assert!(ask("explain?namespace=..%2F..&name=..%2Fnodes").0.starts_with("HTTP/1.0 4"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_missing_are_said() {
    let bench = Bench::with_pods().await;
    let forbid = |path, times| bench.server.fail("list", path, times, http::StatusCode::FORBIDDEN);
    forbid("/api/v1/nodes", 1000);
    let dashboard = Dashboard::start(&bench).await;
    let mut messages = dashboard.events();
    messages.until("nodes", has_node("node-1"));
    let status = messages.until("status", |status| status["synced"] == true);
    let problem = status["problems"][0].as_str().unwrap();
    assert!(
        problem.starts_with("whether the Nodes themselves are alive isn't known: Error from server (Forbidden)"),
        "{problem}"
    );

    forbid("/gpunodes", 1);
    let ended = crate::ended(bench.command(PROGRAM, "dashboard")).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("get and list on gpunodes"), "{}", ended.err);
    let taken = crate::ended(
        bench.command(PROGRAM, &format!("dashboard --port {}", dashboard.address.rsplit_once(':').unwrap().1)),
    )
    .await;
    assert_eq!(taken.code, Some(1));
    assert!(taken.err.contains("Address already in use"), "{}", taken.err);
}

const NODES: usize = 5_000;
/// GPUs of a node, and pods that hold a part of one each.
const CARDS: usize = 8;

fn card(node: usize, at: usize) -> String {
    format!("GPU-{node:08x}-0000-0000-0000-{at:012x}")
}

/// A node, its report and its pods, as large as in a real cluster.
fn fill(bench: &Bench, number: usize) {
    let name = format!("gpu-node-{number:05}");
    let variable = |number: usize| json!({ "name": format!("VARIABLE_{number}"), "value": "x".repeat(120) });
    let variables: Vec<Value> = (0..20).map(variable).collect();
    let share = |at: usize| {
        let pod = format!("trainer-{number}-{at}");
        let limits = json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "8Gi" });
        let container = json!({ "name": "main", "env": variables, "resources": { "limits": limits } });
        let made = bench.server.create(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "team-a", "name": pod },
            "spec": { "nodeName": name, "containers": [container] },
        }));
        let uid = made.unwrap()["metadata"]["uid"].clone();
        bench.server.edit("Pod", "team-a", &pod, |pod| pod["status"]["phase"] = "Running".into()).unwrap();
        json!({
            "podUid": uid, "namespace": "team-a", "pod": pod, "container": "main", "card": card(number, at),
            "memoryMi": 8192, "cores": 10,
        })
    };
    let shares: Vec<Value> = (0..CARDS).map(share).collect();
    bench.node(&name, &[], &json!(shares));
    let card = |at: usize| {
        let model = "NVIDIA H100 80GB HBM3";
        json!({ "uuid": card(number, at), "model": model, "memoryMi": 81_559, "health": "Healthy" })
    };
    let cards: Vec<Value> = (0..CARDS).map(card).collect();
    bench.server.edit("GpuNode", "", &name, |node| node["status"]["cards"] = json!(cards)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a figure of the release profile, and a minute of work"]
async fn dashboard_of_a_large_cluster_takes_some_memory() {
    let bench = Bench::with_pods().await;
    (0..NODES).for_each(|number| fill(&bench, number));
    let dashboard = Dashboard::start(&bench).await;
    let process = dashboard.program.id().unwrap();
    let begun = Instant::now();
    let mut messages = dashboard.events();
    messages.until("status", |status| status["synced"] == true);
    println!("{NODES} nodes, {} pods: complete after {:.1?}", NODES * CARDS, begun.elapsed());
    println!("resident {:?} MiB, now and at most", resident(process).unwrap());
    drop(messages);
    dashboard.events().until("status", |status| status["synced"] == true);
    println!("with a second page: {:?} MiB", resident(process).unwrap());
}
