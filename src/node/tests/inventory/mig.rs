//! GPUs that are cut into MIG instances.

use divvy_api::MigProfile;
use fake_nvml::{InstanceScenario, MigScenario};

use super::*;

const MIG_FUNCTIONS: [&str; 5] = [
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
];

/// What befalls a GPU, and what is said of it.
type Blow<'b> = (&'b dyn Fn(&mut Scenario), &'b str);

/// Of two GPUs the first is cut in three: one GPU instance with two compute instances, and one that is named as old
/// drivers do. The second could be cut.
fn cut() -> Scenario {
    let mut scenario = Scenario::uniform(2, "NVIDIA H100 80GB HBM3", 80 * GIB);
    let instance = |profile: &str, gi, ci| InstanceScenario {
        profile: profile.to_owned(),
        memory_total: 40 * GIB,
        memory_used: 0,
        gi,
        ci,
        uuid: None,
    };
    let old = InstanceScenario {
        memory_total: 10 * GIB,
        uuid: Some(format!("MIG-{}/9/0", Scenario::uuid(0))),
        ..instance("1g.10gb+me", 9, 0)
    };
    let instances = vec![instance("1c.3g.40gb", 1, 0), instance("2c.3g.40gb", 1, 1), old];
    scenario.cards[0].mig = Some(MigScenario { enabled: true, instances });
    scenario.cards[1].mig = Some(MigScenario::default());
    scenario
}

fn start(strategy: MigStrategy, scenario: Scenario) -> Machine {
    Machine::start_with(scenario, |options| options.mig_strategy = strategy)
}

/// The UUID of the first GPU's instance at this position.
fn uuid(machine: &Machine, at: usize) -> String {
    let gpu = &machine.scenario.cards[0];
    gpu.mig.as_ref().unwrap().instances[at].uuid_on(gpu)
}

fn card<'i>(inventory: &'i Inventory, uuid: &str) -> Option<(&'i Card, &'i DeviceInfo)> {
    inventory.each().find(|(card, _)| card.id.as_str() == uuid)
}

/// Healthy, or why not.
fn health(inventory: &Inventory, uuid: &str) -> String {
    card(inventory, uuid).map_or_else(|| "not listed".to_owned(), |(card, _)| card.health.to_string())
}

async fn until_health(machine: &mut Machine, expected: &[(&str, &str)]) -> Arc<Inventory> {
    let what = format!("{expected:?}");
    machine.until(&what, |inventory| expected.iter().all(|(uuid, expected)| health(inventory, uuid) == *expected)).await
}

/// Each of the three instances is healthy, and so is the GPU that is whole.
async fn until_all_well(machine: &mut Machine) -> Arc<Inventory> {
    let uuids = [uuid(machine, 0), uuid(machine, 1), uuid(machine, 2), Scenario::uuid(1)];
    until_health(machine, &uuids.each_ref().map(|uuid| (uuid.as_str(), "healthy"))).await
}

#[tokio::test]
async fn instances_are_cards_beside_gpus_that_are_whole() {
    for strategy in [MigStrategy::Single, MigStrategy::Mixed] {
        let mut machine = start(strategy, cut());
        let inventory = machine.until("cards", |inventory| !inventory.cards().is_empty()).await;
        assert_eq!(inventory.problem, None);
        let listed: Vec<_> = inventory.cards().iter().map(|card| card.id.as_str()).collect();
        let (first, second, old) = (uuid(&machine, 0), uuid(&machine, 1), uuid(&machine, 2));
        assert_eq!(listed, [&*first, &*second, &*old, &*Scenario::uuid(1)], "the GPU itself is no card");
        assert!(inventory.cards().iter().all(Card::is_healthy), "{:#?}", inventory.cards());

        let (instance, device) = card(&inventory, &old).unwrap();
        assert_eq!((&*instance.model, instance.memory), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", Memory::mib(10240)));
        assert_eq!((device.minor, instance.numa, &*device.pci_bus_id), (Some(0), Some(0), "00000000:17:00.0"));
        let place = |uuid: &str| {
            let (card, device) = card(&inventory, uuid).unwrap();
            let (mig, place) = (card.mig.as_ref().unwrap(), device.place.as_ref().unwrap());
            (mig.profile.as_str(), place.gpu.as_str(), place.gi, place.ci)
        };
        assert_eq!(place(&old), ("1g.10gb+me", &*Scenario::uuid(0), 9, 0));
        assert_eq!(place(&second), ("2c.3g.40gb", &*Scenario::uuid(0), 1, 1));
        let (whole, device) = card(&inventory, &Scenario::uuid(1)).unwrap();
        assert_eq!((&whole.mig, &device.place), (&None, &None));
        let asked = inventory.cards().iter().map(|card| card.requested_profile().map(MigProfile::as_str));
        let mixed = strategy == MigStrategy::Mixed;
        let profiles = ["1c.3g.40gb", "2c.3g.40gb", "1g.10gb+me"].map(|profile| mixed.then_some(profile));
        assert!(asked.eq(profiles.into_iter().chain([None])), "{strategy:?}");
        assert_eq!([(0, 1), (0, 3)].map(|(a, b)| inventory.node.links.get(a, b)), [Link::System; 2], "no peers");
    }
}

#[tokio::test]
async fn without_a_strategy_a_gpu_in_mig_mode_is_not_given_out() {
    let mut machine = start(MigStrategy::None, cut());
    let reason = "unhealthy: in MIG mode: set migStrategy to single or mixed, or disable MIG mode on the GPU";
    let inventory = machine.until("cards", |inventory| !inventory.cards().is_empty()).await;
    assert_eq!(inventory.cards().len(), 2);
    assert_eq!([0, 1].map(|gpu| health(&inventory, &Scenario::uuid(gpu))), [reason, "healthy"]);
    machine.change(|scenario| scenario.cards[0].mig = Some(MigScenario::default()));
    machine.until_well().await;
}

#[tokio::test]
async fn repartitioned_gpu_keeps_old_instances_as_unhealthy() {
    let mut machine = start(MigStrategy::Single, cut());
    until_all_well(&mut machine).await;
    let (first, kept) = (uuid(&machine, 0), uuid(&machine, 2));
    machine.change(|scenario| {
        let instances = &mut scenario.cards[0].mig.as_mut().unwrap().instances;
        instances[0].gi = 2;
        instances.remove(1);
    });
    let new = uuid(&machine, 0);
    let gone = "unhealthy: NVML no longer finds the MIG instance";
    let after = until_health(&mut machine, &[(&first, gone), (&new, "healthy"), (&kept, "healthy")]).await;
    assert_eq!(after.cards().len(), 3 + 1 + 1);
    assert_eq!(card(&after, &first).unwrap().0.memory, Memory::mib(40 << 10), "what it was stays known");
    machine.change(|scenario| *scenario = cut());
    let back = until_health(&mut machine, &[(&first, "healthy"), (&new, gone)]).await;
    assert_eq!(back.cards().len(), 5);
}

#[tokio::test]
async fn mig_gpu_without_instances_is_not_advertised() {
    let mut scenario = cut();
    scenario.cards[0].mig = Some(MigScenario::cut(&[]));
    let mut machine = start(MigStrategy::Mixed, scenario);
    let inventory = machine.until("cards", |inventory| !inventory.cards().is_empty()).await;
    assert_eq!((inventory.cards().len(), inventory.problem.as_deref()), (1, None));
    machine.change(|scenario| scenario.cards[0].mig = Some(MigScenario::cut(&[("1g.10gb", 10 * GIB)])));
    let added = uuid(&machine, 0);
    until_health(&mut machine, &[(&added, "healthy")]).await;
}

#[tokio::test]
async fn gpu_stays_listed_when_mig_mode_is_enabled() {
    let mut scenario = cut();
    scenario.cards[0].mig = Some(MigScenario::default());
    let mut machine = start(MigStrategy::Single, scenario);
    machine.until_well().await;
    machine.change(|scenario| *scenario = cut());
    let gpu = Scenario::uuid(0);
    until_all_well(&mut machine).await;
    until_health(&mut machine, &[(&gpu, "unhealthy: in MIG mode: its instances are advertised instead")]).await;
    let first = uuid(&machine, 0);
    machine.change(|scenario| scenario.cards[0].mig.as_mut().unwrap().enabled = false);
    until_health(&mut machine, &[(&gpu, "healthy"), (&first, "unhealthy: NVML no longer finds the MIG instance")])
        .await;
}

#[tokio::test]
async fn failure_of_a_gpu_affects_all_its_instances() {
    let mut machine = start(MigStrategy::Single, cut());
    until_all_well(&mut machine).await;
    let (gpu, hung) = (Scenario::uuid(0), uuid(&machine, 1));
    let blows: [Blow<'_>; 4] = [
        (&|scenario| scenario.push_xid(Some(&gpu), 79), "XID 79"),
        (&|scenario| scenario.cards[0].state = CardState::Lost, "fell off the bus"),
        (&|scenario| scenario.cards[0].ecc_uncorrected = Some(1), "1 new uncorrected memory errors"),
        (
            &|scenario| {
                scenario.hangs.insert(Call::about("nvmlDeviceGetMemoryInfo_v2", &hung), NEVER);
            },
            "NVML has not answered for 2s",
        ),
    ];
    for (blow, says) in blows {
        machine.change(|scenario| blow(scenario));
        let uuids = [0, 1, 2].map(|at| uuid(&machine, at));
        let sick =
            machine.until(says, |inventory| uuids.iter().all(|uuid| health(inventory, uuid).contains(says))).await;
        assert_eq!(health(&sick, &Scenario::uuid(1)), "healthy", "{says}");
        machine.change(|scenario| {
            scenario.cards[0].state = CardState::Present;
            scenario.hangs.clear();
        });
        until_all_well(&mut machine).await;
    }
}

#[tokio::test]
async fn xid_of_an_instance_affects_it_alone() {
    let mut machine = start(MigStrategy::Mixed, cut());
    until_all_well(&mut machine).await;
    let uuids = [0, 1, 2].map(|at| uuid(&machine, at));
    let cases =
        [(1, Some(1), [false, true, false]), (9, Some(0), [false, false, true]), (1, None, [true, true, false])];
    for (gi, ci, hit) in cases {
        machine.change(|scenario| {
            scenario.push_instance_xid(&Scenario::uuid(0), 5, None, 79);
            scenario.push_instance_xid(&Scenario::uuid(0), gi, ci, 94);
        });
        let sick = machine
            .until("an instance is sick", |inventory| uuids.iter().any(|uuid| health(inventory, uuid) != "healthy"))
            .await;
        let expected = hit.map(|hit| if hit { "unhealthy: XID 94" } else { "healthy" });
        assert_eq!(uuids.each_ref().map(|uuid| health(&sick, uuid)), expected, "GPU instance {gi}, {ci:?}");
        until_all_well(&mut machine).await;
    }
}

#[tokio::test]
async fn failed_instance_is_unhealthy_alone() {
    let mut machine = start(MigStrategy::Single, cut());
    until_all_well(&mut machine).await;
    let [first, second] = [0, 1].map(|at| uuid(&machine, at));
    machine.change(|scenario| {
        scenario.errors.insert(Call::about("nvmlDeviceGetMemoryInfo_v2", &second), NvmlReturn::Unknown);
    });
    let says = "unhealthy: nvmlDeviceGetMemoryInfo: an internal driver error occurred";
    until_health(&mut machine, &[(&second, says), (&first, "healthy")]).await;
}

#[tokio::test]
async fn instance_error_affects_it_alone() {
    let functions = [
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    ];
    let mut machine = start(MigStrategy::Single, cut());
    until_all_well(&mut machine).await;
    let (victim, other) = (uuid(&machine, 1), uuid(&machine, 2));
    let errors =
        NvmlReturn::ALL.iter().filter(|error| ![NvmlReturn::GpuIsLost, NvmlReturn::ResetRequired].contains(error));
    for (at, (function, error)) in
        functions.iter().flat_map(|function| errors.clone().map(move |error| (function, error))).enumerate()
    {
        let mark = (at as u64 + 1) << 20;
        machine.change(|scenario| {
            scenario.errors = [(Call::about(function, &victim), *error)].into();
            scenario.cards[0].mig.as_mut().unwrap().instances[2].memory_used = mark;
        });
        let used = Some(Memory::from_bytes_floor(mark));
        let fresh = machine
            .until("the other is fresh", |inventory| {
                card(inventory, &other).is_some_and(|(_, device)| device.memory_used == used)
            })
            .await;
        assert_eq!(health(&fresh, &other), "healthy", "{function} answers {error:?}");
        assert_ne!(health(&fresh, &victim), "healthy", "{function} answers {error:?}");
    }
    machine.change(|scenario| scenario.errors.clear());
    until_all_well(&mut machine).await;
}

#[tokio::test]
async fn mig_error_affects_its_own_gpu_alone() {
    let mut machine = start(MigStrategy::Single, cut());
    until_all_well(&mut machine).await;
    let gpu = Scenario::uuid(0);
    for function in ["nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"] {
        for error in NvmlReturn::ALL {
            machine.change(|scenario| scenario.errors = [(Call::about(function, &gpu), *error)].into());
            let fresh = machine.until_fresh(1).await;
            assert_eq!(health(&fresh, &Scenario::uuid(1)), "healthy", "{function} answers {error:?}");
        }
    }
    machine.change(|scenario| scenario.errors.clear());
    until_all_well(&mut machine).await;
}

#[tokio::test]
async fn driver_without_mig_lists_whole_gpus() {
    for answer in [NvmlReturn::FunctionNotFound, NvmlReturn::NotSupported] {
        let mut scenario = cut();
        scenario.errors = MIG_FUNCTIONS.map(|function| (Call::any(function), answer)).into();
        let mut machine = start(MigStrategy::Single, scenario);
        let inventory = machine.until_well().await;
        assert!(inventory.cards().iter().all(|card| card.mig.is_none()), "{answer:?}");
    }
}
