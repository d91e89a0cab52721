//! Work that depends on other work.

use std::ffi::c_void;
use std::process;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use driver_api::{Cuda, DEFAULT_STREAM, NOT_READY, SUCCESS};
use fake_cuda::Machine;

use crate::program::{GIB, Site, busy_meanwhile, eventually};

const MILLISECOND: Duration = Duration::from_millis(1);
/// How late what isn't the card's doing is noticed, on a busy machine.
const LATE: Duration = Duration::from_millis(20);

fn busy(site: &Site) -> Duration {
    Duration::from_nanos(site.card(0).usage_of(process::id()).unwrap().busy)
}

#[test]
fn streams_run_beside_each_other() {
    let cuda = Site::small().program();
    let (function, first) = (cuda.function(c"busy_ns"), cuda.stream());
    let (start, end) = (cuda.event(), cuda.event());
    busy_meanwhile(&cuda, first);
    assert_eq!(cuda.cuEventRecord(start, first), SUCCESS);
    for _ in 0..8 {
        let stream = cuda.stream();
        assert_eq!(cuda.cuStreamWaitEvent(stream, start, 0), SUCCESS);
        assert_eq!(cuda.launch(function, 50_000_000, stream), SUCCESS);
        assert_eq!(cuda.launch(function, 50_000_000, stream), SUCCESS);
        assert_eq!(cuda.cuEventRecord(end, stream), SUCCESS);
    }
    assert_eq!(cuda.cuCtxSynchronize(), SUCCESS);
    let all = cuda.elapsed(start, end);
    assert!(all.abs_diff(100 * MILLISECOND) < MILLISECOND, "{all:?}");
}

#[test]
fn default_stream_and_blocking_streams_wait_for_each_other() {
    let cuda = Site::small().program();
    let (function, blocking) = (cuda.function(c"busy_ns"), cuda.get(|cuda, to| cuda.cuStreamCreate(to, 0)));
    let events = [cuda.event(), cuda.event(), cuda.event(), cuda.event()];
    busy_meanwhile(&cuda, DEFAULT_STREAM);
    for (event, stream) in events.into_iter().zip([DEFAULT_STREAM, blocking, DEFAULT_STREAM, blocking]) {
        assert_eq!(cuda.cuEventRecord(event, stream), SUCCESS);
        assert_eq!(cuda.launch(function, 5_000_000, stream), SUCCESS);
    }
    assert_eq!(cuda.cuCtxSynchronize(), SUCCESS);
    for pair in events.windows(2) {
        assert!(cuda.elapsed(pair[0], pair[1]) >= 5 * MILLISECOND);
    }
}

#[test]
fn spinning_kernel_has_the_card_until_another_writes_its_flag() {
    let site = Site::small();
    let cuda = site.program();
    let (spin, write) = (cuda.function(c"spin_until"), cuda.function(c"write_flag"));
    let (flag, one, other) = (cuda.allocate(4), cuda.stream(), cuda.stream());
    assert_eq!(cuda.launch_on_flag(spin, (flag, 7), one), SUCCESS);
    eventually(|| (busy(&site) > 30 * MILLISECOND).then_some(()));
    assert_eq!(cuda.cuStreamQuery(one), NOT_READY);
    assert_eq!(cuda.launch_on_flag(write, (flag, 7), other), SUCCESS);
    assert_eq!(cuda.cuStreamSynchronize(one), SUCCESS);
    let had = busy(&site);
    thread::sleep(LATE);
    assert_eq!(busy(&site), had, "it has given the card back");
}

#[test]
fn stream_waits_for_a_value_without_having_the_card() {
    let site = Site::small();
    let cuda = site.program();
    let (flag, one, other) = (cuda.allocate(4), cuda.stream(), cuda.stream());
    let (function, after) = (cuda.function(c"busy_ns"), cuda.event());
    assert_eq!(cuda.cuStreamWaitValue32_v2(one, flag, 3, 0), SUCCESS);
    assert_eq!(cuda.launch(function, 1_000_000, one), SUCCESS);
    assert_eq!(cuda.cuEventRecord(after, one), SUCCESS);
    thread::sleep(LATE);
    assert_eq!((cuda.cuEventQuery(after), busy(&site)), (NOT_READY, Duration::ZERO));
    assert_eq!(cuda.launch(function, 2_000_000, other), SUCCESS);
    assert_eq!(cuda.cuStreamWriteValue32_v2(other, flag, 4, 0), SUCCESS);
    assert_eq!(cuda.cuEventSynchronize(after), SUCCESS);
    assert!(busy(&site).abs_diff(3 * MILLISECOND) < MILLISECOND / 100, "{:?}", busy(&site));
}

#[test]
fn host_function_may_wait_for_a_thread_that_launches() {
    static LAUNCHED: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);
    unsafe extern "C" fn wait(_data: *mut c_void) {
        LAUNCHED.lock().unwrap().as_ref().unwrap().recv().unwrap();
    }
    let cuda = Site::small().program();
    let (told, launched) = mpsc::channel();
    *LAUNCHED.lock().unwrap() = Some(launched);
    let (function, one, other) = (cuda.function(c"busy_ns"), cuda.stream(), cuda.stream());
    assert_eq!(cuda.cuLaunchHostFunc(one, Some(wait), std::ptr::null_mut()), SUCCESS);
    assert_eq!(cuda.launch(function, 1000, one), SUCCESS);
    assert_eq!(cuda.launch(function, 1_000_000, other), SUCCESS);
    assert_eq!(cuda.cuStreamSynchronize(other), SUCCESS, "it needs nothing of the first");
    assert_eq!(cuda.cuStreamQuery(one), NOT_READY);
    told.send(()).unwrap();
    assert_eq!(cuda.cuStreamSynchronize(one), SUCCESS);
}

#[test]
fn persistent_kernel_takes_turns_with_another_process() {
    let site = Site::small();
    let cuda = site.program();
    let (flag, one) = (cuda.get(|cuda, to| cuda.cuMemAllocManaged(to, 4, 1)), 1_u32);
    let (spin, stream) = (cuda.function(c"spin_until"), cuda.stream());
    assert_eq!(cuda.launch_on_flag(spin, (flag, 1), stream), SUCCESS);
    let other = site.worker("busy 100000");
    eventually(|| (other.usage(site.card(0)).busy > 0).then_some(()));
    let (began, before) = (Instant::now(), busy(&site));
    thread::sleep(Duration::from_secs(1));
    let share = busy(&site).saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    assert!((share - 0.5).abs() < 0.03, "{share}");
    assert_eq!(cuda.cuMemcpyHtoD_v2(flag, (&raw const one).cast(), 4), SUCCESS);
    assert_eq!(cuda.cuStreamSynchronize(stream), SUCCESS);
}

/// What each rank of a job does: so much work of its own, then an exchange of 500 µs, ten times.
fn exchange(cuda: &Cuda, rank: u32, work: u32) {
    let (function, meet, stream) = (cuda.function(c"busy_ns"), cuda.function(c"meet_ns"), cuda.stream());
    for number in 1..=10 {
        assert_eq!(cuda.launch(function, work, stream), SUCCESS);
        assert_eq!(cuda.launch_meet(meet, (1, number), (rank, 2), 500_000, stream), SUCCESS);
    }
    assert_eq!(cuda.cuStreamSynchronize(stream), SUCCESS);
}

#[test]
fn kernels_of_two_cards_meet() {
    let site = Site::new(&Machine::uniform(2, GIB));
    let cuda = site.program();
    let ranks = [(0, 1_000_000), (1, 3_000_000)];
    thread::scope(|scope| {
        for (rank, work) in ranks {
            let cuda = &cuda;
            scope.spawn(move || {
                cuda.enter(rank);
                exchange(cuda, rank.unsigned_abs(), work);
            });
        }
    });
    for (rank, _) in ranks {
        let busy = site.card(rank.unsigned_abs()).usage_of(process::id()).unwrap().busy;
        let busy = Duration::from_nanos(busy);
        // The one with less work spins for the other.
        assert!(busy >= 33 * MILLISECOND && busy < 35 * MILLISECOND + LATE, "{busy:?}");
    }
}

#[test]
fn kernels_of_two_processes_meet_on_one_card() {
    let site = Site::small();
    let mut workers = [site.worker("meet 0"), site.worker("meet 1")];
    for worker in &mut workers {
        assert!(worker.wait().unwrap());
    }
    let [one, other] = workers.each_ref().map(|worker| worker.usage(site.card(0)));
    assert!(!one.alive && !other.alive && one.kernels == 20 && other.kernels == 20, "{one:?} {other:?}");
}

/// The other half of [`kernels_of_two_processes_meet_on_one_card`].
pub(crate) fn meet(cuda: &Cuda, rank: &str) {
    exchange(cuda, rank.parse().unwrap(), 1_000_000);
}
