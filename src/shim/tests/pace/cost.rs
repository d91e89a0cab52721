//! What it costs, in figures: `cargo test -p divvy-shim --test pace -- --ignored cost --nocapture`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::container::Container;
use crate::node::{Node, share};
use fake_cuda::Machine;

#[test]
#[ignore = "figures"]
fn a_launch() {
    for (what, cores) in [("without the library", None), ("at 100 %", Some(100)), ("at 90 %, open", Some(90))] {
        let container = Container::new(&Machine::uniform(1, 1 << 30), &[share(cores.unwrap_or(100), "cap")]);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/null_driver.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(container.path("lib/libcuda.so.1")).arg(source);
        assert!(compiler.status().expect("a C compiler called cc").success());
        let program = container.compile("cost", false);
        let mut command =
            if cores.is_some() { container.command(program) } else { container.command_without_library(program) };
        let output = command.output().expect("a program that runs");
        assert!(output.status.success(), "{}: {}", output.status, container.complaints());
        print!("a launch {what}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Of the thread that watches, in percent of one processor.
#[test]
#[ignore = "figures"]
fn the_thread_that_watches() {
    for (words, cores) in [("once 1000 1", 50), ("busy 1000000 1", 25), ("busy 1000000 1", 75), ("busy 10000 4", 50)] {
        let node = Node::new(&[share(cores, "cap")]);
        let tenant = node.tenant(0, words);
        thread::sleep(Duration::from_secs(1));
        let before = ran(tenant.id());
        thread::sleep(Duration::from_secs(4));
        #[expect(clippy::cast_precision_loss, reason = "some milliseconds")]
        let percent = (ran(tenant.id()) - before) as f64 / 4e7;
        println!("{words} at {cores} %: {percent:.2} %");
    }
}

/// Nanoseconds for which the library's thread ran.
fn ran(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let watching = tasks.filter_map(|task| {
        let task = task.expect("a thread").path();
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let ran = fs::read_to_string(task.join("schedstat")).ok()?;
        (name.trim_end() == "divvy").then(|| ran.split(' ').next()?.parse::<u64>().ok())?
    });
    watching.sum()
}
