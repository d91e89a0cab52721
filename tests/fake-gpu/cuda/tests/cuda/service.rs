//! Clients of CUDA's multi-process service.

use std::path::Path;
use std::time::Duration;
use std::{env, fs, process, ptr, thread};

use driver_api::{Cuda, DEVICE_UNAVAILABLE, OUT_OF_MEMORY, SUCCESS};
use fake_cuda::Machine;
use fake_cuda::card::{EXCLUSIVE_PROCESS, clock, set_compute_mode};
use tempfile::TempDir;

use crate::program::{GIB, MIB, Site, eventually};

/// A pipe directory whose control daemon is this process.
fn service() -> TempDir {
    let pipe = tempfile::tempdir().unwrap();
    fs::write(pipe.path().join("nvidia-cuda-mps-control.pid"), process::id().to_string()).unwrap();
    pipe
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn mps_clients_run_side_by_side_at_their_percentage() {
    let (site, service) = (Site::small(), service());
    let with = |percentage: &str| {
        let variables =
            [("CUDA_MPS_PIPE_DIRECTORY", text(service.path())), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage)];
        site.worker_with("busy 1000000", &variables)
    };
    let workers = [with("100"), with("50"), with("10")];
    let card = eventually(|| site.opened());
    // When their queues are full a kernel is submitted for each that has run.
    eventually(|| workers.iter().all(|worker| worker.usage(card).kernels > 1024).then_some(()));
    let look = || workers.iter().map(|worker| worker.usage(card)).collect::<Vec<_>>();
    let (before, began) = (look(), clock());
    thread::sleep(Duration::from_secs(1));
    let (after, ended) = (look(), clock());
    let passed = (ended - began) as f64;
    for (before, after) in before.iter().zip(&after) {
        let busy = (after.busy - before.busy) as f64 / passed;
        assert!(after.is_client && (busy - 1.0).abs() < 0.03, "nobody waits for a turn: {busy}");
    }
    let kernels: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after.kernels - before.kernels).collect();
    let part = |at: usize| kernels[at] as f64 / kernels[0] as f64;
    assert!((part(1) - 0.5).abs() < 0.05 && (part(2) - 0.1).abs() < 0.03, "{kernels:?}");
}

#[test]
fn a_client_has_no_more_memory_than_its_limit() {
    let (site, service) = (Site::small(), service());
    let variables =
        [("CUDA_MPS_PIPE_DIRECTORY", text(service.path())), ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1=1M,0=300M")];
    assert!(site.worker_with("limited 300", &variables).wait().unwrap());
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("nvidia-cuda-mps-control.pid"), i32::MAX.to_string()).unwrap();
    let dead = [("CUDA_MPS_PIPE_DIRECTORY", text(other.path())), variables[1]];
    assert!(site.worker_with("limited 1024", &dead).wait().unwrap(), "without the service there is no limit");
}

#[test]
fn only_clients_open_a_card_that_is_for_one_process() {
    let (site, service) = (Site::small(), service());
    let variables = [("CUDA_MPS_PIPE_DIRECTORY", text(service.path()))];
    assert!(site.worker_with("limited 1024", &variables).wait().unwrap());
    set_compute_mode(&site.state(), &Machine::uuid(0), EXCLUSIVE_PROCESS).unwrap();
    assert!(site.worker_with("limited 1024", &variables).wait().unwrap());
    assert!(site.worker("refused 0").wait().unwrap());
}

/// What processes of these tests do.
pub(crate) fn limited(cuda: &Cuda, megabytes: &str) {
    let bytes = megabytes.parse::<u64>().unwrap() * MIB;
    assert_eq!(cuda.info(), (bytes, GIB));
    let mut address = 0;
    assert_eq!(cuda.cuMemAlloc_v2(&raw mut address, bytes as usize), SUCCESS);
    assert_eq!(cuda.cuMemAlloc_v2(&raw mut address, 1), OUT_OF_MEMORY);
}

/// As above.
pub(crate) fn refused() {
    let cuda = Cuda::load(env::var("FAKE_CUDA_LIBRARY").unwrap()).unwrap();
    assert_eq!(cuda.cuInit(0), SUCCESS);
    assert_eq!(cuda.cuDevicePrimaryCtxRetain(&mut ptr::null_mut(), 0), DEVICE_UNAVAILABLE);
}
