//! What a program is told by NVML, through nvml-wrapper, which loads the driver's library as programs do.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(dead_code, reason = "not every test program needs all of what they share")]

mod container;

use std::env;

use container::{Container, GIB, MIB, Share, say, words};
use divvy_region::layout;
use fake_cuda::Machine;
use fake_nvml::Scenario;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::ComputeMode;

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
        "processes" => {
            let card = nvml.device_by_index(0).expect("a card");
            let processes = card.running_compute_processes().expect("processes");
            for process in processes {
                say(format_args!("{} {:?}", process.pid, process.used_gpu_memory));
            }
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
fn nvml_shows_own_processes_with_region_usage() {
    let container = container();
    // As a process of it would have written them.
    let mut books = std::fs::read(container.path("region/books")).expect("books");
    books[28..32].copy_from_slice(&1_u32.to_ne_bytes()); // slots that were claimed once
    let slot = layout::slot_bytes(2, 0).start;
    books[slot..slot + 4].copy_from_slice(&1_u32.to_ne_bytes());
    books[slot + 4..slot + 8].copy_from_slice(&77_u32.to_ne_bytes());
    let used = layout::use_bytes(2, 0, 1).start;
    books[used + 8..used + 16].copy_from_slice(&(128 * MIB).to_ne_bytes());
    std::fs::write(container.path("region/books"), books).expect("room");
    assert_eq!(told("processes", &container), [format!("77 Used({})", 128 * MIB)]);
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
