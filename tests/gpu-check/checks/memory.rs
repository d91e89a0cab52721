//! What can be had of a card's memory, and what is shown of it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::json;

use super::Check;
use crate::container::{Container, Share};
use crate::figures::now;
use crate::report::{Finding, Mark};
use crate::tenant::{Tenant, number};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Bytes that the driver may hold above the limit: what it rounds, and what the accounting region doesn't count (isolation.md, T2).
const ROUNDED: u64 = 64 * MIB;
/// A pool grows by pieces of 32 MiB, and gives none back before it is asked.
const POOL_PIECE: u64 = 64 * MIB;
/// Processes that race for the same memory.
const RACERS: u64 = 64;

pub(super) fn check(check: &mut Check<'_>) -> Result<()> {
    check.report.part("Memory")?;
    let mut context = Context::default();
    check.attempt("a context", |check| {
        context = context_cost(check)?;
        Ok(())
    })?;
    check.attempt("allocations", |check| allocations(check, context))?;
    check.attempt("what is shown", shown)?;
    check.attempt("mapped memory", mapped)?;
    check.attempt("memory of another process", shared)?;
    check.attempt("a race", |check| race(check, context))
}

/// What a context takes of the card, in bytes.
#[derive(Clone, Copy, Default)]
struct Context {
    by_driver: u64,
    by_region: u64,
}

/// A figure that was measured once.
fn once(measured: f64, unit: &'static str, mark: Mark) -> Finding {
    Finding { measured, spread: None, unit, mark }
}

/// Bytes that are free by the driver, asked by a program without the library.
fn free(observer: &mut Tenant) -> Result<u64> {
    observer.ask("info")?["free"].as_u64().context("free bytes")
}

/// The memory of a program with gpu-check's kernel.
fn context_cost(check: &mut Check<'_>) -> Result<Context> {
    let container = check.site.container("context", Share::of_memory(check.memory_mib()))?;
    let mut observer = check.site.free_tenant()?;
    let before = free(&mut observer)?;
    let _tenant = container.tenant()?;
    let by_driver = before.saturating_sub(free(&mut observer)?);
    let by_region = container.held()?;
    check.report.find("a context, by the driver", once(mib(by_driver), "MiB", Mark::Anything))?;
    check.report.find("a context, by the accounting region", once(mib(by_region), "MiB", Mark::Anything))?;
    Ok(Context { by_driver, by_region })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// `a − b`, of which either may be the greater.
fn less(a: u64, b: u64) -> f64 {
    a as f64 - b as f64
}

fn allocations(check: &mut Check<'_>, context: Context) -> Result<()> {
    let container = check.site.container("memory", Share::of_memory(check.memory_mib()))?;
    let mut observer = check.site.free_tenant()?;
    let before = free(&mut observer)?;
    let mut tenant = container.tenant()?;
    let uncharged = context.uncharged();
    for kind in ["plain", "pitch", "managed", "async", "vmm"] {
        check.attempt(kind, |check| {
            fill(check, &container, &mut tenant, kind, &mut |check| {
                let beyond = less(before, free(&mut observer)?) - container.limit() as f64;
                let measured = beyond / MIB as f64;
                let what = format!("  held above the limit, by the driver ({} of a context)", mib(uncharged));
                check.report.find(&what, once(measured, "MiB", Mark::AtMost(mib(ROUNDED + uncharged))))
            })
        })?;
    }
    Ok(())
}

/// Takes all that there is of a kind, has somebody look, and gives all back.
fn fill(
    check: &mut Check<'_>,
    container: &Container<'_>,
    tenant: &mut Tenant,
    kind: &str,
    look: &mut dyn FnMut(&mut Check<'_>) -> Result<()>,
) -> Result<()> {
    let base = container.held()?;
    // Were nothing to hold it, it would stop there.
    let most = container.limit() + GIB;
    let filled = tenant.ask(&format!("fill {kind} {} {most}", container.limit() / 32))?;
    let held = container.held()?;
    check
        .report
        .keep(&json!({ "fill": kind, "answer": filled, "base": base, "held": held, "limit": container.limit() }))?;
    let refused = if filled["refused"] == true { 1.0 } else { 0.0 };
    check.report.find(&format!("{kind}: refused in the end"), once(refused, "", Mark::Exactly(1.0)))?;
    let least = number(&filled, "least")?;
    let slack = if kind == "async" { POOL_PIECE as f64 } else { least - 1.0 };
    let room = less(container.limit(), held);
    check.report.find("  free then, by the accounting region", once(room, "B", Mark::Between(0.0, slack)))?;
    if kind != "managed" {
        look(check)?; // managed memory is nowhere before it is touched
    }
    tenant.ask("empty")?;
    let left = less(container.held()?, base);
    check.report.find("  held after all was freed, by the accounting region", once(left, "B", Mark::Exactly(0.0)))
}

fn shown(check: &mut Check<'_>) -> Result<()> {
    let container = check.site.container("shown", Share::of_memory(check.memory_mib()))?;
    let mut tenant = container.tenant()?;
    tenant.ask(&format!("hold {}", 100 * MIB))?;
    let info = tenant.ask("info")?;
    let limit = Mark::Exactly(mib(container.limit()));
    check.report.find("cuMemGetInfo: total", once(number(&info, "total")? / MIB as f64, "MiB", limit))?;
    let held = number(&info, "total")? - number(&info, "free")? - container.held()? as f64;
    check
        .report
        .find("  total less free less what the accounting region holds", once(held, "B", Mark::Exactly(0.0)))?;
    let memory = tenant.ask(&format!("nvml {}", check.site.uuid))?;
    if memory.is_null() {
        check.report.absent("nvmlDeviceGetMemoryInfo: total", "no libnvidia-ml.so.1 here")?;
    } else {
        check
            .report
            .find("nvmlDeviceGetMemoryInfo: total", once(number(&memory, "total")? / MIB as f64, "MiB", limit))?;
        let used = number(&memory, "used")? - container.held()? as f64;
        check.report.find("  used less what the accounting region holds", once(used, "B", Mark::Exactly(0.0)))?;
    }
    if check.site.is_stand_in() {
        return check.report.absent("nvidia-smi: memory.total", "not with a stand-in");
    }
    let mut smi = container.command(Path::new("nvidia-smi"));
    smi.args(["--query-gpu=memory.total", "--format=csv,noheader,nounits"]);
    match smi.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            check.report.absent("nvidia-smi: memory.total", "no nvidia-smi here")
        }
        output => {
            let text = String::from_utf8(output?.stdout)?;
            let total: f64 = text.trim().parse().with_context(|| format!("nvidia-smi said {text:?}"))?;
            check.report.find("nvidia-smi: memory.total", once(total, "MiB", limit))
        }
    }
}

/// Virtual memory lives until its handle is released and it is mapped nowhere.
fn mapped(check: &mut Check<'_>) -> Result<()> {
    let container = check.site.container("mapped", Share::of_memory(check.memory_mib()))?;
    let mut tenant = container.tenant()?;
    let base = container.held()?;
    let size = number(&tenant.ask(&format!("map {}", 64 * MIB))?, "bytes")?;
    let held = less(container.held()?, base);
    let what = "virtual memory: held while mapped, its handle released";
    check.report.find(what, once(held / MIB as f64, "MiB", Mark::Exactly(size / MIB as f64)))?;
    tenant.ask("empty")?;
    let held = less(container.held()?, base);
    check.report.find("  after it was unmapped", once(held / MIB as f64, "MiB", Mark::Exactly(0.0)))
}

fn shared(check: &mut Check<'_>) -> Result<()> {
    let container = check.site.container("shared", Share::of_memory(check.memory_mib()))?;
    let (mut one, mut other) = (container.tenant()?, container.tenant()?);
    one.ask(&format!("hold {}", 256 * MIB))?;
    let base = container.held()?;
    let what = "memory of another process (IPC): held by who allocated it";
    check.report.find(what, once(mib(base), "MiB", Mark::AtLeast(256.0)))?;
    let handle = one.ask("share")?;
    other.ask(&format!("open {}", handle.as_str().context("a handle")?))?;
    let more = less(container.held()?, base);
    check.report.find("  in addition by opening it", once(more, "B", Mark::Exactly(0.0)))?;
    other.ask("empty")?;
    let more = less(container.held()?, base);
    check.report.find("  after it was closed", once(more, "B", Mark::Exactly(0.0)))
}

/// Processes that take pieces of the same memory at the same time. The limit has room for what the
/// region charges for their contexts, and a GiB.
fn race(check: &mut Check<'_>, context: Context) -> Result<()> {
    let piece = 16 * MIB;
    let mut observer = check.site.free_tenant()?;
    let before = free(&mut observer)?;
    let racers = check.count(RACERS, RACERS / 4).min((before / 10 * 9).saturating_sub(GIB) / context.by_driver.max(1));
    ensure!(racers > 1, "no room for two contexts");
    let limit_mib = (racers * context.by_region + GIB) >> 20;
    let container = check.site.container("race", Share::of_memory(limit_mib))?;
    let mut tenants = container.tenants(usize::try_from(racers)?)?;
    let from = now() + 200_000_000;
    for tenant in &mut tenants {
        tenant.tell(&format!("race {from} {piece} {}", 2 * GIB))?;
    }
    let raced = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !raced.load(Ordering::Relaxed) {
                most = most.max(container.held()?);
                thread::sleep(Duration::from_millis(1));
            }
            Ok(most)
        });
        let heard = tenants.iter().try_for_each(|tenant| tenant.hear().map(drop));
        raced.store(true, Ordering::Relaxed);
        let most = watch.join().unwrap_or_else(|_panic| Err(anyhow!("the watch of the accounting region panicked")));
        heard.and(most)
    })?;
    let held = container.held()?;
    let above = less(most.max(held), container.limit());
    check.report.find(
        &format!("{racers} processes racing: above the limit, by the accounting region"),
        once(above, "B", Mark::AtMost(0.0)),
    )?;
    let room = less(container.limit(), held);
    check.report.find("  free in the end", once(room, "B", Mark::Between(0.0, (piece - 1) as f64)))?;
    let uncharged = racers * context.uncharged();
    let beyond = less(before, free(&mut observer)?) - container.limit() as f64;
    let mark = Mark::AtMost(mib(ROUNDED + uncharged));
    check.report.find("  held above the limit, by the driver", once(beyond / MIB as f64, "MiB", mark))
}

// === impl Context ===

impl Context {
    /// What the driver holds for it besides what the accounting region charges.
    fn uncharged(self) -> u64 {
        self.by_driver.saturating_sub(self.by_region)
    }
}
