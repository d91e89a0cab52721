//! What happens to cards.

use std::fs;

use divvy_testkit::pods::GPU;
use fake_kubelet::KubeletView;
use fake_nvml::{Call, CardState, Scenario};

use crate::bench::{Bench, MEMORY, Stderr, binaries, part, pod};

fn healthy_of(view: &KubeletView, card: u32) -> usize {
    let of_card = |id: &&String| id.starts_with(&Scenario::uuid(card));
    view.healthy.get(GPU).into_iter().flatten().filter(of_card).count()
}

#[tokio::test]
async fn nvml_may_come_late() {
    let mut bench = Bench::stopped(serde_json::json!({})).await;
    let library = bench.path("host/usr/lib64/libnvidia-ml.so.1");
    fs::write(&library, "").unwrap();
    bench.start(Stderr::Log).await;
    bench
        .until_so("a word about NVML", async || {
            Some(bench.page("/readyz").await?.1).filter(|text| text.contains("NVML"))
        })
        .await;
    assert_eq!(bench.page("/healthz").await.unwrap().0, 200, "{}", bench.log());
    assert_eq!(bench.kubelet.view().registrations.len(), 0, "nothing is promised before the cards are known");
    fs::copy(&binaries().await.nvml, bench.path("unfinished")).unwrap();
    fs::rename(bench.path("unfinished"), library).unwrap();
    bench.ready().await;
    bench.run(part("100")).await;
}

#[tokio::test]
async fn hanging_nvml_call_affects_its_own_gpu_alone() {
    let mut bench = Bench::new().await;
    let call = Call::about("nvmlDeviceGetMemoryInfo_v2", &Scenario::uuid(0));
    bench.change_scenario(|scenario| scenario.hangs.extend([(call.clone(), 3_600_000)]));
    bench.until("card 0 to be unhealthy", |view| healthy_of(view, 0) == 0 && healthy_of(view, 1) == 32).await;
    let uid = bench.run(pod(&[(GPU, "1")])).await;
    assert_eq!(bench.given(&uid), [(Scenario::uuid(1), MEMORY)]);
    bench.change_scenario(|scenario| scenario.hangs.clear());
    bench.ready_beside_full(1, 1).await;
}

#[tokio::test]
async fn lost_gpu_turns_unhealthy_and_returns() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("100")).await;
    let (card, _) = bench.given(&uid)[0].clone();
    let lost = u32::from(card != Scenario::uuid(0));
    bench.change_scenario(|scenario| scenario.card_mut(&card).unwrap().state = CardState::Lost);
    bench
        .until("its slots to be unhealthy", |view| healthy_of(view, lost) == 0 && healthy_of(view, 1 - lost) == 32)
        .await;
    assert_eq!(bench.kubelet.view().listed[GPU].len(), 64, "listed all the same");
    bench.until_booked(&[100]).await;
    bench.change_scenario(|scenario| scenario.card_mut(&card).unwrap().state = CardState::Present);
    bench.ready().await;
    assert_eq!(bench.given(&uid), [(card, 100)]);
}

#[tokio::test]
async fn slots_of_gpu_lost_while_daemon_is_down_stay_listed() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("100")).await;
    let (card, _) = bench.given(&uid)[0].clone();
    let slots = bench.kubelet.view().pods[&uid].containers[0].devices[GPU].clone();
    bench.kill().await;
    bench.change_scenario(|scenario| scenario.card_mut(&card).unwrap().state = CardState::Gone);
    let before = bench.kubelet.view().registrations.len();
    bench.start(Stderr::Log).await;
    bench.registered(before).await;
    bench.until("the held slot", |view| view.listed.get(GPU).is_some_and(|listed| slots.is_subset(listed))).await;
    assert!(slots.is_disjoint(&bench.kubelet.view().healthy[GPU]));
    bench.kubelet.restart_container(&uid, "main").unwrap();
    bench.until("another start", |view| view.pods[&uid].containers[0].starts == 2).await;
    assert_eq!(bench.given(&uid), [(card, 100)]);
}
