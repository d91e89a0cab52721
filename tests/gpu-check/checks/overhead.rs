//! What the library adds to calls: the same calls without it, with all of a card, and with half.

use anyhow::Result;
use serde_json::json;

use super::Check;
use crate::container::Share;
use crate::daemon::Daemon;
use crate::figures::{median, spread};
use crate::report::{Finding, Mark};
use crate::tenant::{Tenant, number};

/// A call that is timed.
struct Call {
    what: &'static str,
    /// As the program knows it.
    name: &'static str,
    /// How often in a round: thorough, quick.
    count: (u64, u64),
    /// Nanoseconds that it may take longer: with all of the card, with half.
    most: (f64, f64),
}

const fn call(what: &'static str, name: &'static str, count: (u64, u64), most: (f64, f64)) -> Call {
    Call { what, name, count, most }
}

const CALLS: [Call; 11] = [
    call("cuLaunchKernel", "launch", (14_000, 3_000), (100.0, 300.0)),
    call("cuLaunchKernelEx", "launch-ex", (7_000, 3_000), (100.0, 300.0)),
    // Each is marked by an event (docs/isolation.md).
    call("cuLaunchKernel, per-thread stream", "launch-per-thread", (7_000, 3_000), (2000.0, 2000.0)),
    call("cuGraphLaunch", "graph", (2_000, 500), (100.0, 300.0)),
    call("cuMemAlloc + Free, 4 KiB", "alloc-4k", (1_000, 200), (400.0, 400.0)),
    call("cuMemAlloc + Free, 2 MiB", "alloc-2m", (300, 100), (400.0, 400.0)),
    call("cuMemAlloc + Free, 64 MiB", "alloc-64m", (50, 20), (400.0, 400.0)),
    call("cuMemAllocAsync + FreeAsync", "alloc-async", (2_000, 1_000), (400.0, 400.0)),
    call("cuMemGetInfo", "info", (1_000, 500), (1000.0, 1000.0)),
    call("dlsym", "dlsym", (10_000, 5_000), (50.0, 50.0)),
    call("cuGetProcAddress", "resolver", (10_000, 5_000), (200.0, 200.0)),
];

/// A call that takes long varies by more than its mark: then so much of it may be added instead.
const PART: f64 = 0.01;

/// Many short ones rather than few long ones: a figure is the median of all rounds, and a disturbance spoils one.
const ROUNDS: usize = 15;

const WAYS: [&str; 3] = ["none", "whole", "half"];

pub(super) fn check(check: &mut Check<'_>) -> Result<()> {
    check.report.part("What the library adds to a call")?;
    if check.site.is_stand_in() {
        check.report.say("note", "nanoseconds beside a stand-in say little, and are not judged")?;
    }
    check.attempt("calls", |check| {
        let memory_mib = check.memory_mib();
        let whole = check.site.container("whole", Share::of_memory(memory_mib))?;
        let half = check.site.container("half", Share { cores: 50, ..Share::of_memory(memory_mib) })?;
        let _daemon = Daemon::play(check.site, &[&whole, &half])?;
        let mut tenants = [check.site.free_tenant()?, whole.tenant()?, half.tenant()?];
        let mut waited = 0;
        for call in &CALLS {
            check.attempt(call.what, |check| {
                warm_up(call, &mut tenants)?;
                let before = half.totals()?.throttled_ns;
                time(check, call, &mut tenants)?;
                waited += half.totals()?.throttled_ns.saturating_sub(before);
                Ok(())
            })?;
        }
        let waited = waited as f64 / 1e6;
        let waited = Finding { measured: waited, spread: None, unit: "ms", mark: Mark::Anything };
        check.report.find("launches throttled meanwhile, with half", waited)
    })
}

/// The library learns how long a launch takes.
fn warm_up(call: &Call, tenants: &mut [Tenant; 3]) -> Result<()> {
    tenants.iter_mut().try_for_each(|tenant| tenant.ask(&format!("time {} 1000", call.name)).map(drop))
}

fn time(check: &mut Check<'_>, call: &Call, tenants: &mut [Tenant; 3]) -> Result<()> {
    let count = check.count(call.count.0, call.count.1);
    let mut medians: [Vec<f64>; 3] = Default::default();
    let mut tails: [Vec<f64>; 3] = Default::default();
    for round in 0..ROUNDS {
        // Who is first changes, as what changes on the machine meanwhile should meet all.
        for way in (0..WAYS.len()).map(|way| (way + round) % WAYS.len()) {
            let took = tenants[way].ask(&format!("time {} {count}", call.name))?;
            medians[way].push(number(&took, "median")?);
            tails[way].push(number(&took, "p99")?);
            check.report.keep(&json!({ "call": call.name, "round": round, "way": WAYS[way], "ns": took }))?;
        }
    }
    let bare = median(&mut medians[0].clone());
    let what = format!("{}, {:.2} us without the library", call.what, bare / 1e3);
    check
        .report
        .find(&what, Finding { measured: bare, spread: Some(spread(&medians[0])), unit: "ns", mark: Mark::Anything })?;
    for (way, text, most) in [(1, "all of the card", call.most.0), (2, "half of it", call.most.1)] {
        let mut added = differences(&medians[way], &medians[0]);
        let judged = Mark::AtMost(most.max(PART * bare));
        let mark = if check.site.is_stand_in() { Mark::Anything } else { judged };
        let finding = Finding { measured: median(&mut added), spread: Some(spread(&added)), unit: "ns", mark };
        check.report.find(&format!("  added, with {text}"), finding)?;
        let mut added = differences(&tails[way], &tails[0]);
        let finding =
            Finding { measured: median(&mut added), spread: Some(spread(&added)), unit: "ns", mark: Mark::Anything };
        check.report.find("    at the 99th percentile", finding)?;
    }
    Ok(())
}

/// Round by round.
fn differences(with: &[f64], without: &[f64]) -> Vec<f64> {
    with.iter().zip(without).map(|(with, without)| with - without).collect()
}
