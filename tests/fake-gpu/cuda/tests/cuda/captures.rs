//! Streams that record graphs, and what spoils that.

use std::thread;

use crate::program::{GIB, MIB, Program, SUCCESS, Site};

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;
const UNJOINED: u32 = 904;
const IMPLICIT: u32 = 906;

/// Whether a capture of this mode outlives what another thread does.
fn survives(mode: u32, other: impl Fn(&Program) + Send + Sync) -> bool {
    let cuda = Site::small().program();
    let stream = cuda.stream();
    assert_eq!(cuda.cuStreamBeginCapture_v2(stream, mode), SUCCESS);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(cuda.cuCtxSetCurrent(cuda.context), SUCCESS);
            other(&cuda);
        });
    });
    let mut graph = 0;
    match cuda.cuStreamEndCapture(stream, &raw mut graph) {
        SUCCESS => true,
        INVALIDATED => false,
        other => panic!("{other}"),
    }
}

#[test]
fn an_unsafe_call_of_any_thread_invalidates_a_global_capture() {
    assert!(survives(GLOBAL, |_| {}));
    assert!(!survives(GLOBAL, |cuda| assert_eq!(cuda.cuMemAlloc_v2(&mut 0, 1), UNSUPPORTED)));
    assert!(!survives(GLOBAL, |cuda| assert_eq!(cuda.cuEventQuery(cuda.event()), UNSUPPORTED)));
    assert!(!survives(GLOBAL, |cuda| assert_eq!(cuda.cuEventSynchronize(cuda.event()), UNSUPPORTED)));
    assert!(survives(THREAD_LOCAL, |cuda| assert_ne!(cuda.allocate(1), 0)));
    assert!(survives(RELAXED, |cuda| assert_ne!(cuda.allocate(1), 0)));
}

#[test]
fn a_relaxed_thread_may_do_what_it_wants() {
    assert!(survives(GLOBAL, |cuda| {
        let mut mode = RELAXED;
        assert_eq!(cuda.cuThreadExchangeStreamCaptureMode(&raw mut mode), SUCCESS);
        assert_eq!(mode, GLOBAL, "the mode before");
        let event = cuda.event();
        assert_eq!(cuda.cuEventRecord(event, cuda.stream()), SUCCESS);
        assert_eq!(cuda.cuEventSynchronize(event), SUCCESS);
        cuda.allocate(1);
    }));
}

#[test]
fn a_thread_that_captures_may_be_relaxed_for_a_while() {
    let cuda = Site::small().program();
    let stream = cuda.stream();
    let mut mode = RELAXED;
    assert_eq!(cuda.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
    assert_eq!(cuda.cuThreadExchangeStreamCaptureMode(&raw mut mode), SUCCESS);
    cuda.allocate(1);
    assert_eq!(cuda.cuThreadExchangeStreamCaptureMode(&raw mut mode), SUCCESS);
    assert_eq!(mode, RELAXED);
    assert_eq!(cuda.cuMemGetInfo_v2(&mut 0, &mut 0), SUCCESS, "a safe call");
    assert_eq!(cuda.cuStreamEndCapture(stream, &mut 0), SUCCESS);
}

#[test]
fn waiting_for_a_capturing_stream_invalidates_it() {
    let cuda = Site::small().program();
    let stream = cuda.stream();
    assert_eq!(cuda.cuStreamBeginCapture_v2(stream, RELAXED), SUCCESS);
    assert_eq!(cuda.cuStreamSynchronize(stream), UNSUPPORTED);
    assert_eq!(cuda.get::<u32>(|cuda, to| cuda.cuStreamIsCapturing(stream, to)), 2);
    assert_eq!(cuda.cuStreamEndCapture(stream, &mut 0), INVALIDATED);
    assert_eq!(cuda.cuStreamSynchronize(stream), SUCCESS, "it is an ordinary stream again");

    let blocking: usize = cuda.get(|cuda, to| cuda.cuStreamCreate(to, 0));
    assert_eq!(cuda.cuStreamBeginCapture_v2(blocking, RELAXED), SUCCESS);
    assert_eq!(cuda.launch(cuda.function("busy_ns"), 1, 0), IMPLICIT, "the default stream would have to wait");
    assert_eq!(cuda.cuStreamEndCapture(blocking, &mut 0), INVALIDATED);
}

#[test]
fn a_captured_graph_takes_the_time_of_its_kernels() {
    let site = Site::small();
    let cuda = site.program();
    let (busy, one, other) = (cuda.function("busy_ns"), cuda.stream(), cuda.stream());
    let (fork, join) = (cuda.event(), cuda.event());
    assert_eq!(cuda.cuStreamBeginCapture_v2(one, GLOBAL), SUCCESS);
    assert_eq!(cuda.launch(busy, 1_000_000, one), SUCCESS);
    assert_eq!(cuda.cuEventRecord(fork, one), SUCCESS);
    assert_eq!(cuda.cuStreamWaitEvent(other, fork, 0), SUCCESS);
    assert_eq!(cuda.launch(busy, 2_000_000, other), SUCCESS);
    assert_eq!(cuda.cuEventRecord(join, other), SUCCESS);
    assert_eq!(cuda.cuStreamWaitEvent(one, join, 0), SUCCESS);
    let graph: usize = cuda.get(|cuda, to| cuda.cuStreamEndCapture(one, to));
    let mut count = 0;
    assert_eq!(cuda.cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count), SUCCESS);
    assert_eq!(count, 2);
    let exec: usize = cuda.get(|cuda, to| cuda.cuGraphInstantiateWithFlags(to, graph, 0));
    assert_eq!(cuda.cuGraphDestroy(graph), SUCCESS);
    let (start, end) = (cuda.event(), cuda.event());
    cuda.busy_meanwhile(one);
    assert_eq!(cuda.cuEventRecord(start, one), SUCCESS);
    assert_eq!(cuda.cuGraphLaunch(exec, one), SUCCESS);
    assert_eq!(cuda.cuEventRecord(end, one), SUCCESS);
    assert_eq!(cuda.cuEventSynchronize(end), SUCCESS);
    assert!(cuda.elapsed(start, end).abs_diff(std::time::Duration::from_millis(3)).as_micros() <= 1);
    let usage = site.card(0).usage_of(std::process::id()).unwrap();
    assert_eq!((usage.launches, usage.kernels), (1 + 1, 1 + 2));
}

#[test]
fn a_stream_that_isnt_joined_spoils_the_capture() {
    let cuda = Site::small().program();
    let (busy, one, other, fork) = (cuda.function("busy_ns"), cuda.stream(), cuda.stream(), cuda.event());
    assert_eq!(cuda.cuStreamBeginCapture_v2(one, GLOBAL), SUCCESS);
    assert_eq!(cuda.cuEventRecord(fork, one), SUCCESS);
    assert_eq!(cuda.cuStreamWaitEvent(other, fork, 0), SUCCESS);
    assert_eq!(cuda.launch(busy, 1, other), SUCCESS);
    assert_eq!(cuda.cuEventQuery(fork), 907, "an event of a capture");
    assert_eq!(cuda.cuStreamEndCapture(one, &mut 0), INVALIDATED, "which that has spoiled");

    assert_eq!(cuda.cuStreamBeginCapture_v2(one, GLOBAL), SUCCESS);
    assert_eq!(cuda.cuEventRecord(fork, one), SUCCESS);
    assert_eq!(cuda.cuStreamWaitEvent(other, fork, 0), SUCCESS);
    assert_eq!(cuda.launch(busy, 1, other), SUCCESS);
    assert_eq!(cuda.cuStreamEndCapture(one, &mut 0), UNJOINED);
}

#[test]
fn graph_memory_is_held_from_launch_until_trim() {
    let cuda = Site::small().program();
    let stream = cuda.stream();
    let attribute = |number| cuda.get::<u64>(|cuda, to| cuda.cuDeviceGetGraphMemAttribute(0, number, to.cast()));
    assert_eq!(cuda.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
    let address: u64 = cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, (3 * MIB) as usize, stream));
    assert_eq!(cuda.cuMemFreeAsync(address, stream), SUCCESS);
    let graph: usize = cuda.get(|cuda, to| cuda.cuStreamEndCapture(stream, to));
    let exec: usize = cuda.get(|cuda, to| cuda.cuGraphInstantiateWithFlags(to, graph, 0));
    assert_eq!(cuda.info().0, GIB);
    for _ in 0..2 {
        assert_eq!(cuda.cuGraphLaunch(exec, stream), SUCCESS);
        assert_eq!((cuda.info().0, attribute(0), attribute(1), attribute(2)), (GIB - 4 * MIB, 0, 3 * MIB, 4 * MIB));
    }
    assert_eq!(cuda.cuDeviceGraphMemTrim(0), SUCCESS);
    assert_eq!(attribute(2), 4 * MIB, "the graph could be launched again");
    assert_eq!(cuda.cuGraphExecDestroy(exec), SUCCESS);
    assert_eq!(attribute(2), 4 * MIB);
    assert_eq!(cuda.cuDeviceGraphMemTrim(0), SUCCESS);
    assert_eq!((attribute(2), cuda.info().0), (0, GIB));
}
