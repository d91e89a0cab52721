//! Programs whose work waits for a launch that the gate may hold back.

use std::ffi::{c_uint, c_void};
use std::process::ExitStatus;
use std::sync::{Mutex, mpsc};
use std::{ptr, thread};

use driver_api::{Cuda, DRIVER, SUCCESS};

use crate::container::{Tenant, words};
use crate::node::{Node, share};

/// Rounds of each program.
const ROUNDS: c_uint = 3;
/// Launches behind what waits.
const BEHIND: c_uint = 4;
/// What its kernels take that wait for nothing, ns.
const WIDTH: c_uint = 2_000_000;

/// A program ends that would end without the library, at any share.
#[track_caller]
fn assert_ends(program: &str) {
    for cores in [20, 50] {
        let node = Node::new(&[share(cores, "cap")]);
        let container = &node.containers[0];
        let mut tenant: Tenant = container.tenant("dependent::program", program);
        let status: ExitStatus = tenant.wait();
        assert!(status.success(), "{program} at {cores} %: {status}, {}", container.complaints());
    }
}

#[test]
fn kernel_that_spins_for_another_stream_ends() {
    assert_ends("spin");
}

#[test]
fn stream_that_waits_for_a_value_goes_on() {
    assert_ends("value");
}

#[test]
fn host_function_that_waits_for_a_launch_ends() {
    assert_ends("host");
}

#[test]
fn persistent_kernel_is_fed_to_its_end() {
    assert_ends("persistent");
}

#[test]
#[ignore = "a process of other tests"]
fn program() {
    let words = words();
    let Some(verb) = words.first() else { return };
    let cuda = &Cuda::start(DRIVER);
    match verb.as_str() {
        "spin" => spin(cuda),
        "value" => value(cuda),
        "host" => host(cuda),
        "persistent" => persistent(cuda),
        _ => panic!("{words:?}"),
    }
    assert_eq!(cuda.cuCtxSynchronize(), SUCCESS);
}

/// A kernel on one stream spins for a flag that another sets behind some work.
fn spin(cuda: &Cuda) {
    let (busy, spins, writes) = (cuda.function(c"busy_ns"), cuda.function(c"spin_until"), cuda.function(c"write_flag"));
    let (flag, one, other) = (cuda.allocate(4), cuda.stream(), cuda.stream());
    for round in 1..=ROUNDS {
        assert_eq!(cuda.launch_on_flag(spins, (flag, round), one), SUCCESS);
        assert_eq!(cuda.launch(busy, WIDTH, other), SUCCESS);
        assert_eq!(cuda.launch_on_flag(writes, (flag, round), other), SUCCESS);
    }
}

/// A stream waits for a value, with work behind that, and another stream writes it.
fn value(cuda: &Cuda) {
    let (busy, flag, one, other) = (cuda.function(c"busy_ns"), cuda.allocate(4), cuda.stream(), cuda.stream());
    for round in 1..=ROUNDS {
        assert_eq!(cuda.cuStreamWaitValue32_v2(one, flag, round, 0), SUCCESS);
        for _ in 0..BEHIND {
            assert_eq!(cuda.launch(busy, WIDTH, one), SUCCESS);
        }
        assert_eq!(cuda.launch(busy, WIDTH, other), SUCCESS);
        assert_eq!(cuda.cuStreamWriteValue32_v2(other, flag, round, 0), SUCCESS);
    }
}

static LAUNCHED: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);

/// A function of a stream waits for a thread that launches on another.
fn host(cuda: &Cuda) {
    unsafe extern "C" fn wait(_data: *mut c_void) {
        LAUNCHED.lock().expect("nobody panics").as_ref().expect("a thread").recv().expect("a launch");
    }
    let (told, launched) = mpsc::channel();
    *LAUNCHED.lock().expect("nobody panics") = Some(launched);
    let (busy, one) = (cuda.function(c"busy_ns"), cuda.stream());
    thread::scope(|scope| {
        scope.spawn(move || {
            cuda.enter(0);
            let (busy, other) = (cuda.function(c"busy_ns"), cuda.stream());
            for _ in 0..ROUNDS {
                assert_eq!(cuda.launch(busy, WIDTH, other), SUCCESS);
                told.send(()).expect("a function that waits");
            }
        });
        for _ in 0..ROUNDS {
            assert_eq!(cuda.cuLaunchHostFunc(one, Some(wait), ptr::null_mut()), SUCCESS);
            for _ in 0..BEHIND {
                assert_eq!(cuda.launch(busy, WIDTH, one), SUCCESS);
            }
        }
    });
}

/// A kernel runs until the last of many others has.
fn persistent(cuda: &Cuda) {
    let (busy, spins, writes) = (cuda.function(c"busy_ns"), cuda.function(c"spin_until"), cuda.function(c"write_flag"));
    let (flag, one, other) = (cuda.allocate(4), cuda.stream(), cuda.stream());
    assert_eq!(cuda.launch_on_flag(spins, (flag, 1), one), SUCCESS);
    for _ in 0..ROUNDS {
        assert_eq!(cuda.launch(busy, WIDTH, other), SUCCESS);
    }
    assert_eq!(cuda.launch_on_flag(writes, (flag, 1), other), SUCCESS);
}
