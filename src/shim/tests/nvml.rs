//! What a program is told by NVML, through nvml-wrapper, which loads the driver's library as programs do.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(dead_code, reason = "not every test program needs all of what they share")]

mod container;

use std::env;

use container::{Container, GIB, MIB, Share, say, words};
use divvy_region::layout;
use fake_cuda::Machine;
use fake_nvml::{MigScenario, Scenario};
use nvml_wrapper::enum_wrappers::device::ComputeMode;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

/// Three cards of 24 GiB, of which the container has the third and the first.
fn container() -> Container {
    let mut machine = Machine::uniform(3, 24 * GIB);
    machine.cards.rotate_left(2); // the container's cards are numbered as the limits file lists them
    let container = Container::new(&machine, &[Share::of_memory(8192), Share::of_memory(512)]);
    let built = env::current_exe().expect("a program").with_file_name("libfake_nvml.so");
    fake_nvml::install(&built, &container.path("lib")).expect("a library");
    let mut scenario = Scenario::uniform(3, "NVIDIA L4", 24 * GIB);
    scenario.cards.rotate_left(2);
    scenario.write(&container.path("lib/scenario.json")).expect("room");
    container
}

fn told(job: &str, container: &Container) -> Vec<String> {
    let mut tenant = container.tenant("tenant", job);
    let told: Vec<String> = std::iter::from_fn(|| tenant.heard()).collect();
    tenant.succeeds();
    told
}

#[test]
#[ignore = "a tenant of other tests"]
fn tenant() {
    let Some(job) = words().into_iter().next() else { return };
    let nvml = Nvml::builder().lib_path("lib/libnvidia-ml.so.1".as_ref()).init().expect("a driver");
    match job.as_str() {
        "cards" => {
            for index in 0..nvml.device_count().expect("a number") {
                let card = nvml.device_by_index(index).expect("a card");
                let memory = card.memory_info().expect("memory");
                let (total, used, free) = (memory.total / MIB, memory.used / MIB, memory.free / MIB);
                say(format_args!("{}: {used} of {total} MiB, {free} free", card.uuid().expect("a name")));
            }
            say(nvml.device_by_index(2).is_err());
            say(nvml.device_by_uuid(Machine::uuid(2)).is_err());
        }
        "processes" => say_processes(&nvml.device_by_index(0).expect("a card")),
        "instances" => {
            say(format_args!("{} card", nvml.device_count().expect("a number")));
            let card = nvml.device_by_index(0).expect("a card");
            let address = card.pci_info().expect("an address").bus_id;
            say(nvml.device_by_pci_bus_id(address).expect("the same card").uuid().expect("a name"));
            say(card.memory_info().expect("memory").total / MIB);
            say_processes(&card);
            for index in 0..card.mig_device_count().expect("a number") {
                let Ok(instance) = card.mig_device_by_index(index) else { continue };
                let memory = instance.memory_info().expect("memory");
                say(format_args!(
                    "{}: {} of {} MiB",
                    instance.uuid().expect("a name"),
                    memory.used / MIB,
                    memory.total / MIB
                ));
                say_processes(&instance);
                say(instance.mig_parent_device().expect("a card").uuid().expect("a name"));
            }
            say(nvml.device_by_uuid(Machine::uuid(1)).is_err());
        }
        "unknown" => {
            let card = nvml.device_by_index(0).expect("a card");
            say(format_args!("{:?}", card.memory_info().expect_err("no figure")));
        }
        "changes" => {
            let mut card = nvml.device_by_index(0).expect("a card");
            say(card.set_compute_mode(ComputeMode::Prohibited).is_err());
            say(card.set_power_management_limit(100_000).is_err());
            say(card.reset_applications_clocks().is_err());
            say(card.name().expect("a name"));
        }
        other => panic!("no job {other:?}"),
    }
}

fn say_processes(card: &Device<'_>) {
    for ProcessInfo { pid, used_gpu_memory, gpu_instance_id, .. } in
        card.running_compute_processes().expect("processes")
    {
        say(format_args!("{pid} {used_gpu_memory:?} {gpu_instance_id:?}"));
    }
}

/// Writes to the books that a process holds 128 MiB of a card, as that process would have.
fn holds(container: &Container, cards: usize, card: usize, pid: u32) {
    let mut books = std::fs::read(container.path("region/books")).expect("books");
    books[28..32].copy_from_slice(&1_u32.to_ne_bytes()); // slots that were claimed once
    let slot = layout::slot_bytes(cards, 0).start;
    books[slot..slot + 4].copy_from_slice(&1_u32.to_ne_bytes());
    books[slot + 4..slot + 8].copy_from_slice(&pid.to_ne_bytes());
    let used = layout::use_bytes(cards, 0, card).start;
    books[used + 8..used + 16].copy_from_slice(&(128 * MIB).to_ne_bytes());
    std::fs::write(container.path("region/books"), books).expect("room");
}

#[test]
fn nvml_shows_own_cards_at_their_share() {
    let container = container();
    let expected = [
        format!("{}: 0 of 8192 MiB, 8192 free", Machine::uuid(0)),
        format!("{}: 0 of 512 MiB, 512 free", Machine::uuid(1)),
        "true".to_owned(),
        "true".to_owned(),
    ];
    assert_eq!(told("cards", &container), expected);
}

#[test]
fn nvml_shows_oversubscribed_share_larger_than_the_card() {
    let container = container();
    let limits = std::fs::read_to_string(container.path("limits/limits")).expect("limits");
    let larger = limits.replace("memory-mib 8192", "memory-mib 32768").replacen("sive 0", "sive 0 host-mib 16384", 1);
    std::fs::write(container.path("limits/limits"), larger).expect("room");
    let told = told("cards", &container);
    assert_eq!(told[0], format!("{}: 0 of 32768 MiB, 32768 free", Machine::uuid(0)));
    assert_eq!(told[1], format!("{}: 0 of 512 MiB, 512 free", Machine::uuid(1)), "the others are as before");
}

#[test]
fn nvml_shows_share_of_memory_of_which_it_knows_nothing() {
    let container = container();
    let path = container.path("lib/scenario.json");
    let mut scenario = Scenario::read(&path).expect("a scenario");
    scenario.cards.iter_mut().for_each(|card| card.unified_memory = true);
    scenario.write(&path).expect("room");
    holds(&container, 2, 0, 77);
    let expected = [
        format!("{}: 128 of 8192 MiB, 8064 free", Machine::uuid(0)),
        format!("{}: 0 of 512 MiB, 512 free", Machine::uuid(1)),
        "true".to_owned(),
        "true".to_owned(),
    ];
    assert_eq!(told("cards", &container), expected);
    let limits = std::fs::read_to_string(container.path("limits/limits")).expect("limits");
    std::fs::write(container.path("limits/limits"), limits.replace("tier shim", "tier accounting")).expect("room");
    assert_eq!(told("unknown", &container), ["NotSupported"], "without a limit what the driver says");
}

#[test]
fn nvml_shows_own_processes_with_region_usage() {
    let container = container();
    holds(&container, 2, 1, 77);
    assert_eq!(told("processes", &container), [format!("77 Used({}) None", 128 * MIB)]);
    let cards = || told("cards", &container)[0].clone();
    assert_eq!(cards(), format!("{}: 128 of 8192 MiB, 8064 free", Machine::uuid(0)));
    // Contexts are no process's allocations, and take of the share all the same.
    std::fs::write(container.path("limits/overhead"), format!("{} {}\n", Machine::uuid(0), 64 * MIB)).expect("room");
    assert_eq!(cards(), format!("{}: 192 of 8192 MiB, 8000 free", Machine::uuid(0)));
}

#[test]
fn nvml_setters_are_refused() {
    assert_eq!(told("changes", &container()), ["true", "true", "true", "NVIDIA L4"]);
}

#[test]
fn accounting_tier_leaves_nvml_unchanged() {
    let container = container();
    let limits = std::fs::read_to_string(container.path("limits/limits")).expect("limits");
    std::fs::write(container.path("limits/limits"), limits.replace("tier shim", "tier accounting")).expect("room");
    assert_eq!(told("cards", &container)[0], format!("{}: 0 of 24576 MiB, 24576 free", Machine::uuid(0)));
}

#[test]
fn nvml_shows_own_instances_and_their_card() {
    let container = Container::new(&Machine::uniform(1, GIB), &[Share::of_memory(5 * 1024)]);
    let built = env::current_exe().expect("a program").with_file_name("libfake_nvml.so");
    fake_nvml::install(&built, &container.path("lib")).expect("a library");
    let mut scenario = Scenario::uniform(2, "NVIDIA A100-SXM4-40GB", 40 * GIB);
    for card in &mut scenario.cards {
        card.mig = Some(MigScenario::cut(&[("1g.5gb", 5 * GIB), ("2g.10gb", 10 * GIB)]));
    }
    scenario.write(&container.path("lib/scenario.json")).expect("room");
    let card = &scenario.cards[0];
    let instance = card.mig.as_ref().expect("it is cut").instances[1].uuid_on(card);
    let limits = std::fs::read_to_string(container.path("limits/limits")).expect("limits");
    std::fs::write(container.path("limits/limits"), limits.replace(&Machine::uuid(0), &instance)).expect("room");
    holds(&container, 1, 0, 77);
    let process = format!("77 Used({}) Some(2)", 128 * MIB);
    let expected = [
        "1 card",
        &card.uuid,
        "40960",
        &process,
        &format!("{instance}: 128 of 5120 MiB"),
        &process,
        &card.uuid,
        "true",
    ];
    assert_eq!(told("instances", &container), expected);
}
