//! A tenant's program: takes all the memory of its first card that it can have, says how much, and keeps the card at work.
//!
//! It finds the driver as programs do, by `dlopen`, and knows nothing of limits.
#![allow(unsafe_code, reason = "it calls the driver as a program in C does")]

use std::ffi::{c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use libloading::{Library, Symbol};

type Launch = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_uint;

/// What is taken at once at first, in bytes; then half of it, down to one.
const LARGEST: usize = 1 << 30;
/// How long a kernel takes, ns.
const KERNEL_NS: c_uint = 1_000_000;
/// Between two looks for the file.
const RESTS: Duration = Duration::from_millis(10);

fn main() -> anyhow::Result<()> {
    // SAFETY: the driver's library has no constructor that anybody depends on.
    let driver = unsafe { Library::new("libcuda.so.1") }.context("loading the driver")?;
    let card = Card::first(&driver)?;
    let (free, total) = card.memory()?;
    println!("free {free} total {total}");
    println!("room {}", card.take_all()?);
    card.work()
}

/// The first card, with its primary context.
struct Card<'a>(&'a Library);

// === impl Card ===

impl<'a> Card<'a> {
    fn first(driver: &'a Library) -> anyhow::Result<Self> {
        let (card, mut context) = (Self(driver), ptr::null_mut::<c_void>());
        // SAFETY: the driver's functions of these names have these arguments; what they write to is there.
        unsafe {
            done("cuInit", card.find::<unsafe extern "C" fn(c_uint) -> c_uint>("cuInit")?(0))?;
            let retain =
                card.find::<unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_uint>("cuDevicePrimaryCtxRetain")?;
            done("cuDevicePrimaryCtxRetain", retain(&raw mut context, 0))?;
            let set = card.find::<unsafe extern "C" fn(*mut c_void) -> c_uint>("cuCtxSetCurrent")?;
            done("cuCtxSetCurrent", set(context))?;
        }
        Ok(card)
    }

    /// # Safety
    /// `T` is the type of the function of this name.
    unsafe fn find<T>(&self, name: &str) -> anyhow::Result<Symbol<'a, T>> {
        // SAFETY: the caller's promise.
        unsafe { self.0.get(name.as_bytes()) }.with_context(|| name.to_owned())
    }

    /// Free and total bytes.
    fn memory(&self) -> anyhow::Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: as above.
        unsafe {
            let info = self.find::<unsafe extern "C" fn(*mut usize, *mut usize) -> c_uint>("cuMemGetInfo_v2")?;
            done("cuMemGetInfo_v2", info(&raw mut free, &raw mut total))?;
        }
        Ok((free, total))
    }

    /// How many bytes there were, to the last.
    fn take_all(&self) -> anyhow::Result<usize> {
        // SAFETY: as above.
        let allocate = unsafe { self.find::<unsafe extern "C" fn(*mut u64, usize) -> c_uint>("cuMemAlloc_v2")? };
        let (mut taken, mut size) = (0, LARGEST);
        while size > 0 {
            let mut address = 0;
            // SAFETY: an address is written to an address.
            match unsafe { allocate(&raw mut address, size) } {
                0 => taken += size,
                _ => size /= 2,
            }
        }
        Ok(taken)
    }

    /// Launches one kernel after the other, without an end; rests while the file is there that the variable `REST` names.
    fn work(&self) -> anyhow::Result<()> {
        let (mut module, mut function, none) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: as above.
        unsafe {
            let load = self.find::<unsafe extern "C" fn(*mut *mut c_void, *const u8) -> c_uint>("cuModuleLoadData")?;
            done("cuModuleLoadData", load(&raw mut module, c"any".as_ptr().cast()))?;
            let get = self.find::<unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const i8) -> c_uint>(
                "cuModuleGetFunction",
            )?;
            done("cuModuleGetFunction", get(&raw mut function, module, c"busy_ns".as_ptr().cast()))?;
            let launch = self.find::<Launch>("cuLaunchKernel")?;
            let rest = std::env::var_os("REST").map(PathBuf::from);
            loop {
                if rest.as_ref().is_some_and(|file| file.exists()) {
                    std::thread::sleep(RESTS);
                    continue;
                }
                done("cuLaunchKernel", launch(function, KERNEL_NS, 1, 1, 1, 1, 1, 0, none, none, none))?;
            }
        }
    }
}

fn done(call: &str, result: c_uint) -> anyhow::Result<()> {
    ensure!(result == 0, "{call}: {result}");
    Ok(())
}
