//! Questions that only a real driver answers, asked by programs that do what frameworks do: `hack/gpu-check experiments`.
//!
//! Each program runs without the library and with it, under a deadline: a hang is an answer. A failed one stops nothing.

mod service;

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::checks::{Check, Part};
use crate::container::{SERVICE_CONTROL, Site};
use crate::report::Report;
use crate::run::{Beside, Node, Prepared, end_within};

use self::service::Service;

const PROGRAMS: &str = include_str!("experiments/programs.py");
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

/// A program and the ways in which it runs.
#[derive(Clone, Copy)]
struct Step {
    part: u8,
    /// By its number in the review of the isolation.
    experiment: &'static str,
    program: &'static str,
    limit_s: u64,
    /// Module of Python without which it is left out.
    needs: Option<&'static str>,
    variable: Option<(&'static str, &'static str)>,
    /// Whether its programs are clients of the multi-process service.
    is_client: bool,
    ways: &'static [Way],
}

#[derive(Clone, Copy)]
enum Way {
    /// Without the library.
    Native,
    /// With so many percent and MiB, beside so many busy containers.
    Held(u32, u64, u32),
}

/// How a program ended.
struct Ended {
    status: Option<ExitStatus>,
    seconds: f64,
    answer: Value,
    complaint: String,
}

use Way::{Held, Native};

const BOTH: &[Way] = &[Native, Held(50, 8192, 0)];
const SHARES: &[Way] = &[Native, Held(100, 8192, 0), Held(50, 8192, 0)];

const fn step(part: u8, experiment: &'static str, program: &'static str, limit_s: u64, ways: &'static [Way]) -> Step {
    Step { part, experiment, program, limit_s, needs: None, variable: None, is_client: false, ways }
}

const fn of(needs: &'static str, step: Step) -> Step {
    Step { needs: Some(needs), ..step }
}

const fn with(variable: (&'static str, &'static str), step: Step) -> Step {
    Step { variable: Some(variable), ..step }
}

const fn clients(step: Step) -> Step {
    Step { is_client: true, ..step }
}

const ALLOCATOR: &str = "PYTORCH_CUDA_ALLOC_CONF";

const STEPS: &[Step] = &[
    step(1, "E0", "machine", 20, &[Native]),
    step(1, "E0", "preloads", 30, &[Held(50, 8192, 0)]),
    step(1, "E1", "routes", 30, BOTH),
    of("torch", step(1, "E2", "torch_memory", 60, BOTH)),
    of("torch", with((ALLOCATOR, "expandable_segments:True"), step(1, "E2", "torch_memory", 60, &[Held(50, 8192, 0)]))),
    of("torch", with((ALLOCATOR, "backend:cudaMallocAsync"), step(1, "E2", "torch_memory", 60, &[Held(50, 8192, 0)]))),
    step(1, "E3", "memory", 60, BOTH),
    of("triton", step(1, "E11", "triton_kernel", 60, &[Held(50, 8192, 0)])),
    step(2, "E4", "graphs", 20, SHARES),
    of("torch", step(2, "E4", "torch_graphs", 40, SHARES)),
    step(2, "E5", "hang_spin", 10, BOTH),
    step(2, "E5", "hang_value", 10, BOTH),
    step(2, "E5", "hang_host", 10, BOTH),
    of("jax", step(2, "E5", "jax_callback", 40, BOTH)),
    step(2, "E6", "share", 12, &[Native, Held(25, 8192, 0), Held(50, 8192, 0), Held(75, 8192, 0)]),
    of("torch", step(2, "E6", "torch_share", 45, BOTH)),
    step(2, "E7", "share", 12, &[Held(30, 8192, 1), Held(50, 8192, 2)]),
    step(2, "E7", "streams", 12, &[Held(50, 8192, 1)]),
    of("torch", step(2, "E7", "torch_share", 45, &[Held(30, 8192, 1)])),
    step(3, "E9", "exits", 90, BOTH),
    step(3, "E10", "tools", 100, BOTH),
    step(3, "E11", "sizing", 60, &[Held(50, 8192, 0)]),
    of("cupy", step(3, "E11", "cupy_pools", 60, BOTH)),
    clients(step(3, "E13", "service", 30, BOTH)),
];

/// Runs the parts that are asked for; whether all went well.
pub(crate) fn run(arguments: &ExperimentArguments, check: &mut Check<'_>, model: &str) -> Result<bool> {
    let ExperimentArguments { part, only } = arguments;
    let (site, mut is_well) = (check.site, true);
    let programs = site.directory().join("programs.py");
    fs::write(&programs, PROGRAMS)?;
    for part in part {
        check.report.say("part", &part.to_string())?;
        let is_asked = |step: &Step| only.is_empty() || only.iter().any(|name| name == step.experiment);
        for (number, step) in STEPS.iter().enumerate().filter(|(_, step)| step.part == *part && is_asked(step)) {
            if let Some(missing) = step.missing(site) {
                check.report.say(step.experiment, &format!("{}: left out, {missing}", step.program))?;
                continue;
            }
            let mut does_end = true;
            for (turn, way) in step.ways.iter().enumerate() {
                let name = format!("{}-{number}-{turn}", step.program);
                let went_well = match step.run(*way, &name, &programs, (site, model), check.report) {
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
    fn run(
        &self,
        way: Way,
        name: &str,
        programs: &Path,
        (site, model): (&Site, &str),
        report: &mut Report,
    ) -> Result<bool> {
        let words = ["python3".into(), programs.to_owned(), PathBuf::from(self.program)];
        let service = self.is_client.then(|| service::program(site)).flatten();
        let service = service.map(|program| Service::start(site, program)).transpose()?;
        let (memory_of_client, cores_of_client) = CLIENT;
        let (ended, region) = match way {
            Native => {
                let mut command = site.command(&words[0]);
                if let Some(service) = &service {
                    service.limit(&mut command, memory_of_client, cores_of_client);
                }
                (self.ended(command.args(&words[1..]), site.directory(), name)?, None)
            }
            Held(cores, memory, beside) => {
                let mut node = Node::new(site, name)?;
                let held = node.prepare("program", (memory, cores), divvy_api::annotation::Compute::Cap)?;
                let _beside = Beside::start(&mut node, beside, (100 - cores) / beside.max(1), model, None)?;
                let mut command = held.command(site, &words[0]);
                if let Some(service) = &service {
                    service.mislead(&mut command, &held, memory_of_client, cores_of_client)?;
                }
                (self.ended(command.args(&words[1..]), site.directory(), name)?, Some(held))
            }
        };
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

    /// Runs a command until it ends, or ends it and all that it has started at the deadline.
    fn ended(&self, command: &mut Command, directory: &Path, name: &str) -> Result<Ended> {
        let path = |end: &str| directory.join(format!("{name}.{end}"));
        command.stdin(Stdio::null()).stdout(File::create(path("out"))?).stderr(File::create(path("err"))?);
        command.envs(self.variable).process_group(0);
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
