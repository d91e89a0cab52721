//! The library as its users load it: by path, through nvml-wrapper.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::{env, fs, thread};

use fake_nvml::{Call, CardState, MigScenario, NvmlReturn, Process, Scenario, ScenarioError};
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor, TopologyLevel};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// A copy of the library with a scenario of its own.
struct Machine {
    directory: TempDir,
    library: PathBuf,
    scenario: Scenario,
}

impl Machine {
    fn new(scenario: Scenario) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let built = env::current_exe().unwrap().with_file_name("libfake_nvml.so");
        let library = fake_nvml::install(&built, directory.path()).unwrap();
        let machine = Self { directory, library, scenario };
        machine.write();
        machine
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("scenario.json")
    }

    fn write(&self) {
        self.scenario.write(&self.file()).unwrap();
    }

    fn change(&mut self, change: impl FnOnce(&mut Scenario)) {
        change(&mut self.scenario);
        self.write();
    }

    fn open(&self) -> Result<Nvml, NvmlError> {
        Nvml::builder().lib_path(self.library.as_os_str()).init()
    }
}

fn pair() -> Scenario {
    Scenario::uniform(2, "NVIDIA L4", 24 * GIB)
}

#[test]
fn a_card_answers_what_its_scenario_says() {
    let mut machine = Machine::new(pair());
    machine.change(|scenario| {
        let card = &mut scenario.cards[1];
        card.memory_used = 3 * GIB;
        card.utilization = 40;
        (card.ecc_uncorrected, card.ecc_corrected) = (Some(2), 7);
        card.processes = vec![Process { pid: 7, memory_used: GIB, utilization: 30 }];
    });
    let nvml = machine.open().unwrap();
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.95.05");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13_000);
    assert_eq!(nvml.device_count().unwrap(), 2);
    let card = nvml.device_by_uuid(Scenario::uuid(1)).unwrap();
    assert_eq!(card.uuid().unwrap(), Scenario::uuid(1));
    assert_eq!(card.index().unwrap(), 1);
    assert_eq!(card.minor_number().unwrap(), 1);
    assert_eq!(card.name().unwrap(), "NVIDIA L4");
    let memory = card.memory_info().unwrap();
    assert_eq!((memory.total, memory.used, memory.free), (24 * GIB, 3 * GIB, 21 * GIB));
    let pci = card.pci_info().unwrap();
    assert_eq!((pci.bus_id.as_str(), pci.bus), ("00000000:1F:00.0", 0x1f));
    assert_eq!(nvml.device_by_pci_bus_id("0000:1f:00.0").unwrap().uuid().unwrap(), Scenario::uuid(1));
    assert!(matches!(card.mig_mode(), Err(NvmlError::NotSupported)), "an L4 can't be cut");
    assert_eq!(card.cuda_compute_capability().unwrap().major, 9);
    assert_eq!(card.utilization_rates().unwrap().gpu, 40);
    assert_eq!(card.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).unwrap(), 2);
    assert_eq!(card.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).unwrap(), 7);
    assert_eq!(card.temperature(TemperatureSensor::Gpu).unwrap(), 34);
    assert_eq!((card.power_usage().unwrap(), card.enforced_power_limit().unwrap()), (72_500, 350_000));
    assert_eq!(card.total_energy_consumption().unwrap(), 1_234_500);
    assert_eq!(card.current_throttle_reasons().unwrap(), ThrottleReasons::GPU_IDLE);
    assert_eq!(card.running_compute_processes().unwrap()[0].pid, 7);
    let busy = card.process_utilization_stats(None).unwrap();
    assert_eq!((busy[0].pid, busy[0].sm_util), (7, 30));
}

#[test]
fn links_are_direct_or_through_switches() {
    let mesh = Machine::new(Scenario::cube_mesh_v100());
    let nvml = mesh.open().unwrap();
    let card = nvml.device_by_index(0).unwrap();
    let active = (0..18).filter(|link| card.link_wrapper_for(*link).is_active().unwrap()).count();
    assert_eq!(active, 3 * 2 + 1);
    assert_eq!(card.link_wrapper_for(6).remote_pci_info().unwrap().bus_id, mesh.scenario.cards[4].pci_bus_id);
    assert_eq!(card.topology_common_ancestor(nvml.device_by_index(1).unwrap()).unwrap(), TopologyLevel::Single);
    assert_eq!(card.topology_common_ancestor(nvml.device_by_index(2).unwrap()).unwrap(), TopologyLevel::Node);
    assert_eq!(card.topology_common_ancestor(nvml.device_by_index(4).unwrap()).unwrap(), TopologyLevel::System);

    let plain = Machine::new(Scenario::pcie_l40s());
    let nvml = plain.open().unwrap();
    let link = nvml.device_by_index(0).unwrap().link_wrapper_for(0).is_active().unwrap_err();
    assert!(matches!(link, NvmlError::NotSupported), "{link}");
}

#[test]
fn a_lost_card_is_counted_and_a_gone_one_is_not() {
    let mut machine = Machine::new(pair());
    let nvml = machine.open().unwrap();
    let card = nvml.device_by_index(0).unwrap();
    machine.change(|scenario| scenario.cards[0].state = CardState::Lost);
    assert!(matches!(card.memory_info(), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_uuid(Scenario::uuid(0)), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_count().unwrap(), 2);
    machine.change(|scenario| scenario.cards[0].state = CardState::Gone);
    assert!(matches!(nvml.device_by_uuid(Scenario::uuid(0)), Err(NvmlError::NotFound)));
    assert_eq!(nvml.device_count().unwrap(), 1);
    assert_eq!(nvml.device_by_index(0).unwrap().uuid().unwrap(), Scenario::uuid(1));
}

#[test]
fn an_event_reaches_each_set_once() {
    let mut machine = Machine::new(pair());
    machine.change(|scenario| scenario.push_xid(None, 1));
    let nvml = machine.open().unwrap();
    let cards = [nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap()];
    let xids = EventTypes::CRITICAL_XID_ERROR;
    let both = cards[0].register_events(xids, nvml.create_event_set().unwrap()).unwrap();
    let both = cards[1].register_events(xids, both).unwrap();
    let second = cards[1].register_events(xids, nvml.create_event_set().unwrap()).unwrap();
    assert!(matches!(both.wait(0), Err(NvmlError::Timeout)), "an event from before the set");

    machine.change(|scenario| scenario.push_xid(Some(&Scenario::uuid(0)), 79));
    let event = both.wait(10_000).unwrap();
    assert_eq!(event.device.uuid().unwrap(), Scenario::uuid(0));
    assert_eq!(event.event_data, Some(XidError::Value(79)));
    assert!(matches!(both.wait(0), Err(NvmlError::Timeout)), "the same event again");
    assert!(matches!(second.wait(0), Err(NvmlError::Timeout)), "an event of another card");

    machine.change(|scenario| scenario.push_xid(Some("GPU-of-nobody"), 48));
    for set in [&both, &second] {
        assert!(matches!(set.wait(0).unwrap().device.uuid(), Err(NvmlError::InvalidArg)));
    }
}

#[test]
fn a_waiting_thread_is_woken_by_an_event() {
    let mut machine = Machine::new(pair());
    let nvml = machine.open().unwrap();
    let card = nvml.device_by_index(0).unwrap();
    let set = card.register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set().unwrap()).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || set.wait(600_000).map(|event| event.event_data));
        machine.change(|scenario| scenario.push_xid(Some(&Scenario::uuid(0)), 74));
        assert_eq!(waiting.join().unwrap().unwrap(), Some(XidError::Value(74)));
    });
}

#[test]
fn errors_hit_a_function_or_one_card_of_it() {
    let mut machine = Machine::new(pair());
    let nvml = machine.open().unwrap();
    let cards = [nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap()];
    machine.change(|scenario| {
        scenario.errors.insert(Call::about("nvmlDeviceGetName", &Scenario::uuid(1)), NvmlReturn::GpuIsLost);
        scenario.errors.insert(Call::any("nvmlDeviceGetMinorNumber"), NvmlReturn::NoPermission);
    });
    assert!(cards[0].name().is_ok());
    assert!(matches!(cards[1].name(), Err(NvmlError::GpuLost)));
    for card in cards {
        assert!(matches!(card.minor_number(), Err(NvmlError::NoPermission)));
    }
}

#[test]
fn a_hang_ends_when_it_is_lifted() {
    let mut machine = Machine::new(pair());
    machine.change(|scenario| {
        scenario.hangs.insert(Call::about("nvmlDeviceGetName", &Scenario::uuid(0)), 3_600_000);
    });
    let nvml = machine.open().unwrap();
    let cards = [nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap()];
    thread::scope(|scope| {
        let hanging = scope.spawn(|| cards[0].name());
        assert_eq!(cards[1].name().unwrap(), "NVIDIA L4");
        machine.change(|scenario| scenario.hangs.clear());
        assert_eq!(hanging.join().unwrap().unwrap(), "NVIDIA L4");
    });
}

#[test]
fn a_reloaded_driver_wants_to_be_initialised_again() {
    let mut machine = Machine::new(pair());
    let nvml = machine.open().unwrap();
    machine.change(|scenario| scenario.driver_loaded = false);
    assert!(matches!(nvml.device_count(), Err(NvmlError::Uninitialized)));
    assert!(matches!(machine.open(), Err(NvmlError::DriverNotLoaded)));
    machine.change(|scenario| {
        scenario.driver_loaded = true;
        scenario.driver_load += 1;
    });
    assert!(matches!(nvml.device_count(), Err(NvmlError::Uninitialized)));
    drop(nvml);
    assert_eq!(machine.open().unwrap().device_count().unwrap(), 2);
}

#[test]
fn a_broken_file_leaves_the_last_good_scenario() {
    let machine = Machine::new(pair());
    let nvml = machine.open().unwrap();
    fs::write(machine.file(), "{\"cards\": [").unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
    drop(nvml);

    let broken = Machine::new(pair());
    fs::write(broken.file(), "{\n  \"crads\": []\n}").unwrap();
    assert!(matches!(broken.open(), Err(NvmlError::DriverNotLoaded)));
    let error = Scenario::read(&broken.file()).unwrap_err().to_string();
    assert!(error.contains("unknown field `crads`") && error.contains("line 2 column 9"), "{error}");
}

#[test]
fn a_scenario_that_means_nothing_is_refused() {
    let machine = Machine::new(pair());
    let refusal = |text: &str| {
        fs::write(machine.file(), text).unwrap();
        Scenario::read(&machine.file()).unwrap_err()
    };
    let error = refusal(r#"{"errors": {"nvmlDeviceGetNmae": "NVML_ERROR_UNKNOWN"}}"#);
    assert!(error.to_string().contains("\"nvmlDeviceGetNmae\" is no function of this library"), "{error}");
    let mut twice = cut();
    twice.cards[1].uuid = "MIG-00010000-fa4e-4a11-8000-000000000000".to_owned();
    let error = refusal(&serde_json::to_string(&twice).unwrap());
    assert!(matches!(error, ScenarioError::DuplicateCard(card) if card == twice.cards[1].uuid));
    let error = refusal(r#"{"links": [{"cards": ["GPU-a", "GPU-b"]}]}"#);
    assert!(matches!(error, ScenarioError::UnknownCard(card) if card == "GPU-a"));
}

#[test]
fn sysfs_tells_the_numa_node_under_the_kernels_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = Scenario::pcie_l40s();
    scenario.cards[7].numa = None;
    scenario.write_sysfs(directory.path()).unwrap();
    let node =
        |bus_id: &str| fs::read_to_string(directory.path().join("bus/pci/devices").join(bus_id).join("numa_node"));
    assert_eq!(node("0000:17:00.0").unwrap(), "0\n");
    assert_eq!(node("0000:3f:00.0").unwrap(), "1\n", "card 5 is on the second socket");
    assert_eq!(node("0000:4f:00.0").unwrap(), "-1\n");
}

/// Two cards, the first cut in two.
fn cut() -> Scenario {
    let mut scenario = Scenario::uniform(2, "NVIDIA H100 80GB HBM3", 80 * GIB);
    scenario.cards[0].mig = Some(MigScenario::cut(&[("1g.10gb", 10 * GIB), ("1g.10gb+me", 9 * GIB)]));
    scenario.cards[1].mig = Some(MigScenario::default());
    scenario
}

#[test]
fn an_instance_answers_for_itself_and_leads_to_its_card() {
    let mut machine = Machine::new(cut());
    machine.change(|scenario| scenario.cards[0].mig.as_mut().unwrap().instances[1].memory_used = GIB);
    let nvml = machine.open().unwrap();
    let card = nvml.device_by_index(0).unwrap();
    assert_eq!((card.mig_mode().unwrap().current, card.mig_device_count().unwrap()), (1, 7));
    assert!(!card.mig_is_mig_device_handle().unwrap());
    assert!(matches!(card.utilization_rates(), Err(NvmlError::NotSupported)), "not while it is cut");
    let instance = card.mig_device_by_index(1).unwrap();
    assert!(instance.mig_is_mig_device_handle().unwrap());
    assert_eq!(instance.name().unwrap(), "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me");
    let uuid = instance.uuid().unwrap();
    assert_eq!(uuid, "MIG-00020000-fa4e-4a11-8000-000000000000");
    let memory = instance.memory_info().unwrap();
    assert_eq!((memory.total, memory.used, memory.free), (9 * GIB, GIB, 8 * GIB));
    assert_eq!(instance.mig_parent_device().unwrap().uuid().unwrap(), Scenario::uuid(0));
    assert_eq!(nvml.device_by_uuid(uuid).unwrap().memory_info().unwrap().total, 9 * GIB);
    assert!(matches!(card.mig_device_by_index(2), Err(NvmlError::NotFound)));
    assert!(matches!(card.mig_parent_device(), Err(NvmlError::InvalidArg)));
}

#[test]
fn what_is_about_cards_alone_is_refused_for_an_instance() {
    let machine = Machine::new(cut());
    let nvml = machine.open().unwrap();
    let instance = nvml.device_by_index(0).unwrap().mig_device_by_index(0).unwrap();
    let set = nvml.create_event_set().unwrap();
    let refused = [
        instance.minor_number().err(),
        instance.pci_info().err(),
        instance.mig_mode().err(),
        instance.mig_device_by_index(0).err(),
        instance.utilization_rates().err(),
        instance.link_wrapper_for(0).is_active().err(),
        instance.register_events(EventTypes::CRITICAL_XID_ERROR, set).err().map(|error| error.error),
    ];
    for (at, error) in refused.iter().enumerate() {
        assert!(matches!(error, Some(NvmlError::NotSupported)), "call {at}: {error:?}");
    }
}

#[test]
fn a_card_out_of_mig_mode_has_no_instances() {
    let machine = Machine::new(cut());
    let nvml = machine.open().unwrap();
    let card = nvml.device_by_index(1).unwrap();
    assert_eq!((card.mig_mode().unwrap().current, card.mig_device_count().unwrap()), (0, 0));
    assert!(matches!(card.mig_device_by_index(0), Err(NvmlError::NotSupported)));
}

#[test]
fn instances_come_and_go_and_fall_with_their_card() {
    let mut machine = Machine::new(cut());
    let nvml = machine.open().unwrap();
    let card = nvml.device_by_index(0).unwrap();
    let instance = card.mig_device_by_index(0).unwrap();
    machine.change(|scenario| scenario.cards[0].mig = Some(MigScenario::cut(&[])));
    assert!(matches!(instance.memory_info(), Err(NvmlError::InvalidArg)));
    assert!(matches!(card.mig_device_by_index(0), Err(NvmlError::NotFound)));
    machine.change(|scenario| *scenario = cut());
    assert_eq!(instance.memory_info().unwrap().total, 10 * GIB, "made anew at the same place");
    machine.change(|scenario| {
        let call = Call::about("nvmlDeviceGetMemoryInfo_v2", "MIG-00010000-fa4e-4a11-8000-000000000000");
        scenario.errors.insert(call, NvmlReturn::Unknown);
    });
    assert!(matches!(instance.memory_info(), Err(NvmlError::Unknown)));
    assert!(card.memory_info().is_ok() && card.mig_device_by_index(1).unwrap().memory_info().is_ok());
    machine.change(|scenario| scenario.cards[0].state = CardState::Lost);
    assert!(matches!(instance.name(), Err(NvmlError::GpuLost)));
}

#[test]
fn presets_survive_the_file() {
    let machine = Machine::new(pair());
    for scenario in [Scenario::hgx_h100(), Scenario::pcie_l40s(), Scenario::cube_mesh_v100(), cut()] {
        scenario.write(&machine.file()).unwrap();
        assert_eq!(Scenario::read(&machine.file()).unwrap(), scenario);
    }
}
