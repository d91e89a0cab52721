//! Tenants that launch in every way there is.

use std::ffi::{c_int, c_uint};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, ptr, thread};

use crate::container::{listen, say, words};
use crate::cuda::{Cuda, Launch, LaunchConfig, SUCCESS};

/// What a kernel takes, ns, but for those that can't be told.
const WIDTH: c_uint = 1_000_000;
const ONE: [c_uint; 3] = [1; 3];

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

fn check(code: u32) {
    assert_eq!(code, SUCCESS);
}

/// In all ways, one after the other.
fn any() {
    let cuda = Cuda::start();
    let (busy, other) = (cuda.function(c"busy_ns"), cuda.function(c"any"));
    let streams: Vec<usize> = (0..4).map(|_| cuda.get(|cuda, to| cuda.cuStreamCreate(to, 1))).collect();
    let stream = streams[0];
    let config = LaunchConfig { grid: [WIDTH, 1, 1], block: ONE, stream, ..LaunchConfig::default() };
    let own_default = LaunchConfig { stream: 0, ..config };
    let many = [0, 1].map(|number| Launch {
        function: busy,
        grid: [WIDTH, 1, 1],
        block: ONE,
        stream: streams[number],
        ..Launch::default()
    });
    let graphs = streams.iter().map(|stream| {
        check(cuda.cuStreamBeginCapture_v2(*stream, 0));
        (0..3).for_each(|_| check(cuda.launch(busy, WIDTH / 5, *stream)));
        let graph = cuda.get(|cuda, to| cuda.cuStreamEndCapture(*stream, to));
        (cuda.get(|cuda, to| cuda.cuGraphInstantiateWithFlags(to, graph, 0)), *stream)
    });
    let graphs: Vec<(usize, usize)> = graphs.collect();
    let first: usize = cuda.get(|cuda, to| cuda.cuDevicePrimaryCtxRetain(to, 0));
    let second: usize = cuda.get(|cuda, to| cuda.cuCtxCreate_v2(to, 0, 0));
    let of_second = cuda.function(c"busy_ns");
    check(cuda.cuCtxSetCurrent(first));
    let event: usize = cuda.get(|cuda, to| cuda.cuEventCreate(to, 0));
    let width = c_int::try_from(WIDTH).expect("a number");
    let launch = |way: &str| {
        let none = ptr::null_mut();
        match way {
            "extended" => check(cuda.cuLaunchKernelEx(&raw const config, busy, none, none)),
            "extended, own default" => check(cuda.cuLaunchKernelEx_ptsz(&raw const own_default, busy, none, none)),
            "cooperative" => check(cuda.cuLaunchCooperativeKernel(busy, WIDTH, 1, 1, 1, 1, 1, 0, stream, none)),
            "cooperative, own default" => {
                check(cuda.cuLaunchCooperativeKernel_ptsz(busy, WIDTH, 1, 1, 1, 1, 1, 0, 0, none));
            }
            "cooperative, many" => {
                let mut many = many;
                check(cuda.cuLaunchCooperativeKernelMultiDevice(many.as_mut_ptr(), 2, 0));
            }
            "single" => check(cuda.cuLaunch(other)),
            "grid" => check(cuda.cuLaunchGrid(busy, width, 1)),
            "grid, stream" => check(cuda.cuLaunchGridAsync(busy, width, 1, stream)),
            "graphs" => graphs.iter().for_each(|(exec, stream)| check(cuda.cuGraphLaunch(*exec, *stream))),
            "graph, own default" => check(cuda.cuGraphLaunch_ptsz(graphs[0].0, 0)),
            "contexts" => {
                check(cuda.launch(busy, WIDTH, stream));
                check(cuda.cuCtxSetCurrent(second));
                check(cuda.launch(of_second, WIDTH, 0));
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
            check(cuda.cuCtxSetCurrent(first));
            loop {
                let way = way.lock().expect("nobody panics").clone();
                if way == "end" {
                    break;
                }
                launch(&way);
            }
        });
        say("ready");
        while *way.lock().expect("nobody panics") != "end" {
            let next = match listen() {
                end if end.is_empty() => "end".to_owned(),
                next => next,
            };
            *way.lock().expect("nobody panics") = next;
            say("begun");
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
    let cuda = Cuda::start();
    let busy = cuda.function(c"busy_ns");
    say(std::process::id());
    loop {
        check(cuda.launch(busy, WIDTH, 0));
    }
}

/// Makes children all the time it works; each finds that it has no CUDA, which is all that one can have. The last becomes
/// a program of its own.
fn forks() {
    let cuda = Cuda::start();
    let busy = cuda.function(c"busy_ns");
    thread::scope(|scope| {
        scope.spawn(|| {
            let context: usize = cuda.get(|cuda, to| cuda.cuDevicePrimaryCtxRetain(to, 0));
            check(cuda.cuCtxSetCurrent(context));
            loop {
                check(cuda.launch(busy, WIDTH / 10, 0));
            }
        });
        for _ in 0..100 {
            // SAFETY: the child ends at once, with nothing that needs another thread.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let code = cuda.launch(busy, 1, 0) | cuda.cuStreamSynchronize(0) | cuda.cuCtxSynchronize();
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(code == SUCCESS)) };
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
    let cuda = Cuda::start();
    let on = |card| {
        let context: usize = cuda.get(|cuda, to| cuda.cuDevicePrimaryCtxRetain(to, card));
        check(cuda.cuCtxSetCurrent(context));
        (context, cuda.function(c"busy_ns"), cuda.get(|cuda, to| cuda.cuStreamCreate(to, 1)))
    };
    let cards: [(usize, usize, usize); 2] = [on(0), on(1)];
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let threads = cards.map(|(context, busy, stream)| {
            let cuda = &cuda;
            scope.spawn(move || {
                check(cuda.cuCtxSetCurrent(context));
                while !is_over.load(Ordering::Relaxed) {
                    check(cuda.launch(busy, WIDTH, stream));
                }
            })
        });
        say("ready");
        listen();
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a launch that succeeds");
        }
    });
    say("at once");
    let mut launches = cards.map(|(_, busy, stream)| Launch {
        function: busy,
        grid: [WIDTH, 1, 1],
        block: ONE,
        stream,
        ..Launch::default()
    });
    loop {
        check(cuda.cuLaunchCooperativeKernelMultiDevice(launches.as_mut_ptr(), 2, 0));
    }
}
