//! Regions that are full, and file systems that are.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::attacks::files;
use crate::node::{Node, Region};

/// Writes until there is no room.
fn fill(region: &Path) -> usize {
    let mut file = File::create(region.join("fill")).unwrap();
    (0..1 << 20).take_while(|_| file.write_all(&[1; 4096]).is_ok()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn full_region_is_the_tenants_own_problem() {
    for attack in [fill, |region: &Path| files(region, 1000)] {
        let Some(mut node) = Node::new(Region::Bounded).await else { return };
        let uid = node.run().await;
        assert!(attack(&node.region(&uid)) < 100, "less than 400 KiB, and less than 100 files");
        node.measured().await;
        node.restart_container(&uid).await;
        node.survives(&uid).await;
    }
}

/// As docs/operate.md has it where nothing can be mounted.
#[tokio::test(flavor = "multi_thread")]
async fn full_run_directory_is_emptied_with_the_pod() {
    for attack in [fill, |region: &Path| files(region, 10_000)] {
        let Some(mut node) = Node::new(Region::Small).await else { return };
        let uid = node.run().await;
        assert!(attack(&node.region(&uid)) > 100);
        let message = node.refused().await;
        assert!(message.contains("No space left on device"), "{message}");
        node.end(&uid).await;
        node.until_dead("removal", |left| left == 0).await;
        node.serves().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn region_states_whether_it_is_bounded() {
    for (kind, value) in [(Region::Plain, "0.0"), (Region::Bounded, "1.0")] {
        let Some(node) = Node::new(kind).await else { continue };
        let metrics = node.page("metrics").await;
        assert!(metrics.contains(&format!("divvy_regions_bounded{{}} {value}")), "{metrics}");
        let warned = node.log().matches("containers can fill the file system of runDir").count();
        assert_eq!(warned, usize::from(kind == Region::Plain), "{}", node.log());
        assert_eq!(node.mounts().len(), usize::from(kind == Region::Bounded), "the innocent tenant's");
    }
}
