use rand::SeedableRng as _;

use super::*;
use crate::fixture::{host, kind, workload};
use crate::workload::Part;

#[test]
fn best_fit_rates_leftovers_by_the_largest_node() {
    // 100 · (1 − ½ · 52000 / 128000 − ½ · (1960 − 460) / 8000) = 70.3
    assert_eq!(BestFit.rate(&host(&[1000, 460, 500]), &kind(12_000, 1, 460)), (70, Cards::one(1)));
    // 100 · (1 − ½ · 52000 / 128000 − 0) = 79.7
    assert_eq!(BestFit.rate(&host(&[1000, 1000]), &kind(12_000, 2, 1000)), (79, [0, 1].into_iter().collect()));
}

#[test]
fn ties_go_to_the_first_or_a_random_best_host() {
    let mut rng = Rng::seed_from_u64(1);
    let rated = [(1, 'a'), (2, 'b'), (2, 'c'), (1, 'd'), (2, 'e')];
    assert!((0..50).all(|_| Ties::Fixed.best(rated.into_iter(), &mut rng) == Some('b')));
    let mut drawn: Vec<char> = (0..200).filter_map(|_| Ties::Random.best(rated.into_iter(), &mut rng)).collect();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn, ['b', 'c', 'e']);
    assert_eq!(Ties::Random.best(std::iter::empty::<(u8, u8)>(), &mut rng), None);
}

#[test]
fn rating_is_renewed_when_its_host_changes() {
    let workload = workload(2, 1, &[(1000, 1, 600), (1000, 1, 1000)]);
    let mut cluster = Cluster::in_order(&workload, 0..2);
    let mut policy = Scored::new(BestFit, Ties::Fixed, &workload);
    let mut rng = Rng::seed_from_u64(1);
    let hosts: Vec<Option<usize>> = [0, 0, 0, 1]
        .into_iter()
        .map(|kind| {
            let place = policy.choose(&cluster, Arrival { serial: 0, kind }, &mut rng)?;
            cluster.place(&workload.kinds[kind], place);
            Some(place.host)
        })
        .collect();
    assert_eq!(hosts, [Some(0), Some(1), None, None]);
    cluster.remove(&workload.kinds[0], Place { host: 1, cards: Cards::one(0) });
    assert_eq!(policy.choose(&cluster, Arrival { serial: 0, kind: 1 }, &mut rng).map(|place| place.host), Some(1));
}

#[test]
fn leftover_is_the_mean_of_compute_and_memory() {
    let part = |cores, memory| Part { cores, memory };
    let host = |cards: &[Part]| Host { cards: cards.to_vec(), ..host(&[]) };
    let bound = Kind { part: part(200, 400), ..kind(0, 1, 0) };
    // 100 · (1 − ½ · 64000 / 128000 − ½ · (1700 − 300) / 8000) = 66.25, and the second card has less left.
    assert_eq!(BestFit.rate(&host(&[Part::WHOLE, part(900, 500)]), &bound), (66, Cards::one(1)));
    // The second card has too little memory for it.
    assert_eq!(BestFit.rate(&host(&[Part::WHOLE, part(1000, 399)]), &bound).1, Cards::one(0));
}

fn scheduler(ties: Ties, shortlist: usize) -> Scheduler {
    Scheduler { ties, shortlist }
}

/// Where the product puts these kinds, one after another.
fn placed(name: PolicyName, workload: &Arc<Workload>, kinds: &[usize]) -> Vec<Option<(usize, Vec<usize>)>> {
    let mut cluster = Cluster::in_order(workload, 0..workload.machines.len());
    let target = Target::from_workload(workload);
    let mut policy = Product::new(name, workload, &cluster, &target, scheduler(Ties::Fixed, 16));
    let mut rng = Rng::seed_from_u64(1);
    let mut serial = 0;
    let mut place = |kind: usize| {
        serial += 1;
        let place = policy.choose(&cluster, Arrival { serial, kind }, &mut rng)?;
        cluster.place(&workload.kinds[kind], place);
        Some((place.host, place.cards.positions().collect()))
    };
    kinds.iter().map(|kind| place(*kind)).collect()
}

#[test]
fn product_policies_choose_different_hosts() {
    let workload = workload(2, 2, &[(1000, 1, 250), (1000, 2, 1000), (64_000, 1, 250)]);
    let place = |host, cards: &[usize]| Some((host, cards.to_vec()));
    assert_eq!(
        placed(PolicyName::Binpack, &workload, &[0, 0, 1, 1]),
        [place(0, &[0]), place(0, &[0]), place(1, &[0, 1]), None]
    );
    // The third kind needs all CPU of a host: the scheduler's filter leaves the empty one.
    assert_eq!(placed(PolicyName::Binpack, &workload, &[0, 2, 2]), [place(0, &[0]), place(1, &[0]), None]);
    let small = crate::fixture::workload(2, 1, &[(1000, 1, 250)]);
    assert_eq!(placed(PolicyName::Binpack, &small, &[0, 0]), [place(0, &[0]), place(0, &[0])]);
    assert_eq!(placed(PolicyName::Spread, &small, &[0, 0]), [place(0, &[0]), place(1, &[0])]);
}

#[test]
fn product_request_has_compute_and_memory() {
    let mut workload = Arc::unwrap_or_clone(workload(1, 1, &[(1000, 1, 300), (1000, 1, 600)]));
    workload.kinds[0].part.memory = 600;
    workload.kinds[1].part.memory = 300;
    let workload = Arc::new(workload);
    for name in [PolicyName::LeastFragmentation, PolicyName::Binpack] {
        let fit = |kinds: &[usize]| placed(name, &workload, kinds).iter().filter(|place| place.is_some()).count();
        assert_eq!(fit(&[0, 0]), 1, "{name:?}: memory is short");
        assert_eq!(fit(&[1, 1]), 1, "{name:?}: compute is short");
        assert_eq!(fit(&[0, 1]), 2, "{name:?}: together they need 90 % of both");
    }
}

#[test]
fn nearly_whole_share_is_a_whole_card() {
    let workload = workload(1, 1, &[(1000, 1, 995), (1000, 1, 8)]);
    assert_eq!(placed(PolicyName::Binpack, &workload, &[0, 1]), [Some((0, vec![0])), None]);
}

#[test]
fn product_keeps_running_pods_and_drops_ended_ones() {
    let workload = workload(1, 1, &[(1000, 1, 500)]);
    let mut cluster = Cluster::in_order(&workload, 0..1);
    let target = Target::from_workload(&workload);
    let name = PolicyName::LeastFragmentation;
    let mut policy = Product::new(name, &workload, &cluster, &target, scheduler(Ties::Random, 0));
    let mut rng = Rng::seed_from_u64(1);
    let mut choose = |policy: &mut Product, serial| {
        policy.choose(&cluster, Arrival { serial, kind: 0 }, &mut rng).inspect(|place| {
            cluster.place(&workload.kinds[0], *place);
        })
    };
    let place = choose(&mut policy, 1).expect("room");
    assert!(choose(&mut policy, 2).is_some());
    assert!(choose(&mut policy, 3).is_none());
    policy.expect(&target);
    assert!(
        policy
            .choose(&Cluster::in_order(&workload, 0..1), Arrival { serial: 4, kind: 0 }, &mut Rng::seed_from_u64(1))
            .is_none()
    );
    policy.ended(Arrival { serial: 1, kind: 0 });
    cluster.remove(&workload.kinds[0], place);
    assert!(policy.choose(&cluster, Arrival { serial: 5, kind: 0 }, &mut Rng::seed_from_u64(1)).is_some());
}
