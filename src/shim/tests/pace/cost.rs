//! What it costs, in figures: `cargo test -p divvy-shim --test pace -- --ignored cost --nocapture`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::container::Container;
use crate::node::{Node, share};
use fake_cuda::Machine;

#[test]
#[ignore = "figures"]
fn launch_cost_figures() {
    for (what, cores) in [("without the library", None), ("at 100 %", Some(100)), ("at 90 %, open", Some(90))] {
        let container = Container::new(&Machine::uniform(1, 1 << 30), &[share(cores.unwrap_or(100), "cap")]);
        container.build("null_driver", "lib/libcuda.so.1", &["-O2", "-shared", "-fPIC"]);
        let program = container.compile("cost", false);
        let mut command =
            if cores.is_some() { container.command(program) } else { container.command_without_library(program) };
        let output = command.output().expect("a program that runs");
        assert!(output.status.success(), "{}: {}", output.status, container.complaints());
        print!("a launch {what}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// What the thread that watches takes of a processor, and what all others of the program do.
#[test]
#[ignore = "figures"]
fn monitor_thread_cost_figures() {
    let all = [
        ("once 1000 1", 50),
        ("busy 1000000 1", 25),
        ("busy 1000000 1", 75),
        ("busy 10000 4", 50),
        ("busy 20000000 1", 50),
        ("steps 100000 20", 50),
        ("paused 100000 5", 50),
    ];
    for (words, cores) in all {
        let node = Node::new(&[share(cores, "cap")]);
        let tenant = node.tenant(0, words);
        thread::sleep(Duration::from_secs(1));
        let before = ran(tenant.id());
        thread::sleep(Duration::from_secs(4));
        let after = ran(tenant.id());
        #[expect(clippy::cast_precision_loss, reason = "some milliseconds")]
        let [own, wakes, others, other_wakes] =
            [0, 1, 2, 3].map(|number| (after[number] - before[number]) as f64 / 4.0);
        let (own, others) = (own / 1e7, others / 1e7);
        println!("{words} at {cores} %: {own:.2} %, {wakes:.0} wakes/s; others {others:.2} %, {other_wakes:.0}");
    }
}

/// How long after its end work that nobody waits for is seen to be done by others, in microseconds: the median, nine tenths,
/// and the most.
#[test]
#[ignore = "figures"]
fn completion_delay_figures() {
    for words in ["paused 3000000 20", "paused 3000000 50", "paused 100000 5", "paused 8000000 30"] {
        let node = Node::new(&[share(60, "cap")]);
        let tenant = node.tenant(0, words);
        thread::sleep(Duration::from_secs(1));
        let card = node.card();
        let (mut ended, mut late) = (None, Vec::new());
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            let is_done = card.usage_of(tenant.id()).is_some_and(|usage| usage.waiting == 0);
            let is_seen = node.containers[0].totals(0).usage.in_flight_ns == 0;
            ended = if is_done { ended.or_else(|| Some(Instant::now())) } else { None };
            if let Some(ended) = ended.filter(|_| is_seen) {
                late.push((ended, Instant::now()));
            }
            thread::sleep(Duration::from_micros(200));
        }
        late.dedup_by_key(|(ended, _)| *ended);
        let mut late: Vec<u128> = late.iter().map(|(ended, seen)| (*seen - *ended).as_micros()).collect();
        late.sort_unstable();
        let at = |tenths: usize| late.get((late.len() * tenths / 10).min(late.len() - 1)).copied().unwrap_or_default();
        println!("{words}: {} {} {} of {}", at(5), at(9), at(10), late.len());
    }
}

/// Nanoseconds for which the library's thread ran, and how often it did; the same of the program's own.
pub(crate) fn ran(process: u32) -> [u64; 4] {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let mut ran = [0; 4];
    for task in tasks {
        let task = task.expect("a thread").path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        let numbers = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        match (name.trim_end(), &*numbers) {
            ("divvy", [time, _, times]) => ran = [ran[0] + time, ran[1] + times, ran[2], ran[3]],
            ("fake-cuda", _) => {}
            (_, [time, _, times]) => ran = [ran[0], ran[1], ran[2] + time, ran[3] + times],
            _ => {}
        }
    }
    ran
}
