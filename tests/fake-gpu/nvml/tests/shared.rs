//! Cards that programs use through fake-cuda, as NVML sees them.

use std::process::Command;
use std::time::Duration;
use std::{env, process, thread};

use fake_card::Card;
use fake_nvml::Scenario;
use nvml_wrapper::Nvml;

const GIB: u64 = 1 << 30;

/// The other process is this test again: the environment says where the state is, and is read when NVML first looks.
#[test]
fn usage_adds_scenario_and_fake_cuda_programs() {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = Scenario::uniform(2, "NVIDIA L4", 24 * GIB);
    scenario.cards[0].memory_used = GIB;
    scenario.write(&directory.path().join("scenario.json")).unwrap();
    let slice = Duration::from_millis(2);
    let member = Card::create(directory.path(), &Scenario::uuid(0), slice).unwrap().join().unwrap();
    member.charge(3 * GIB, 24 * GIB).unwrap();
    member.demand(1, 1, |_| fake_card::FOREVER);
    let built = env::current_exe().unwrap().with_file_name("libfake_nvml.so");
    fake_nvml::install(&built, directory.path()).unwrap();
    let mut other = Command::new(env::current_exe().unwrap());
    other.args(["--ignored", "--exact", "look", "--nocapture"]).env("FAKE_CUDA_STATE", directory.path());
    let looked = other.env("OF_PROCESS", process::id().to_string()).output().unwrap();
    assert!(looked.status.success(), "{}", String::from_utf8_lossy(&looked.stderr));
}

#[test]
#[ignore = "a process of the other test"]
fn look() {
    let Ok(pid) = env::var("OF_PROCESS") else { return };
    let pid: u32 = pid.parse().unwrap();
    let library = std::path::Path::new(&env::var_os("FAKE_CUDA_STATE").unwrap()).join("libnvidia-ml.so.1");
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().unwrap();
    let card = nvml.device_by_index(0).unwrap();
    let memory = card.memory_info().unwrap();
    assert_eq!((memory.used, memory.free), (4 * GIB, 20 * GIB));
    assert_eq!(card.running_compute_processes().unwrap()[0].pid, pid);
    assert!(card.process_utilization_stats(None).is_err(), "nothing was sampled yet");
    thread::sleep(Duration::from_millis(300));
    assert!(card.utilization_rates().unwrap().gpu >= 95);
    let busy = card.process_utilization_stats(None).unwrap();
    assert!(busy[0].pid == pid && busy[0].sm_util >= 95);
    assert!(card.process_utilization_stats(busy[0].timestamp).is_err(), "nothing newer");
    let unused = nvml.device_by_index(1).unwrap();
    assert_eq!(unused.memory_info().unwrap().used, 0);
    assert!(unused.running_compute_processes().unwrap().is_empty());
}
