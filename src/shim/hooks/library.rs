//! Between programs and the dynamic linker: a program that looks up a hooked function of the driver gets the hook.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use super::{CUDA, NVML};
use crate::driver::{Addresses, Called};
use crate::linker::{RTLD_NEXT, find_dlvsym, load, loaded, look_up, of_libc};
use crate::{memory, pace, process};

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The hook before one of the driver's functions.
pub(crate) struct Hook {
    /// The function's exact name.
    pub(crate) name: &'static CStr,
    /// The version of CUDA that it came with, as `cuGetProcAddress` has it; 0: not CUDA's.
    pub(crate) since: c_int,
    pub(crate) address: fn() -> usize,
}

/// A library of the driver's: its functions that are hooked, and those that the hooks call.
pub(crate) struct Library<const HOOKS: usize, const CALLED: usize> {
    pub(crate) hooks: [Hook; HOOKS],
    addresses: Addresses<HOOKS>,
    called: &'static Called<CALLED>,
    /// How the driver's library calls itself.
    file: &'static CStr,
    is_bound: AtomicBool,
}

// === impl Library ===

impl<const HOOKS: usize, const CALLED: usize> Library<HOOKS, CALLED> {
    pub(crate) const fn new(file: &'static CStr, called: &'static Called<CALLED>, hooks: [Hook; HOOKS]) -> Self {
        Self { hooks, addresses: Addresses::new(), called, file, is_bound: AtomicBool::new(false) }
    }

    /// The driver's function behind a hook; `None` if the driver has none of that name.
    #[inline]
    pub(crate) fn real(&'static self, hook: usize) -> Option<usize> {
        if let Some(real) = self.addresses.real(hook) {
            return Some(real);
        }
        // The program was linked to the driver, and asked nobody; or to functions of the same names that load it when they are
        // called, which this hook has come before.
        if !self.is_bound.load(Ordering::Acquire) {
            load(self.file);
        }
        self.bind(RTLD_NEXT);
        self.addresses.real(hook)
    }

    /// The hook that stands before the function at an address, if one does.
    pub(crate) fn hook_before(&'static self, address: usize) -> Option<usize> {
        self.addresses.hook_of(address).map(|hook| (self.hooks[hook].address)())
    }

    /// The hook of a name.
    fn position(&self, name: &CStr) -> Option<usize> {
        self.hooks.iter().position(|hook| hook.name == name)
    }

    /// What a program gets that looks a name up: `found` is what the linker would give it.
    fn answer(&'static self, handle: *mut c_void, name: &CStr, found: *mut c_void) -> *mut c_void {
        let Some(hook) = self.position(name) else { return found };
        let ours = (self.hooks[hook].address)();
        // What comes after the program's own library is not what comes after this one, which is asked in its place.
        let is_elsewhere = found.is_null() && handle == RTLD_NEXT;
        if found.is_null() && !is_elsewhere {
            return found;
        }
        self.bind(if found.addr() == ours { RTLD_NEXT } else { handle });
        match self.addresses.real(hook) {
            Some(_) => ptr::with_exposed_provenance_mut(ours),
            // Not found, so that `dlerror` says so.
            None => ptr::with_exposed_provenance_mut(look_up(RTLD_NEXT, name)),
        }
    }

    /// Looks up all the real functions in the library that the first of them was found in. A program that only asks whether
    /// there is a driver has found none yet: then the next lookup does it.
    fn bind(&'static self, handle: *mut c_void) {
        if self.is_bound.load(Ordering::Acquire) {
            return;
        }
        let is_in = |handle: &*mut c_void| self.hooks.iter().any(|hook| real_of(*handle, hook) != 0);
        // What a plugin is linked to stands in the plugin's own scope alone; and what comes next may be a tracer's, which asks
        // us for what comes after it.
        let driver = if handle == RTLD_NEXT { loaded(self.file) } else { None };
        let Some(handle) = driver.into_iter().chain([handle]).find(is_in) else { return };
        process::after_fork(forget_after_fork);
        // Hooks call these as soon as they know their own real functions.
        self.called.bind(handle);
        for (number, hook) in self.hooks.iter().enumerate() {
            let found = Some(real_of(handle, hook)).filter(|found| *found != 0);
            self.addresses.learn(number, found.unwrap_or_else(|| real_of(RTLD_NEXT, hook)));
        }
        self.is_bound.store(true, Ordering::Release);
        // One that is found ends what `dlerror` would say of those that weren't.
        of_libc(c"dlopen");
    }
}

/// Has a child that fork made forget what its parent held.
fn forget_after_fork() {
    pace::forget();
    memory::forget();
}

/// The address of a function of the driver's; 0 if there is none, or none but the hook before it.
fn real_of(handle: *mut c_void, hook: &Hook) -> usize {
    let found = look_up(handle, hook.name);
    if found == (hook.address)() { 0 } else { found }
}

/// Whether a function of this name is hooked.
///
/// # Safety
/// It ends with a zero byte.
pub(super) unsafe extern "C" fn is_hooked(name: *const c_char) -> bool {
    // SAFETY: the caller's guarantee.
    let name = unsafe { CStr::from_ptr(name) };
    CUDA.position(name).or_else(|| NVML.position(name)).is_some()
}

/// # Safety
/// As `dlsym`, with a name.
pub(super) unsafe extern "C" fn driver_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's guarantee.
    let name = unsafe { CStr::from_ptr(name) };
    answer(handle, name, ptr::with_exposed_provenance_mut(look_up(handle, name)))
}

/// # Safety
/// As `dlvsym`, with a name.
pub(super) unsafe extern "C" fn driver_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    let real = find_dlvsym();
    if real == 0 {
        return ptr::null_mut();
    }
    // SAFETY: the address is that of the linker's `dlvsym`, and the arguments are the caller's own.
    let found = unsafe {
        let real: Dlvsym = mem::transmute(ptr::with_exposed_provenance::<()>(real));
        real(handle, name, version)
    };
    // SAFETY: the caller's guarantee.
    answer(handle, unsafe { CStr::from_ptr(name) }, found)
}

fn answer(handle: *mut c_void, name: &CStr, found: *mut c_void) -> *mut c_void {
    if name.to_bytes().starts_with(b"cu") { CUDA.answer(handle, name, found) } else { NVML.answer(handle, name, found) }
}
