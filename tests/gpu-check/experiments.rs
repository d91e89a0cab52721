//! Questions that only a real driver answers, asked by programs that do what frameworks do: `hack/gpu-check experiments`.
//!
//! Each program runs without the library and with it, under a deadline: a hang is an answer. A failed one stops nothing.

mod service;
mod steps;

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::checks::{Check, Part};
use crate::container::{SERVICE_CONTROL, Site};
use crate::program::Speed;
use crate::report::Report;
use crate::run::{Beside, Node, Prepared, end_within, part};

use self::service::Service;
use self::steps::Way::{self, Held, Native};
use self::steps::{STEPS, Step};

/// Programs that call the driver, and those that need a framework.
const PROGRAMS: [(&str, &str); 2] = [
    ("programs.py", include_str!("experiments/programs.py")),
    ("frameworks.py", include_str!("experiments/frameworks.py")),
];
/// How long the programs of a part may take; the checks that go with it take two minutes at most.
const PART: Duration = Duration::from_secs(475);
/// Bytes of a program's standard error that the report keeps.
const COMPLAINT: usize = 600;
/// Characters of an answer that the table shows; the report keeps all.
const SHOWN: usize = 400;
/// What variables of clients of the multi-process service say: MiB and percent.
const CLIENT: (u64, u32) = (1024, 25);

/// Ask a real driver what libdivvy assumes: programs as frameworks run them, without the library and with it.
///
/// Each part takes less than 10 minutes. What needs PyTorch, JAX, CuPy or Triton is left out where Python can't import it. With
/// --out every answer is a JSON line. Exit code 1 if a program failed with the library that ended well without it.
#[derive(Debug, Args)]
pub(crate) struct ExperimentArguments {
    /// Parts to run: 1 (lookups, memory, accidents), 2 (graphs, waiting, shares), 3 (ends, tools, sizes)
    #[arg(long, value_name = "PART", value_delimiter = ',', default_values_t = [1, 2, 3],
        value_parser = clap::value_parser!(u8).range(1..=3))]
    part: Vec<u8>,
    /// Only these experiments, such as E13, and none of the checks that go with the parts
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
}

/// How a program ended.
struct Ended {
    status: Option<ExitStatus>,
    seconds: f64,
    answer: Value,
    complaint: String,
}

/// Runs the parts that are asked for; whether all went well.
pub(crate) fn run(arguments: &ExperimentArguments, check: &mut Check<'_>, model: &str) -> Result<bool> {
    let ExperimentArguments { part, only } = arguments;
    let (site, mut is_well) = (check.site, true);
    for (name, text) in PROGRAMS {
        fs::write(site.directory().join(name), text)?;
    }
    for part in part {
        check.report.say("part", &part.to_string())?;
        let ends = Instant::now() + PART;
        let is_asked = |step: &Step| only.is_empty() || only.iter().any(|name| name == step.experiment);
        for (number, step) in STEPS.iter().enumerate().filter(|(_, step)| step.part == *part && is_asked(step)) {
            if let Some(missing) = step.missing(site) {
                check.report.say(step.experiment, &format!("{}: left out, {missing}", step.program))?;
                continue;
            }
            let mut does_end = true;
            for (turn, way) in step.ways.iter().enumerate() {
                let name = format!("{}-{number}-{turn}", step.program);
                if Instant::now() + Duration::from_secs(step.limit_s) > ends {
                    check.report.say(step.experiment, &format!("{name}: left out, the part has taken too long"))?;
                    break;
                }
                let went_well = match step.run(*way, &name, (site, model), check.report) {
                    Ok(went_well) => went_well,
                    Err(error) => {
                        check.report.broken(&format!("{} {name}", step.experiment), &format!("{error:#}"))?;
                        false
                    }
                };
                match way {
                    Native => does_end = went_well,
                    Held(..) => is_well &= went_well || !does_end,
                }
            }
        }
        let checks: &[Part] = match part {
            _ if !only.is_empty() => &[],
            1 => &[Part::Robustness],
            2 => &[Part::Overhead],
            3 => &[Part::Memory, Part::Share],
            _ => &[],
        };
        checks.iter().try_for_each(|part| part.run(check))?;
    }
    Ok(is_well)
}

/// Whether Python has a module.
fn can_import(module: &str) -> bool {
    let found = format!("import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)");
    let python = Command::new("python3").args(["-c", &found]).stderr(Stdio::null()).status();
    python.is_ok_and(|status| status.success())
}

// === impl Step ===

impl Step {
    /// What it can't be run without, if that isn't there.
    fn missing(&self, site: &Site) -> Option<String> {
        let module = self.needs.filter(|module| !can_import(module)).map(|module| format!("Python has no {module}"));
        let service =
            (self.is_client && service::program(site).is_none()).then(|| format!("no {SERVICE_CONTROL} in PATH"));
        module.or(service)
    }

    /// Runs it one way and says how it ended; whether it ended well.
    fn run(&self, way: Way, name: &str, at: (&Site, &str), report: &mut Report) -> Result<bool> {
        let (ended, region) = self.start(way, name, at)?;
        let totals = region.as_ref().map(Prepared::totals).transpose()?;
        let unknown = totals.map_or(0, |totals| totals.unknown);
        let went_well = ended.status.is_some_and(|status| status.success()) && unknown == 0;
        let is_held = match way {
            Native => "without the library".to_owned(),
            Held(cores, _, 0) => format!("at {cores} %"),
            Held(cores, _, beside) => format!("at {cores} % beside {beside}"),
        };
        let verdict = match ended.status {
            _ if went_well => "ok".to_owned(),
            None => format!("hangs for {} s", self.limit_s),
            Some(_) if unknown > 0 => format!("{unknown} unknown functions"),
            Some(status) => status.to_string(),
        };
        let Ended { seconds, answer, complaint, status } = &ended;
        let shown: String = answer.to_string().chars().take(SHOWN).collect();
        println!("{:<4} {:<14} {is_held:<24} {seconds:>6.1} s  {verdict}  {shown}", self.experiment, self.program);
        report.keep(&json!({
            "experiment": self.experiment, "program": self.program, "way": is_held, "variable": self.variable,
            "seconds": seconds, "code": status.and_then(|status| status.code()),
            "signal": status.and_then(|status| status.signal()), "hangs": status.is_none(), "answer": answer,
            "complaint": complaint, "unknown": unknown,
            "held_ms": totals.map(|totals| totals.throttled_ns / 1_000_000),
            "busy_ms": totals.map(|totals| totals.usage.busy_ns / 1_000_000),
            "ooms": totals.map(|totals| totals.ooms),
        }))?;
        Ok(went_well)
    }

    /// Runs it one way, with what it needs beside it. Answers its container too, if it had one.
    fn start(&self, way: Way, name: &str, (site, model): (&Site, &str)) -> Result<(Ended, Option<Prepared>)> {
        let [(programs, _), (frameworks, _)] = PROGRAMS;
        let file = site.directory().join(if self.needs.is_some() { frameworks } else { programs });
        let words = ["python3".into(), file, PathBuf::from(self.program)];
        let service = self.is_client.then(|| service::program(site)).flatten();
        let service = service.map(|program| Service::start(site, program)).transpose()?;
        match way {
            Native => {
                let mut command = site.command(&words[0]);
                if let Some(service) = &service {
                    service.limit(&mut command, CLIENT);
                }
                Ok((self.ended(command.args(&words[1..]), site, name)?, None))
            }
            Held(cores, memory, beside) => {
                let mut node = Node::new(site, name)?;
                let held = node.prepare("program", part(memory, cores), divvy_api::Compute::Cap)?;
                let _beside = Beside::start(&mut node, beside, (100 - cores) / beside.max(1), model, None)?;
                let mut command = held.command(site, &words[0]);
                service.iter().try_for_each(|service| service.mislead(&mut command, &held, CLIENT))?;
                Ok((self.ended(command.args(&words[1..]), site, name)?, Some(held)))
            }
        }
    }

    /// Runs a command until it ends, or ends it and all that it has started at the deadline.
    fn ended(&self, command: &mut Command, site: &Site, name: &str) -> Result<Ended> {
        let path = |end: &str| site.directory().join(format!("{name}.{end}"));
        command.stdin(Stdio::null()).stdout(File::create(path("out"))?).stderr(File::create(path("err"))?);
        command.envs(self.variable).process_group(0);
        if let Speed::Steps(of_ns) = site.place.speed {
            command.env("GPU_CHECK_STEPS", of_ns.to_string());
        }
        let began = Instant::now();
        let mut child = command.spawn().context("python3")?;
        let status = end_or_kill(&mut child, Duration::from_secs(self.limit_s))?;
        let seconds = began.elapsed().as_secs_f64();
        let said = fs::read_to_string(path("out"))?;
        let answer = said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        let complaint = String::from_utf8_lossy(&fs::read(path("err"))?).into_owned();
        let cut = complaint.char_indices().rev().nth(COMPLAINT).map_or(0, |(at, _)| at);
        Ok(Ended { status, seconds, answer, complaint: complaint[cut..].to_owned() })
    }
}

/// Waits for a process; `None`: it was ended after so long, with its group.
fn end_or_kill(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let ended = end_within(child, limit)?;
    if ended.is_none() {
        // SAFETY: numbers; the group is that of a child which wasn't waited for.
        unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
        child.wait()?;
    }
    Ok(ended)
}
