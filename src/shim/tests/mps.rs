//! The library in clients of CUDA's multi-process service, by the stand-in driver's own account.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(clippy::cast_possible_truncation, reason = "64-bit Linux alone")]
#![allow(clippy::panic, reason = "helpers of tests")]
#![allow(dead_code, reason = "not every test program needs all of what they share")]

mod container;
#[path = "memory/shell.rs"]
mod shell;
#[path = "pace/tenants.rs"]
mod tenants;

use std::thread;
use std::time::Duration;
use std::{env, fs, process};

use driver_api::{DEVICE_UNAVAILABLE, OUT_OF_MEMORY, SUCCESS};
use fake_cuda::Machine;
use fake_cuda::card::{EXCLUSIVE_PROCESS, Usage, set_compute_mode};

use container::{Container, GIB, MIB, Share, Tenant, eventually};

/// A container with these shares of cards that only clients can open. Its control daemon is this process.
fn container(shares: &[Share]) -> Container {
    let cards = u32::try_from(shares.len()).expect("a few");
    let container = Container::new(&Machine::uniform(cards, GIB), shares);
    container.limit_by("mps", shares);
    fs::create_dir(container.path("mps")).expect("a directory");
    let id = container.path("mps/nvidia-cuda-mps-control.pid");
    fs::write(id, process::id().to_string()).expect("room");
    fs::create_dir_all(container.path("lib/state")).expect("a directory");
    for card in 0..cards {
        set_compute_mode(&container.path("lib/state"), &Machine::uuid(card), EXCLUSIVE_PROCESS).expect("room");
    }
    container
}

/// A tenant with these variables, as if it had set them before it asked for the driver.
fn tenant(container: &Container, test: &str, words: &str, variables: &[(&str, &str)]) -> Tenant {
    let mut command = container.command(env::current_exe().expect("a program"));
    command.envs(variables.iter().copied());
    Tenant::start(command, test, words)
}

fn usage(container: &Container, tenant: &Tenant) -> Usage {
    eventually("a place on the card", || container.card(0).usage_of(tenant.id()))
}

#[test]
fn program_without_mps_variables_is_a_limited_client() {
    let container = container(&[Share::of_memory(100)]);
    let mut shell = tenant(&container, "shell::tenant", "with a context", &[]);
    assert_eq!(shell.answers("info"), "100 of 100");
    assert!(usage(&container, &shell).is_client);
}

#[test]
fn mps_variables_of_a_tenant_are_overridden() {
    let wrong = [
        ("CUDA_MPS_PIPE_DIRECTORY", "/nowhere"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1024M"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),
    ];
    let container = container(&[Share { memory: 100, cores: 10, compute: "burst" }]);
    let mut busy = tenant(&container, "tenants::tenant", "busy 1000000 1", &wrong);
    busy.says("ready");
    // A tenth of the card makes ten of each millisecond.
    eventually("a full queue", || (usage(&container, &busy).kernels > 1100).then_some(()));
    let before = usage(&container, &busy);
    thread::sleep(Duration::from_secs(1));
    let kernels = usage(&container, &busy).kernels - before.kernels;
    assert!((80..=120).contains(&kernels), "{kernels} a second");
    let mut command = container.command_without_library(env::current_exe().expect("a program"));
    command.env("CUDA_MPS_PIPE_DIRECTORY", "/nowhere");
    let mut stray = Tenant::start(command, "shell::tenant", "without a context");
    assert_eq!(stray.answers("start"), DEVICE_UNAVAILABLE.0.to_string(), "without the library the card is closed");
}

#[test]
fn mps_memory_limit_is_exact_over_all_processes() {
    let container = container(&[Share::of_memory(100)]);
    let mut shells = [0, 1].map(|_| tenant(&container, "shell::tenant", "with a context", &[]));
    shells[0].does(&format!("allocate a {}", 60 * MIB), SUCCESS);
    shells[1].does(&format!("allocate a {}", 60 * MIB), OUT_OF_MEMORY);
    shells[1].does(&format!("allocate a {}", 40 * MIB), SUCCESS);
    assert_eq!(shells[0].answers("info"), "0 of 100");
    container.holds(100);
}

#[test]
fn mps_compute_is_left_to_the_service() {
    let container = container(&[Share { memory: 100, cores: 50, compute: "cap" }]);
    let mut busy = tenant(&container, "tenants::tenant", "busy 1000000 1", &[]);
    busy.says("ready");
    eventually("a full queue", || (usage(&container, &busy).kernels > 1100).then_some(()));
    let (before, began) = (usage(&container, &busy), fake_cuda::card::clock());
    thread::sleep(Duration::from_secs(1));
    let (after, passed) = (usage(&container, &busy), fake_cuda::card::clock() - began);
    let busy_for = (after.busy - before.busy) * 100 / passed;
    assert!(busy_for >= 95, "half of the card all the time, not all of it half of the time: {busy_for} %");
    let totals = container.totals(0);
    assert_eq!((totals.throttled_ns, totals.usage.busy_ns), (0, 0));
    assert!(totals.launches > 1000, "they are counted: {}", totals.launches);
    let threads = fs::read_dir(format!("/proc/{}/task", busy.id())).expect("a process").flatten();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    let ours: Vec<String> = names.filter(|name| name.contains("divvy")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn change_from_mps_to_shim_takes_effect() {
    let shares = [Share { memory: 100, cores: 25, compute: "cap" }];
    let container = container(&shares);
    let mut busy = tenant(&container, "tenants::tenant", "busy 1000000 1", &[]);
    busy.says("ready");
    eventually("launches", || (usage(&container, &busy).launches > 100).then_some(()));
    assert_eq!(container.totals(0).throttled_ns, 0);
    container.limit_by("shim", &shares);
    eventually("the library's own account", || (container.totals(0).throttled_ns > 0).then_some(()));
}
