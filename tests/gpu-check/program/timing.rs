//! How long calls take, one by one.

use std::time::Duration;
use std::{mem, ptr};

use anyhow::{Result, bail};
use driver_api::sys::CUstream;
use driver_api::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL;
use driver_api::{Code, NOT_FOUND};
use serde_json::{Value, json};

use super::Program;
use crate::figures::{now, percentile};

/// Launches between two synchronisations.
const BATCH: u64 = 1000;
/// Graph launches between two synchronisations: a graph costs the card more.
const GRAPHS: u64 = 100;
/// The calling thread's default stream, as cuda.h numbers it (`CU_STREAM_PER_THREAD`).
const PER_THREAD: usize = 2;

/// Keeps this thread on the last processor that it may use: programs that are timed in turn, each on a processor of its own,
/// would differ by what their processors have beside them.
fn stay_on_one_processor() {
    // SAFETY: a set of processors is numbers; the calls read and write it, and the macros stay within it.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(0, size, &raw mut set) == 0
            && let Some(last) = (0..libc::CPU_SETSIZE as usize).rev().find(|cpu| libc::CPU_ISSET(*cpu, &set))
        {
            libc::CPU_ZERO(&mut set);
            libc::CPU_SET(last, &mut set);
            libc::sched_setaffinity(0, size, &raw const set);
        }
    }
}

// === impl Program ===

impl Program {
    /// Calls something so often, and says how many nanoseconds a call takes.
    pub(super) fn time(&mut self, what: &str, count: u64) -> Result<Value> {
        stay_on_one_processor();
        let mut took = match what {
            "launch" => {
                self.batches(count, BATCH, |program| program.kernel.launch(&program.cuda, 0, program.stream))?
            }
            "launch-ex" => {
                self.batches(count, BATCH, |program| program.kernel.launch_ex(&program.cuda, 0, program.stream))?
            }
            "launch-per-thread" => {
                let shared = mem::replace(&mut self.stream, PER_THREAD as CUstream);
                let took =
                    self.batches(count, BATCH, |program| program.kernel.launch(&program.cuda, 0, program.stream));
                self.stream = shared;
                took?
            }
            "graph" => self.graphs(count)?,
            "alloc-4k" => self.pairs(count, 4 << 10)?,
            "alloc-2m" => self.pairs(count, 2 << 20)?,
            "alloc-64m" => self.pairs(count, 64 << 20)?,
            "alloc-async" => self.batches(count, BATCH, |program| {
                let address = program.cuda.try_get(|cuda, to| cuda.cuMemAllocAsync(to, 2 << 20, program.stream))?;
                program.cuda.cuMemFreeAsync(address, program.stream).ok()
            })?,
            "info" => self.batches(count, count, |program| program.cuda.cuMemGetInfo_v2(&mut 0, &mut 0).ok())?,
            "dlsym" => self.batches(count, count, |program| {
                if program.cuda.symbol("cuMemAlloc_v2\0").is_null() { Err(NOT_FOUND) } else { Ok(()) }
            })?,
            "resolver" => self.batches(count, count, |program| {
                let (mut found, mut status) = (ptr::null_mut(), 0_u32);
                let (found, status) = (&raw mut found, (&raw mut status).cast());
                program.cuda.cuGetProcAddress_v2(c"cuMemAlloc".as_ptr(), found, 12_000, 0, status).ok()
            })?,
            _ => bail!("{what:?}: nothing that can be timed"),
        };
        Ok(json!({ "median": percentile(&mut took, 50.0), "p99": percentile(&mut took, 99.0) }))
    }

    /// After each batch the card gets to its end, and then rests three times as long: a share of half the card is never
    /// used up, so that what is timed is a gate that stands open.
    fn batches(
        &mut self,
        count: u64,
        batch: u64,
        mut call: impl FnMut(&mut Self) -> Result<(), Code>,
    ) -> Result<Vec<f64>> {
        let mut took = Vec::with_capacity(usize::try_from(count)?);
        while (took.len() as u64) < count {
            let begun = now();
            for _ in 0..batch.min(count) {
                let before = now();
                call(self)?;
                took.push((now() - before) as f64);
            }
            self.cuda.cuStreamSynchronize(self.stream).ok()?;
            if batch < count {
                std::thread::sleep(3 * Duration::from_nanos(now() - begun));
            }
        }
        Ok(took)
    }

    fn pairs(&mut self, count: u64, size: usize) -> Result<Vec<f64>> {
        self.batches(count, count, |program| {
            let address = program.cuda.try_get(|cuda, to| cuda.cuMemAlloc_v2(to, size))?;
            program.cuda.cuMemFree_v2(address).ok()
        })
    }

    fn graphs(&mut self, count: u64) -> Result<Vec<f64>> {
        self.cuda.cuStreamBeginCapture_v2(self.stream, GLOBAL).ok()?;
        self.kernel.launch(&self.cuda, 0, self.stream)?;
        let graph = self.cuda.try_get(|cuda, graph| cuda.cuStreamEndCapture(self.stream, graph))?;
        let exec = self.cuda.try_get(|cuda, exec| cuda.cuGraphInstantiateWithFlags(exec, graph, 0))?;
        // A graph is new to the library, which learns how long it takes.
        for _ in 0..20 {
            self.cuda.cuGraphLaunch(exec, self.stream).ok()?;
            self.cuda.cuStreamSynchronize(self.stream).ok()?;
        }
        let took = self.batches(count, GRAPHS, |program| program.cuda.cuGraphLaunch(exec, program.stream).ok())?;
        self.cuda.cuGraphExecDestroy(exec).ok()?;
        self.cuda.cuGraphDestroy(graph).ok()?;
        Ok(took)
    }
}
