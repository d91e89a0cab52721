//! An API server that is away, slow or forgetful.

use hyper::StatusCode;
use serde_json::Value;

use crate::bench::{Bench, MEMORY, Stderr, part};

#[tokio::test]
async fn api_server_outage_is_made_up_for() {
    let bench = Bench::publishing().await;
    let (stays, goes) = (bench.run(part("1000")).await, bench.run(part("2000")).await);
    bench.until_told("both", |status| status.shares.len() == 2).await;
    bench.server().go_away().await;
    let came = bench.run(part("3000")).await;
    bench.gone(&goes).await;
    let brief = bench.run(part("4000")).await;
    bench.gone(&brief).await;
    bench.until_booked(&[1000, 3000]).await;
    bench.until_said(&format!("API server {}: ", bench.server().url())).await;
    bench.server().come_back().await;
    let told = bench
        .until_told("what was missed", |status| {
            let mut uids: Vec<&str> = status.shares.iter().map(|share| &*share.pod_uid).collect();
            uids.sort_unstable();
            let mut expected = [&*stays, &*came];
            expected.sort_unstable();
            uids == expected
        })
        .await;
    assert_eq!(told.ledger_revision, bench.revision().await);
    bench.until_annotated(&came).await;
    let lines = bench.log().matches(&format!("API server {}: ", bench.server().url())).count();
    assert!((2..=6).contains(&lines), "logged when it begins and ends, not at every try: {}", bench.log());
}

#[tokio::test]
async fn unreachable_api_server_is_logged_at_growing_distance() {
    let mut bench = Bench::joined().await;
    bench.define();
    bench.set_key("logFormat", "json");
    bench.server().go_away().await;
    bench.start(Stderr::Log).await;
    // The second line, which counts the tries since the first one.
    bench.until_said(" failures in 1").await;
    bench.server().come_back().await;
    bench.until_said("answers again after ").await;
    let log = bench.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["target"].as_str().unwrap().starts_with("divvy")), "{log}");
    let server = format!("API server {}: ", bench.server().url());
    let messages: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()?.strip_prefix(&server)).collect();
    let [first, second, end] = *messages else { panic!("two failures and the end: {messages:#?}") };
    let refused = ": tcp connect error: Connection refused (os error 111); next try in ";
    assert!(first.contains(&format!("s/node failed{refused}1s")) && second.contains(refused), "{first}, {second}");
    assert!(end.starts_with("answers again after 1"), "{end}");
}

#[tokio::test]
async fn daemon_started_without_api_server_serves() {
    let mut bench = Bench::publishing().await;
    let uid = bench.run(part("1000")).await;
    bench.until_annotated(&uid).await;
    bench.server().go_away().await;
    bench.killed(|_| {}).await;
    bench.ready().await;
    bench.until_booked(&[1000]).await;
    let came = bench.run(part("2000")).await;
    bench.kubelet.restart_container(&uid, "main").unwrap();
    bench.until("another start", |view| view.pods[&uid].containers[0].starts == 2).await;
    bench.server().come_back().await;
    bench.until_annotated(&came).await;
    bench.until_told("both", |status| status.shares.len() == 2).await;
    bench.until_offered([2 * MEMORY, 100 + 81, 200]).await;
}

#[tokio::test]
async fn missing_node_object_is_waited_for() {
    let mut bench = Bench::joined().await;
    bench.define();
    let node = bench.server().get("Node", "", "node").unwrap();
    bench.server().delete("Node", "", "node", None).unwrap();
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.run(part("4096")).await;
    bench.until_said("Node node doesn't exist yet").await;
    assert_eq!(bench.log().matches("doesn't exist yet").count(), 1);
    bench.server().create(&node).unwrap();
    bench.until_offered([2 * MEMORY, 175, 200]).await;
    bench.until_told("the share", |status| status.shares.len() == 1).await;
}

#[tokio::test]
async fn watches_that_are_dropped_or_too_old_go_on() {
    let bench = Bench::publishing().await;
    let uid = bench.run(part("4096")).await;
    bench.until_offered([2 * MEMORY, 175, 200]).await;
    for _ in 0..2 {
        let edit = |node: &mut Value| node["status"]["capacity"]["nvidia.com/gpumem"] = "0".into();
        bench.server().drop_watches();
        bench.server().edit("Node", "", "node", edit).unwrap();
        bench.server().expire();
        bench.until_offered([2 * MEMORY, 175, 200]).await;
        bench.server().delete("GpuNode", "", "node", None).unwrap();
        bench.server().expire();
        bench.server().drop_watches();
        bench.until_told("another one", |status| status.shares.len() == 1).await;
    }
    bench.gone(&uid).await;
    bench.until_offered([2 * MEMORY, 200, 200]).await;
    assert_eq!(bench.log().matches(" for now").count(), 0, "nothing to worry about: {}", bench.log());
}

#[tokio::test]
async fn refused_writes_are_retried_and_logged_once() {
    for code in [StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR] {
        let bench = Bench::publishing().await;
        for path in ["/nodes/node/status", "/gpunodes/node/status", "/pods/"] {
            bench.server().fail("patch", path, 3, code);
        }
        let uid = bench.run(part("4096")).await;
        bench.until_offered([2 * MEMORY, 175, 200]).await;
        bench.until_annotated(&uid).await;
        bench.until_told("the share", |status| status.shares.len() == 1).await;
        let log = bench.log();
        for request in ["patch nodes/status", "patch gpunodes/status", "patch pods/status"] {
            let said = log.matches(&format!(" {request} failed: {} ", code.as_u16())).count();
            // The client itself tries again after 429, and a conflict is one pod's affair.
            let expected = match code {
                StatusCode::TOO_MANY_REQUESTS => 0..=1,
                StatusCode::CONFLICT if request == "patch pods/status" => 0..=0,
                _ => 1..=1,
            };
            assert!(expected.contains(&said), "{code}: {request} said {said} times: {log}");
        }
    }
}

#[tokio::test]
async fn refused_annotation_of_one_pod_does_not_affect_others() {
    let bench = Bench::publishing().await;
    let bad = part("1000");
    let name = bad.clone().pod().metadata.name.unwrap();
    bench.server().fail("patch", &format!("/pods/{name}/"), usize::MAX, StatusCode::FORBIDDEN);
    bench.run(bad).await;
    bench.until_said(&format!("patch pods/status of default/{name} failed: 403 Forbidden: ")).await;
    for mib in ["2000", "3000", "4000", "5000"] {
        let uid = bench.run(part(mib)).await;
        bench.until_annotated(&uid).await;
    }
    assert_eq!(bench.log().matches(" failed: 403 ").count(), 1, "{}", bench.log());
}
