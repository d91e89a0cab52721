//! What the library adds to an allocation and to a free, beside what the stand-in driver takes for them: median and spread of
//! rounds that alternate between programs with the library and without. Of a round counts its fastest batch of calls, which
//! nobody else on the machine has interrupted.
//!
//! Other processes of the container hold places in its books, whose lines a reservation adds up.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(clippy::cast_possible_truncation, reason = "64-bit Linux alone")]
#![allow(dead_code, reason = "not every program needs all of what they share")]

#[path = "../tests/container.rs"]
mod container;

use std::time::Instant;

use container::{Container, Tenant, listen, say, words};
use driver_api::{Cuda, DEFAULT_STREAM, DRIVER, SUCCESS};

const ROUNDS: usize = 9;
const BATCHES: u32 = 400;
const BATCH: u32 = 50;
const WHAT: [&str; 6] =
    ["cuMemAlloc", "cuMemFree", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemAllocAsync in a stream", "cuMemGetInfo"];

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
    let cuda = Cuda::start(DRIVER);
    cuda.allocate(1000);
    say("ready");
    listen();
}

fn measure(what: usize) {
    let cuda = Cuda::start(DRIVER);
    let stream = if what == 4 { cuda.stream() } else { DEFAULT_STREAM };
    let allocate = || match what {
        0 | 1 => cuda.allocate(4096),
        2..=4 => cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, 4096, stream)),
        _ => cuda.info().0,
    };
    let free = |address| match what {
        0 | 1 => assert_eq!(cuda.cuMemFree_v2(address), SUCCESS),
        2..=4 => assert_eq!(cuda.cuMemFreeAsync(address, stream), SUCCESS),
        _ => {}
    };
    // A pool that has what is wanted, as it is most of the time.
    let held = cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, 1 << 20, DEFAULT_STREAM));
    say("ready");
    listen();
    let batches = (0..BATCHES).map(|_| {
        let start = Instant::now();
        let addresses = [(); BATCH as usize].map(|()| allocate());
        let between = Instant::now();
        addresses.into_iter().for_each(free);
        let (allocated, freed) = (between - start, between.elapsed());
        if matches!(what, 1 | 3) { freed } else { allocated }
    });
    say((batches.min().unwrap_or_default() / BATCH).as_nanos());
    listen();
    assert_eq!(cuda.cuMemFreeAsync(held, DEFAULT_STREAM), SUCCESS);
}
