//! The card's time among processes.

use std::time::Duration;
use std::{env, process, thread};

use driver_api::{Cuda, DEFAULT_STREAM, SUCCESS};
use fake_cuda::card::{Card, clock};

use crate::lookup::look_up;
use crate::memory::import;
use crate::program::{GIB, Site, Worker, busy_meanwhile, eventually};

/// How much of the card's time each worker has in a while that begins when all of them run.
fn shares(card: Card, workers: &[Worker], time: Duration) -> Vec<f64> {
    let busy = || -> Vec<u64> { workers.iter().map(|worker| worker.usage(card).busy).collect() };
    eventually(|| busy().iter().all(|busy| *busy > 0).then_some(()));
    let (began, before) = (clock(), busy());
    thread::sleep(time);
    let (after, ended) = (busy(), clock());
    let share = |(after, before): (u64, u64)| (after - before) as f64 / (ended - began) as f64;
    after.into_iter().zip(before).map(share).collect()
}

fn near(shares: &[f64], expected: f64) {
    assert!(shares.iter().all(|share| (share - expected).abs() <= 0.03), "{shares:?}, not {expected}");
}

#[test]
fn one_alone_has_all_of_the_card() {
    let site = Site::small();
    let workers = [site.worker("busy 100000")];
    near(&shares(eventually(|| site.opened()), &workers, Duration::from_secs(1)), 1.0);
}

#[test]
fn two_have_half_each_whatever_their_kernels() {
    let site = Site::small();
    let workers = [site.worker("busy 10000"), site.worker("busy 20000000")];
    near(&shares(eventually(|| site.opened()), &workers, Duration::from_secs(2)), 0.5);
}

#[test]
fn three_have_a_third_each() {
    let site = Site::small();
    let workers = [site.worker("busy 100000"), site.worker("busy 1000000"), site.worker("busy 5000000")];
    near(&shares(eventually(|| site.opened()), &workers, Duration::from_secs(2)), 1.0 / 3.0);
}

#[test]
fn a_killed_holder_doesnt_stop_the_card() {
    let site = Site::small();
    let cuda = site.program();
    let card = site.card(0);
    // Hours of work wait, and the kernel that runs ends never.
    let mut other = site.worker("busy 4000000000");
    eventually(|| (other.usage(card).busy > 0).then_some(()));
    let (busy, start, end) = (cuda.function(c"busy_ns"), cuda.event(), cuda.event());
    busy_meanwhile(&cuda, DEFAULT_STREAM);
    other.kill();
    assert!(!other.wait().unwrap());
    assert_eq!(cuda.cuEventRecord(start, DEFAULT_STREAM), SUCCESS);
    for _ in 0..10 {
        assert_eq!(cuda.launch(busy, 10_000_000, DEFAULT_STREAM), SUCCESS);
    }
    assert_eq!(cuda.cuEventRecord(end, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuEventSynchronize(end), SUCCESS);
    // Its own work, and at most the rest of the other's slice.
    let span = cuda.elapsed(start, end);
    assert!(span <= Duration::from_millis(102) + Duration::from_micros(1), "{span:?}");
    let dead = other.usage(card);
    assert!(!dead.alive && dead.waiting == 0);
}

#[test]
fn killed_at_any_moment_a_process_leaves_nothing_behind() {
    let site = Site::small();
    let cuda = site.program();
    let (card, busy) = (site.card(0), cuda.function(c"busy_ns"));
    for round in 0..20 {
        let mut workers = [site.worker("churn 1000000"), site.worker("churn 300000000")];
        eventually(|| workers.iter().all(|worker| worker.usage(card).launches > 100).then_some(()));
        thread::sleep(Duration::from_micros(round * 137));
        for worker in &mut workers {
            worker.kill();
            assert!(!worker.wait().unwrap());
        }
        assert_eq!(card.memory_used(), 0);
        assert_eq!(cuda.launch(busy, 1_000_000, DEFAULT_STREAM), SUCCESS);
        assert_eq!(cuda.cuCtxSynchronize(), SUCCESS, "the card goes on");
    }
    assert_eq!(cuda.info().0, GIB);
}

#[test]
fn time_sliced_spans_last_as_long_as_both_together() {
    let site = Site::small();
    let cuda = site.program();
    let other = site.worker("busy 500000");
    eventually(|| (other.usage(site.card(0)).busy > 0).then_some(()));
    let (busy, start, end) = (cuda.function(c"busy_ns"), cuda.event(), cuda.event());
    busy_meanwhile(&cuda, DEFAULT_STREAM);
    assert_eq!(cuda.cuEventRecord(start, DEFAULT_STREAM), SUCCESS);
    for _ in 0..200 {
        assert_eq!(cuda.launch(busy, 500_000, DEFAULT_STREAM), SUCCESS);
    }
    assert_eq!(cuda.cuEventRecord(end, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuEventSynchronize(end), SUCCESS);
    let span = cuda.elapsed(start, end);
    assert!(span.abs_diff(Duration::from_millis(200)) <= Duration::from_millis(4), "{span:?}");
}

/// What other processes of these tests do, by `FAKE_CUDA_WORKER`.
#[test]
#[ignore = "a process of other tests"]
fn worker() {
    let Ok(what) = env::var("FAKE_CUDA_WORKER") else { return };
    let words: Vec<&str> = what.split(' ').collect();
    let [verb, argument] = words[..] else { panic!("{what}") };
    if verb == "bindings" {
        return crate::signatures::use_bindings(argument.parse().unwrap());
    }
    if verb == "refused" {
        return crate::service::refused();
    }
    let cuda = Cuda::start(env::var("FAKE_CUDA_LIBRARY").unwrap());
    match verb {
        "busy" => {
            let (function, lasts) = (cuda.function(c"busy_ns"), argument.parse().unwrap());
            loop {
                assert_eq!(cuda.launch(function, lasts, DEFAULT_STREAM), SUCCESS);
            }
        }
        "allocate" => {
            cuda.allocate(argument.parse().unwrap());
            loop {
                thread::park();
            }
        }
        "meet" => crate::dependent::meet(&cuda, argument),
        "limited" => crate::service::limited(&cuda, argument),
        "resolve" => assert_eq!(look_up(&cuda, "cuMemAlloc", 13_000, 0).1, cuda.symbol(argument)),
        "import" => process::exit(i32::from(!import(&cuda, argument))),
        "churn" => {
            let function = cuda.function(c"busy_ns");
            loop {
                let address = cuda.allocate(argument.parse().unwrap());
                assert_eq!(cuda.launch(function, 3000, DEFAULT_STREAM), SUCCESS);
                assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
            }
        }
        "cards" => {
            let seen: String = (0..cuda.get::<i32>(Cuda::cuDeviceGetCount))
                .map(|device| {
                    cuda.get::<[u8; 16]>(|cuda, to| cuda.cuDeviceGetUuid_v2(to.cast(), device))[15].to_string()
                })
                .collect();
            assert_eq!(seen, argument);
        }
        _ => panic!("{what}"),
    }
    assert!(cuda.info().1 == GIB);
}
