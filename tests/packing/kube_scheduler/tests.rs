use std::sync::atomic::{AtomicU64, Ordering};

use divvy_api::annotation::PolicyName;
use rand::SeedableRng as _;

use super::*;
use crate::fixture::{host, kind, workload};

fn arrival(serial: u64, kind: usize) -> Arrival {
    Arrival { serial, kind }
}

/// An extender that expects nothing, so that a node with free cards is to have one soft taint.
fn extender(workload: &Arc<Workload>, cluster: &Cluster) -> Extender {
    Extender::new(PolicyName::Binpack, workload, cluster, &Target::default())
}

#[test]
fn in_tree_scores_prefer_empty_and_balanced_nodes() {
    let workload = workload(1, 1, &[(32_000, 1, 1000)]);
    let scores = InTree::new(&workload);
    // CPU is half free after, memory nearly all: (50 + 99) / 2. The balance was 100 and is 1 − (0.5 − 0.004) / 2, 75 %:
    // 50 + (50 + 75 − 100) / 2.
    assert_eq!(scores.of(&host(&[1000]), &workload.kinds[0]), 74 + 62);
    // The pod levels CPU and memory: (50 + 50) / 2, and the balance was 75 and is 100.
    let unbalanced = Host { memory: 131_072 + 1024, ..host(&[1000]) };
    assert_eq!(scores.of(&unbalanced, &workload.kinds[0]), 50 + 50 + (50 + 100 - 75) / 2);
}

#[test]
fn best_effort_pod_gets_no_balance_score() {
    let scores = InTree::new(&workload(1, 1, &[(0, 1, 1000)]));
    let half = Host { cpu: 32_000, ..host(&[1000]) };
    assert_eq!(scores.of(&half, &Kind { memory: 0, ..kind(0, 0, 0) }), 75);
    assert_eq!(scores.of(&half, &kind(0, 0, 0)), 74 + 75, "some memory");
}

#[test]
fn larger_clusters_are_searched_in_part() {
    assert_eq!([99, 100, 1213, 5000, 6000].map(enough_nodes), [99, 100, 497, 500, 300]);
}

#[test]
fn search_continues_after_the_nodes_of_the_last_one() {
    let workload = workload(400, 1, &[(1000, 1, 250)]);
    let cluster = Cluster::in_order(&workload, 0..400);
    let mut scheduler = KubeScheduler::new(&workload, None, 0, None);
    let mut search = || scheduler.feasible(&cluster, &workload.kinds[0]);
    // 50 − 400 / 125 is 47 percent: 188 nodes, and then the next 188, and then the rest and the first again.
    assert_eq!(search(), (0..188).collect::<Vec<_>>());
    assert_eq!(search(), (188..376).collect::<Vec<_>>());
    assert_eq!(search(), (376..400).chain(0..164).collect::<Vec<_>>());
}

#[test]
fn infeasible_nodes_are_passed_over() {
    let workload =
        workload(200, 2, &[(64_000, 1, 250), (1000, 1, 500), (1000, 1, 1000), (1000, 2, 1000), (1000, 1, 900)]);
    let [all_cpu, half, whole, both, most] = [0, 1, 2, 3, 4].map(|kind| workload.kinds[kind]);
    let mut cluster = Cluster::in_order(&workload, 0..200);
    cluster.place(&all_cpu, Place { host: 0, cards: Cards::one(0) });
    for (host, card) in [(2, 0), (2, 1), (3, 0), (3, 0), (3, 1)] {
        cluster.place(&half, Place { host, cards: Cards::one(card) });
    }
    // 100 of 200 are enough.
    let search = |kind: &Kind, extender| {
        let mut scheduler = KubeScheduler::new(&workload, extender, 16, None);
        let found = scheduler.feasible(&cluster, kind);
        (found[..2].to_vec(), found.len(), scheduler.next_start)
    };
    let knows_sums = || Some(extender(&workload, &cluster));
    assert_eq!(search(&most, knows_sums()), (vec![1, 2], 100, 102), "half of each card is as much as a card");
    assert_eq!(search(&most, None), (vec![1, 4], 100, 103), "no card has as much");
    assert_eq!(
        search(&whole, knows_sums()),
        (vec![1, 2], 100, 101),
        "whole cards are counted without looking who has them"
    );
    assert_eq!(search(&whole, None), (vec![1, 4], 100, 103), "no card is whole");
    assert_eq!(search(&both, knows_sums()), (vec![1, 2], 100, 101));
    assert_eq!(search(&kind(1000, 0, 0), knows_sums()), (vec![1, 2], 100, 101), "only CPU is short");
}

#[test]
fn refused_pod_is_tried_on_following_nodes() {
    let workload = workload(250, 1, &[(1000, 1, 1000)]);
    let mut cluster = Cluster::in_order(&workload, 0..250);
    let extender = extender(&workload, &cluster);
    let (kind, free) = (workload.kinds[0], 245);
    for (serial, host) in (1..).zip((0..250).filter(|host| *host != free)) {
        let cards = extender.bind(arrival(serial, 0), host).expect("a free card");
        cluster.place(&kind, Place { host, cards });
    }
    let mut scheduler = KubeScheduler::new(&workload, Some(extender), 16, None);
    let mut rng = Rng::seed_from_u64(1);
    let place = scheduler.choose(&cluster, arrival(1000, 0), &mut rng);
    // 120 of 250 are enough.
    assert_eq!(place.map(|place| (place.host, scheduler.next_start)), Some((free, 110)));
    assert_eq!(scheduler.choose(&cluster, arrival(1001, 0), &mut rng), None, "there is one card");
}

#[test]
fn nominated_node_is_the_best_of_all() {
    let workload = workload(250, 2, &[(1000, 1, 1000)]);
    let mut cluster = Cluster::in_order(&workload, 0..250);
    let extender = extender(&workload, &cluster);
    let (kind, half) = (workload.kinds[0], 245);
    let cards = extender.bind(arrival(1, 0), half).expect("a free card");
    cluster.place(&kind, Place { host: half, cards });
    let mut scheduler = KubeScheduler::new(&workload, Some(extender), 16, None).with_gates();
    let place = scheduler.choose(&cluster, arrival(2, 0), &mut Rng::seed_from_u64(1));
    assert_eq!(place.map(|place| (place.host, scheduler.next_start)), Some((half, 0)), "beyond the sample");
}

#[test]
fn taints_are_scored_against_the_most_tainted_node() {
    let scores = |taints: &[u32]| normalized_taints(taints.to_vec()).collect::<Vec<_>>();
    assert_eq!(scores(&[0, 1, 2]), [100, 50, 0]);
    assert_eq!(scores(&[0, 0]), [100, 100]);
}

#[test]
fn only_pods_without_gpus_avoid_tainted_nodes() {
    let workload = workload(2, 1, &[(1000, 1, 1000), (1000, 0, 0)]);
    let mut cluster = Cluster::in_order(&workload, 0..2);
    let extender = extender(&workload, &cluster);
    let (gpu, place) = (workload.kinds[0], Place { host: 1, cards: Cards::one(0) });
    assert_eq!(extender.bind(arrival(0, 0), 1), Some(place.cards));
    cluster.place(&gpu, place);
    let mut scheduler = KubeScheduler::new(&workload, Some(extender), 16, Some(SoftTaints::at(1)));
    (0..5).for_each(|_| scheduler.tick(&cluster));
    // Both nodes are empty again, and only the first has its taint.
    cluster.remove(&gpu, place);
    scheduler.ended(arrival(0, 0));
    let mut rng = Rng::seed_from_u64(1);
    let mut hosts = |kind| {
        let mut hosts: Vec<usize> = (1..=20)
            .filter_map(|serial| {
                let place = scheduler.choose(&cluster, arrival(serial, kind), &mut rng)?;
                scheduler.ended(arrival(serial, kind));
                Some(place.host)
            })
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    };
    assert_eq!((hosts(1), hosts(0)), (vec![1], vec![0, 1]));
}

#[test]
fn taints_of_a_node_are_written_after_a_pause() {
    let workload = workload(1, 1, &[(1000, 1, 1000)]);
    let mut cluster = Cluster::in_order(&workload, 0..1);
    let extender = extender(&workload, &cluster);
    let writes = Arc::new(AtomicU64::default());
    let mut taints = SoftTaints::at(2).counted(Arc::clone(&writes));
    let place = Place { host: 0, cards: Cards::one(0) };
    let come = |cluster: &mut Cluster| {
        extender.bind(arrival(0, 0), 0).expect("a free card");
        cluster.place(&workload.kinds[0], place);
    };
    let go = |cluster: &mut Cluster| {
        extender.ended(arrival(0, 0));
        cluster.remove(&workload.kinds[0], place);
    };
    let mut after = |ticks: u32, cluster: &Cluster| {
        (0..ticks).for_each(|_| taints.write(cluster, &extender));
        (taints.on(0), writes.load(Ordering::Relaxed))
    };
    assert_eq!(after(9, &cluster), (0, 0), "no round yet");
    assert_eq!(after(1, &cluster), (1, 1), "the card is free");
    come(&mut cluster);
    assert_eq!(after(69, &cluster), (1, 1), "not due");
    assert_eq!(after(1, &cluster), (0, 2));
    go(&mut cluster);
    assert_eq!(after(30, &cluster), (0, 2), "not due");
    come(&mut cluster);
    assert_eq!(after(90, &cluster), (0, 2), "nothing to write any more");
}

#[test]
fn round_writes_no_more_than_fifty_nodes() {
    let workload = workload(60, 1, &[(1000, 1, 1000)]);
    let cluster = Cluster::in_order(&workload, 0..60);
    let extender = extender(&workload, &cluster);
    let writes = Arc::new(AtomicU64::default());
    let mut taints = SoftTaints::at(1).counted(Arc::clone(&writes));
    let mut after_a_round = || {
        (0..5).for_each(|_| taints.write(&cluster, &extender));
        writes.load(Ordering::Relaxed)
    };
    assert_eq!([after_a_round(), after_a_round()], [50, 60]);
}
