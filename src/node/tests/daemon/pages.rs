//! What is served over HTTP.

use serde_json::json;

use crate::bench::{Bench, Stderr, part};

#[tokio::test]
async fn metrics_readyz_and_configz_answer() {
    let mut bench = Bench::new().await;
    bench.run(part("100")).await;
    assert_eq!(bench.page("/healthz").await, Some((200, "ok\n".to_owned())));
    assert_eq!(bench.page("/readyz").await, Some((200, "ok\n".to_owned())));
    assert_eq!(bench.page("/nothing").await.unwrap().0, 404);
    let (status, config) = bench.admin_page("/config").await.unwrap();
    assert!(status == 200 && config.contains("nodeName: node") && config.contains("slotsPerCard: 32"), "{config}");
    let (status, metrics) = bench.page("/metrics").await.unwrap();
    assert_eq!(status, 200);
    let described =
        |line: &&str| line.starts_with("# HELP") || line.starts_with("# TYPE") || line.starts_with("# UNIT");
    let described: Vec<&str> = metrics.lines().filter(described).collect();
    insta::assert_snapshot!(described.join("\n"));
    assert!(metrics.contains(r#"divvy_device_plugin_calls_total{call="Allocate",outcome="ok"} 1"#), "{metrics}");
    let delivered = r#"divvy_device_list_strategy_info{strategy="envvar",bypassable="true",reason="configured"} 1.0"#;
    assert!(metrics.contains(delivered), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    bench.kill().await;
}

#[tokio::test]
async fn usage_and_config_answer_at_admin_address_alone() {
    let bench = Bench::new().await;
    for path in ["/usage", "/config"] {
        assert_eq!(bench.page(path).await.unwrap().0, 404, "{path}");
        assert_eq!(bench.admin_page(path).await.unwrap().0, 200, "{path}");
    }
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(bench.admin_page(path).await.unwrap().0, 404, "{path}");
    }
}

#[tokio::test]
async fn admin_address_of_all_interfaces_exits_with_64() {
    let mut bench = Bench::stopped(json!({ "adminAddress": "0.0.0.0:9404" })).await;
    bench.start(Stderr::Log).await;
    assert_eq!(bench.ended().await.code(), Some(64));
    let said = "\"0.0.0.0:9404\" is not a loopback address with a port: expected one such as 127.0.0.1:9404";
    assert!(bench.log().contains(said), "{}", bench.log());
}

#[tokio::test]
async fn readyz_is_ok_once_registered() {
    let mut bench = Bench::stopped(json!({})).await;
    bench.kubelet.set_faults(|faults| faults.pods = fake_kubelet::PodsFault::Refused);
    bench.start(Stderr::Log).await;
    let (status, missing) = bench.until_so("the page", async || bench.page("/readyz").await).await;
    assert!(status == 503 && missing.contains("not registered with the kubelet"), "{status} {missing}");
    bench.kubelet.set_faults(|faults| faults.pods = fake_kubelet::PodsFault::None);
    bench.until_so("readiness", async || bench.page("/readyz").await.filter(|(status, _)| *status == 200)).await;
}
