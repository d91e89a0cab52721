//! What programs do that a library in them has to stand.

use std::time::Duration;

use anyhow::{Result, ensure};
use driver_api::NON_BLOCKING;
use driver_api::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL;
use serde_json::{Value, json};

use super::Program;
use crate::figures::now;

/// Children whose loss says enough: each may have hung for ten seconds.
const SOME: u32 = 2;
/// Nanoseconds of a kernel that is in flight while something else happens.
const KERNEL_NS: u64 = 1_000_000;

// === impl Program ===

impl Program {
    /// Children, one after the other, that ask the driver something and end. CUDA doesn't survive fork, so any answer will
    /// do; dying of it, or never ending, won't. Says how many did.
    pub(super) fn fork(&mut self, count: u32) -> Result<Value> {
        let begun = now();
        let mut lost = 0;
        for _ in 0..count {
            if lost > SOME {
                break;
            }
            // SAFETY: the child calls the driver and ends at once, which is what is tested.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: an alarm ends a child that hangs, and `_exit` one that doesn't.
                unsafe {
                    libc::alarm(10);
                    let _any = self.cuda.cuMemGetInfo_v2(&mut 0, &mut 0);
                    libc::_exit(0);
                }
            }
            ensure!(child > 0, "no process can be forked");
            let mut status = 0;
            // SAFETY: a child of ours, and a place for its status.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            lost += u32::from(status != 0);
        }
        let took = (now() - begun) / u64::from(count.max(1));
        // The parent is as it was.
        let address = self.cuda.try_get(|cuda, to| cuda.cuMemAlloc_v2(to, 1 << 20))?;
        self.kernel.launch(&self.cuda, 0, self.stream)?;
        self.cuda.cuStreamSynchronize(self.stream).ok()?;
        self.cuda.cuMemFree_v2(address).ok()?;
        Ok(json!({ "lost": lost, "each_ns": took }))
    }

    /// Captures in global mode, which a wrong call of any thread spoils, while other work is in flight and watched. Says how
    /// many were spoiled.
    pub(super) fn capture(&mut self, count: u32) -> Result<Value> {
        let other = self.cuda.try_get(|cuda, stream| cuda.cuStreamCreate(stream, NON_BLOCKING))?;
        let mut spoiled = 0;
        for _ in 0..count {
            for _ in 0..20 {
                self.kernel.launch(&self.cuda, KERNEL_NS, other)?;
            }
            self.cuda.cuStreamBeginCapture_v2(self.stream, GLOBAL).ok()?;
            let captured = (0..10).try_for_each(|_| {
                std::thread::sleep(Duration::from_millis(2));
                self.kernel.launch(&self.cuda, KERNEL_NS, self.stream)
            });
            let graph = self.cuda.try_get(|cuda, to| cuda.cuStreamEndCapture(self.stream, to));
            let (Ok(()), Ok(graph)) = (captured, graph) else {
                spoiled += 1;
                continue;
            };
            let exec = self.cuda.try_get(|cuda, exec| cuda.cuGraphInstantiateWithFlags(exec, graph, 0))?;
            self.cuda.cuGraphLaunch(exec, self.stream).ok()?;
            self.cuda.cuStreamSynchronize(self.stream).ok()?;
            self.cuda.cuGraphExecDestroy(exec).ok()?;
            self.cuda.cuGraphDestroy(graph).ok()?;
        }
        self.cuda.cuStreamSynchronize(other).ok()?;
        Ok(json!({ "spoiled": spoiled }))
    }
}
