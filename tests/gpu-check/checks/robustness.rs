//! What programs and people do to processes.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::Check;
use crate::container::{Container, Share};
use crate::daemon::Daemon;
use crate::report::{Finding, Mark};
use crate::tenant::number;

/// Processes that are killed one after the other, started at once.
const AT_ONCE: usize = 8;

pub(super) fn check(check: &mut Check<'_>) -> Result<()> {
    check.report.part("What it survives")?;
    check.attempt("forks", forks)?;
    check.attempt("kills", kills)?;
    check.attempt("captures", captures)
}

/// A figure that was measured once.
fn once(measured: f64, unit: &'static str, mark: Mark) -> Finding {
    Finding { measured, spread: None, unit, mark }
}

fn forks(check: &mut Check<'_>) -> Result<()> {
    const FORKS: u32 = 1000;
    let container = check.site.container("forks", Share::of_memory(check.memory_mib()))?;
    let without = check.site.free_tenant()?.ask(&format!("fork {FORKS}"))?;
    let mut tenant = container.tenant()?;
    tenant.ask("hold 4096")?;
    let held = container.held()?;
    let with = tenant.ask(&format!("fork {FORKS}"))?;
    check.report.keep(&json!({ "forks": FORKS, "without": without, "with": with }))?;
    let lost = Mark::Exactly(number(&without, "lost")?);
    check.report.find("1000 forks: children that died or hung", once(number(&with, "lost")?, "", lost))?;
    let more = container.held()? as f64 - held as f64;
    check.report.find("  held in addition, by the accounting region", once(more, "B", Mark::Exactly(0.0)))?;
    let added = (number(&with, "each_ns")? - number(&without, "each_ns")?) / 1e3;
    check.report.find("  added to fork, call, end and wait", once(added, "us", Mark::Anything))
}

fn kills(check: &mut Check<'_>) -> Result<()> {
    let container = check.site.container("kills", Share::of_memory(check.memory_mib()))?;
    let kills = check.count(200, 20) as usize;
    for killed in (0..kills).step_by(AT_ONCE) {
        kill_some(&container, AT_ONCE.min(kills - killed))?;
    }
    let left = container.totals()?;
    check.report.keep(&json!({ "kills": kills, "held": left.usage.committed, "allocs": left.allocs }))?;
    let what = format!("{kills} kills: allocations that were going on meanwhile");
    check.report.find(&what, once(left.allocs as f64, "", Mark::AtLeast(kills as f64)))?;
    // There is room only if what the dead held is taken back first.
    let mut last = container.tenant()?;
    last.ask(&format!("fill plain {} {}", container.limit() / 8, container.limit()))?;
    let part = container.held_by(last.id())? as f64 / container.limit() as f64 * 100.0;
    check.report.find("  of the memory the next process gets", once(part, "%", Mark::AtLeast(100.0)))?;
    drop(last);
    container.reap()?;
    check.report.find(
        "  held when all are dead, by the accounting region",
        once(container.held()? as f64, "B", Mark::Exactly(0.0)),
    )
}

fn kill_some(container: &Container<'_>, count: usize) -> Result<()> {
    let mut tenants = container.tenants(count)?;
    for (number, tenant) in tenants.iter_mut().enumerate() {
        tenant.ask(&format!("churn {}", 4096 * (number + 1)))?;
    }
    for (number, tenant) in tenants.into_iter().enumerate() {
        // So that each is somewhere else in its loop.
        thread::sleep(Duration::from_micros(500 + 137 * number as u64));
        tenant.kill()?;
    }
    Ok(())
}

fn captures(check: &mut Check<'_>) -> Result<()> {
    let captures = check.count(50, 10);
    let share = Share { cores: 50, ..Share::of_memory(check.memory_mib()) };
    let container = check.site.container("captures", share)?;
    let _daemon = Daemon::play(check.site, &[&container])?;
    let spoiled = container.tenant()?.ask(&format!("capture {captures}"))?;
    let what = format!("{captures} captures in global mode beside launches that are held back: spoiled");
    check.report.find(&what, once(number(&spoiled, "spoiled")?, "", Mark::Exactly(0.0)))?;
    let waited = container.totals()?.throttled_ns as f64 / 1e6;
    check.report.find("  launches were throttled", once(waited, "ms", Mark::AtLeast(1.0)))
}
