//! A daemon that is killed, with regions in use and regions half removed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::attacks::{files, nest};
use crate::node::{Node, Region};

#[tokio::test(flavor = "multi_thread")]
async fn mounted_region_outlives_the_daemon() {
    let Some(mut node) = Node::new(Region::Bounded).await else { return };
    let uid = node.run().await;
    let books = node.region(&uid).join("books");
    let before = fs::metadata(&books).unwrap().ino();
    assert_eq!(node.mounts().len(), 2);
    node.kill().await;
    node.start().await;
    node.restart_container(&uid).await;
    assert_eq!(node.mounts().len(), 2, "each once");
    assert_eq!(fs::metadata(&books).unwrap().ino(), before, "processes may be using it");
    node.survives(&uid).await;
    assert_eq!(node.mounts().len(), 3, "the innocent tenant's and two new ones");
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_goes_on_after_a_crash_and_delays_no_start() {
    let mut node = Node::new(Region::Plain).await.expect("needs no mounts");
    let uids = [node.run().await, node.run().await];
    for uid in &uids {
        assert_eq!(nest(&node.region(uid), 5000), 5000);
        assert_eq!(files(&node.region(uid), 50_000), 50_000);
    }
    node.end(&uids[0]).await;
    node.until_dead("its turn", |left| left > 0).await;
    node.kill().await;
    node.delete(&uids[1]).await;
    node.start().await;
    node.serves().await;
    node.until_containers("nothing but live ones", |left| left == 2).await;
    node.until_dead("removal", |left| left == 0).await;
}
