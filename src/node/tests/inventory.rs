//! The inventory over a `libnvidia-ml.so.1` that is driven by a scenario file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "inventory/mig.rs"]
mod mig;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use divvy_api::card::ComputeMode;
use divvy_api::{Card, Health, Link, Memory};
use divvy_node::config::MigStrategy;
use divvy_node::nvml::{HealthOptions, InventoryHandle, InventoryOptions, watch};
use divvy_node_core::inventory::{CardProcess, DeviceInfo, Inventory};
use fake_card::EXCLUSIVE_PROCESS;
use fake_nvml::{Call, CardState, FabricScenario, NvmlReturn, Scenario};
use tempfile::TempDir;
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

const GIB: u64 = 1 << 30;
const NEVER: u64 = 3_600_000;

/// A machine with a driver, and an inventory of it.
struct Machine {
    directory: TempDir,
    scenario: Scenario,
    inventories: Receiver<Arc<Inventory>>,
    handle: InventoryHandle,
}

impl Machine {
    fn start(scenario: Scenario) -> Self {
        Self::start_with(scenario, |_| {})
    }

    fn start_with(scenario: Scenario, adjust: impl FnOnce(&mut InventoryOptions)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        scenario.write(&scenario_file(&directory)).unwrap();
        scenario.write_sysfs(directory.path()).unwrap();
        install(&directory);
        let mut options = options(&directory);
        adjust(&mut options);
        let (inventories, handle) = watch(options);
        Self { directory, scenario, inventories, handle }
    }

    fn change(&mut self, change: impl FnOnce(&mut Scenario)) {
        change(&mut self.scenario);
        self.scenario.write(&scenario_file(&self.directory)).unwrap();
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&Inventory) -> bool) -> Arc<Inventory> {
        until(&mut self.inventories, what, holds).await
    }

    /// All cards that the scenario has are listed and healthy.
    async fn until_well(&mut self) -> Arc<Inventory> {
        let count = self.scenario.cards.len();
        self.until("all cards are healthy", |inventory| {
            inventory.cards().len() == count && inventory.cards().iter().all(Card::is_healthy)
        })
        .await
    }

    /// A probe of the card that began after this call has come back well.
    async fn until_fresh(&mut self, card: u32) -> Arc<Inventory> {
        let mark = self.scenario.cards[card as usize].memory_used + (1 << 20);
        self.change(|scenario| scenario.cards[card as usize].memory_used = mark);
        let used = Some(Memory::from_bytes_floor(mark));
        self.until("a card is fresh", |inventory| device(inventory, card).is_some_and(|card| card.memory_used == used))
            .await
    }
}

fn install(directory: &TempDir) {
    let built = env::current_exe().unwrap().with_file_name("libfake_nvml.so");
    fake_nvml::install_driver(&built, directory.path()).unwrap();
}

/// Beside the library.
fn scenario_file(directory: &TempDir) -> PathBuf {
    let libraries = directory.path().join("usr/lib64");
    fs::create_dir_all(&libraries).unwrap();
    libraries.join("scenario.json")
}

fn options(directory: &TempDir) -> InventoryOptions {
    InventoryOptions {
        driver_root: directory.path().to_path_buf(),
        sysfs_root: directory.path().to_path_buf(),
        mig_strategy: MigStrategy::None,
        probe_interval: Duration::from_millis(10),
        probe_timeout: Duration::from_secs(2),
        health: HealthOptions { ignored_xids: BTreeSet::from([13, 31]), recover_after: Duration::from_millis(50) },
        released: None,
    }
}

async fn until(
    inventories: &mut Receiver<Arc<Inventory>>,
    what: &str,
    holds: impl Fn(&Inventory) -> bool,
) -> Arc<Inventory> {
    let waited = timeout(Duration::from_secs(60), inventories.wait_for(|inventory| holds(inventory))).await;
    let found = waited.ok().map(|inventory| Arc::clone(&inventory.unwrap()));
    found.unwrap_or_else(|| panic!("not within a minute: {what}; last: {:#?}", inventories.borrow()))
}

fn find(inventory: &Inventory, card: u32) -> Option<(&Card, &DeviceInfo)> {
    let uuid = Scenario::uuid(card);
    inventory.each().find(|(card, _)| card.id.as_str() == uuid)
}

fn device(inventory: &Inventory, card: u32) -> Option<&DeviceInfo> {
    find(inventory, card).map(|(_, device)| device)
}

/// The reason, if the card is unhealthy.
fn reason(inventory: &Inventory, card: u32) -> Option<&str> {
    match &find(inventory, card)?.0.health {
        Health::Healthy => None,
        Health::Unhealthy { reason } => Some(reason),
        Health::Cordoned { .. } => panic!("NVML cordons no card"),
    }
}

fn quad() -> Scenario {
    Scenario::uniform(4, "NVIDIA A100-PCIE-40GB", 40 * GIB)
}

#[track_caller]
fn assert_healthy(inventory: &Inventory, cards: impl IntoIterator<Item = u32>, when: &str) {
    for card in cards {
        assert_eq!(reason(inventory, card), None, "card {card}, {when}");
    }
}

#[tokio::test]
async fn first_gpus_are_published_together_with_links() {
    let mut machine = Machine::start(Scenario::hgx_h100());
    let inventory = machine.until("cards", |inventory| !inventory.cards().is_empty()).await;
    assert_eq!(inventory.cards().len(), 8);
    assert_eq!(inventory.problem, None);
    let driver = inventory.driver.as_ref().unwrap();
    assert_eq!((driver.version.as_str(), driver.cuda.as_deref()), ("580.95.05", Some("13.0")));
    for (position, (card, device)) in inventory.each().enumerate() {
        assert_eq!(card.id.as_str(), machine.scenario.cards[position].uuid);
        assert_eq!((&*card.model, card.memory), ("NVIDIA H100 80GB HBM3", Memory::mib(80 << 10)));
        assert_eq!(device.minor, u32::try_from(position).ok());
        assert_eq!(card.numa, Some(u32::from(position >= 4)));
        assert_eq!(card.health, Health::Healthy);
    }
}

#[tokio::test]
async fn memory_that_the_driver_keeps_is_not_allocatable() {
    let mut scenario = quad();
    scenario.cards[0].memory_reserved = 600 << 20;
    let mut machine = Machine::start(scenario);
    let inventory = machine.until_well().await;
    assert_eq!(inventory.cards()[0].memory, Memory::mib((40 << 10) - 600));
    assert_eq!(inventory.cards()[1].memory, Memory::mib(40 << 10));
}

#[tokio::test]
async fn cards_on_nvswitches_are_linked_all_to_all() {
    let mut machine = Machine::start(Scenario::hgx_h100());
    let links = Arc::clone(&machine.until_well().await.node.links);
    let mut pairs = (0..8).flat_map(|b| (0..b).map(move |a| (a, b)));
    assert!(pairs.all(|(a, b)| links.get(a, b) == Link::NvLink(18)), "{links:?}");
}

#[tokio::test]
async fn links_without_switches_are_direct_or_pci() {
    let mut mesh = Machine::start(Scenario::cube_mesh_v100());
    let links = Arc::clone(&mesh.until_well().await.node.links);
    assert_eq!(
        [(0, 3), (0, 4), (0, 5)].map(|(a, b)| links.get(a, b)),
        [Link::NvLink(2), Link::NvLink(1), Link::System]
    );
    let mut plain = Machine::start(Scenario::pcie_l40s());
    let links = Arc::clone(&plain.until_well().await.node.links);
    assert_eq!([(0, 1), (0, 3), (0, 4)].map(|(a, b)| links.get(a, b)), [Link::SingleSwitch, Link::Node, Link::System]);
}

#[tokio::test]
async fn driver_may_be_installed_later() {
    let directory = tempfile::tempdir().unwrap();
    let (mut inventories, _handle) = watch(options(&directory));
    let says =
        |text: &'static str| move |inventory: &Inventory| inventory.problem.as_ref().is_some_and(|p| p.contains(text));
    until(&mut inventories, "the library is missing", says("cannot open shared object file")).await;
    let mut scenario = Scenario { driver_loaded: false, ..quad() };
    scenario.write(&scenario_file(&directory)).unwrap();
    install(&directory);
    until(&mut inventories, "the driver is missing", says("nvmlInit: NVIDIA driver is not loaded")).await;
    scenario.driver_loaded = true;
    scenario.write(&scenario_file(&directory)).unwrap();
    let inventory = until(&mut inventories, "cards", |inventory| !inventory.cards().is_empty()).await;
    assert_eq!((inventory.cards().len(), &inventory.problem), (4, &None));
}

#[tokio::test]
async fn lost_gpu_stays_listed_and_returns() {
    let mut machine = Machine::start(quad());
    let before = machine.until_well().await;
    for (state, says) in [(CardState::Lost, "fell off the bus"), (CardState::Gone, "no longer finds the GPU")] {
        machine.change(|scenario| scenario.cards[1].state = state);
        let sick = machine.until("the card is unhealthy", |inventory| reason(inventory, 1).is_some()).await;
        assert!(reason(&sick, 1).is_some_and(|reason| reason.contains(says)), "{:?}", reason(&sick, 1));
        assert_eq!(sick.cards().len(), 4);
        assert_eq!(sick.cards()[1].memory, before.cards()[1].memory, "what it is stays known");
        let fresh = machine.until_fresh(2).await;
        assert_healthy(&fresh, [0, 2, 3], says);
        machine.change(|scenario| scenario.cards[1].state = CardState::Present);
        machine.until_well().await;
    }
}

#[tokio::test]
async fn xid_makes_its_gpu_unhealthy_unless_ignored() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.change(|scenario| {
        scenario.push_xid(Some(&Scenario::uuid(1)), 31);
        scenario.push_xid(Some(&Scenario::uuid(1)), 79);
    });
    let sick = machine.until("the card is unhealthy", |inventory| reason(inventory, 1).is_some()).await;
    assert_eq!(reason(&sick, 1), Some("XID 79"), "31 comes first and is ignored");
    assert_healthy(&sick, [0, 2, 3], "after an XID of card 1");
    machine.until_well().await;
}

#[tokio::test]
async fn xid_of_an_unknown_gpu_changes_nothing() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.change(|scenario| {
        scenario.push_xid(None, 79);
        scenario.push_xid(Some("GPU-of-nobody"), 79);
        scenario.push_xid(Some(&Scenario::uuid(3)), 48);
    });
    let sick = machine.until("any card is unhealthy", |inventory| (0..4).any(|n| reason(inventory, n).is_some())).await;
    assert_eq!(reason(&sick, 3), Some("XID 48"));
    assert_healthy(&sick, 0..3, "after events of nobody");
}

#[tokio::test]
async fn hanging_call_makes_only_its_gpu_unhealthy() {
    let functions =
        ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetName", "nvmlEventSetWait_v2"];
    for function in functions {
        let mut machine = Machine::start(quad());
        machine.until_well().await;
        machine.change(|scenario| {
            scenario.hangs.insert(Call::about(function, &Scenario::uuid(2)), NEVER);
        });
        let sick = machine.until("the card is unhealthy", |inventory| reason(inventory, 2).is_some()).await;
        assert_eq!(reason(&sick, 2), Some("NVML has not answered for 2s"), "{function}");
        for card in [0, 1, 3] {
            let fresh = machine.until_fresh(card).await;
            assert_healthy(&fresh, [0, 1, 3], function);
            assert!(reason(&fresh, 2).is_some(), "{function} still hangs");
        }
        machine.change(|scenario| scenario.hangs.clear());
        machine.until_well().await;
    }
}

#[tokio::test]
async fn gpu_that_hangs_at_start_does_not_hide_others() {
    let mut scenario = quad();
    scenario.hangs.insert(Call::about("nvmlDeviceGetHandleByIndex_v2", &Scenario::uuid(1)), NEVER);
    scenario.hangs.insert(Call::about("nvmlDeviceGetMemoryInfo_v2", &Scenario::uuid(2)), NEVER);
    let mut machine = Machine::start(scenario);
    let inventory = machine.until("cards", |inventory| !inventory.cards().is_empty()).await;
    assert_eq!(inventory.problem.as_deref(), Some("GPU at index 1: NVML has not answered for 2s"));
    assert_eq!(inventory.cards().len(), 3);
    assert_healthy(&inventory, [0, 3], "while cards 1 and 2 hang");
    assert_eq!(reason(&inventory, 2), Some("NVML has not answered for 2s"));
    machine.change(|scenario| scenario.hangs.clear());
    let inventory = machine.until_well().await;
    assert_eq!(inventory.problem, None);
    let linked = |inventory: &Inventory| inventory.node.links.get(0, 1) == Link::SingleSwitch;
    machine.until("the late cards are linked", linked).await;
}

#[tokio::test]
async fn hanging_nvml_is_a_problem_of_the_inventory() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.change(|scenario| {
        scenario.hangs.insert(Call::any("nvmlDeviceGetCount_v2"), NEVER);
    });
    let silent = |inventory: &Inventory| inventory.problem.as_deref() == Some("NVML has not answered for 2s");
    machine.until("it is a problem", silent).await;
    let fresh = machine.until_fresh(0).await;
    assert_healthy(&fresh, 0..4, "while counting hangs");
    machine.change(|scenario| scenario.hangs.clear());
    machine.until("it is none any more", |inventory| inventory.problem.is_none()).await;
}

#[tokio::test]
async fn nvml_error_affects_its_own_gpu_alone() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    let victim = Scenario::uuid(0);
    let about_a_card = |function: &str| function.starts_with("nvmlDeviceGet") && function != "nvmlDeviceGetCount_v2";
    let driver_is_gone = [NvmlReturn::Uninitialized, NvmlReturn::DriverNotLoaded, NvmlReturn::LibRmVersionMismatch];
    for function in Call::functions() {
        for error in NvmlReturn::ALL {
            if function == "nvmlDeviceGetCount_v2" && driver_is_gone.contains(error) {
                continue; // says that there is no driver, and then no card works
            }
            let call = if about_a_card(function) { Call::about(function, &victim) } else { Call::any(function) };
            machine.change(|scenario| scenario.errors = [(call, *error)].into());
            let inventory = machine.until_fresh(1).await;
            assert_healthy(&inventory, 1..4, &format!("{function} answers {error:?}"));
        }
    }
    machine.change(|scenario| scenario.errors.clear());
    machine.until_well().await;
}

/// The first card becomes unhealthy when NVML's call fails, and says by which.
async fn fails_by_its_memory(machine: &mut Machine) {
    machine.change(|scenario| {
        let call = Call::about("nvmlDeviceGetMemoryInfo_v2", &Scenario::uuid(0));
        scenario.errors.insert(call, NvmlReturn::Unknown);
    });
    let sick = machine.until("the card is unhealthy", |inventory| reason(inventory, 0).is_some()).await;
    assert_eq!(reason(&sick, 0), Some("nvmlDeviceGetMemoryInfo: an internal driver error occurred"));
}

#[tokio::test]
async fn health_reason_names_the_failed_nvml_call() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    fails_by_its_memory(&mut machine).await;
}

#[tokio::test]
async fn memory_that_nvml_lacks_is_none() {
    let mut machine = Machine::start(Scenario::dgx_spark());
    let inventory = machine.until_well().await;
    assert_eq!((inventory.cards()[0].memory, inventory.devices[0].memory_used), (Memory::ZERO, None));
    machine.change(|scenario| scenario.cards[0].unified_memory = false);
    let known = machine.until("NVML's figure", |inventory| inventory.devices[0].memory_used.is_some()).await;
    assert_eq!(known.cards()[0].memory, Memory::mib(120 << 10));
    fails_by_its_memory(&mut machine).await;
}

#[tokio::test]
async fn compute_mode_is_that_of_the_driver() {
    let mut machine = Machine::start(quad());
    let found = machine.until_well().await;
    assert!(found.cards().iter().all(|card| card.compute_mode == ComputeMode::Default));
    fake_card::set_compute_mode(&machine.directory.path().join("usr/lib64"), &Scenario::uuid(2), EXCLUSIVE_PROCESS)
        .unwrap();
    let restricted = |inventory: &Inventory| inventory.cards().iter().map(Card::takes_parts).collect::<Vec<_>>();
    machine.until("one GPU is for one process", |found| restricted(found) == [true, true, false, true]).await;
    fake_card::set_compute_mode(&machine.directory.path().join("usr/lib64"), &Scenario::uuid(2), 0).unwrap();
    machine.until("all GPUs are shared", |found| restricted(found) == [true; 4]).await;
}

#[tokio::test]
async fn clique_is_known_of_registered_gpus_of_a_larger_fabric() {
    let mut scenario = Scenario::gb200_nvl72(0x5f, 7);
    let fabric = |scenario: &mut Scenario, card: usize| *scenario.cards[card].fabric.as_mut().unwrap();
    scenario.cards[1].fabric = Some(FabricScenario { registered: false, ..fabric(&mut scenario, 1) });
    scenario.cards[2].fabric = Some(FabricScenario { cluster: [0; 16], ..fabric(&mut scenario, 2) });
    scenario.cards[3].fabric = None;
    let mut machine = Machine::start(scenario);
    let inventory = machine.until_well().await;
    let clique = "5f5f5f5f-5f5f-5f5f-5f5f-5f5f5f5f5f5f.7";
    let cliques: Vec<_> = inventory.devices.iter().map(|device| device.clique.as_deref()).collect();
    assert_eq!(cliques, [Some(clique), None, None, None]);
    assert_eq!(inventory.clique(), Some(clique), "of those that are in one");
    machine.change(|scenario| {
        let fabric = scenario.cards[0].fabric.unwrap();
        scenario.cards[1].fabric = Some(FabricScenario { clique: 8, ..fabric });
    });
    let two = machine.until("another clique", |inventory| inventory.devices[1].clique.is_some()).await;
    assert_eq!(two.clique(), None, "they are in several");
}

#[tokio::test]
async fn xid_subscription_recovers_after_a_failure() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.change(|scenario| {
        scenario.errors.insert(Call::any("nvmlEventSetWait_v2"), NvmlReturn::Unknown);
        scenario.errors.insert(Call::any("nvmlDeviceRegisterEvents"), NvmlReturn::Unknown);
    });
    let fresh = machine.until_fresh(0).await;
    assert_healthy(&fresh, 0..4, "while events fail");
    machine.change(|scenario| scenario.errors.clear());
    // The event may come before the new set, which then doesn't deliver it: so it comes until it is heard.
    for _attempt in 0..1000 {
        machine.change(|scenario| scenario.push_xid(Some(&Scenario::uuid(2)), 79));
        let inventory = machine.until_fresh(0).await;
        assert_healthy(&inventory, [0, 1, 3], "after an XID of card 2");
        if reason(&inventory, 2) == Some("XID 79") {
            return;
        }
    }
    panic!("XIDs are not heard again");
}

#[tokio::test]
async fn new_memory_errors_make_a_card_unhealthy() {
    let mut scenario = quad();
    scenario.cards[3].ecc_uncorrected = Some(5);
    let mut machine = Machine::start(scenario);
    machine.until_well().await;
    machine.change(|scenario| scenario.cards[3].ecc_uncorrected = Some(6));
    let sick = machine.until("the card is unhealthy", |inventory| reason(inventory, 3).is_some()).await;
    assert_eq!(reason(&sick, 3), Some("1 new uncorrected memory errors"));
    machine.until_well().await;
}

#[tokio::test]
async fn new_gpu_is_added() {
    let mut scenario = Scenario::hgx_h100();
    scenario.cards[5].state = CardState::Gone;
    let mut machine = Machine::start(scenario);
    let before = machine.until("cards", |inventory| !inventory.cards().is_empty()).await;
    assert_eq!(before.cards().len(), 7);
    machine.change(|scenario| scenario.cards[5].state = CardState::Present);
    let after = machine.until_well().await;
    assert_eq!(after.cards()[5].id.as_str(), Scenario::uuid(5));
    machine.until("it is linked", |inventory| inventory.node.links.get(5, 6) == Link::NvLink(18)).await;
}

#[tokio::test]
async fn replaced_gpu_is_added() {
    let mut scenario = quad();
    scenario.cards[3].state = CardState::Gone;
    let mut machine = Machine::start(scenario);
    machine.until("cards", |inventory| inventory.cards().len() == 3).await;
    machine.change(|scenario| {
        scenario.cards[0].state = CardState::Gone;
        scenario.cards[3].state = CardState::Present;
    });
    let after = machine.until("the new card", |inventory| inventory.cards().len() == 4).await;
    assert_healthy(&after, 1..4, "after card 0 was replaced");
    machine.until("the old card is unhealthy", |inventory| reason(inventory, 0).is_some()).await;
}

#[tokio::test]
async fn cards_survive_a_restart_of_the_driver() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.change(|scenario| scenario.driver_loaded = false);
    let gone = machine.until("the driver is gone", |inventory| inventory.driver.is_none()).await;
    assert_eq!(gone.cards().len(), 4);
    assert!((0..4).all(|card| reason(&gone, card).is_some()));
    machine.change(|scenario| {
        scenario.driver_loaded = true;
        scenario.driver_load += 1;
        scenario.driver_version = "590.1".to_owned();
    });
    let back = machine.until_well().await;
    assert_eq!(back.driver.as_ref().map(|driver| driver.version.as_str()), Some("590.1"));
    assert_eq!(back.problem, None);
    machine.change(|scenario| scenario.push_xid(Some(&Scenario::uuid(0)), 79));
    machine.until("its XIDs are heard", |inventory| reason(inventory, 0) == Some("XID 79")).await;
}

#[tokio::test]
async fn driver_restarted_during_a_hang_recovers() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.change(|scenario| {
        scenario.hangs.insert(Call::about("nvmlDeviceGetName", &Scenario::uuid(2)), NEVER);
    });
    machine.until("the card is unhealthy", |inventory| reason(inventory, 2).is_some()).await;
    machine.change(|scenario| scenario.driver_load += 1);
    // The call that hangs keeps NVML open as it was, and NVML wants to be closed by all before it can be used again.
    machine.until("the driver is gone", |inventory| inventory.driver.is_none()).await;
    machine.change(|scenario| scenario.hangs.clear());
    machine.until_well().await;
}

/// What is said of an inventory that has let go of NVML.
const CLOSED: &str = "driver upgrade (by hand): NVML is closed";

#[tokio::test]
async fn nvml_is_closed_for_driver_upgrade_and_reopened() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.handle.driver().release(Some("by hand".to_owned()));
    let closed = machine.until("NVML is closed", |inventory| inventory.problem.as_deref() == Some(CLOSED)).await;
    assert_eq!((closed.driver.as_ref(), closed.cards().len()), (None, 4));
    assert!((0..4).all(|card| reason(&closed, card) == Some(CLOSED)), "{:?}", closed.cards());
    machine.change(|scenario| {
        scenario.driver_load += 1;
        scenario.driver_version = "590.1".to_owned();
    });
    machine.handle.driver().release(None);
    let back = machine.until_well().await;
    assert_eq!(back.driver.as_ref().map(|driver| driver.version.as_str()), Some("590.1"));
}

#[tokio::test]
async fn nvml_counts_as_closed_when_the_last_call_has_come_back() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.change(|scenario| {
        scenario.hangs.insert(Call::about("nvmlDeviceGetName", &Scenario::uuid(2)), NEVER);
    });
    machine.until("the card is unhealthy", |inventory| reason(inventory, 2).is_some()).await;
    machine.handle.driver().release(Some("by hand".to_owned()));
    let closing = "driver upgrade (by hand): NVML is being closed";
    machine.until("NVML is being closed", |inventory| inventory.problem.as_deref() == Some(closing)).await;
    machine
        .until("the call still hangs", |inventory| {
            inventory.problem.as_ref().is_some_and(|problem| problem.contains("has not answered"))
        })
        .await;
    machine.change(|scenario| scenario.hangs.clear());
    machine.until("NVML is closed", |inventory| inventory.problem.as_deref() == Some(CLOSED)).await;
}

#[tokio::test]
async fn nvml_is_not_opened_at_all_while_the_driver_is_upgraded() {
    let directory = tempfile::tempdir().unwrap();
    quad().write(&scenario_file(&directory)).unwrap();
    install(&directory);
    let options = InventoryOptions { released: Some("by hand".to_owned()), ..options(&directory) };
    let (mut inventories, handle) = watch(options);
    let closed = |inventory: &Inventory| inventory.problem.as_deref() == Some(CLOSED);
    let inventory = until(&mut inventories, "NVML is closed", closed).await;
    assert!(inventory.cards().is_empty());
    handle.driver().release(None);
    until(&mut inventories, "cards", |inventory| inventory.cards().len() == 4).await;
}

#[tokio::test]
async fn stopped_inventory_ends_its_stream() {
    let mut machine = Machine::start(quad());
    machine.until_well().await;
    machine.handle.stop();
    let mut inventories = machine.inventories;
    let ended = async { while inventories.changed().await.is_ok() {} };
    timeout(Duration::from_secs(60), ended).await.unwrap();
}

#[tokio::test]
async fn processes_are_listed_where_the_driver_reports_them() {
    let mut machine = Machine::start(Scenario::uniform(2, "NVIDIA L4", 24 * GIB));
    machine.until_well().await;
    let process = |pid, memory_used| fake_nvml::Process { pid, memory_used, utilization: 0 };
    machine.change(|scenario| scenario.cards[1].processes = vec![process(9, GIB), process(7, 2 * GIB)]);
    let expected = [(7, Some(2 * GIB)), (9, Some(GIB))].map(|(pid, bytes)| CardProcess { pid, bytes });
    let inventory = machine
        .until("processes", |inventory| {
            device(inventory, 1).is_some_and(|card| card.processes.as_deref() == Some(&expected))
        })
        .await;
    assert_eq!(device(&inventory, 0).unwrap().processes, Some(Vec::new()));
    // Clients of the multi-process service are listed apart; one process can be on both lists.
    machine.change(|scenario| scenario.cards[1].clients = vec![process(9, GIB), process(8, GIB)]);
    let of = |inventory: &Inventory| {
        let processes = device(inventory, 1).and_then(|card| card.processes.clone()).unwrap_or_default();
        processes.iter().map(|process| process.pid).collect::<Vec<_>>()
    };
    machine.until("clients too", |inventory| of(inventory) == [7, 8, 9]).await;
    let call = Call::any("nvmlDeviceGetMPSComputeRunningProcesses_v3");
    machine.change(|scenario| scenario.errors.extend([(call, NvmlReturn::NotSupported)]));
    machine.until("a driver that knows none", |inventory| of(inventory) == [7, 9]).await;
    let call = Call::any("nvmlDeviceGetComputeRunningProcesses_v3");
    machine.change(|scenario| scenario.errors.extend([(call, NvmlReturn::NotSupported)]));
    let inventory = machine
        .until("nothing about processes", |inventory| inventory.devices.iter().all(|card| card.processes.is_none()))
        .await;
    assert!(inventory.cards().iter().all(Card::is_healthy));
}
