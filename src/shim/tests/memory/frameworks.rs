//! Frameworks size themselves by what is free: what they conclude must hold until they end.
//!
//! Each plays what its code does with `cuMemGetInfo`, by the figures of a card that takes memory for contexts, modules and
//! graphs, of which the library is told more, less, or exactly what is true; and what it was told wrongly the daemon says later.

use std::ffi::c_uint;
use std::fs;

use divvy_region::clock::DriverMemory;
use driver_api::{Cuda, DRIVER, SUCCESS};
use fake_cuda::Machine;

use crate::container::{Container, GIB, MIB, Share, listen, say, words};

/// What the card really takes.
const CONTEXT: u64 = 500 * MIB;
const MODULE: u64 = 20 * MIB;
const GRAPH: u64 = 112 << 10;
const NODE: u64 = 3 << 10;

/// Steps of 5 ms before it goes on.
const STEPS: u32 = 40;

/// The container's share.
const SHARE: u64 = 8 * GIB;

/// Plays a framework in a container that is told of so much for a context and a node, and returns what the card has given it
/// in the end.
#[track_caller]
fn play(framework: &str, told: DriverMemory) -> u64 {
    let mut machine = Machine::uniform(1, 80 * GIB);
    let card = &mut machine.cards[0];
    (card.context_bytes, card.module_bytes) = (CONTEXT, MODULE);
    (card.graph_bytes, card.graph_node_bytes) = (GRAPH, NODE);
    let container = Container::new(&machine, &[Share::of_memory(SHARE / MIB)]);
    container.say_driver_memory(told);
    let mut tenant = container.tenant("frameworks::framework", framework);
    assert_eq!(tenant.heard().as_deref(), Some("sized"), "{framework}, told {told:?}");
    // By now the daemon has measured what is beyond the books.
    let taken = container.card(0).memory_used();
    let beyond = taken.saturating_sub(container.totals(0).usage.committed);
    fs::write(container.path("limits/overhead"), format!("{} {beyond}\n", Machine::uuid(0))).expect("room");
    tenant.tell("go on");
    assert_eq!(tenant.heard().as_deref(), Some("done"), "{framework}, told {told:?}, {} MiB beyond", beyond / MIB);
    container.card(0).memory_used()
}

/// With the figures as they are, less and more than they are: it never fails for what it was told, and with right ones it
/// stays within the share.
#[track_caller]
fn assert_sized_at_once(framework: &str) {
    let exact = DriverMemory { context_bytes: CONTEXT, graph_node_bytes: NODE };
    let taken = play(framework, exact);
    // What is loaded after it has asked is not foreseen by anybody: a module of it.
    assert!(taken <= SHARE + MODULE, "{framework}: {} MiB", taken / MIB);
    play(framework, DriverMemory { context_bytes: CONTEXT * 3 / 4, graph_node_bytes: NODE / 2 });
    play(framework, DriverMemory { context_bytes: CONTEXT * 5 / 4, graph_node_bytes: NODE * 2 });
}

#[test]
fn vllm_sizes_its_cache_at_once() {
    assert_sized_at_once("vllm");
}

#[test]
fn xla_preallocates_at_once() {
    assert_sized_at_once("xla");
}

#[test]
fn tensorflow_takes_all_but_its_margin_at_once() {
    assert_sized_at_once("tensorflow");
}

#[test]
#[ignore = "a program of other tests"]
fn framework() {
    let words = words();
    let Some(name) = words.first() else { return };
    let cuda = &Cuda::start(DRIVER);
    let (stream, busy) = (cuda.stream(), cuda.function(c"busy_ns"));
    let launch = |width: c_uint| assert_eq!(cuda.launch(busy, width, stream), SUCCESS);
    // Long enough for the library to hear of it.
    let work = || {
        for _ in 0..STEPS {
            launch(5_000_000);
            assert_eq!(cuda.cuStreamSynchronize(stream), SUCCESS);
        }
    };
    match name.as_str() {
        // gpu_worker.py: snapshot, load, profile, capture, and the cache of what is left of 95 %.
        "vllm" => {
            let (before, total) = cuda.info();
            cuda.allocate(3 * GIB);
            launch(1000);
            let peak = cuda.allocate(GIB);
            assert_eq!((cuda.cuCtxSynchronize(), cuda.cuMemFree_v2(peak)), (SUCCESS, SUCCESS));
            let capture = || cuda.captured(stream, || (0..300).for_each(|_| launch(1000)));
            let graphs: Vec<_> = (0..35).map(|_| capture()).collect();
            let (after, _) = cuda.info();
            // Used before, by this process, and by nobody's tensors; the peak comes again.
            let used = (total - before) + (before - after) + GIB;
            cuda.allocate((total / 100 * 95).saturating_sub(used));
            say("sized");
            listen();
            work();
            for exec in &graphs {
                let step = cuda.allocate(32 * MIB);
                assert_eq!((cuda.cuGraphLaunch(*exec, stream), cuda.cuMemFree_v2(step)), (SUCCESS, SUCCESS));
            }
            cuda.allocate(GIB);
        }
        // bfc_allocator: three quarters of what is free at first, and then it lives on that.
        "xla" => {
            let (free, _) = cuda.info();
            cuda.allocate(free / 4 * 3);
            launch(1000);
            say("sized");
            listen();
            work();
            cuda.allocate(free / 8);
        }
        // gpu_device.cc, MinSystemMemory: all that is free but a twentieth, or 300 MiB.
        "tensorflow" => {
            let (free, _) = cuda.info();
            let margin = (free / 20).max(300 * MIB);
            say("sized");
            listen();
            work();
            cuda.allocate(free - margin);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(cuda.cuCtxSynchronize(), SUCCESS);
    say("done");
    listen();
}
