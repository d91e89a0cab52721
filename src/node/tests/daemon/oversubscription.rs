//! Oversubscribed memory: two keys, pods that ask for it, and what is reported of it.

use std::fs;

use divvy_testkit::outside::Given;
use fake_kubelet::Workload;
use serde_json::{Value, json};

use crate::bench::{Bench, MEMORY, Stderr, part};

/// At a scale of 1.1 it takes half of a GPU, and the rest of the host.
pub(crate) const ASKED: u64 = 9011;
const OF_HOST: u64 = ASKED - MEMORY / 2;

/// A pod that asks for oversubscription.
pub(crate) fn asking(mib: u64) -> Workload {
    part(&mib.to_string()).annotation("divvy.dev/oversubscribe", "true")
}

/// A node that oversubscribes its GPUs' memory by a scale of 1.1, with 2000 MiB of the host's.
pub(crate) async fn oversubscribing(mut bench: Bench) -> Bench {
    fs::write(bench.path("libdivvy.so"), b"\x7fELF").unwrap();
    for (key, value) in [("tier", "shim"), ("memoryScale", "1.1"), ("oversubscribeHostMemory", "2000Mi")] {
        bench.set_key(key, value);
    }
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench
}

/// The line of the pod's limits file about its card.
fn limits(bench: &Bench, uid: &str) -> String {
    let given = bench.kubelet.view().pods[uid].containers[0].given.clone().expect("it was started");
    let mount = given.mounts.iter().find(|mount| mount.container_path == "/var/run/divvy/limits").expect("mounted");
    let text = fs::read_to_string(format!("{}/limits", mount.host_path)).unwrap();
    assert!(Given::read(&given).limits.expect("mounted").is_ok(), "{text}");
    text.lines().find(|line| line.starts_with("card ")).expect("a card").to_owned()
}

/// Values of a gauge without its labels.
async fn gauge(bench: &Bench, name: &str) -> Vec<String> {
    let (_, metrics) = bench.page("/metrics").await.expect("it answers");
    let lines = metrics.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    lines.map(|line| line.rsplit_once(' ').expect("a value").1.to_owned()).collect()
}

#[tokio::test]
async fn oversubscribed_gpu_and_host_memory_survive_restarts() {
    let mut bench = oversubscribing(Bench::stopped(json!({})).await).await;
    let [a, b] = [bench.run(asking(ASKED)).await, bench.run(asking(ASKED)).await];
    let given = [bench.given(&a), bench.given(&b)];
    assert_eq!(given[0], given[1], "of one GPU, which has less: {MEMORY}");
    let card = given[0][0].0.clone();
    let expected = format!("card {card} memory-mib {ASKED} cores 0 exclusive 0 host-mib {OF_HOST}");
    assert_eq!([limits(&bench, &a), limits(&bench, &b)], [expected.clone(), expected.clone()]);

    let ordinary = bench.refused(part("100").annotation("divvy.dev/card-uuid", &*card)).await;
    assert!(ordinary.contains("1 holding pods with oversubscribed memory"), "{ordinary}");
    let third = bench.refused(asking(ASKED)).await;
    let short = "1 short of memory, largest free 0Mi; 1 short of host memory, 819Mi needed, 362Mi left";
    assert!(third.contains(short), "{third}");
    let huge = bench.refused(asking(MEMORY + 1)).await;
    assert!(huge.contains("2 too small, largest 16Gi"), "{huge}");
    let other = bench.run(part("100")).await;
    assert_ne!(bench.given(&other)[0].0, card);
    let mixed = bench.refused(asking(1000)).await;
    assert!(mixed.contains("1 holding pods without oversubscribed memory"), "{mixed}");

    let journal = |bench: &Bench| fs::remove_file(bench.journal()).unwrap();
    let nothing: fn(&Bench) = |_| {};
    for meanwhile in [nothing, journal] {
        bench.killed(meanwhile).await;
        bench.until_booked(&[ASKED, ASKED, 100]).await;
        assert_eq!(gauge(&bench, "divvy_share_host_memory_bytes").await, vec![(OF_HOST << 20).to_string() + ".0"; 2]);
        for uid in [&a, &b] {
            bench.kubelet.restart_container(uid, "main").unwrap();
            bench.until("another start", |view| view.pods[uid].containers[0].starts > 1).await;
        }
        assert_eq!([limits(&bench, &a), limits(&bench, &b)], [expected.clone(), expected.clone()]);
        let third = bench.refused(asking(ASKED)).await;
        assert!(third.contains("1 holding pods without oversubscribed memory"), "{third}");
    }
    bench.gone(&a).await;
    bench.until_booked(&[ASKED, 100]).await;
    let c = bench.run(asking(ASKED)).await;
    assert_eq!(bench.given(&c)[0].0, card);
}

#[tokio::test]
async fn host_memory_is_published_beside_the_gpus() {
    let bench = Bench::joined().await;
    bench.define();
    let bench = oversubscribing(bench).await;
    let told = bench.until_told("oversubscription", |status| status.oversubscription.is_some()).await;
    assert_eq!(json!(told.oversubscription), json!({ "memoryScale": 110, "hostMemoryMi": 2000 }));
    assert_eq!((told.scales.memory, &*told.summary.memory), (100, "0Mi/32Gi"), "ordinary pods get no more than that");
    bench.until_offered([2 * MEMORY, 200, 200]).await;
    let uid = bench.run(asking(ASKED)).await;
    // Half of the GPU is left, on which 1.1 times as much fits.
    bench.until_offered([ASKED + ASKED + MEMORY, 54 + 100, 200]).await;
    let told = bench.until_told("the share", |status| status.shares.len() == 1).await;
    let share: Value = json!(told.shares[0]);
    assert_eq!((&share["memoryMi"], &share["hostMemoryMi"]), (&json!(ASKED), &json!(OF_HOST)));
    assert_eq!(told.summary.memory, "8Gi/32Gi");
    let annotation = bench.until_annotated(&uid).await;
    assert_eq!(annotation["containers"]["main"][0]["hostMemoryMi"], OF_HOST);
    let mib = |mib: u64| (mib << 20).to_string() + ".0";
    assert_eq!(gauge(&bench, "divvy_host_memory_allocatable_bytes").await, [mib(2000)]);
    assert_eq!(gauge(&bench, "divvy_gpu_memory_allocated_bytes").await, [mib(MEMORY / 2), mib(0)]);
    assert_eq!(gauge(&bench, "divvy_gpu_host_memory_allocated_bytes").await, [mib(OF_HOST), mib(0)]);
    assert_eq!(gauge(&bench, "divvy_share_memory_bytes").await, [mib(ASKED)]);
}

#[tokio::test]
async fn one_key_of_oversubscription_alone_exits_with_64() {
    let mut bench = Bench::stopped(json!({ "memoryScale": "1.1", "tier": "accounting" })).await;
    for (host_memory, what) in [
        ("0", "memoryScale 1.1 and oversubscribeHostMemory 0: nothing holds what the GPUs don't"),
        ("2000Mi", "memoryScale 1.1 and oversubscribeHostMemory 2000Mi: only tier shim limits"),
    ] {
        bench.set_key("oversubscribeHostMemory", host_memory);
        bench.start(Stderr::Log).await;
        assert_eq!(bench.ended().await.code(), Some(64));
        assert!(bench.log().contains(what), "{}", bench.log());
    }
    fs::write(bench.path("libdivvy.so"), b"\x7fELF").unwrap();
    bench.set_key("tier", "shim");
    bench.set_key("oversubscribeHostMemory", "1Pi");
    bench.start(Stderr::Log).await;
    assert_eq!(bench.ended().await.code(), Some(64));
    assert!(bench.log().contains("oversubscribeHostMemory 1048576Gi: more than the node's"), "{}", bench.log());
}
