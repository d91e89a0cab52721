//! Work that never ends, as a training loop's.

use std::collections::VecDeque;

use anyhow::Result;
use serde_json::{Value, json};

use super::Program;
use crate::figures::{now, sleep_until};

/// Nanoseconds of work between two events, unless a kernel is longer.
const BATCH_NS: u64 = 500_000;
/// Batches that are queued: the card never waits for the program.
const AHEAD: usize = 4;
/// Nanoseconds that a figure of the answer stands for.
pub(crate) const BIN_NS: u64 = 10_000_000;

/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`.
const QUIET: u32 = 3;

// === impl Program ===

impl Program {
    /// Kernels of so many nanoseconds from a moment until another. Answers the work done in each 10 ms in nanoseconds.
    pub(super) fn work(&mut self, kernel_ns: u64, from: u64, until: u64) -> Result<Value> {
        let kernels = (BATCH_NS / kernel_ns).max(1);
        let mut idle = Vec::new();
        for _ in 0..AHEAD {
            idle.push(self.cuda.try_get(|cuda, event| cuda.cuEventCreate(event, QUIET))?);
        }
        let mut queue = VecDeque::new();
        let mut done = Vec::new();
        sleep_until(from);
        while now() < until {
            if let Some(event) = idle.pop() {
                for _ in 0..kernels {
                    self.kernel.launch(&self.cuda, kernel_ns, self.stream)?;
                }
                self.cuda.cuEventRecord(event, self.stream).ok()?;
                queue.push_back(event);
            } else if let Some(event) = queue.pop_front() {
                self.cuda.cuEventSynchronize(event).ok()?;
                done.push(now());
                idle.push(event);
            }
        }
        self.cuda.cuStreamSynchronize(self.stream).ok()?;
        let mut bins = vec![0; usize::try_from(until.saturating_sub(from) / BIN_NS)?];
        for at in done {
            if let Some(bin) = bins.get_mut(usize::try_from(at.saturating_sub(from) / BIN_NS)?) {
                *bin += kernels * kernel_ns;
            }
        }
        Ok(json!(bins))
    }
}
