//! Pods that a tenant has made as large as etcd takes them: no GPU, no scheduler and no right of their own is needed for that.

use divvy_testkit::process::resident;
use fake_kubelet::{PodsFault, Workload};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use serde_json::json;

use crate::bench::{Bench, Stderr, part};

const PODS: usize = 100;
/// Bytes of `<`, of which JSON makes six times as many: 780 MB a list.
const LENGTH: usize = 1_300_000;
/// MiB that the daemon may have resident at any time: half of its limit in `deploy/manifests/node-daemonset.yaml`.
const MOST: u64 = 64;

fn large(number: usize) -> Pod {
    let mut pod = Workload::new(format!("large-{number}")).app("main", &[]).pod();
    let variable = EnvVar { name: "A".to_owned(), value: Some("<".repeat(LENGTH)), ..EnvVar::default() };
    pod.spec.as_mut().unwrap().containers[0].env = Some(vec![variable]);
    pod
}

// === impl Bench ===

impl Bench {
    /// Lists that take seconds, as the stand-ins are built without optimization too.
    fn be_patient(&mut self) {
        self.set_key("kubeletTimeout", "10s");
        self.set_key("probeInterval", "60s");
    }

    /// Highest resident memory of the daemon in MiB.
    fn peak(&self) -> u64 {
        let [_, most] = resident(self.pid()).unwrap();
        most
    }

    async fn serves_beside_large_pods(&self) {
        let uid = self.run(part("100")).await;
        assert_eq!(self.given(&uid)[0].1, 100);
        let peak = self.peak();
        println!("{peak} MiB resident at most, with {PODS} pods of {LENGTH} times \"<\"");
        assert!(peak <= MOST, "{peak} MiB");
    }
}

#[tokio::test]
async fn kubelets_list_of_large_pods_is_read_in_little_memory() {
    let mut bench = Bench::stopped(json!({})).await;
    bench.be_patient();
    for number in 0..PODS {
        bench.kubelet.add_pod(large(number)).unwrap();
    }
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.serves_beside_large_pods().await;
}

#[tokio::test]
async fn api_servers_list_of_large_pods_is_read_in_little_memory() {
    let mut bench = Bench::joined().await;
    bench.define();
    bench.be_patient();
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Status(StatusCode::FORBIDDEN));
    for number in 0..PODS {
        bench.server().create(&json!(large(number))).unwrap();
    }
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.serves_beside_large_pods().await;
}
