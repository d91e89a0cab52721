//! What the library adds to an allocation and its free, beside what the stand-in driver takes for them: median and spread of
//! rounds that alternate between programs with the library and without. Of a round counts its fastest batch of calls, which
//! nobody else on the machine has interrupted.
//!
//! Other processes of the container hold places in its books, whose lines a reservation adds up.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(clippy::cast_possible_truncation, reason = "64-bit Linux alone")]
#![allow(dead_code, reason = "not every program needs all of what they share")]

#[path = "../tests/container.rs"]
mod container;
#[path = "../tests/cuda.rs"]
mod cuda;

use std::time::Instant;

use container::{Container, Tenant, listen, say, words};
use cuda::{Cuda, SUCCESS};

const ROUNDS: usize = 9;
const BATCHES: u32 = 400;
const BATCH: u32 = 50;
const WHAT: [&str; 3] = ["cuMemAlloc and cuMemFree", "cuMemAllocAsync and cuMemFreeAsync", "cuMemGetInfo"];

fn main() {
    match words().first() {
        None => report(),
        Some(word) if word == "hold" => hold(),
        Some(number) => measure(number.parse().expect("a number")),
    }
}

fn report() {
    println!(
        "{:36} {:>9} {:>9} {:>9} {:>9}  (ns a round, of {ROUNDS} rounds)",
        "", "processes", "driver", "added", "±"
    );
    for others in [0, 63] {
        let container = Container::of_memory(512);
        let holders: Vec<_> = (0..others).map(|_| container.tenant("-", "hold")).map(ready).collect();
        for (number, what) in WHAT.iter().enumerate() {
            let mut figures = [const { Vec::new() }; 2];
            for _ in 0..ROUNDS {
                let tenants = [
                    container.tenant_without_library("-", &number.to_string()),
                    container.tenant("-", &number.to_string()),
                ];
                for (mut tenant, figures) in tenants.into_iter().zip(&mut figures) {
                    tenant.says("ready");
                    tenant.tell("go");
                    figures.push(tenant.heard().and_then(|ns| ns.parse::<f64>().ok()).expect("a figure"));
                }
            }
            let [driver, with] = figures.map(|mut figures| {
                figures.sort_by(f64::total_cmp);
                (figures[ROUNDS / 2], figures[ROUNDS / 4 * 3] - figures[ROUNDS / 4])
            });
            let (added, spread) = (with.0 - driver.0, driver.1 + with.1);
            println!("{what:36} {:>9} {:>9.0} {added:>9.0} {spread:>9.0}", others + 1, driver.0);
        }
        drop(holders);
    }
}

fn ready(mut tenant: Tenant) -> Tenant {
    tenant.says("ready");
    tenant
}

fn hold() {
    let cuda = Cuda::start();
    cuda.allocate(1000);
    say("ready");
    listen();
}

fn measure(what: usize) {
    let cuda = Cuda::start();
    let call = || match what {
        0 => {
            let address = cuda.allocate(4096);
            assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
        }
        1 => {
            let address: u64 = cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, 4096, 0));
            assert_eq!(cuda.cuMemFreeAsync(address, 0), SUCCESS);
        }
        _ => drop(cuda.info()),
    };
    say("ready");
    listen();
    let batches = (0..BATCHES).map(|_| {
        let start = Instant::now();
        (0..BATCH).for_each(|_| call());
        start.elapsed() / BATCH
    });
    say(batches.min().unwrap_or_default().as_nanos());
    listen();
}
