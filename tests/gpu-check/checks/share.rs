//! What can be had of a card's time: alone, beside another container, and of what another leaves idle.
//!
//! A share is what a container's program gets done in a second, of what a program without the library gets done alone.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::Check;
use crate::container::{Container, Share};
use crate::daemon::Daemon;
use crate::figures::{deviation, mean, median, now, spread};
use crate::program::BIN_NS;
use crate::report::{Finding, Mark};
use crate::tenant::Tenant;

const MS: u64 = 1_000_000;
/// Between telling programs to work and the moment they begin.
const HEAD_START: u64 = 20 * MS;
/// Points that a share may be off: alone, beside another.
const ALONE: f64 = 3.0;
const BESIDE: f64 = 4.0;
/// Points that may be missing where another leaves all of its time.
const IDLE: f64 = 10.0;
/// The throughput of two programs without the library together.
const TOGETHER: f64 = 93.0;
/// Until idle time is used, and until it is given back.
const SOON_MS: f64 = 100.0;

/// Work of one program: nanoseconds of kernels in each 10 ms.
struct Work(Vec<f64>);

/// How long is measured, and what is let pass before.
#[derive(Clone, Copy)]
struct Span {
    warm_ns: u64,
    measured_ns: u64,
}

pub(super) fn check(check: &mut Check<'_>) -> Result<()> {
    check.report.part("Share of the card's time")?;
    let kernels: &[u64] = if check.is_quick { &[1_000_000] } else { &[10_000, 1_000_000, 20_000_000] };
    for kernel in kernels {
        check.attempt("alone", |check| alone(check, *kernel))?;
    }
    for kernel in kernels {
        check.attempt("beside another", |check| pairs(check, *kernel))?;
    }
    check.attempt("idle time", burst)
}

/// A container with a share of the card's time.
fn container<'a>(check: &Check<'a>, name: &str, cores: u32, compute: &'static str) -> Result<Container<'a>> {
    check.site.container(name, Share { cores, compute, memory_mib: check.memory_mib() })
}

fn span(check: &Check<'_>) -> Span {
    let (warm_ns, measured_ns) = if check.is_quick { (700 * MS, 1000 * MS) } else { (800 * MS, 3000 * MS) };
    Span { warm_ns, measured_ns }
}

fn spelled(kernel_ns: u64) -> String {
    if kernel_ns < MS { format!("{} us", kernel_ns / 1000) } else { format!("{} ms", kernel_ns / MS) }
}

/// Programs work at the same time.
fn work(tenants: &mut [&mut Tenant], kernel_ns: u64, span: Span) -> Result<Vec<Work>> {
    let from = now() + HEAD_START;
    let until = from + span.warm_ns + span.measured_ns;
    for tenant in &mut *tenants {
        tenant.tell(&format!("work {kernel_ns} {from} {until}"))?;
    }
    tenants.iter().map(|tenant| Work::of(&tenant.hear()?)).collect()
}

fn alone(check: &mut Check<'_>, kernel_ns: u64) -> Result<()> {
    const SHARES: [u32; 3] = [25, 50, 75];
    let name = spelled(kernel_ns);
    let containers = SHARES
        .iter()
        .map(|cores| container(check, &format!("alone-{cores}-{kernel_ns}"), *cores, "cap"))
        .collect::<Result<Vec<_>>>()?;
    let _daemon = Daemon::play(check.site, &containers.iter().collect::<Vec<_>>())?;
    let mut free = check.site.free_tenant()?;
    let mut tenants = containers.iter().map(Container::tenant).collect::<Result<Vec<_>>>()?;
    let span = span(check);
    let mut shares: [Vec<f64>; 3] = Default::default();
    let mut seconds: [Vec<f64>; 3] = Default::default();
    for round in 0..3 {
        let whole = work(&mut [&mut free], kernel_ns, span)?.first().context("one program")?.rate(span);
        for (at, tenant) in tenants.iter_mut().enumerate() {
            let work = work(&mut [tenant], kernel_ns, span)?;
            let work = work.first().context("one program")?;
            shares[at].push(100.0 * work.rate(span) / whole);
            seconds[at].extend(work.seconds(span).map(|second| 100.0 * second / whole));
            let kept =
                json!({ "alone": SHARES[at], "kernel_ns": kernel_ns, "round": round, "whole": whole, "bins": work.0 });
            check.report.keep(&kept)?;
        }
    }
    for (at, cores) in SHARES.into_iter().enumerate() {
        let mark = Mark::Near(f64::from(cores), ALONE);
        check.report.find(&format!("{cores} % alone, kernels of {name}"), of_rounds(&shares[at], mark))?;
        if seconds[at].len() > 3 {
            let apart = deviation(&seconds[at]);
            let finding = Finding { measured: apart, spread: None, unit: "points", mark: Mark::AtMost(2.0) };
            check.report.find("  from second to second (standard deviation)", finding)?;
        }
    }
    Ok(())
}

fn of_rounds(shares: &[f64], mark: Mark) -> Finding {
    Finding { measured: median(&mut shares.to_vec()), spread: Some(spread(shares)), unit: "%", mark }
}

/// Two containers on one card.
struct Pair<'a> {
    cores: [u32; 2],
    containers: [Container<'a>; 2],
    tenants: [Tenant; 2],
    /// Percent, in each round.
    shares: [Vec<f64>; 2],
    /// The sum of both, of a pair without the library, in each round.
    sums: Vec<f64>,
}

fn pairs(check: &mut Check<'_>, kernel_ns: u64) -> Result<()> {
    const PAIRS: [(u32, u32); 3] = [(25, 75), (30, 70), (50, 50)];
    let (name, span) = (spelled(kernel_ns), span(check));
    let chosen = PAIRS.into_iter().take(check.count(3, 2) as usize);
    let mut pairs = chosen.map(|cores| Pair::new(check, cores, kernel_ns)).collect::<Result<Vec<_>>>()?;
    let (mut free, mut other) = (check.site.free_tenant()?, check.site.free_tenant()?);
    for round in 0..3 {
        let whole: f64 = rates(&work(&mut [&mut free], kernel_ns, span)?, span).sum();
        let native: f64 = rates(&work(&mut [&mut free, &mut other], kernel_ns, span)?, span).sum();
        for pair in &mut pairs {
            let bins = pair.measure(check, kernel_ns, span, whole, native)?;
            check.report.keep(&json!({
                "pair": pair.cores, "kernel_ns": kernel_ns, "round": round, "whole": whole, "native": native, "bins": bins,
            }))?;
        }
    }
    for Pair { cores, shares, sums, .. } in &pairs {
        for (cores, beside, shares) in [(cores[0], cores[1], &shares[0]), (cores[1], cores[0], &shares[1])] {
            let what = format!("{cores} % beside {beside} %, kernels of {name}");
            check.report.find(&what, of_rounds(shares, Mark::Near(f64::from(cores), BESIDE)))?;
        }
        check.report.find("  both, of a pair without the library", of_rounds(sums, Mark::AtLeast(TOGETHER)))?;
    }
    Ok(())
}

fn rates(works: &[Work], span: Span) -> impl Iterator<Item = f64> {
    works.iter().map(move |work| work.rate(span))
}

/// One works all the time, its neighbour for a second in the middle.
fn burst(check: &mut Check<'_>) -> Result<()> {
    const KERNEL: u64 = MS;
    const COMES: u64 = 1500 * MS;
    const GOES: u64 = 2500 * MS;
    const END: u64 = 4000 * MS;
    let one = container(check, "burst-a", 50, "burst")?;
    let two = container(check, "burst-b", 50, "burst")?;
    let _daemon = Daemon::play(check.site, &[&one, &two])?;
    let (mut stays, mut comes) = (one.tenant()?, two.tenant()?);
    let mut free = check.site.free_tenant()?;
    let (mut idle, mut taken, mut returned): (Vec<f64>, Vec<f64>, Vec<f64>) = Default::default();
    for round in 0..3 {
        let quick = Span { warm_ns: 200 * MS, measured_ns: 500 * MS };
        let whole = work(&mut [&mut free], KERNEL, quick)?.first().context("one program")?.rate(quick);
        let from = now() + HEAD_START;
        stays.tell(&format!("work {KERNEL} {from} {}", from + END))?;
        comes.tell(&format!("work {KERNEL} {} {}", from + COMES, from + GOES))?;
        let (stayed, came) = (Work::of(&stays.hear()?)?, Work::of(&comes.hear()?)?);
        check.report.keep(&json!({ "burst": round, "whole": whole, "stayed": stayed.0, "came": came.0 }))?;
        idle.push(100.0 * stayed.rate(Span { warm_ns: COMES / 2, measured_ns: COMES / 2 }) / whole);
        returned.push(came.until(0, 0.4 * whole));
        taken.push(stayed.until(GOES, 0.8 * whole));
    }
    check.report.find("50 % with burst, the other 50 % idle", of_rounds(&idle, Mark::AtLeast(100.0 - IDLE)))?;
    let soon = |times: &[f64]| Finding { unit: "ms", ..of_rounds(times, Mark::AtMost(SOON_MS)) };
    check.report.find("  until the container that starts has 40 %", soon(&returned))?;
    check.report.find("  until the container that stays has 80 %", soon(&taken))
}

// === impl Pair ===

impl<'a> Pair<'a> {
    fn new(check: &Check<'a>, (less, more): (u32, u32), kernel_ns: u64) -> Result<Self> {
        let name = |end| format!("pair-{less}-{more}-{end}-{kernel_ns}");
        let containers = [container(check, &name("a"), less, "cap")?, container(check, &name("b"), more, "cap")?];
        let tenants = [containers[0].tenant()?, containers[1].tenant()?];
        Ok(Self { cores: [less, more], containers, tenants, shares: Default::default(), sums: Vec::new() })
    }

    /// Has both work. Answers what they did.
    fn measure(
        &mut self,
        check: &Check<'_>,
        kernel_ns: u64,
        span: Span,
        whole: f64,
        native: f64,
    ) -> Result<Vec<Vec<f64>>> {
        let [one, two] = &self.containers;
        let _daemon = Daemon::play(check.site, &[one, two])?;
        let [first, second] = &mut self.tenants;
        let works = work(&mut [first, second], kernel_ns, span)?;
        for (shares, rate) in self.shares.iter_mut().zip(rates(&works, span)) {
            shares.push(100.0 * rate / whole);
        }
        self.sums.push(100.0 * rates(&works, span).sum::<f64>() / native);
        Ok(works.into_iter().map(|work| work.0).collect())
    }
}

// === impl Work ===

impl Work {
    fn of(answer: &Value) -> Result<Self> {
        let bins = answer.as_array().context("work in each 10 ms")?;
        bins.iter().map(|bin| bin.as_f64().context("nanoseconds")).collect::<Result<_>>().map(Self)
    }

    /// Work of a second's part, as a part of that time.
    fn rate(&self, span: Span) -> f64 {
        mean(self.of_span(span)) / BIN_NS as f64
    }

    fn seconds(&self, span: Span) -> impl Iterator<Item = f64> {
        self.of_span(span).chunks_exact((1000 * MS / BIN_NS) as usize).map(|second| mean(second) / BIN_NS as f64)
    }

    fn of_span(&self, span: Span) -> &[f64] {
        let bin = |ns: u64| (ns / BIN_NS) as usize;
        let end = bin(span.warm_ns + span.measured_ns).min(self.0.len());
        self.0.get(bin(span.warm_ns)..end).unwrap_or_default()
    }

    /// Milliseconds from a moment on until in 50 ms that follow work is done at a rate; not a number if that never is.
    fn until(&self, from: u64, rate: f64) -> f64 {
        const BINS: usize = 5;
        let rest = self.0.get((from / BIN_NS) as usize..).unwrap_or_default();
        let reached = rest.windows(BINS).position(|bins| mean(bins) / BIN_NS as f64 >= rate);
        reached.map_or(f64::NAN, |bins| bins as f64 * BIN_NS as f64 / MS as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: f64 = BIN_NS as f64;

    #[test]
    fn what_is_done_while_it_gets_warm_counts_for_nothing() {
        let work = Work([[0.0; 10], [FULL; 10]].concat());
        let rate = work.rate(Span { warm_ns: 100 * MS, measured_ns: 100 * MS });
        assert!((rate - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_rate_that_is_reached_later_takes_that_long() {
        let work = Work([[0.0; 7], [FULL; 7]].concat());
        assert!((work.until(0, 1.0) - 70.0).abs() < 1e-9);
        assert!((work.until(50 * MS, 1.0) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn unreached_rate_has_no_time() {
        assert!(!Mark::AtMost(SOON_MS).holds(Work(vec![0.0; 20]).until(0, 0.5)));
    }
}
