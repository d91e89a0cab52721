//! `kubectl divvy inspect`.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use divvy_api::gpunode::GpuNode;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::{Bench, CARD, Ended, PROGRAM, ended};

impl Bench {
    /// With `GpuNode`s defined, and two of them.
    async fn with_nodes() -> Self {
        let bench = Self::new().await;
        bench.server.create(&json!(GpuNode::crd())).unwrap();
        bench.node("node-1", &[("pool", "a")], &json!([share("team-a", "serve-0")]));
        bench.node("node-2", &[("pool", "b")], &json!([]));
        bench
    }

    async fn inspect(&self, arguments: &str) -> Ended {
        ended(self.command(PROGRAM, &format!("inspect {arguments}"))).await
    }

    /// What it says when it fails and has nothing to show.
    async fn refused(&self, arguments: &str) -> String {
        let Ended { code, out, err } = self.inspect(arguments).await;
        assert_eq!((code, &*out), (Some(1), ""), "{err}");
        err
    }
}

fn share(namespace: &str, pod: &str) -> Value {
    json!({
        "podUid": format!("uid-of-{pod}"), "namespace": namespace, "pod": pod, "container": "main", "card": CARD,
        "memoryMi": 8192, "cores": 30,
    })
}

/// The first words of the lines that don't belong to tables.
fn heads(out: &str) -> Vec<&str> {
    out.lines().filter_map(|line| line.split_once(": ")).map(|(head, _)| head).collect()
}

#[tokio::test]
async fn inspect_shows_all_nodes_or_the_named_ones() {
    let bench = Bench::with_nodes().await;
    let Ended { code, out, err } = bench.inspect("").await;
    assert_eq!((code, &*err), (Some(0), ""));
    insta::assert_snapshot!(out);
    assert_eq!(heads(&bench.inspect("node-2 node-2").await.out), ["node-2"]);
    assert_eq!(heads(&bench.inspect("-l pool=b").await.out), ["node-2"]);
    assert_eq!(heads(&bench.inspect("-n team-a").await.out), ["node-1"]);
    for (format, parse) in [("json", json_of as fn(&str) -> Value), ("yaml", yaml_of)] {
        let report = parse(&bench.inspect(&format!("-o {format}")).await.out);
        let held: Vec<&Value> = (0..2).map(|at| &report["nodes"][at]["cards"][0]["memoryMi"]["held"]).collect();
        assert_eq!((held, &report["version"]), (vec![&json!(8192), &json!(0)], &json!("v1")));
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn yaml_of(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[tokio::test]
async fn missing_node_is_an_error_beside_the_others() {
    let bench = Bench::with_nodes().await;
    let Ended { code, out, err } = bench.inspect("nope node-1").await;
    assert_eq!((code, heads(&out)), (Some(1), vec!["node-1"]));
    assert_eq!(err, "Error from server (NotFound): gpunodes.divvy.dev \"nope\" not found\n");
    assert_eq!(bench.refused("nope").await, err);
}

#[tokio::test]
async fn empty_result_is_no_error() {
    let bench = Bench::new().await;
    bench.server.create(&json!(GpuNode::crd())).unwrap();
    let nothing = |err: &str| Ended { code: Some(0), out: String::new(), err: err.to_owned() };
    assert_eq!(bench.inspect("").await, nothing("No resources found\n"));
    assert_eq!(bench.inspect("-n team-a").await, nothing("No resources found in team-a namespace.\n"));
    assert_eq!(json_of(&bench.inspect("-o json").await.out)["nodes"], json!([]));
}

#[tokio::test]
async fn inspect_reports_a_cluster_without_divvy() {
    let bench = Bench::new().await;
    for arguments in ["", "node-1"] {
        let said = bench.refused(arguments).await;
        assert!(said.starts_with("error: Divvy isn't installed in this cluster"), "{said}");
    }
}

#[tokio::test]
async fn missing_permission_is_named() {
    let bench = Bench::with_nodes().await;
    let forbid = |path| bench.server.fail("list", path, 1, http::StatusCode::FORBIDDEN);
    forbid("/gpunodes");
    let said = bench.refused("").await;
    assert!(said.contains("(Forbidden)") && said.contains("get and list on gpunodes"), "{said}");
    forbid("/api/v1/nodes");
    let Ended { code, out, err } = bench.inspect("").await;
    assert_eq!((code, heads(&out).len()), (Some(0), 3), "what may be read is shown");
    assert!(err.starts_with("warning: whether the nodes themselves are alive isn't known: "), "{err}");
    forbid("/api/v1/nodes");
    let said = bench.refused("-l pool=a").await;
    assert!(said.ends_with("--selector asks for the right to list nodes\n"), "{said}");
}

#[tokio::test]
async fn unreachable_server_is_one_line() {
    let bench = Bench::with_nodes().await;
    let missing = bench.refused("--kubeconfig nope").await;
    assert!(missing.starts_with("error: kubeconfig nope: No such file or directory"), "{missing}");
    assert_eq!(bench.refused("--context nope").await, "error: context \"nope\" does not exist\n");
    assert_eq!(bench.refused("--cluster nope").await, "error: cluster \"nope\" does not exist\n");
    assert_eq!(bench.refused("--user nope").await, "error: auth info \"nope\" does not exist\n");
    std::fs::write(bench.home.path().join("stranger"), bench.server.kubeconfig("wrong")).unwrap();
    let stranger = bench.refused("--kubeconfig stranger").await;
    assert_eq!(stranger, "error: You must be logged in to the server (Unauthorized)\n");
    bench.server.go_away().await;
    let away = bench.refused("").await;
    let begins = format!("Unable to connect to the server {}: ", bench.server.url());
    assert!(away.starts_with(&begins) && away.lines().count() == 1, "{away}");
}

#[tokio::test]
async fn proxy_is_used_unless_no_proxy_names_the_server() {
    let bench = Bench::with_nodes().await;
    let proxied = |none: &str| {
        let mut command = bench.command(PROGRAM, "inspect");
        command.env("HTTPS_PROXY", "http://127.0.0.1:1").env("NO_PROXY", none);
        ended(command)
    };
    assert_eq!(proxied("127.0.0.1").await.code, Some(0));
    assert!(proxied("example.org").await.err.starts_with("Unable to connect to the server "));
}

#[tokio::test]
async fn paginated_lists_are_shown_whole() {
    let bench = Bench::with_nodes().await;
    for number in 3..=501 {
        bench.node(&format!("node-{number}"), &[], &json!([]));
    }
    let out = bench.inspect("--no-headers").await.out;
    assert_eq!(heads(&out).len(), 502);
    assert!(
        out.ends_with("501/501 GPUs healthy, 1 pod, memory 8Gi/12024Gi (12016Gi free), cores 30/50100 (50070 free)\n")
    );
}

#[tokio::test]
async fn closed_output_pipe_is_no_error() {
    let bench = Bench::with_nodes().await;
    let many: Vec<Value> = (0..5000).map(|number| share("team-a", &format!("serve-{number}"))).collect();
    bench.node("node-3", &[], &json!(many));
    let (mut ours, theirs) = std::io::pipe().unwrap();
    let mut command = bench.command(PROGRAM, "inspect");
    let child = command.stdout(theirs).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let first = tokio::task::spawn_blocking(move || ours.read_exact(&mut [0; 10])).await.unwrap();
    let output =
        tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!((first.is_ok(), output.status.code(), &*output.stderr), (true, Some(0), &b""[..]));
}

#[tokio::test]
async fn kubectl_finds_the_plugin() {
    let Some(directory) =
        std::env::var_os("KUBE_BIN_DIR").filter(|directory| Path::new(directory).join("kubectl").exists())
    else {
        println!("skipped: KUBE_BIN_DIR names no directory with a kubectl");
        return;
    };
    let bench = Bench::with_nodes().await;
    let mut command = bench.command(Path::new(&directory).join("kubectl"), "divvy inspect nope node-1");
    command.env("PATH", Path::new(PROGRAM).parent().unwrap());
    let Ended { code, out, err } = ended(command).await;
    assert_eq!((code, heads(&out)), (Some(1), vec!["node-1"]), "{err}");
}
