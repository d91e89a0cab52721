//! Kernels, events and queues.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use driver_api::{DEFAULT_STREAM, INVALID_CONTEXT, NOT_READY, SUCCESS};
use fake_cuda::Machine;

use crate::program::{GIB, Site, busy_meanwhile};

const MICROSECOND: Duration = Duration::from_micros(1);

#[test]
fn events_are_asked_about_in_their_context() {
    let cuda = Site::new(&Machine::uniform(2, GIB)).program();
    let (first, event) = (cuda.enter(0), cuda.event());
    assert_eq!((cuda.cuEventRecord(event, DEFAULT_STREAM), cuda.cuEventSynchronize(event)), (SUCCESS, SUCCESS));
    let asked = || (cuda.cuEventQuery(event), cuda.cuEventElapsedTime(&mut 0.0, event, event));
    assert_eq!(asked(), (SUCCESS, SUCCESS));
    let second = cuda.enter(1);
    assert_eq!(asked(), (SUCCESS, INVALID_CONTEXT));
    assert_eq!(cuda.cuCtxSetCurrent(ptr::null_mut()), SUCCESS);
    assert_eq!(asked(), (INVALID_CONTEXT, INVALID_CONTEXT));
    assert_ne!(first, second);
}

#[test]
fn events_tell_how_long_kernels_took() {
    let cuda = Site::small().program();
    let (busy, other) = (cuda.function(c"busy_ns"), cuda.function(c"matmul"));
    let (start, middle, end) = (cuda.event(), cuda.event(), cuda.event());
    busy_meanwhile(&cuda, DEFAULT_STREAM);
    assert_eq!(cuda.cuEventRecord(start, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.launch(busy, 3_000_000, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuEventRecord(middle, DEFAULT_STREAM), SUCCESS);
    for _ in 0..7 {
        assert_eq!(cuda.launch(other, 5, DEFAULT_STREAM), SUCCESS);
    }
    assert_eq!(cuda.cuEventRecord(end, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuEventQuery(end), NOT_READY);
    assert_eq!(cuda.cuEventSynchronize(end), SUCCESS);
    assert!(
        cuda.elapsed(start, middle).abs_diff(3000 * MICROSECOND) <= MICROSECOND,
        "{:?}",
        cuda.elapsed(start, middle)
    );
    assert!(cuda.elapsed(middle, end).abs_diff(70 * MICROSECOND) <= MICROSECOND, "{:?}", cuda.elapsed(middle, end));
}

#[test]
fn memsets_and_copies_within_a_card_take_time() {
    let cuda = Site::new(&Machine { bytes_per_us: 1000, ..Machine::uniform(1, GIB) }).program();
    let (start, middle, end) = (cuda.event(), cuda.event(), cuda.event());
    let (one, other) = (cuda.allocate(4_000_000), cuda.allocate(4_000_000));
    busy_meanwhile(&cuda, DEFAULT_STREAM);
    assert_eq!(cuda.cuEventRecord(start, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuMemsetD32Async(one, 7, 1_000_000, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuEventRecord(middle, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuMemcpyDtoDAsync_v2(other, one, 4_000_000, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuEventRecord(end, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuEventSynchronize(end), SUCCESS);
    assert!(cuda.elapsed(start, middle).abs_diff(4000 * MICROSECOND) <= MICROSECOND);
    assert!(cuda.elapsed(middle, end).abs_diff(8000 * MICROSECOND) <= MICROSECOND, "read and written");
}

#[test]
fn branches_of_a_graph_run_side_by_side() {
    let cuda = Site::small().program();
    let (busy, stream, other) = (cuda.function(c"busy_ns"), cuda.stream(), cuda.stream());
    let (start, end, fork, join) = (cuda.event(), cuda.event(), cuda.event(), cuda.event());
    let exec = cuda.captured(stream, || {
        assert_eq!(cuda.launch(busy, 1_000_000, stream), SUCCESS);
        assert_eq!(cuda.cuEventRecord(fork, stream), SUCCESS);
        assert_eq!(cuda.cuStreamWaitEvent(other, fork, 0), SUCCESS);
        assert_eq!(cuda.launch(busy, 5_000_000, stream), SUCCESS);
        (0..3).for_each(|_| assert_eq!(cuda.launch(busy, 1_000_000, other), SUCCESS));
        assert_eq!(cuda.cuEventRecord(join, other), SUCCESS);
        assert_eq!(cuda.cuStreamWaitEvent(stream, join, 0), SUCCESS);
        assert_eq!(cuda.launch(busy, 2_000_000, stream), SUCCESS);
    });
    busy_meanwhile(&cuda, stream);
    assert_eq!(cuda.cuEventRecord(start, stream), SUCCESS);
    assert_eq!(cuda.cuGraphLaunch(exec, stream), SUCCESS);
    assert_eq!(cuda.cuEventRecord(end, stream), SUCCESS);
    assert_eq!(cuda.cuEventSynchronize(end), SUCCESS);
    assert!(cuda.elapsed(start, end).abs_diff(8000 * MICROSECOND) <= MICROSECOND, "{:?}", cuda.elapsed(start, end));
}

#[test]
fn a_span_doesnt_depend_on_when_anybody_looks() {
    let cuda = Site::small().program();
    let (busy, stream) = (cuda.function(c"busy_ns"), cuda.stream());
    let (start, end) = (cuda.event(), cuda.event());
    for _ in 0..10 {
        busy_meanwhile(&cuda, stream);
        assert_eq!(cuda.cuEventRecord(start, stream), SUCCESS);
        assert_eq!(cuda.launch(busy, 50_000, stream), SUCCESS);
        assert_eq!(cuda.cuEventRecord(end, stream), SUCCESS);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(cuda.cuEventQuery(end), SUCCESS);
        assert!(cuda.elapsed(start, end).abs_diff(50 * MICROSECOND) <= MICROSECOND);
    }
}

#[test]
fn waiting_waits_for_the_work_of_its_stream() {
    let cuda = Site::small().program();
    let (busy, one, other) = (cuda.function(c"busy_ns"), cuda.stream(), cuda.stream());
    let started = Instant::now();
    assert_eq!(cuda.launch(busy, 200_000_000, one), SUCCESS);
    assert_eq!(cuda.cuStreamQuery(one), NOT_READY);
    assert_eq!(cuda.cuStreamQuery(other), SUCCESS);
    assert_eq!(cuda.cuStreamSynchronize(other), SUCCESS);
    assert_eq!(cuda.cuStreamQuery(one), NOT_READY, "another stream has nothing to wait for");
    assert_eq!(cuda.cuStreamSynchronize(one), SUCCESS);
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert_eq!(cuda.cuStreamQuery(one), SUCCESS);
}

#[test]
fn the_thousand_and_twenty_fifth_launch_waits_for_the_first() {
    let cuda = Site::small().program();
    let busy = cuda.function(c"busy_ns");
    let started = Instant::now();
    for _ in 0..1024 {
        assert_eq!(cuda.launch(busy, 300_000_000, DEFAULT_STREAM), SUCCESS);
    }
    assert!(started.elapsed() < Duration::from_millis(300), "the queue has room");
    assert_eq!(cuda.launch(busy, 1, DEFAULT_STREAM), SUCCESS);
    assert!(started.elapsed() >= Duration::from_millis(300), "it had none");
}

#[test]
fn host_function_blocks_its_stream() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn see(_data: *mut c_void) {
        std::thread::sleep(Duration::from_millis(10));
        SEEN.fetch_add(1, SeqCst);
    }
    let cuda = Site::small().program();
    let (busy, start, end) = (cuda.function(c"busy_ns"), cuda.event(), cuda.event());
    let started = Instant::now();
    assert_eq!(cuda.launch(busy, 10_000_000, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuEventRecord(start, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuLaunchHostFunc(DEFAULT_STREAM, Some(see), ptr::null_mut()), SUCCESS);
    assert_eq!(cuda.cuEventRecord(end, DEFAULT_STREAM), SUCCESS);
    assert_eq!(SEEN.load(SeqCst), 0);
    assert_eq!(cuda.cuCtxSynchronize(), SUCCESS);
    assert_eq!(SEEN.load(SeqCst), 1);
    assert!(started.elapsed() >= Duration::from_millis(20));
    assert!(cuda.elapsed(start, end) >= Duration::from_millis(10));
}

#[test]
fn what_was_submitted_shows_in_the_cards_state() {
    let site = Site::small();
    let cuda = site.program();
    let busy = cuda.function(c"busy_ns");
    for _ in 0..50 {
        assert_eq!(cuda.launch(busy, 100_000, DEFAULT_STREAM), SUCCESS);
    }
    assert_eq!(cuda.cuCtxSynchronize(), SUCCESS);
    let usage = site.card(0).usage_of(std::process::id()).unwrap();
    assert_eq!((usage.launches, usage.kernels, usage.busy, usage.waiting), (50, 50, 5_000_000, 0));
}
