//! The daemon's books, as its `/metrics` show them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;

use crate::outside::NodeView;
use crate::pages::page;

/// How long the books may lag behind.
pub const LAG: Duration = Duration::from_secs(10);

/// Bytes of card memory by pod, container and card.
pub type Books = BTreeMap<(String, String, String), u64>;

/// Reads `divvy_share_memory_bytes`.
pub async fn read(address: SocketAddr) -> anyhow::Result<Books> {
    Ok(parse(&page(address, "metrics").await?))
}

/// The same, and the revision of the ledger that says so.
pub async fn read_with_revision(address: SocketAddr) -> anyhow::Result<(Books, u64)> {
    let text = page(address, "metrics").await?;
    let revision = text.lines().find_map(|line| bytes(line.strip_prefix("divvy_ledger_revision")?.rsplit_once(' ')?.1));
    Ok((parse(&text), revision.context("no divvy_ledger_revision among the metrics")?))
}

/// What the books should say: what every container of a live pod holds, ended init containers included.
pub fn expected(node: &NodeView) -> Books {
    let mut books = Books::new();
    for pod in &node.pods {
        for container in &pod.containers {
            let Some(request) = container.request else { continue };
            let held = container.cards();
            for card in node.cards.iter().filter(|card| held.contains(card.id.as_str())) {
                let bytes = request.share_on(card.memory).memory.as_mib() << 20;
                books.insert((pod.name.clone(), container.name.clone(), card.id.to_string()), bytes);
            }
        }
    }
    books
}

/// The first difference, in words.
pub fn difference(expected: &Books, found: &Books) -> Result<(), String> {
    let keys = expected.keys().chain(found.keys());
    let differs = |key: &&(String, String, String)| expected.get(*key) != found.get(*key);
    let Some(key @ (pod, container, card)) = keys.into_iter().find(differs) else { return Ok(()) };
    let amount = |books: &Books| books.get(key).map_or("nothing".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    Err(format!("{pod} container {container}, card {card}: given {}, booked {}", amount(expected), amount(found)))
}

fn parse(text: &str) -> Books {
    let lines = text.lines().filter_map(|line| line.strip_prefix("divvy_share_memory_bytes{")?.split_once("} "));
    lines.filter_map(|(labels, value)| Some((key(labels)?, bytes(value)?))).collect()
}

fn key(labels: &str) -> Option<(String, String, String)> {
    let labels: BTreeMap<&str, &str> = labels.split(',').filter_map(|label| label.split_once('=')).collect();
    let value = |name: &str| labels.get(name).map(|value| value.trim_matches('"'));
    let pod = format!("{}/{}", value("namespace")?, value("pod")?);
    Some((pod, value("container")?.to_owned(), value("uuid")?.to_owned()))
}

/// A gauge is printed as a decimal fraction.
fn bytes(value: &str) -> Option<u64> {
    value.trim().strip_suffix(".0").unwrap_or(value.trim()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# TYPE divvy_share_memory_bytes gauge
divvy_share_memory_bytes{namespace="default",pod="p",container="main",uuid="GPU-a"} 8589934592.0
divvy_share_compute_ratio{namespace="default",pod="p",container="main",uuid="GPU-a"} 0.3
"#;

    #[test]
    fn shares_are_read_from_metrics_and_compared() {
        let found = parse(TEXT);
        let key = ("default/p".to_owned(), "main".to_owned(), "GPU-a".to_owned());
        assert_eq!(found, [(key.clone(), 8 << 30)].into());
        assert_eq!(difference(&found, &found), Ok(()));
        let other = difference(&[(key, 9 << 30)].into(), &found).expect_err("differs");
        assert_eq!(other, "default/p container main, card GPU-a: given 9216 MiB, booked 8192 MiB");
        assert!(difference(&Books::new(), &found).expect_err("a leak").ends_with("given nothing, booked 8192 MiB"));
        assert!(difference(&found, &Books::new()).expect_err("a loss").ends_with("given 8192 MiB, booked nothing"));
    }
}
