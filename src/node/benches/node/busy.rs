//! The kubelet's calls while the disk is busy and what a tenant left is removed, against the same calls in quiet.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use divvy_testkit::own_part::row;
use divvy_testkit::pods::GPU;
use fake_kubelet::{Admission, Kubelet, Method, Workload};

const ROUNDS: usize = 5;
/// Pods of a quiet round, and at least as many of a busy one.
const PODS: usize = 40;
/// Files that are removed in a busy round.
const FILES: usize = 400_000;
/// Threads that write and sync.
const WRITERS: usize = 4;

/// Writers that sync to the disk of the journal, until this is dropped.
struct Syncs {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Times of the calls for pods that come and go one by one.
#[derive(Default)]
struct Times {
    proposed: Vec<Duration>,
    allocated: Vec<Duration>,
}

/// Prints the figures of interleaved rounds. `state` is on the journal's disk.
pub(crate) async fn beside_removal(kubelet: &Kubelet, state: &Path, run_dir: &Path) -> anyhow::Result<()> {
    let (mut quiet, mut busy, mut removed) = (Times::default(), Times::default(), 0);
    for round in 0..ROUNDS {
        let left = leave(run_dir, round)?;
        admit(kubelet, &mut quiet, |admitted| admitted == PODS).await?;
        let syncs = Syncs::start(state)?;
        let dead = run_dir.join("dead").join(format!("left-{round}"));
        fs::rename(left, &dead)?;
        admit(kubelet, &mut busy, |admitted| admitted >= PODS && !dead.exists()).await?;
        removed += FILES;
        drop(syncs);
    }
    let title = format!("{removed} files removed, {WRITERS} writers syncing, {ROUNDS} rounds");
    for (call, quiet, busy) in
        [("GetPreferredAllocation", quiet.proposed, busy.proposed), ("Allocate", quiet.allocated, busy.allocated)]
    {
        let ratio = p99(&busy).as_secs_f64() / p99(&quiet).as_secs_f64();
        row(&format!("{call}, quiet ({} calls)", quiet.len()), quiet, "");
        row(&format!("{call}, busy ({} calls)", busy.len()), busy, "");
        println!("{:<58} {:>10} {ratio:>10.2}   ≤ 2", format!("  p99 busy ÷ quiet; {title}"), "");
    }
    Ok(())
}

/// Files of a tenant, in directories of 10 000, beside those of containers.
fn leave(run_dir: &Path, round: usize) -> anyhow::Result<PathBuf> {
    let left = run_dir.join(format!("left-{round}"));
    for number in 0..FILES {
        let directory = left.join("region").join((number / 10_000).to_string());
        if number % 10_000 == 0 {
            fs::create_dir_all(&directory)?;
        }
        File::create_new(directory.join(number.to_string()))?;
    }
    Ok(left)
}

async fn admit(kubelet: &Kubelet, times: &mut Times, is_enough: impl Fn(usize) -> bool) -> anyhow::Result<()> {
    let before = kubelet.calls().len();
    let mut admitted = 0;
    while !is_enough(admitted) {
        // Small: some whose shares haven't ended yet fit beside them.
        let pod =
            Workload::new(format!("busy-{before}-{admitted}")).app("main", &[(GPU, "1"), ("nvidia.com/gpumem", "10")]);
        let uid = kubelet.add_pod(pod.pod())?;
        let answer = kubelet.admitted(&uid).await?;
        anyhow::ensure!(answer == Admission::Admitted, "{answer:?}");
        kubelet.wait_until(|view| view.pods[&uid].containers[0].starts > 0).await;
        kubelet.delete(&uid)?;
        kubelet.wait_until(|view| !view.pods.contains_key(&uid)).await;
        admitted += 1;
    }
    for call in kubelet.calls().split_off(before) {
        anyhow::ensure!(call.error.is_none(), "{:?}", call.error);
        match call.method {
            Method::GetPreferredAllocation => times.proposed.push(call.took),
            Method::Allocate => times.allocated.push(call.took),
            Method::PreStartContainer => {}
        }
    }
    Ok(())
}

fn p99(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

// === impl Syncs ===

impl Syncs {
    fn start(directory: &Path) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for number in 0..WRITERS {
            let (file, stop) = (File::create(directory.join(format!("busy-{number}")))?, Arc::clone(&stop));
            threads.push(std::thread::spawn(move || {
                let block = vec![1; 64 << 10];
                while !stop.load(Ordering::Relaxed) {
                    // A disk that is full is busy, too.
                    file.write_all_at(&block, 0).and_then(|()| file.sync_all()).unwrap_or_default();
                }
            }));
        }
        Ok(Self { stop, threads })
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_default();
        }
    }
}
