//! Directories and files without number.

use std::path::Path;

use crate::attacks::{LONG, files, nest, odd_names, siblings};
use crate::node::{Node, Region};

/// Runs one pod that makes things, and ends it. What a region of a bounded size can hold is far from what was wanted.
async fn outlive(wanted: usize, attack: fn(&Path, usize) -> usize) {
    for kind in [Region::Plain, Region::Bounded] {
        let Some(mut node) = Node::new(kind).await else { continue };
        let uid = node.run().await;
        let made = attack(&node.region(&uid), wanted);
        assert!(if kind == Region::Bounded { made < 64 } else { made == wanted }, "{kind:?}: {made}");
        node.survives(&uid).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_directories_are_removed() {
    outlive(40_000, nest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_thousand_files_are_removed() {
    outlive(100_000, files).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn million_files_are_removed() {
    outlive(1_000_000, files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_side_by_side_are_removed() {
    outlive(20_000, siblings).await;
}

/// Beside the million that one tenant leaves, another's end is a matter of moments.
#[tokio::test(flavor = "multi_thread")]
async fn large_region_delays_no_other_removal() {
    let mut node = Node::new(Region::Plain).await.expect("needs no mounts");
    let (large, small) = (node.run().await, node.run().await);
    assert_eq!(files(&node.region(&large), 200_000), 200_000);
    assert_eq!(files(&node.region(&small), 10), 10);
    node.end(&large).await;
    node.end(&small).await;
    node.until_dead("the small one's end", |left| left <= 1).await;
    node.until_dead("removal", |left| left == 0).await;
    node.serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn longest_and_oddest_names_are_removed() {
    outlive(LONG, odd_names).await;
}
