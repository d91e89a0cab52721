//! What every call goes through first, and the functions that need no driver.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, MutexGuard};
use std::thread;
use std::time::Duration;

use super::{functions, write};
use crate::codes::Code;
use crate::driver::{self, Driver};

/// A call.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    name: &'static str,
    /// The default stream is the thread's own.
    pub(crate) per_thread: bool,
}

/// What the machine says of a function.
#[derive(Default)]
struct Trouble {
    code: Option<Code>,
    /// Which call fails; `None`: each.
    nth: Option<u64>,
    calls: AtomicU64,
    delay: Duration,
}

/// The functions that there is something about; `None`: nothing about any.
static TROUBLES: LazyLock<Option<BTreeMap<&'static str, Trouble>>> = LazyLock::new(|| {
    let machine = driver::machine(super::is_known)?;
    let mut troubles: BTreeMap<&str, Trouble> = BTreeMap::new();
    for (name, fault) in &machine.faults {
        let trouble = troubles.entry(name).or_default();
        (trouble.code, trouble.nth) = (Code::named(&fault.code), fault.nth);
    }
    for (name, delay) in &machine.delays_us {
        troubles.entry(name).or_default().delay = Duration::from_micros(*delay);
    }
    (!troubles.is_empty()).then_some(troubles)
});

// === impl Entry ===

impl Entry {
    pub(crate) const fn new(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        let per_thread = matches!(bytes, [.., b'_', b'p', b't', b's', b'z'] | [.., b'_', b'p', b't', b'd', b's']);
        Self { name, per_thread }
    }

    /// Fails or takes its time, if the machine says so.
    pub(crate) fn check(self) -> Result<(), Code> {
        let Some(trouble) = TROUBLES.as_ref().and_then(|troubles| troubles.get(self.name)) else { return Ok(()) };
        let call = trouble.calls.fetch_add(1, Relaxed) + 1;
        if !trouble.delay.is_zero() {
            pause(trouble.delay);
        }
        match trouble.code {
            Some(code) if trouble.nth.is_none_or(|nth| nth == call) => Err(code),
            _ => Ok(()),
        }
    }

    /// Goes on with the driver's state.
    pub(crate) fn driver(self) -> Result<MutexGuard<'static, Driver>, Code> {
        self.check()?;
        driver::driver()
    }

    /// Enters a call that captures may forbid.
    pub(crate) fn unsafe_driver(self) -> Result<MutexGuard<'static, Driver>, Code> {
        let mut driver = self.driver()?;
        driver.unsafe_call()?;
        Ok(driver)
    }
}

fn pause(delay: Duration) {
    if delay > Duration::from_micros(50) {
        thread::sleep(delay);
    } else {
        driver::sleep_until(fake_card::clock() + u64::try_from(delay.as_nanos()).unwrap_or(0));
    }
}

/// What a table of functions that aren't public looks like: its size in bytes, and then nothing that we know.
static EXPORT_TABLE: [usize; 16] = {
    let mut table = [0; 16];
    table[0] = size_of::<[usize; 16]>();
    table
};

functions! {
    [2000 cuInit](flags: c_uint) = |me| {
        me.check()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        driver::initialise(super::is_known)
    };
    [2020 cuDriverGetVersion](version: *mut c_int) = |me| {
        me.check()?;
        write::value(version, driver::machine(super::is_known).map_or(0, |machine| machine.cuda_version))
    };
    [6000 cuGetErrorName](error: c_uint, text: *mut *const c_char) = |me| {
        me.check()?;
        let texts = Code(error).texts();
        write::value(text, texts.map_or(ptr::null(), |(name, _)| name.as_ptr()))?;
        texts.map(|_| ()).ok_or(Code::INVALID_VALUE)
    };
    [6000 cuGetErrorString](error: c_uint, text: *mut *const c_char) = |me| {
        me.check()?;
        let texts = Code(error).texts();
        write::value(text, texts.map_or(ptr::null(), |(_, explanation)| explanation.as_ptr()))?;
        texts.map(|_| ()).ok_or(Code::INVALID_VALUE)
    };
    [3000 cuGetExportTable](table: *mut *const c_void, id: *const [u8; 16]) = |me| {
        me.check()?;
        if id.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        write::value(table, EXPORT_TABLE.as_ptr().cast())
    };
    [4000 cuProfilerStart]() = |me| me.driver().map(drop);
    [4000 cuProfilerStop]() = |me| me.driver().map(drop);
}
