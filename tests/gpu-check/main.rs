//! Checks on a machine with a GPU whether `libdivvy.so` keeps its limits (docs/isolation.md).
//!
//! ```text
//!            ┌─ limits, region, clock page ─▶ container ─┐
//!  checks ───┤                                          ├─ this executable as the tested program ─▶ the driver
//!            └─ a line, an answer ◀───────▶ tenant ─────┘  with libdivvy.so before it, or without
//! ```
//!
//! `run` gives any program a container that is prepared by the daemon's own code; `experiments` asks a real driver what
//! the library assumes, by programs as frameworks run them.
//!
//! Every figure is measured with the library and without it in turn, by the same program, so that what changes on the machine
//! meanwhile meets both. The check plays the daemon: it writes limits and the clock page, and reads the region. It changes
//! nothing of the card, and only the tested programs are given the library.

#![allow(unsafe_code, reason = "it calls the driver as a program in C does")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures are for people, and bytes of a card fit the mantissa of a float"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::SystemTime;
use std::{env, fs};

use anyhow::{Context as _, Result};
use checks::{Check, Part};
use clap::{Parser, Subcommand};
use container::Site;
use experiments::ExperimentArguments;
use program::{Place, Speed};
use report::{Finding, Mark, Report};
use run::RunArguments;
use tenant::Tenant;

mod checks;
mod container;
mod daemon;
mod experiments;
mod figures;
mod program;
mod report;
mod run;
mod tenant;

/// Checks on a machine with an NVIDIA GPU whether libdivvy.so keeps its limits.
///
/// Exit codes: 0 all checks passed, 1 a check failed, 64 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "hack/gpu-check")]
struct Arguments {
    /// Check this library instead of the one that is built here; it must have been built with `hack/libdivvy --test`
    #[arg(long, value_name = "FILE", overrides_with = "library")]
    library: PathBuf,
    /// Directory for the measurements, written as JSON lines as they are made
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The GPU, by CUDA's ordinal
    #[arg(long, value_name = "N", default_value_t = 0)]
    card: u16,
    /// Measure less: under 2 minutes instead of under 10
    #[arg(long)]
    quick: bool,
    /// Run against the fake GPU of tests/fake-gpu, without hardware
    #[arg(long)]
    stand_in: bool,
    /// Run only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(RunArguments),
    Experiments(ExperimentArguments),
}

/// Wrong use, as sysexits.h numbers it.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let told: Vec<String> = env::args().collect();
    let ended = match told.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "obey", card, speed] => obey(card, speed).map(|()| ExitCode::SUCCESS),
        _ => match Arguments::try_parse_from(told) {
            Ok(arguments) => run(&arguments),
            Err(asked) => {
                // Help goes to standard output, a complaint to standard error; where that is closed nobody listens.
                drop(asked.print());
                return if asked.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS };
            }
        },
    };
    ended.unwrap_or_else(|error| {
        eprintln!("gpu-check: {error:#}");
        ExitCode::FAILURE
    })
}

/// As the tested program.
fn obey(card: &str, speed: &str) -> Result<()> {
    let speed = if speed == "grid" { Speed::Grid } else { Speed::Steps(speed.parse().context("steps")?) };
    program::run(Place { card: card.parse().context("a card")?, speed })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { library, out, card, quick, stand_in, only, verb } = arguments;
    let mut report = Report::new(out.as_deref())?;
    let program = env::current_exe()?;
    let built = program.parent().context("a directory with this program")?;
    let mut site = Site::new(library, i32::from(*card), stand_in.then_some(built))?;
    if let Some(Verb::Run(program)) = verb {
        let mut tenant = site.free_tenant().context("a program without the library")?;
        let card = tenant.ask("describe")?;
        card["uuid"].as_str().context("a UUID")?.clone_into(&mut site.uuid);
        if !site.is_stand_in() {
            site.place.speed = calibrated(&mut tenant)?;
        }
        drop(tenant);
        return run::run(program, &site, card["name"].as_str().unwrap_or_default(), &mut report);
    }
    let (card_bytes, model) = introduce(&mut site, &mut report)?;
    let is_quick = *quick || verb.is_some();
    let mut check = Check { site: &site, report: &mut report, is_quick, card_bytes };
    if let Some(Verb::Experiments(experiments)) = verb {
        let is_well = experiments::run(experiments, &mut check, &model)?;
        return Ok(if report.close()? && is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    for part in Part::ALL.into_iter().filter(|part| only.is_empty() || only.contains(part)) {
        part.run(&mut check)?;
    }
    let measured = site.unknown_functions()? as f64;
    let finding = Finding { measured, spread: None, unit: "", mark: Mark::Exactly(0.0) };
    report.find("lookups of driver functions that the library doesn't know", finding)?;
    state(&mut report, &site)?;
    Ok(if report.close()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How fast the card is.
fn calibrated(tenant: &mut Tenant) -> Result<Speed> {
    Ok(Speed::Steps(tenant.ask("calibrate")?.as_f64().context("steps in a nanosecond")?))
}

/// Says what is tested, and finds out what the checks need to know of it. Answers the card's bytes and its model.
fn introduce(site: &mut Site, report: &mut Report) -> Result<(u64, String)> {
    let date = humantime::format_rfc3339_seconds(SystemTime::now());
    report.say("date", &date.to_string())?;
    let mut tenant = site.free_tenant().context("a program without the library")?;
    let card = tenant.ask("describe")?;
    card["uuid"].as_str().context("a UUID")?.clone_into(&mut site.uuid);
    let bytes = card["total"].as_u64().context("bytes")?;
    let name = card["name"].as_str().unwrap_or_default();
    report.say("card", &format!("{name}, {} MiB, {}", bytes >> 20, site.uuid))?;
    let module = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let driver = module.lines().next().unwrap_or("no kernel module");
    report.say("driver", &format!("CUDA {}; {driver}", card["cuda"]))?;
    report.say("kernel", read_line(Path::new("/proc/sys/kernel/osrelease"))?.trim())?;
    state(report, site)?;
    if !site.is_stand_in() {
        site.place.speed = calibrated(&mut tenant)?;
        if let Speed::Steps(steps) = site.place.speed {
            report.say("loop", &format!("{:.1} ns a step", 1.0 / steps))?;
        }
    }
    Ok((bytes, name.to_owned()))
}

/// What the card is set to and how warm it is: figures of two runs compare only if these do.
fn state(report: &mut Report, site: &Site) -> Result<()> {
    const ASKED: &str =
        "--query-gpu=driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw,compute_mode,mig.mode.current";
    if site.is_stand_in() {
        return Ok(());
    }
    let mut smi = Command::new("nvidia-smi");
    smi.args([ASKED, "--format=csv,noheader", &format!("--id={}", site.uuid)]);
    match smi.output() {
        Ok(output) => report.say("state", String::from_utf8_lossy(&output.stdout).trim()),
        Err(error) => report.say("state", &format!("nvidia-smi: {error}")),
    }
}

fn read_line(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
