//! Nodes that nobody runs, as each of the systems expects them: the same objects for all.

use anyhow::Context as _;
use divvy_e2e::api::Part;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::fakes::{self, Fake};
use serde_json::json;
use tokio::task::JoinSet;

use crate::systems::{gpushare, hami};

/// GPUs of each node.
pub(crate) const CARDS: u32 = 8;
/// MiB of each GPU.
pub(crate) const CARD_MEMORY: u32 = 80 << 10;
/// Annotated at a time.
const AT_ONCE: usize = 50;

/// Name of one of them.
pub(crate) fn name(number: usize) -> String {
    format!("gpu-node-{number:05}.example")
}

/// UUID of a GPU of a node.
pub(crate) fn uuid(node: usize, card: u32) -> String {
    format!("GPU-5f3a9c10-{node:04x}-4000-8000-{card:012}")
}

/// Creates nodes of these numbers.
pub(crate) async fn make(cluster: &Cluster, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    fakes::make(cluster, numbers.clone().map(fake).collect()).await?;
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        let mut annotated = JoinSet::new();
        for number in numbers.by_ref().take(AT_ONCE) {
            let (api, name) = (cluster.api.clone(), name(number));
            annotated.spawn(async move {
                let change = json!({"metadata": {"annotations": hami::annotations(number)}});
                api.patch(&format!("/api/v1/nodes/{name}"), Part::Object, &change).await
            });
        }
        annotated.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>().context("annotating nodes")?;
    }
    Ok(())
}

fn fake(node: usize) -> Fake {
    let mut amounts = json!({
        "cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": (CARDS * 32).to_string(),
        "nvidia.com/gpumem": (CARDS * CARD_MEMORY).to_string(),
        "nvidia.com/gpumem-percentage": (CARDS * 100).to_string(),
        "nvidia.com/gpucores": (CARDS * 100).to_string(),
    });
    for (resource, amount) in gpushare::AMOUNTS {
        amounts[resource] = json!(amount.to_string());
    }
    let card = |number: u32| {
        let classes: Vec<&str> = (0..CARDS).map(|other| if other == number { "X" } else { "NV18" }).collect();
        json!({
            "uuid": uuid(node, number), "model": "NVIDIA H100 80GB HBM3", "memoryMi": CARD_MEMORY,
            "health": "Healthy", "topology": classes.join(" "),
        })
    };
    let cards = (0..CARDS).map(card).collect();
    Fake { name: name(node), amounts, cards }
}
