//! What a replica keeps resident that serves the aggregated API. A figure, and no test of every day: `hack/bench webhook` takes it.

use serde_json::Value;

use super::bench::{Bench, share};

const NODES: usize = 5_000;
const CARDS: usize = 8;
/// Containers of a node, each with a part of a GPU.
const SHARES: usize = 8;
const WATCHES: usize = 20;
/// Whole lists that are read, one after another.
const LISTS: usize = 10;
/// MiB, at any time: half of the limit in deploy/manifests.
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

fn uid(node: usize, at: usize) -> String {
    format!("{node:08x}-0000-4000-8000-{at:012x}")
}

fn fill(bench: &Bench) {
    for node in 0..NODES {
        let cards: Vec<String> = (0..CARDS).map(|at| card(node, at)).collect();
        bench.node(&name(node), &cards.iter().map(String::as_str).collect::<Vec<_>>());
        let share = |at: usize| share(&pod(node, at), &uid(node, at), &cards[at]);
        bench.shares(&name(node), &(0..SHARES).map(share).collect::<Vec<Value>>());
    }
}

#[tokio::test]
#[ignore = "a figure of the release profile, and minutes of work: hack/bench webhook"]
async fn replica_of_a_large_cluster_stays_within_its_memory() {
    let bench = Bench::new().await;
    fill(&bench);
    let replica = bench.ready().await;
    let say = |what: &str| {
        let [now, most] = replica.resident();
        println!("{NODES} nodes, {} pods; {what}: {now} MiB resident, {most} at most   ≤ {BUDGET}", NODES * SHARES);
        most
    };
    say("ready");
    let client = bench.client();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        watches.push(client.watch(replica.aggregated_api, "/podresources?watch=true", "application/json").await);
    }
    for lines in &mut watches {
        for _ in 0..NODES * SHARES {
            lines.next().await.expect("a pod");
        }
    }
    say(&format!("{WATCHES} watches that have read all"));
    for _ in 0..LISTS {
        let list = client.get(replica.aggregated_api, "/podresources").await;
        assert_eq!(list["items"].as_array().expect("items").len(), NODES * SHARES);
    }
    assert!(say(&format!("{LISTS} lists")) <= BUDGET);
}
