//! What a replica keeps resident. A figure, and no test of every day: `hack/bench apiserver` takes it.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, share};
use crate::daemon::{Daemon, figures_of};

const NODES: usize = 5_000;
const CARDS: usize = 8;
/// Containers of a node, each with a part of a GPU.
const SHARES: usize = 8;
const WATCHES: usize = 20;
/// Whole lists that are read, one after another.
const LISTS: usize = 10;
/// MiB, at any time: half of the limit in deploy/apiserver.
const BUDGET: u64 = 256;

fn name(node: usize) -> String {
    format!("node-{node}")
}

fn card(node: usize, card: usize) -> String {
    format!("GPU-{node:08x}-0000-0000-0000-{card:012x}")
}

fn pod(node: usize, at: usize) -> String {
    format!("trainer-{node}-{at}")
}

/// Creates nodes, whose pods have these UIDs.
fn fill(bench: &Bench, uid: impl Fn(usize, usize) -> String) {
    for node in 0..NODES {
        let cards: Vec<String> = (0..CARDS).map(|at| card(node, at)).collect();
        bench.node(&name(node), &cards.iter().map(String::as_str).collect::<Vec<_>>());
        let share = |at: usize| share(&pod(node, at), &uid(node, at), &cards[at]);
        bench.shares(&name(node), &(0..SHARES).map(share).collect::<Vec<Value>>());
    }
}

#[tokio::test]
#[ignore = "a figure of the release profile, and minutes of work: hack/bench apiserver"]
async fn replica_of_a_large_cluster_stays_within_its_memory() {
    let bench = Bench::new().await;
    fill(&bench, |node, at| format!("{node:08x}-0000-4000-8000-{at:012x}"));
    let replica = bench.ready(&json!({})).await;
    let say = |what: &str| {
        let [now, most] = replica.resident();
        println!("{NODES} nodes, {} pods; {what}: {now} MiB resident, {most} at most   ≤ {BUDGET}", NODES * SHARES);
        most
    };
    say("ready");
    let client = bench.client();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        watches.push(client.watch(replica.address, "/podresources?watch=true", "application/json").await);
    }
    for lines in &mut watches {
        for _ in 0..NODES * SHARES {
            lines.next().await.expect("a pod");
        }
    }
    say(&format!("{WATCHES} watches that have read all"));
    for _ in 0..LISTS {
        let list = client.get(replica.address, "/podresources").await;
        assert_eq!(list["items"].as_array().expect("items").len(), NODES * SHARES);
    }
    assert!(say(&format!("{LISTS} lists")) <= BUDGET);
}

/// A question about all pods of a cluster, which makes all daemons be asked: the most that one can cost.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a figure of the release profile, and minutes of work: hack/bench apiserver"]
async fn replica_that_has_asked_all_daemons_stays_within_its_memory() {
    let bench = Bench::new().await;
    bench.install_custom_metrics();
    fill(&bench, |node, at| {
        let share = bench.pod_with_share("default", &pod(node, at), "trainer");
        share["podUid"].as_str().unwrap().to_owned()
    });
    let lines =
        |node| (0..SHARES).map(|at| figures_of("default", &pod(node, at), &card(node, at), 1 << 29, 1.0)).collect();
    let daemons = Daemon::start_many(&bench, NODES, name, lines).await;
    let replica = bench.ready(&json!({ "customMetrics": "on" })).await;
    let client = bench.client();
    let [ready, _] = replica.resident();
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/gpu_memory_used_ratio";
    let mut asked = Vec::new();
    while asked.len() < 2 {
        let start = Instant::now();
        let (code, list) = client.ask(replica.address, Method::GET, path, "*/*").await;
        let known = list["items"].as_array().map_or(0, Vec::len);
        println!("{code}: {known} pods after {:.1} s", start.elapsed().as_secs_f64());
        if known == NODES * SHARES {
            asked.push(daemons.asked());
            // Until what was answered is too old to be answered again.
            tokio::time::sleep(Duration::from_secs(11)).await;
        }
    }
    assert!(asked[1] >= 2 * NODES, "{asked:?}");
    let [now, most] = replica.resident();
    println!(
        "{NODES} daemons, {} pods: ready {ready} MiB, with two pages of each: {now} MiB, {most} at most   ≤ {BUDGET}",
        NODES * SHARES
    );
    assert!(most <= BUDGET);
}
