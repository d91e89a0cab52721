//! Memory of all the kinds that programs ask for.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use driver_api::sys::{
    CUdeviceptr, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle,
};
use driver_api::{Code, Cuda, ipc_handle, on_device, pinned};
use serde_json::{Value, json};

use super::{Program, hex, room};
use crate::figures::sleep_until;

/// Something to give back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    /// By `cuMemFree`.
    Plain(CUdeviceptr),
    /// In the stream's order.
    Pooled(CUdeviceptr),
    /// A handle of virtual memory.
    Physical(CUmemGenericAllocationHandle),
    /// Another process's.
    Opened(CUdeviceptr),
    /// Mapped: an address and bytes, whose handle is released.
    Mapped(CUdeviceptr, usize),
}

/// `CU_MEM_ATTACH_GLOBAL`.
const GLOBAL: u32 = 1;

/// What a request of a kind is a multiple of, and at least; 0: no such kind.
const fn least(kind: &str) -> usize {
    match kind.as_bytes() {
        b"plain" => 1,
        b"managed" => 1 << 16,
        b"pitch" => 16 << 9,
        b"async" | b"vmm" => 2 << 20,
        _ => 0,
    }
}

// === impl Program ===

impl Program {
    /// Allocates until there is no room for the least that can be asked for, beginning with steps of so many bytes, or
    /// until it holds `most`: then nothing holds it.
    pub(super) fn fill(&mut self, kind: &str, step: usize, most: usize) -> Result<Value> {
        let least = self.least(kind)?;
        let (mut size, mut got) = (step.max(least), 0);
        while got < most {
            match room(self.allocate(kind, size))? {
                Some(held) => {
                    self.held.push(held);
                    got += size;
                }
                None if size == least => break,
                None => size = (size / 2).next_multiple_of(least),
            }
        }
        Ok(json!({ "bytes": got, "least": least, "refused": got < most }))
    }

    fn least(&self, kind: &str) -> Result<usize> {
        match least(kind) {
            0 => bail!("{kind:?}: no kind of memory"),
            least if kind == "vmm" => {
                let minimum = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
                let granularity = |cuda: &Cuda, to| cuda.cuMemGetAllocationGranularity(to, &self.physical(), minimum);
                let size = self.cuda.try_get(granularity)?;
                Ok(size.max(least))
            }
            least => Ok(least),
        }
    }

    fn physical(&self) -> CUmemAllocationProp {
        pinned(on_device(self.device), CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE)
    }

    fn allocate(&self, kind: &str, size: usize) -> Result<Held, Code> {
        let cuda = &self.cuda;
        match kind {
            "managed" => cuda.try_get(|cuda, to| cuda.cuMemAllocManaged(to, size, GLOBAL)).map(Held::Plain),
            "pitch" => {
                let mut pitch = 0;
                cuda.try_get(|cuda, to| cuda.cuMemAllocPitch_v2(to, &raw mut pitch, size / 16, 16, 4)).map(Held::Plain)
            }
            "async" => cuda.try_get(|cuda, to| cuda.cuMemAllocAsync(to, size, self.stream)).map(Held::Pooled),
            "vmm" => cuda.try_get(|cuda, to| cuda.cuMemCreate(to, size, &self.physical(), 0)).map(Held::Physical),
            _ => cuda.try_get(|cuda, to| cuda.cuMemAlloc_v2(to, size)).map(Held::Plain),
        }
    }

    /// One plain allocation.
    pub(super) fn hold(&mut self, size: usize) -> Result<Value> {
        let held = self.allocate("plain", size)?;
        self.held.push(held);
        Ok(json!({}))
    }

    /// Gives back all that it holds.
    pub(super) fn empty(&mut self) -> Result<Value> {
        let mut has_pooled = false;
        for held in std::mem::take(&mut self.held) {
            has_pooled |= matches!(held, Held::Pooled(_));
            self.give_back(held)?;
        }
        if has_pooled {
            self.cuda.cuStreamSynchronize(self.stream).ok()?;
            let pool = self.cuda.try_get(|cuda, pool| cuda.cuDeviceGetDefaultMemPool(pool, self.device))?;
            self.cuda.cuMemPoolTrimTo(pool, 0).ok()?;
        }
        Ok(json!({}))
    }

    fn give_back(&self, held: Held) -> Result<(), Code> {
        match held {
            Held::Plain(address) => self.cuda.cuMemFree_v2(address).ok(),
            Held::Pooled(address) => self.cuda.cuMemFreeAsync(address, self.stream).ok(),
            Held::Physical(handle) => self.cuda.cuMemRelease(handle).ok(),
            Held::Opened(address) => self.cuda.cuIpcCloseMemHandle(address).ok(),
            Held::Mapped(address, size) => {
                self.cuda.cuMemUnmap(address, size).ok()?;
                self.cuda.cuMemAddressFree(address, size).ok()
            }
        }
    }

    /// From a moment on takes pieces until there is room for none, or until it has taken `most`.
    pub(super) fn race(&mut self, from: u64, piece: usize, most: usize) -> Result<Value> {
        sleep_until(from);
        let mut got = 0;
        while got < most
            && let Some(held) = room(self.allocate("plain", piece))?
        {
            self.held.push(held);
            got += piece;
        }
        Ok(json!({ "bytes": got }))
    }

    /// Allocates and frees until it is killed. That it has begun is all that it says.
    pub(super) fn churn(&mut self, size: usize) -> Result<Value> {
        super::answer(Ok(json!({})))?;
        for turn in 0.. {
            let held = room(self.allocate("plain", size << (turn % 4)))?;
            match held {
                Some(held) if turn % 3 == 0 => self.give_back(held)?,
                Some(held) => self.held.push(held),
                None => std::thread::sleep(Duration::from_micros(100)),
            }
            if self.held.len() > 16 {
                self.empty()?;
            }
        }
        Ok(json!({}))
    }

    /// A handle by which another process can open what was allocated last.
    pub(super) fn share(&self) -> Result<Value> {
        let Some(Held::Plain(address)) = self.held.last() else { bail!("nothing that can be shared") };
        let mut handle = [0_u8; 64];
        self.cuda.cuIpcGetMemHandle((&raw mut handle).cast(), *address).ok()?;
        Ok(json!(hex(&handle)))
    }

    pub(super) fn open(&mut self, handle: &str) -> Result<Value> {
        let mut bytes = [0; 64];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = handle.get(2 * at..2 * at + 2).context("a handle of 64 bytes")?;
            *byte = u8::from_str_radix(digits, 16)?;
        }
        let address = self.cuda.try_get(|cuda, to| cuda.cuIpcOpenMemHandle_v2(to, ipc_handle(bytes), 1))?;
        self.held.push(Held::Opened(address));
        Ok(json!({}))
    }

    /// Maps virtual memory, and releases the handle: the mapping alone keeps it.
    pub(super) fn map(&mut self, size: usize) -> Result<Value> {
        let size = size.next_multiple_of(self.least("vmm")?);
        let handle = self.cuda.try_get(|cuda, to| cuda.cuMemCreate(to, size, &self.physical(), 0))?;
        let address = self.cuda.try_get(|cuda, to| cuda.cuMemAddressReserve(to, size, 0, 0, 0))?;
        self.cuda.cuMemMap(address, size, 0, handle, 0).ok()?;
        self.cuda.cuMemRelease(handle).ok()?;
        self.held.push(Held::Mapped(address, size));
        Ok(json!({ "bytes": size }))
    }
}
