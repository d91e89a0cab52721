//! Streams that record graphs, and what spoils that.

use std::{ptr, thread};

use driver_api::sys::CUgraphMem_attribute::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
};
use driver_api::sys::CUstreamCaptureMode::{
    self, CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL,
};
use driver_api::sys::{CUgraphExec, CUstream};
use driver_api::{
    CAPTURED_EVENT, Cuda, DEFAULT_STREAM, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNJOINED,
    STREAM_CAPTURE_UNSUPPORTED, SUCCESS,
};

use crate::program::{GIB, MIB, Site, busy_meanwhile};

/// Whether a capture of this mode outlives what another thread does.
fn survives(mode: CUstreamCaptureMode, other: impl Fn(&Cuda) + Send + Sync) -> bool {
    let cuda = Site::small().program();
    let stream = cuda.stream();
    assert_eq!(cuda.cuStreamBeginCapture_v2(stream, mode), SUCCESS);
    thread::scope(|scope| {
        scope.spawn(|| {
            cuda.enter(0);
            other(&cuda);
        });
    });
    match cuda.cuStreamEndCapture(stream, &mut ptr::null_mut()) {
        SUCCESS => true,
        STREAM_CAPTURE_INVALIDATED => false,
        other => panic!("{other}"),
    }
}

/// Changes the mode of this thread, and returns the one before.
fn exchange(cuda: &Cuda, mut mode: u32) -> u32 {
    assert_eq!(cuda.cuThreadExchangeStreamCaptureMode((&raw mut mode).cast()), SUCCESS);
    mode
}

#[test]
fn an_unsafe_call_of_any_thread_invalidates_a_global_capture() {
    assert!(survives(GLOBAL, |_| {}));
    assert!(!survives(GLOBAL, |cuda| assert_eq!(cuda.cuMemAlloc_v2(&mut 0, 1), STREAM_CAPTURE_UNSUPPORTED)));
    assert!(!survives(GLOBAL, |cuda| assert_eq!(cuda.cuEventQuery(cuda.event()), STREAM_CAPTURE_UNSUPPORTED)));
    assert!(!survives(GLOBAL, |cuda| assert_eq!(cuda.cuEventSynchronize(cuda.event()), STREAM_CAPTURE_UNSUPPORTED)));
    assert!(survives(THREAD_LOCAL, |cuda| assert_ne!(cuda.allocate(1), 0)));
    assert!(survives(RELAXED, |cuda| assert_ne!(cuda.allocate(1), 0)));
}

#[test]
fn a_relaxed_thread_may_do_what_it_wants() {
    assert!(survives(GLOBAL, |cuda| {
        assert_eq!(exchange(cuda, RELAXED as u32), GLOBAL as u32, "the mode before");
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
    assert_eq!(cuda.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
    let before = exchange(&cuda, RELAXED as u32);
    cuda.allocate(1);
    assert_eq!(exchange(&cuda, before), RELAXED as u32);
    assert_eq!(cuda.cuMemGetInfo_v2(&mut 0, &mut 0), SUCCESS, "a safe call");
    assert_eq!(cuda.cuStreamEndCapture(stream, &mut ptr::null_mut()), SUCCESS);
}

#[test]
fn waiting_for_a_capturing_stream_invalidates_it() {
    let cuda = Site::small().program();
    let stream = cuda.stream();
    assert_eq!(cuda.cuStreamBeginCapture_v2(stream, RELAXED), SUCCESS);
    assert_eq!(cuda.cuStreamSynchronize(stream), STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(cuda.get::<u32>(|cuda, to| cuda.cuStreamIsCapturing(stream, to.cast())), 2);
    assert_eq!(cuda.cuStreamEndCapture(stream, &mut ptr::null_mut()), STREAM_CAPTURE_INVALIDATED);
    assert_eq!(cuda.cuStreamSynchronize(stream), SUCCESS, "it is an ordinary stream again");

    let blocking = cuda.get(|cuda, to| cuda.cuStreamCreate(to, 0));
    assert_eq!(cuda.cuStreamBeginCapture_v2(blocking, RELAXED), SUCCESS);
    assert_eq!(
        cuda.launch(cuda.function(c"busy_ns"), 1, DEFAULT_STREAM),
        STREAM_CAPTURE_IMPLICIT,
        "the default stream would have to wait"
    );
    assert_eq!(cuda.cuStreamEndCapture(blocking, &mut ptr::null_mut()), STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn a_captured_graph_takes_the_time_of_its_kernels() {
    let site = Site::small();
    let cuda = site.program();
    let (busy, one, other) = (cuda.function(c"busy_ns"), cuda.stream(), cuda.stream());
    let (fork, join) = (cuda.event(), cuda.event());
    assert_eq!(cuda.cuStreamBeginCapture_v2(one, GLOBAL), SUCCESS);
    assert_eq!(cuda.launch(busy, 1_000_000, one), SUCCESS);
    assert_eq!(cuda.cuEventRecord(fork, one), SUCCESS);
    assert_eq!(cuda.cuStreamWaitEvent(other, fork, 0), SUCCESS);
    assert_eq!(cuda.launch(busy, 2_000_000, other), SUCCESS);
    assert_eq!(cuda.cuEventRecord(join, other), SUCCESS);
    assert_eq!(cuda.cuStreamWaitEvent(one, join, 0), SUCCESS);
    let graph = cuda.get(|cuda, to| cuda.cuStreamEndCapture(one, to));
    let mut count = 0;
    assert_eq!(cuda.cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count), SUCCESS);
    assert_eq!(count, 2);
    let exec = cuda.get(|cuda, to| cuda.cuGraphInstantiateWithFlags(to, graph, 0));
    assert_eq!(cuda.cuGraphDestroy(graph), SUCCESS);
    let (start, end) = (cuda.event(), cuda.event());
    busy_meanwhile(&cuda, one);
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
    let (busy, one, other, fork) = (cuda.function(c"busy_ns"), cuda.stream(), cuda.stream(), cuda.event());
    assert_eq!(cuda.cuStreamBeginCapture_v2(one, GLOBAL), SUCCESS);
    assert_eq!(cuda.cuEventRecord(fork, one), SUCCESS);
    assert_eq!(cuda.cuStreamWaitEvent(other, fork, 0), SUCCESS);
    assert_eq!(cuda.launch(busy, 1, other), SUCCESS);
    assert_eq!(cuda.cuEventQuery(fork), CAPTURED_EVENT, "an event of a capture");
    assert_eq!(
        cuda.cuStreamEndCapture(one, &mut ptr::null_mut()),
        STREAM_CAPTURE_INVALIDATED,
        "which that has spoiled"
    );

    assert_eq!(cuda.cuStreamBeginCapture_v2(one, GLOBAL), SUCCESS);
    assert_eq!(cuda.cuEventRecord(fork, one), SUCCESS);
    assert_eq!(cuda.cuStreamWaitEvent(other, fork, 0), SUCCESS);
    assert_eq!(cuda.launch(busy, 1, other), SUCCESS);
    assert_eq!(cuda.cuStreamEndCapture(one, &mut ptr::null_mut()), STREAM_CAPTURE_UNJOINED);
}

#[test]
fn graph_memory_is_held_from_launch_until_trim() {
    let cuda = Site::small().program();
    let stream = cuda.stream();
    let attribute = |number| cuda.get::<u64>(|cuda, to| cuda.cuDeviceGetGraphMemAttribute(0, number, to.cast()));
    let (used, most_used, reserved) =
        (CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    assert_eq!(cuda.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
    let address = cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, (3 * MIB) as usize, stream));
    assert_eq!(cuda.cuMemFreeAsync(address, stream), SUCCESS);
    let graph = cuda.get(|cuda, to| cuda.cuStreamEndCapture(stream, to));
    let exec = cuda.get(|cuda, to| cuda.cuGraphInstantiateWithFlags(to, graph, 0));
    assert_eq!(cuda.info().0, GIB);
    for _ in 0..2 {
        assert_eq!(cuda.cuGraphLaunch(exec, stream), SUCCESS);
        assert_eq!(
            (cuda.info().0, attribute(used), attribute(most_used), attribute(reserved)),
            (GIB - 4 * MIB, 0, 3 * MIB, 4 * MIB)
        );
    }
    assert_eq!((cuda.cuStreamSynchronize(stream), cuda.cuDeviceGraphMemTrim(0)), (SUCCESS, SUCCESS));
    assert_eq!((attribute(reserved), cuda.info().0), (0, GIB), "nothing is in use");
    assert_eq!((cuda.cuGraphLaunch(exec, stream), cuda.cuStreamSynchronize(stream)), (SUCCESS, SUCCESS));
    assert_eq!(cuda.cuGraphExecDestroy(exec), SUCCESS);
    assert_eq!(attribute(reserved), 4 * MIB);
    assert_eq!(cuda.cuDeviceGraphMemTrim(0), SUCCESS);
    assert_eq!((attribute(reserved), cuda.info().0), (0, GIB));
}

/// What the card has reserved for graphs, in MiB.
fn reserved(cuda: &Cuda) -> u64 {
    let number = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
    cuda.get::<u64>(|cuda, to| cuda.cuDeviceGetGraphMemAttribute(0, number, to.cast())) / MIB
}

/// A graph that allocates and frees so many MiB, one after the other.
fn in_turns(cuda: &Cuda, stream: CUstream, sizes: &[u64]) -> CUgraphExec {
    cuda.captured(stream, || {
        for size in sizes {
            let address = cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, (size * MIB) as usize, stream));
            assert_eq!(cuda.cuMemFreeAsync(address, stream), SUCCESS);
        }
    })
}

#[test]
fn graphs_that_do_not_run_at_once_share_their_memory() {
    let cuda = Site::small().program();
    let (stream, other) = (cuda.stream(), cuda.stream());
    let (small, large) = (in_turns(&cuda, stream, &[4, 6, 2]), in_turns(&cuda, stream, &[20]));
    assert_eq!((cuda.cuGraphUpload(small, stream), reserved(&cuda)), (SUCCESS, 6));
    assert_eq!((cuda.cuGraphLaunch(large, stream), reserved(&cuda)), (SUCCESS, 20));
    assert_eq!((cuda.cuGraphLaunch(small, stream), reserved(&cuda)), (SUCCESS, 20));
    assert_eq!((cuda.cuGraphLaunch(small, other), reserved(&cuda)), (SUCCESS, 26));
}

#[test]
fn graph_memory_that_nobody_has_freed_is_not_shared() {
    let cuda = Site::small().program();
    let stream = cuda.stream();
    let mut kept = 0;
    let keeping = cuda.captured(stream, || kept = cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, 4 << 20, stream)));
    let other = in_turns(&cuda, stream, &[6]);
    assert_eq!((cuda.cuGraphLaunch(keeping, stream), reserved(&cuda)), (SUCCESS, 4));
    assert_eq!((cuda.cuGraphLaunch(other, stream), reserved(&cuda)), (SUCCESS, 10));
    assert_eq!((cuda.cuStreamSynchronize(stream), cuda.cuDeviceGraphMemTrim(0)), (SUCCESS, SUCCESS));
    assert_eq!((reserved(&cuda), cuda.cuMemFree_v2(kept), cuda.cuDeviceGraphMemTrim(0)), (4, SUCCESS, SUCCESS));
    assert_eq!((reserved(&cuda), cuda.info().0), (0, GIB));
}
