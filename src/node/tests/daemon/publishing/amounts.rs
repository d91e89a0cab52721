//! Amounts on the Node.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use divvy_api::names::annotation::GENERATION;
use divvy_testkit::pods::GPU;
use fake_kubelet::Phase;

use crate::bench::cluster::amounts;
use crate::bench::{Bench, MEMORY, part, pod};

/// Of both cards, in MiB.
const ALL: u64 = 2 * MEMORY;

#[tokio::test]
async fn amounts_follow_pods_of_every_form() {
    let bench = Bench::publishing().await;
    bench.until_offered([ALL, 200, 200]).await;
    let mut uids = vec![bench.run(part("4096")).await];
    // 4 of 16 GiB are held by their amount: three quarters of that card and all of the other are free.
    bench.until_offered([ALL, 175, 200]).await;
    uids.push(bench.run(pod(&[(GPU, "1"), ("nvidia.com/gpumem-percentage", "25")])).await);
    bench.until_offered([ALL - 4096, 175, 200]).await;
    uids.push(bench.run(pod(&[(GPU, "1"), ("nvidia.com/gpumem", "1024"), ("nvidia.com/gpucores", "30")])).await);
    // 7 of 16 GiB are free on the first card, which is 43 %.
    bench.until_offered([ALL - 4096, 25 + 43 + 100, 200]).await;
    uids.push(bench.run(pod(&[(GPU, "1")])).await);
    bench.until_offered([MEMORY - 4096, 25 + 43, 100]).await;
    for uid in &uids {
        bench.gone(uid).await;
    }
    bench.until_offered([ALL, 200, 200]).await;
}

#[tokio::test]
async fn refused_pod_is_kept_away_until_it_fits() {
    let bench = Bench::publishing().await;
    let first = bench.run(part("10000")).await;
    bench.run(part("10000")).await;
    assert!(bench.refused(part("10000")).await.contains("no-fit"));
    // By then, as the next pod comes within milliseconds. 6384 MiB are free on each GPU, 12768 in all.
    let offered = bench.server().read(amounts);
    assert_eq!(offered, Some([20_000 + 9999, 38 + 38, 200]), "{}", bench.log());
    bench.run(part("6000")).await;
    let offered = bench.server().read(amounts);
    assert_eq!(offered, Some([26_000 + 6768, 38 + 2, 200]), "what fits passes, and is shown at once: {}", bench.log());
    bench.gone(&first).await;
    bench.until_shown("all memory", |view| amounts(view).filter(|[memory, ..]| *memory == ALL)).await;
    bench.run(part("10000")).await;
}

#[tokio::test]
async fn full_gpus_offer_no_free_slots() {
    let bench = Bench::publishing().await;
    let devices = |expected: u64| {
        move |view: &fake_apiserver::View<'_>| {
            let count = view.get("Node", "", "node")?["status"]["allocatable"][GPU].as_str()?.parse::<u64>().ok();
            (count == Some(expected)).then_some(())
        }
    };
    bench.until_shown("all slots", devices(64)).await;
    let whole = [bench.run(pod(&[(GPU, "1")])).await, bench.run(pod(&[(GPU, "1")])).await];
    bench.until_shown("the slots that are held", devices(2)).await;
    assert!(bench.refused(pod(&[(GPU, "1")])).await.contains("Available: 0"));
    bench.gone(&whole[0]).await;
    bench.until_shown("those of a free GPU", devices(33)).await;
}

#[tokio::test]
async fn amounts_that_were_zeroed_or_dropped_come_back_at_once() {
    let bench = Bench::publishing().await;
    bench.run(part("4096")).await;
    bench.until_offered([ALL, 175, 200]).await;
    for changes in 1..=5 {
        let edited = bench.server().edit("Node", "", "node", |node| {
            let (capacity, allocatable) =
                (&mut node["status"]["capacity"].take(), &mut node["status"]["allocatable"].take());
            capacity["nvidia.com/gpumem"] = "0".into();
            allocatable["nvidia.com/gpumem"] = "1".into();
            for amounts in [&mut *capacity, &mut *allocatable] {
                amounts.as_object_mut().unwrap().remove("nvidia.com/gpucores");
            }
            (node["status"]["capacity"], node["status"]["allocatable"]) = (capacity.take(), allocatable.take());
        });
        edited.unwrap();
        // A second is promised; what this machine does beside that isn't known.
        let soon = Duration::from_secs(10);
        bench.until_shown_within(soon, "amounts", |view| (amounts(view)? == [ALL, 175, 200]).then_some(())).await;
        assert_eq!(bench.log().matches("not published").count(), 0, "change {changes}: {}", bench.log());
    }
}

#[tokio::test]
async fn restarted_kubelet_readmits_running_pods_against_amounts() {
    let bench = Bench::publishing().await;
    let percent = pod(&[(GPU, "1"), ("nvidia.com/gpumem-percentage", "25"), ("nvidia.com/gpucores", "60")]);
    let uids = [bench.run(part("12000")).await, bench.run(percent).await, bench.run(part("9000")).await];
    let offered = bench
        .until_shown("amounts that leave out what is held as a percentage", |view| {
            amounts(view).filter(|[memory, ..]| *memory == ALL - MEMORY / 4)
        })
        .await;
    let names = ["nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"];
    for (name, amount) in names.into_iter().zip(offered) {
        bench.kubelet.set_allocatable(name, Some(amount));
    }
    bench.restart_kubelet(false).await;
    let running = |phases: &BTreeMap<String, fake_kubelet::PodView>| {
        uids.iter().all(|uid| phases[uid].listed && phases[uid].phase == Phase::Running)
    };
    bench.until("all pods to be listed again", |view| running(&view.pods)).await;
    let refused = bench.kubelet.view().pods.values().filter(|pod| pod.failure.is_some()).count();
    assert_eq!(refused, 0, "{:#?}", bench.kubelet.view().pods);
}

#[tokio::test]
async fn release_is_one_write_of_the_node() {
    let bench = Bench::publishing().await;
    let uid = bench.run(part("4096")).await;
    bench.until_offered([ALL, 175, 200]).await;
    let before = bench.server().requests().len();
    bench.gone(&uid).await;
    bench.until_offered([ALL, 200, 200]).await;
    // Another pod's share, so that a second write of the release would be known.
    let next = bench.run(part("8192")).await;
    bench.until_annotated(&next).await;
    let written = bench.server().requests().split_off(before).into_iter();
    let nodes = written.filter(|asked| asked.verb == "patch" && asked.resource == "nodes").count();
    assert_eq!(nodes, 1, "amounts alone");
    let node = bench.server().get("Node", "", "node").unwrap();
    assert_eq!(node["metadata"]["annotations"].get(GENERATION), None, "it is the webhook's");
}

#[tokio::test]
async fn churn_writes_node_and_gpu_node_twice_a_second_at_most() {
    let bench = Bench::publishing().await;
    let writes = || {
        let counted = |resource: &str| matches!(resource, "nodes" | "gpunodes.divvy.dev");
        bench.server().read(|view| {
            view.requests().iter().filter(|asked| counted(&asked.resource) && asked.verb == "patch").count()
        })
    };
    let (start, first) = (Instant::now(), writes());
    let (mut pods, mut windows, mut last) = (0, Vec::new(), first);
    while windows.len() < 6 {
        let second = Instant::now();
        while second.elapsed() < Duration::from_secs(1) {
            let uid = bench.run(part("100")).await;
            bench.gone(&uid).await;
            pods += 1;
        }
        let now = writes();
        windows.push(now - last);
        last = now;
    }
    // A window may hold a round more than a second does, and is longer by the pod that was still on its way.
    let (all, seconds) = (last - first, start.elapsed().as_secs() + 1);
    assert!(pods > 12, "{pods} pods are no churn");
    assert!(all > 4, "the churn is told: {windows:?}");
    assert!(u64::try_from(all).unwrap() <= 2 * seconds + 2, "{all} writes in {seconds} s: {windows:?}");
    assert!(windows.iter().all(|writes| *writes <= 6), "{windows:?}");
}
