//! The program that is tested: it does with a card what it is told on its standard input, a line at a time, and answers each
//! with a line of JSON. This very executable is it, started again.

use std::io::{self, BufRead as _, Write as _};
use std::str::{FromStr, SplitWhitespace};

use anyhow::{Context as _, Result, anyhow, bail};
use driver_api::sys::{CUdevice, CUstream};
use driver_api::{Code, Cuda, DRIVER, NON_BLOCKING, OUT_OF_MEMORY};
use serde_json::{Value, json};

mod kernel;
mod memory;
mod nvml;
mod survive;
mod timing;
mod work;

use kernel::Kernel;
pub(crate) use kernel::Speed;
use memory::Held;
pub(crate) use work::BIN_NS;

/// A program with a context on one card.
struct Program {
    cuda: Cuda,
    device: CUdevice,
    stream: CUstream,
    kernel: Kernel,
    held: Vec<Held>,
}

/// Which card, and how fast it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The driver's ordinal.
    pub(crate) card: i32,
    pub(crate) speed: Speed,
}

/// The words of a line after the first.
struct Words<'a>(SplitWhitespace<'a>);

/// Obeys until its input ends.
pub(crate) fn run(place: Place) -> Result<()> {
    // SAFETY: it changes what happens to this process when the check ends before it, and nothing else.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let begun = Program::begin(place);
    answer(begun.as_ref().map(|_| json!({})).map_err(|error| anyhow!("{error:#}")))?;
    let mut program = begun?;
    for line in io::stdin().lock().lines() {
        answer(program.obey(&line?))?;
    }
    Ok(())
}

fn answer(said: Result<Value>) -> Result<()> {
    let said = said.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
    let mut out = io::stdout().lock();
    writeln!(out, "{said}")?;
    Ok(out.flush()?)
}

// === impl Program ===

impl Program {
    fn begin(Place { card, speed }: Place) -> Result<Self> {
        let cuda = Cuda::load(DRIVER).context("no driver")?;
        cuda.cuInit(0).ok().context("cuInit")?;
        let device =
            cuda.try_get(|cuda, device| cuda.cuDeviceGet(device, card)).with_context(|| format!("card {card}"))?;
        let context =
            cuda.try_get(|cuda, context| cuda.cuDevicePrimaryCtxRetain(context, device)).context("a context")?;
        cuda.cuCtxSetCurrent(context).ok()?;
        let stream = cuda.try_get(|cuda, stream| cuda.cuStreamCreate(stream, NON_BLOCKING))?;
        let kernel = Kernel::load(&cuda, speed).context("the kernel")?;
        Ok(Self { cuda, device, stream, kernel, held: Vec::new() })
    }

    fn obey(&mut self, line: &str) -> Result<Value> {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let mut words = Words(words);
        let words = &mut words;
        match verb {
            "describe" => self.describe(),
            "calibrate" => Ok(json!(self.kernel.measure(&self.cuda, self.stream)?)),
            "info" => self.info(),
            "nvml" => nvml::memory(&words.next::<String>()?),
            "time" => self.time(&words.next::<String>()?, words.next()?),
            "fill" => self.fill(&words.next::<String>()?, words.next()?, words.next()?),
            "hold" => self.hold(words.next()?),
            "empty" => self.empty(),
            "race" => self.race(words.next()?, words.next()?, words.next()?),
            "churn" => self.churn(words.next()?),
            "share" => self.share(),
            "open" => self.open(&words.next::<String>()?),
            "map" => self.map(words.next()?),
            "work" => self.work(words.next()?, words.next()?, words.next()?),
            "fork" => self.fork(words.next()?),
            "capture" => self.capture(words.next()?),
            _ => bail!("{verb:?}: nothing that is understood"),
        }
    }

    fn describe(&self) -> Result<Value> {
        let version = self.cuda.try_get(Cuda::cuDriverGetVersion)?;
        let mut name = [0_u8; 256];
        self.cuda.cuDeviceGetName(name.as_mut_ptr().cast(), 256, self.device).ok()?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let uuid = self.cuda.try_get::<[u8; 16]>(|cuda, uuid| cuda.cuDeviceGetUuid_v2(uuid.cast(), self.device))?;
        let total = self.cuda.try_get(|cuda, total| cuda.cuDeviceTotalMem_v2(total, self.device))?;
        let name = String::from_utf8_lossy(&name[..end]);
        Ok(json!({ "cuda": version, "name": name, "uuid": spelled(uuid), "total": total }))
    }

    fn info(&self) -> Result<Value> {
        let (mut free, mut total) = (0, 0);
        self.cuda.cuMemGetInfo_v2(&raw mut free, &raw mut total).ok()?;
        Ok(json!({ "free": free, "total": total }))
    }
}

/// Two digits a byte.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|half| char::from_digit(half.into(), 16)).collect()
}

/// As `nvidia-smi -L` spells it.
fn spelled(uuid: [u8; 16]) -> String {
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| hex(&uuid[part]));
    format!("GPU-{}", parts.join("-"))
}

// === impl Words ===

impl Words<'_> {
    fn next<T: FromStr>(&mut self) -> Result<T> {
        let word = self.0.next().context("a word is missing")?;
        word.parse().map_err(|_unread| anyhow!("{word:?}: not what belongs there"))
    }
}

/// What was allocated; nothing if there was no room.
fn room<T>(answer: Result<T, Code>) -> Result<Option<T>, Code> {
    match answer {
        Ok(got) => Ok(Some(got)),
        Err(OUT_OF_MEMORY) => Ok(None),
        Err(other) => Err(other),
    }
}
