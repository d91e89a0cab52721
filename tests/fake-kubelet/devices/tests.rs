//! Properties of the books over random histories.

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::*;

const GPU: &str = "nvidia.com/gpu";

/// One admission: init containers' counts, then the app's.
#[derive(Clone, Debug)]
struct Admit {
    pod: usize,
    init: Vec<usize>,
    app: usize,
    /// IDs that the plugin prefers, known or not.
    preferred: Ids,
}

fn admits() -> impl Strategy<Value = Vec<Admit>> {
    let preferred = prop::collection::btree_set((0..20usize).prop_map(id), 0..6);
    let admit = (0..6usize, prop::collection::vec(0..5usize, 0..3), 0..5usize, preferred);
    let admit = admit.prop_map(|(pod, init, app, preferred)| Admit { pod, init, app, preferred });
    prop::collection::vec(admit, 1..20)
}

fn id(number: usize) -> String {
    format!("GPU-{number:02}")
}

fn registered(ids: usize) -> Devices {
    let mut devices = Devices::default();
    let device = |n| dp::Device { id: id(n), health: dp::HEALTHY.into(), topology: None };
    devices.replace_list(GPU, (0..ids).map(device).collect());
    devices
}

/// Admits one container with a plugin that answers at once; `None` if there isn't enough.
fn admit(devices: &mut Devices, demand: Demand<'_>, lends: bool, preferred: &Ids, rng: &mut StdRng) -> Option<Step> {
    devices.enter(demand.pod);
    let step = devices.begin(demand, false, rng).ok()?;
    let ids = match &step {
        Step::Nothing => None,
        Step::Chosen(ids) => Some(ids.clone()),
        Step::Ask(question) => Some(devices.settle(demand.resource, question, preferred, rng)),
    };
    if let Some(ids) = ids {
        devices.insert(demand, Grant { ids, answer: dp::ContainerAllocateResponse::default() });
    }
    devices.leave(demand.pod, demand.container, lends);
    Some(step)
}

fn held_by(devices: &Devices, pod: &str) -> Ids {
    let grants = devices.held.get(pod).into_iter().flat_map(BTreeMap::values).flatten();
    grants.flat_map(|(_, grant)| grant.ids.clone()).collect()
}

proptest! {
    /// Without a sweep in the middle of an Allocate live pods never share an ID, and everyone gets exactly its count.
    #[test]
    fn live_pods_hold_disjoint_ids(history in admits(), seed: u64) {
        let (mut devices, mut rng) = (registered(16), StdRng::seed_from_u64(seed));
        let mut live = BTreeSet::new();
        for (turn, step) in history.into_iter().enumerate() {
            let pod = format!("pod-{}-{turn}", step.pod);
            live.retain(|other: &String| !other.starts_with(&format!("pod-{}-", step.pod)));
            live.insert(pod.clone());
            devices.sweep(&live);
            let init = step.init.iter().enumerate().map(|(n, count)| (format!("init-{n}"), *count, true));
            for (container, count, lends) in init.chain([("app".to_owned(), step.app, false)]) {
                let demand = Demand { pod: &pod, container: &container, resource: GPU, count };
                if admit(&mut devices, demand, lends, &step.preferred, &mut rng).is_none() {
                    devices.recount();
                    break;
                }
                let held = devices.grant(&pod, &container, GPU).map_or(0, |grant| grant.ids.len());
                prop_assert_eq!(held, count);
            }
            let all: Vec<_> = live.iter().flat_map(|pod| held_by(&devices, pod)).collect();
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            prop_assert!(all.len() <= 16);
        }
    }

    /// Preferred free IDs are taken before any other; exactly enough of them are taken to the last one.
    #[test]
    fn preferred_ids_come_first(taken in 0..8usize, count in 1..8usize, preferred in prop::collection::btree_set((0..20usize).prop_map(id), 0..10), seed: u64) {
        let (mut devices, mut rng) = (registered(16), StdRng::seed_from_u64(seed));
        let other = Demand { pod: "other", container: "app", resource: GPU, count: taken };
        admit(&mut devices, other, false, &Ids::new(), &mut rng);
        let demand = Demand { pod: "pod", container: "app", resource: GPU, count };
        let Ok(Step::Ask(question)) = devices.begin(demand, false, &mut rng) else { panic!("nothing to reuse") };
        let chosen = devices.settle(GPU, &question, &preferred, &mut rng);
        let useful = &preferred & &question.free;
        prop_assert_eq!(chosen.len(), count);
        prop_assert!(chosen.is_subset(&question.free));
        prop_assert_eq!((&chosen & &useful).len(), useful.len().min(count));
        if useful.len() == count {
            prop_assert_eq!(chosen, useful);
        }
    }

    /// What an init container leaves is used up before anything new is taken.
    #[test]
    fn reuse_comes_before_free_ids(lent in 0..8usize, count in 1..8usize, seed: u64) {
        let (mut devices, mut rng) = (registered(16), StdRng::seed_from_u64(seed));
        let init = Demand { pod: "pod", container: "init", resource: GPU, count: lent };
        admit(&mut devices, init, true, &Ids::new(), &mut rng);
        let lent_ids = held_by(&devices, "pod");
        let app = Demand { pod: "pod", container: "app", resource: GPU, count };
        let step = admit(&mut devices, app, false, &Ids::new(), &mut rng).expect("there is enough");
        let ids = devices.grant("pod", "app", GPU).expect("it was given").ids.clone();
        prop_assert_eq!((&ids & &lent_ids).len(), lent.min(count));
        prop_assert_eq!(matches!(step, Step::Chosen(_)), lent >= count);
    }
}

#[test]
fn a_sweep_during_an_allocate_frees_the_ids_in_flight() {
    let (mut devices, mut rng) = (registered(2), StdRng::seed_from_u64(1));
    let dead = Demand { pod: "dead", container: "app", resource: GPU, count: 1 };
    admit(&mut devices, dead, false, &Ids::new(), &mut rng);
    let flight = Demand { pod: "flight", container: "app", resource: GPU, count: 1 };
    let Ok(Step::Ask(question)) = devices.begin(flight, false, &mut rng) else { panic!("one is free") };
    let ids = devices.settle(GPU, &question, &Ids::new(), &mut rng);
    devices.sweep(&BTreeSet::from(["flight".to_owned()]));
    let next = Demand { pod: "next", container: "app", resource: GPU, count: 2 };
    let Ok(Step::Ask(question)) = devices.begin(next, false, &mut rng) else { panic!("both are free") };
    assert!(ids.is_subset(&question.free), "handed out twice");
}

#[test]
fn the_first_answer_to_name_a_thing_wins() {
    let mut devices = registered(2);
    let answer = |value: &str| dp::ContainerAllocateResponse {
        envs: [("A".to_owned(), value.to_owned())].into(),
        mounts: vec![dp::Mount { container_path: "/a".into(), host_path: value.into(), read_only: true }],
        ..dp::ContainerAllocateResponse::default()
    };
    for resource in ["a/x", "a/y"] {
        let demand = Demand { pod: "pod", container: "app", resource, count: 1 };
        devices.insert(demand, Grant { ids: Ids::new(), answer: answer(resource) });
    }
    let options = |seed| devices.run_options("pod", "app", &mut StdRng::seed_from_u64(seed));
    let winners: BTreeSet<_> = (0..16).map(|seed| options(seed).envs["A"].clone()).collect();
    assert_eq!(winners.len(), 2, "either may be first");
    assert_eq!(options(1).mounts.len(), 1);
}
