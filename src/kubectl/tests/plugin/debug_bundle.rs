//! `kubectl divvy debug-bundle`, against daemons that the API-server stand-in forwards connections to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use divvy_api::gpunode::GpuNode;
use flate2::read::GzDecoder;
use k8s_openapi::jiff::Timestamp;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::top::addresses;
use crate::{Bench, Ended, PROGRAM, ended};

/// What no archive may contain.
const SECRET: &str = "pl4nted-v4lue";
const PORTS: [u16; 2] = [9402, 9404];

/// Files of an archive, by their paths below its one folder.
struct Files(BTreeMap<String, String>);

impl Bench {
    /// A cluster with a daemon on each of the nodes, which has logged a line and answers every page with its path.
    async fn with_daemons(nodes: &[(&str, &str)]) -> Self {
        let bench = Self::new().await;
        bench.server.create(&json!(GpuNode::crd())).unwrap();
        bench
            .server
            .create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "divvy-system" } }))
            .unwrap();
        for (node, address) in nodes {
            bench.node(node, &[], &json!([]));
            bench.own_pod(&format!("divvy-node-{node}"), node, address);
            serve(address);
        }
        bench
    }

    fn own_pod(&self, name: &str, node: &str, address: &str) {
        let labels = json!({ "app.kubernetes.io/name": "divvy-node", "app.kubernetes.io/part-of": "divvy" });
        let container = json!({ "name": "divvy-node", "image": "i", "env": [{ "name": "A", "value": SECRET }] });
        self.server
            .create(&json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": name, "namespace": "divvy-system", "labels": labels },
                "spec": { "nodeName": node, "containers": [container] },
            }))
            .unwrap();
        let status = json!({ "name": "divvy-node", "restartCount": 1 });
        let change = |pod: &mut Value| {
            pod["status"]["podIP"] = json!(address);
            pod["status"]["containerStatuses"] = json!([status]);
        };
        self.server.edit("Pod", "divvy-system", name, change).unwrap();
        for (previous, text) in [(false, "now\n"), (true, "before\n")] {
            self.server.write_log(["divvy-system", name, "divvy-node"], previous, text);
        }
    }

    async fn bundle(&self, arguments: &str) -> (Ended, Option<Files>) {
        let ended = ended(self.command(PROGRAM, &format!("debug-bundle -o b.tar.gz {arguments}"))).await;
        (ended, self.files("b.tar.gz"))
    }

    fn files(&self, name: &str) -> Option<Files> {
        let mut archive = tar::Archive::new(GzDecoder::new(File::open(self.home.path().join(name)).ok()?));
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = PathBuf::from(entry.path().unwrap());
            let (folder, name) = path.to_str().unwrap().split_once('/').unwrap();
            assert!(
                folder.starts_with("divvy-debug-2") && !name.split('/').any(|part| part == ".."),
                "{}",
                path.display()
            );
            assert_eq!(entry.header().mode().unwrap(), 0o600);
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert!(files.insert(name.to_owned(), text).is_none(), "{name} is there twice");
        }
        Some(Files(files))
    }

    /// What is in the home beside the kubeconfig.
    fn leftovers(&self) -> Vec<String> {
        let names = fs::read_dir(self.home.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name != "config" && name != ".kube")
            .collect()
    }
}

impl Files {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", self.0.keys()))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(self.text(name)).unwrap()
    }

    fn contents(&self) -> &str {
        self.text("contents.txt")
    }
}

/// Answers each page with its path.
fn serve(address: &str) {
    for port in PORTS {
        let listener = TcpListener::bind((address, port)).unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut head = [0; 4096];
                let length = stream.read(&mut head).unwrap_or(0);
                let page = String::from_utf8_lossy(&head[..length]).split(' ').nth(1).unwrap_or_default().to_owned();
                let length = page.len();
                drop(write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}"));
            }
        });
    }
}

fn gpu_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default",
            "annotations": {
                "divvy.dev/policy": "binpack", "example.com/note": SECRET,
                "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            },
        },
        "spec": {
            "containers": [{
                "name": "main", "image": SECRET, "args": [SECRET], "command": ["sh", "-c", SECRET],
                "env": [{ "name": "TOKEN", "value": SECRET }],
                "resources": { "limits": { "nvidia.com/gpu": "1" } },
                "volumeMounts": [{ "name": "v", "mountPath": format!("/{SECRET}") }],
            }],
            "volumes": [{ "name": "v", "secret": { "secretName": SECRET } }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_has_objects_pages_and_logs() {
    let [one, two] = addresses();
    let bench = Bench::with_daemons(&[("node-1", &one), ("node-2", &two)]).await;
    bench.server.create(&gpu_pod("train")).unwrap();
    let plain = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "plain", "namespace": "default" },
        "spec": { "containers": [{ "name": "main", "image": "i" }] },
    });
    bench.server.create(&plain).unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "divvy-node", "namespace": "divvy-system" },
        "data": { "divvy-node.yaml": "version: v1\ntier: shim\n" },
    });
    bench.server.create(&config).unwrap();
    let (Ended { code, out, err }, files) = bench.bundle("").await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("b.tar.gz: ") && out.contains(" KiB. It has the state, pages and logs of Divvy"), "{out}");
    assert!(err.contains("divvy-node-node-1: 8 of 8 parts\n"), "{err}");
    let files = files.unwrap();
    let names: Vec<&str> = files.0.keys().map(String::as_str).collect();
    insta::assert_snapshot!(names.join("\n"));
    assert_eq!(files.json("gpu-pods.json").as_array().unwrap().len(), 1, "the plain pod is none");
    assert_eq!(files.json("gpu-pods.json")[0]["metadata"]["annotations"], json!({ "divvy.dev/policy": "binpack" }));
    assert_eq!(files.json("gpunodes.json")[1]["metadata"]["name"], "node-2");
    assert!(files.text("divvy/configmaps.json").contains("tier: shim"));
    assert_eq!(files.text("pods/divvy-node-node-1/state.json"), "/debug/state");
    assert_eq!(files.text("pods/divvy-node-node-2/divvy-node-previous.log"), "before\n");
    assert!(files.text("doctor.txt").contains("API server"));
    assert!(files.contents().contains("\nMissing, and why:\n  nothing\n"), "{}", files.contents());
    for name in names.iter().filter(|name| **name != "contents.txt") {
        assert!(files.contents().contains(&format!("  {name}: ")), "{name}: {}", files.contents());
    }
    let (_, one) = bench.bundle("node-2").await;
    let one = one.unwrap();
    assert!(one.0.contains_key("pods/divvy-node-node-2/state.json"));
    assert!(!one.0.keys().any(|name| name.starts_with("pods/divvy-node-node-1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_secrets_stay_out_and_no_secret_is_read() {
    let [one] = addresses();
    let bench = Bench::with_daemons(&[("node-1", &one)]).await;
    bench.server.create(&gpu_pod("train")).unwrap();
    let object = |kind: &str, name: &str, rest: Value| {
        let mut object =
            json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": "divvy-system" } });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        bench.server.create(&object).unwrap();
    };
    object("Secret", "divvy-webhook-tls", json!({ "stringData": { "tls.key": SECRET } }));
    object("Secret", "other", json!({ "stringData": { "key": SECRET } }));
    object("ConfigMap", "other", json!({ "data": { "key": SECRET } }));
    let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJlc2lnbmF0dXJl";
    let log = format!("GET /x Authorization: Bearer {jwt}\npassword={SECRET}\nlast line\n");
    bench.server.write_log(["divvy-system", "divvy-node-node-1", "divvy-node"], false, log);
    let (Ended { code, err, .. }, files) = bench.bundle("").await;
    assert_eq!(code, Some(0), "{err}");
    let files = files.unwrap();
    let encoded = "cGw0bnRlZC12NGx1ZQ";
    for (name, text) in &files.0 {
        assert!(!text.contains(SECRET) && !text.contains(encoded) && !text.contains(jwt), "{name}: {text}");
    }
    let log = files.text("pods/divvy-node-node-1/divvy-node.log");
    assert_eq!(log, "GET /x Authorization: Bearer (left out)\npassword=(left out)\nlast line\n");
    assert!(files.contents().contains(", 2 times (left out) in place of what looks like a secret"));
    assert!(files.text("gpu-pods.json").contains("train"));
    let requests = bench.server.requests();
    assert!(!requests.iter().any(|request| request.path.contains("/secrets")), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_logs_and_daemons_do_no_harm() {
    let [one, silent] = addresses();
    let bench = Bench::with_daemons(&[("node-1", &one)]).await;
    bench.own_pod("silent", "node-1", &silent);
    // The kernel takes the connections, and nobody else does.
    let _listeners = PORTS.map(|port| TcpListener::bind((silent.as_str(), port)).unwrap());
    // An API server refuses such a name; what stands in its place doesn't look at containers.
    let named = json!({ "name": "../../secrets/x", "image": "i" });
    let add = |pod: &mut Value| pod["spec"]["containers"].as_array_mut().unwrap().push(named);
    bench.server.edit("Pod", "divvy-system", "divvy-node-node-1", add).unwrap();
    let line = "0123456789abcde\n";
    let log = line.repeat((5 << 20) / line.len()) + "last\n";
    bench.server.write_log(["divvy-system", "divvy-node-node-1", "divvy-node"], false, log);
    let (Ended { code, err, .. }, files) = bench.bundle("--request-timeout 3s --log-limit 1").await;
    assert_eq!(code, Some(1), "{err}");
    let files = files.unwrap();
    let log = files.text("pods/divvy-node-node-1/divvy-node.log");
    assert!(log.len() <= 1 << 20 && log.len() > (1 << 20) - 100 && log.ends_with("e\nlast\n") && log.starts_with(line));
    assert!(err.contains("silent: 2 of 8 parts"), "{err}");
    let missing = files.contents().split_once("Missing, and why:\n").unwrap().1;
    let said =
        |start: &str| assert!(missing.lines().any(|line| line.trim_start().starts_with(start)), "{start}: {missing}");
    said("pods/silent/metrics.txt: Unable to connect to the server https://");
    said("pods/silent/state.json: not asked, as it didn't answer /metrics");
    said("pods/divvy-node-node-1/.._.._secrets_x.log: not read, because the container's name isn't one");
    assert_eq!(files.text("pods/silent/divvy-node.log"), "now\n");
    assert!(!bench.server.requests().iter().any(|request| request.path.contains("secrets")));
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_rights_give_a_partial_archive() {
    let [one] = addresses();
    let bench = Bench::with_daemons(&[("node-1", &one)]).await;
    bench.server.guard();
    let rules = json!([{ "apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"] }]);
    let own = |kind: &str, field: &str, value: Value| {
        let metadata = json!({ "name": "some", "namespace": "divvy-system" });
        let mut object = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata });
        object[field] = value;
        object
    };
    bench.server.create(&own("Role", "rules", rules)).unwrap();
    let mut binding = own("RoleBinding", "subjects", json!([{ "kind": "User", "name": "admin" }]));
    binding["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some" });
    bench.server.create(&binding).unwrap();
    let (Ended { code, out, err }, files) = bench.bundle("").await;
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.starts_with("b.tar.gz: "), "{out}");
    let files = files.unwrap();
    assert_eq!(files.text("pods/divvy-node-node-1/divvy-node.log"), "now\n");
    let missing = files.contents().split_once("Missing, and why:\n").unwrap().1;
    for name in ["nodes.json", "gpunodes.json", "events.json", "pods/divvy-node-node-1/state.json"] {
        let start = format!("  {name}: Error from server (Forbidden): ");
        assert!(missing.lines().any(|line| line.starts_with(&start)), "{start}: {missing}");
    }
    assert!(err.contains("warning: missing: gpunodes.json: Error from server (Forbidden): "), "{err}");
    assert!(err.contains(" more: see contents.txt\n"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_run_leaves_no_file() {
    let [silent] = addresses();
    let bench = Bench::with_daemons(&[]).await;
    bench.node("node-1", &[], &json!([]));
    bench.own_pod("silent", "node-1", &silent);
    let _listeners = PORTS.map(|port| TcpListener::bind((silent.as_str(), port)).unwrap());
    let mut command = bench.command(PROGRAM, "debug-bundle -o b.tar.gz");
    let mut program = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(program.stderr.take().unwrap()).lines();
    let end = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line == "asking 1 pods of Divvy" {
                let id = program.id().unwrap().to_string();
                assert!(Command::new("kill").args(["-INT", &id]).status().await.unwrap().success());
            } else if line.contains("interrupted: b.tar.gz isn't written") {
                return program.wait().await.unwrap();
            }
        }
        panic!("it ended by itself")
    };
    let status = tokio::time::timeout(Duration::from_secs(60), end).await.unwrap();
    assert_eq!((status.code(), bench.leftovers()), (Some(1), vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_file_is_replaced_only_if_it_is_named() {
    let bench = Bench::with_daemons(&[]).await;
    fs::write(bench.home.path().join("b.tar.gz"), "mine").unwrap();
    let (Ended { code, err, .. }, files) = bench.bundle("").await;
    assert!(code == Some(1) && files.is_some(), "{err}");
    let said =
        "warning: missing: pods: no pod of Divvy is there in namespace divvy-system: name another with --namespace";
    assert!(err.contains(said), "{err}");
    let now = Timestamp::try_from(SystemTime::now()).unwrap();
    for second in 0..60 {
        let then = now + Duration::from_secs(second);
        let name = format!("divvy-debug-{}.tar.gz", then.strftime("%Y%m%dT%H%M%SZ"));
        fs::write(bench.home.path().join(name), "mine").unwrap();
    }
    let Ended { code, out, err } = ended(bench.command(PROGRAM, "debug-bundle")).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.ends_with(" exists: name it with --output to replace it\n"), "{err}");
    let Ended { code, err, .. } = ended(bench.command(PROGRAM, "debug-bundle -o nowhere/b.tar.gz")).await;
    assert!(code == Some(1) && err.starts_with("error: nowhere/b.tar.gz"), "{err}");
    assert_eq!(ended(bench.command(PROGRAM, "debug-bundle -n ../x")).await.code, Some(64));
}
