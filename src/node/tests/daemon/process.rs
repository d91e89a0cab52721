//! Signals, flags and exit codes.

use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::bench::{Bench, Stderr, binaries, part};

#[tokio::test]
async fn sigterm_exits_with_0_and_removes_the_socket() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("100")).await;
    bench.signal("TERM").await;
    assert_eq!(bench.ended().await.code(), Some(0), "{}", bench.log());
    assert!(!bench.kubelet.plugin_dir().join("divvy-gpu.sock").exists());
    assert!(bench.kubelet.plugin_dir().join("divvy-node.txt").exists(), "a kubelet that starts now keeps the amounts");
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.until_booked(&[100]).await;
    assert_eq!(bench.given(&uid)[0].1, 100);
}

#[tokio::test]
async fn second_sigterm_aborts() {
    // A kubelet that takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let mut bench = Bench::stopped(json!({ "kubeletTimeout": "10m", "kubeletUrl": url })).await;
    bench.start(Stderr::Log).await;
    let _question = silent.accept().await.unwrap();
    bench.signal("TERM").await;
    bench.until_said("stopping").await;
    bench.signal("TERM").await;
    assert_eq!(bench.ended().await.code(), Some(1), "{}", bench.log());
    assert!(bench.log().contains("SIGTERM while stopping: aborted"), "{}", bench.log());
}

#[tokio::test]
async fn invalid_flags_and_files_exit_with_64_and_a_reason() {
    let daemon = &binaries().await.daemon;
    let shim = ["--node-name=n", "--tier=shim", "--libdivvy-path=/nowhere/libdivvy.so"];
    let cases: [(&[&str], &str); 6] = [
        (&["--slots-per-card", "0", "--node-name", "n"], "1 to 256"),
        (&["--no-such-flag"], "unexpected argument '--no-such-flag'"),
        (&[], "nodeName is missing"),
        (&["--config-file", "/nowhere"], "reading configuration file /nowhere"),
        (&["--node-name=n", "--tier=mig"], "tier mig can't be served: migStrategy none advertises no MIG instances"),
        (&shim, "tier shim can't be served: libdivvyPath: /nowhere/libdivvy.so: No such file or directory"),
    ];
    for (flags, said) in cases {
        let output = Command::new(daemon).args(flags).env_clear().output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(64) && stderr.contains(said), "{flags:?}: {}: {stderr}", output.status);
    }
}

#[tokio::test]
async fn second_daemon_on_same_state_directory_exits_with_1() {
    let bench = Bench::new().await;
    let second =
        Command::new(&binaries().await.daemon).arg("--config-file").arg(bench.path("config.yaml")).output().await;
    let second = second.unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.code() == Some(1) && stderr.contains("another process keeps its ledger here"), "{stderr}");
}
