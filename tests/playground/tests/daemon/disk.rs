//! Directories that can't be written.

use std::fs;

use serde_json::json;

use crate::bench::{Bench, Stderr, length, part};

#[tokio::test]
async fn cdi_by_name_fails_where_its_directory_cannot_be_written_and_auto_does_without() {
    let mut bench = Bench::stopped(json!({ "deviceListStrategy": "cdi-cri" })).await;
    // A directory can't be made below a file, not even by root.
    fs::write(bench.path("file"), "").unwrap();
    let cdi = bench.path("file/cdi");
    bench.set_key("cdiDir", cdi.to_str().unwrap());
    bench.start(Stderr::Log).await;
    bench.ready().await;
    let message = bench.refused(part("100")).await;
    let said = ["which deviceListStrategy demands", "writing CDI specification", "mount cdiDir writable"];
    assert!(said.iter().all(|said| message.contains(said)), "{message}");
    bench.kill().await;
    bench.set_key("deviceListStrategy", "auto");
    let before = bench.kubelet.view().registrations.len();
    bench.start(Stderr::Log).await;
    bench.registered(before).await;
    bench.ready().await;
    let uid = bench.run(part("100")).await;
    let (_, metrics) = bench.page("/metrics").await.unwrap();
    let delivered = r#"divvy_delivery_strategy_info{strategy="volume-mounts",bypassable="false",reason="auto: no CDI"#;
    assert!(metrics.contains(delivered), "{metrics}");
    let given = bench.kubelet.view().pods[&uid].containers[0].given.clone().unwrap();
    assert!(given.cdi_devices.is_empty());
    assert!(
        given.mounts.iter().any(|mount| mount.container_path.starts_with("/var/run/nvidia-container-devices/GPU-"))
    );
}

#[tokio::test]
async fn a_full_disk_fails_pods_cleanly_and_loses_nothing() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("1000")).await;
    let given = bench.given(&uid);
    bench.limit_file_size(Some(length(&bench.journal()) + 100)).await;
    let message = bench.refused(part("2000")).await;
    assert!(message.contains("cannot write the ledger's journal: File too large"), "{message}");
    bench.limit_file_size(Some(10)).await;
    let message = bench.refused(part("2000")).await;
    assert!(message.contains("writing limits") && message.contains("File too large"), "{message}");
    bench.limit_file_size(None).await;
    bench.run(part("3000")).await;
    bench.until_booked(&[1000, 3000]).await;
    bench.killed(|_| {}).await;
    bench.until_booked(&[1000, 3000]).await;
    assert_eq!(bench.given(&uid), given);
    assert_eq!(fs::read_dir(bench.path("run/containers")).unwrap().count(), 2, "no directory of a pod that failed");
}

#[tokio::test]
async fn a_log_that_cannot_be_written_ends_nothing() {
    let mut bench = Bench::stopped(json!({})).await;
    bench.start(Stderr::Full).await;
    bench.ready().await;
    bench.run(part("100")).await;
    assert!(bench.runs());
}
