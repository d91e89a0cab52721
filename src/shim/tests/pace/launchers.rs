//! Tenants that launch in every way there is.

use std::ffi::{c_int, c_uint};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use std::{env, ptr, thread};

use driver_api::sys::{CUDA_LAUNCH_PARAMS, CUfunction, CUstream};
use driver_api::{Code, Cuda, DEFAULT_STREAM, DRIVER, SUCCESS, launch_config};

use crate::container::{listen, say, words};

/// What a kernel takes, ns, but for those that can't be told.
const WIDTH: c_uint = 1_000_000;

/// Launches as it is told, and as fast as it is let; goes on until it is told another way.
#[test]
#[ignore = "a process of other tests"]
fn launcher() {
    let words = words();
    let Some(verb) = words.first() else { return };
    match verb.as_str() {
        "any" => any(),
        "family" => family(),
        "forks" => forks(),
        "cards" => cards(),
        _ => panic!("{words:?}"),
    }
}

fn check(code: Code) {
    assert_eq!(code, SUCCESS);
}

/// In all ways, one after the other.
fn any() {
    let cuda = Cuda::start(DRIVER);
    let (busy, other) = (cuda.function(c"busy_ns"), cuda.function(c"any"));
    let streams: Vec<CUstream> = (0..4).map(|_| cuda.stream()).collect();
    let stream = streams[0];
    let (config, own_default) = (launch_config(WIDTH, stream), launch_config(WIDTH, DEFAULT_STREAM));
    let many = [0, 1].map(|number| cooperative(busy, streams[number]));
    let graphs = streams.iter().map(|stream| {
        let launch = || (0..3).for_each(|_| check(cuda.launch(busy, WIDTH / 5, *stream)));
        (cuda.captured(*stream, launch), *stream)
    });
    let graphs: Vec<_> = graphs.collect();
    let first = cuda.enter(0);
    let second = cuda.get(|cuda, to| cuda.cuCtxCreate_v2(to, 0, 0));
    let of_second = cuda.function(c"busy_ns");
    check(cuda.cuCtxSetCurrent(first));
    let event = cuda.event();
    let width = c_int::try_from(WIDTH).expect("a number");
    let launch = |way: &str| {
        let none = ptr::null_mut();
        match way {
            "extended" => check(cuda.cuLaunchKernelEx(&raw const config, busy, none, none)),
            "extended, own default" => check(cuda.cuLaunchKernelEx_ptsz(&raw const own_default, busy, none, none)),
            "cooperative" => check(cuda.cuLaunchCooperativeKernel(busy, WIDTH, 1, 1, 1, 1, 1, 0, stream, none)),
            "cooperative, own default" => {
                check(cuda.cuLaunchCooperativeKernel_ptsz(busy, WIDTH, 1, 1, 1, 1, 1, 0, DEFAULT_STREAM, none));
            }
            "cooperative, many" => {
                let mut many = many;
                check(cuda.cuLaunchCooperativeKernelMultiDevice(many.as_mut_ptr(), 2, 0));
            }
            "single" => check(cuda.cuLaunch(other)),
            "grid" => check(cuda.cuLaunchGrid(busy, width, 1)),
            "grid, stream" => check(cuda.cuLaunchGridAsync(busy, width, 1, stream)),
            "graphs" => graphs.iter().for_each(|(exec, stream)| check(cuda.cuGraphLaunch(*exec, *stream))),
            "graph, own default" => check(cuda.cuGraphLaunch_ptsz(graphs[0].0, DEFAULT_STREAM)),
            "contexts" => {
                check(cuda.launch(busy, WIDTH, stream));
                check(cuda.cuCtxSetCurrent(second));
                check(cuda.launch(of_second, WIDTH, DEFAULT_STREAM));
                check(cuda.cuCtxSetCurrent(first));
            }
            "events" => {
                (0..3).for_each(|_| check(cuda.launch(busy, WIDTH, stream)));
                check(cuda.cuEventRecord(event, stream));
                check(cuda.cuEventSynchronize(event));
            }
            "steps" => {
                (0..3).for_each(|_| check(cuda.launch(busy, WIDTH, stream)));
                check(cuda.cuStreamSynchronize(stream));
            }
            _ => thread::sleep(Duration::from_millis(1)),
        }
    };
    let way = Mutex::new(String::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while *way.lock().expect("nobody panics") != "end" {
                let next = match listen() {
                    end if end.is_empty() => "end".to_owned(),
                    next => next,
                };
                *way.lock().expect("nobody panics") = next;
                say("begun");
            }
        });
        say("ready");
        loop {
            let way = way.lock().expect("nobody panics").clone();
            if way == "end" {
                break;
            }
            launch(&way);
        }
    });
}

/// A child that nobody would end otherwise.
fn ends_with_parent() {
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Two children, made before there was CUDA, which both use it as their parent does.
fn family() {
    for _ in 0..2 {
        // SAFETY: the child goes on with this thread alone, and needs no other.
        if unsafe { libc::fork() } == 0 {
            ends_with_parent();
            break;
        }
    }
    let cuda = Cuda::start(DRIVER);
    let busy = cuda.function(c"busy_ns");
    say(std::process::id());
    loop {
        check(cuda.launch(busy, WIDTH, DEFAULT_STREAM));
    }
}

/// Makes children all the time it works; each finds that it has no CUDA, which is all that one can have. The last becomes
/// a program of its own.
fn forks() {
    let cuda = Cuda::start(DRIVER);
    let busy = cuda.function(c"busy_ns");
    thread::scope(|scope| {
        scope.spawn(|| {
            cuda.enter(0);
            let busy = cuda.function(c"busy_ns");
            loop {
                check(cuda.launch(busy, WIDTH / 10, DEFAULT_STREAM));
            }
        });
        for _ in 0..100 {
            // SAFETY: the child ends at once, with nothing that needs another thread.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let launched = cuda.launch(busy, 1, DEFAULT_STREAM);
                let codes = [launched, cuda.cuStreamSynchronize(DEFAULT_STREAM), cuda.cuCtxSynchronize()];
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(codes == [SUCCESS; 3])) };
            }
            let mut status = -1;
            // SAFETY: a status is written to a status.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "a child has no CUDA");
            thread::sleep(Duration::from_millis(1));
        }
        let mut child = Command::new(env::current_exe().expect("a program"));
        child.args(["--ignored", "--exact", "launchers::launcher", "--nocapture", "--test-threads=1"]);
        let in_child = || {
            ends_with_parent();
            Ok(())
        };
        // SAFETY: as above.
        unsafe { child.env("DIVVY_TENANT", "family").pre_exec(in_child) };
        let mut child = child.spawn().expect("a program that runs");
        drop(child.wait());
    });
}

/// On all cards, in turns; and when it is told so on all at once.
fn cards() {
    let cuda = &Cuda::start(DRIVER);
    let on = |card| {
        cuda.enter(card);
        (cuda.function(c"busy_ns"), cuda.stream())
    };
    let (is_over, has_begun) = (&AtomicBool::new(false), &Barrier::new(3));
    thread::scope(|scope| {
        let threads = [0, 1].map(|card| {
            scope.spawn(move || {
                let (busy, stream) = on(card);
                has_begun.wait();
                while !is_over.load(Ordering::Relaxed) {
                    check(cuda.launch(busy, WIDTH, stream));
                }
            })
        });
        has_begun.wait();
        say("ready");
        listen();
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a launch that succeeds");
        }
    });
    say("at once");
    let mut launches = [0, 1].map(|card| {
        let (busy, stream) = on(card);
        cooperative(busy, stream)
    });
    loop {
        check(cuda.cuLaunchCooperativeKernelMultiDevice(launches.as_mut_ptr(), 2, 0));
    }
}

/// One launch of several at once.
fn cooperative(function: CUfunction, stream: CUstream) -> CUDA_LAUNCH_PARAMS {
    CUDA_LAUNCH_PARAMS {
        function,
        gridDimX: WIDTH,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        kernelParams: ptr::null_mut(),
    }
}
