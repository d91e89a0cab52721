//! Between programs and the dynamic linker: whoever looks up a function of the driver that is hooked gets the hook.

#[cfg_attr(target_arch = "aarch64", path = "linker/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "linker/x86_64.rs")]
mod entry;
mod modules;

use core::ffi::{CStr, c_char, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::address::Addresses;
use crate::once::Once;
use crate::table;

pub use entry::{dlsym, dlvsym};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The linker's own functions; 0 until somebody needed them. They are read by assembly.
static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
static REAL_DLVSYM: AtomicUsize = AtomicUsize::new(0);

/// `dlfcn.h`: after the caller, which is this library.
const RTLD_NEXT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// A name, and the address of the function of ours that stands before the driver's.
pub(crate) type Hooked = (&'static CStr, fn() -> usize);

/// A library of the driver's, and what is hooked of it and needed besides.
pub(crate) struct Library<const HOOKS: usize, const NEEDS: usize> {
    pub(crate) hooks: [Hooked; HOOKS],
    addresses: Addresses<HOOKS>,
    needs: &'static [&'static CStr],
    needed: Addresses<NEEDS>,
    bound: Once<()>,
}

// === impl Library ===

impl<const HOOKS: usize, const NEEDS: usize> Library<HOOKS, NEEDS> {
    pub(crate) const fn new(needs: &'static [&'static CStr], hooks: [Hooked; HOOKS]) -> Self {
        Self { hooks, addresses: Addresses::new(), needs, needed: Addresses::new(), bound: Once::new() }
    }

    /// The driver's function behind a hook; `None` if the driver has none of that name.
    #[inline]
    pub(crate) fn real(&'static self, hook: usize) -> Option<usize> {
        if let Some(real) = self.addresses.real(hook) {
            return Some(real);
        }
        // The program was linked to the driver, and asked nobody.
        self.bind(RTLD_NEXT);
        self.addresses.real(hook)
    }

    /// A function that isn't hooked.
    pub(crate) fn needed(&'static self, need: usize) -> Option<usize> {
        self.bind(RTLD_NEXT);
        self.needed.real(need)
    }

    /// The hook that stands before the function at an address, if one does.
    pub(crate) fn hook_before(&'static self, address: usize) -> Option<usize> {
        self.addresses.hook_of(address).map(|hook| (self.hooks[hook].1)())
    }

    /// What a program gets that looks a name up: `found` is what the linker would give it.
    fn answer(&'static self, handle: *mut c_void, name: &CStr, found: *mut c_void) -> *mut c_void {
        let Some(hook) = self.hooks.iter().position(|(hooked, _)| *hooked == name) else { return found };
        let ours = (self.hooks[hook].1)();
        if found.is_null() {
            return found;
        }
        self.bind(if found.addr() == ours { RTLD_NEXT } else { handle });
        if self.addresses.real(hook).is_some() { ptr::with_exposed_provenance_mut(ours) } else { ptr::null_mut() }
    }

    /// Learns where all the real functions are, from the library that the first of them was found in.
    fn bind(&'static self, handle: *mut c_void) {
        self.bound.get_or_make(|| {
            for (hook, (name, ours)) in self.hooks.iter().enumerate() {
                let is_real = |found: &usize| *found != 0 && *found != ours();
                let found = Some(look_up(handle, name)).filter(is_real);
                let found = found.or_else(|| Some(look_up(RTLD_NEXT, name)).filter(is_real));
                self.addresses.learn(hook, found.unwrap_or(0));
            }
            for (need, name) in self.needs.iter().enumerate() {
                self.needed.learn(need, look_up(handle, name));
            }
        });
    }
}

/// The address of a name by the real `dlsym`; 0 if there is none.
pub(crate) fn look_up(handle: *mut c_void, name: &CStr) -> usize {
    let real = find_dlsym();
    if real == 0 {
        return 0;
    }
    // SAFETY: the address is that of the linker's `dlsym`.
    let real: Dlsym = unsafe { mem::transmute(ptr::with_exposed_provenance::<()>(real)) };
    // SAFETY: the name ends with a zero byte; the handle is a program's own, or a constant.
    unsafe { real(handle, name.as_ptr()) }.expose_provenance()
}

/// The address of a function of the C library; 0 if it has none of that name.
pub(crate) fn of_libc(name: &CStr) -> usize {
    look_up(RTLD_NEXT, name)
}

extern "C" fn find_dlsym() -> usize {
    found(&REAL_DLSYM, c"dlsym", dlsym as *const () as usize)
}

extern "C" fn find_dlvsym() -> usize {
    found(&REAL_DLVSYM, c"dlvsym", dlvsym as *const () as usize)
}

fn found(cell: &AtomicUsize, name: &CStr, ours: usize) -> usize {
    let known = cell.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let found = modules::after(ours, name);
    cell.store(found, Ordering::Relaxed);
    found
}

/// # Safety
/// As `dlsym`, with a name.
unsafe extern "C" fn driver_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    answer(handle, name, ptr::with_exposed_provenance_mut(look_up(handle, name)))
}

/// # Safety
/// As `dlvsym`, with a name.
unsafe extern "C" fn driver_dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    let real = find_dlvsym();
    if real == 0 {
        return ptr::null_mut();
    }
    // SAFETY: the address is that of the linker's `dlvsym`, and the arguments are the caller's own.
    let found = unsafe {
        let real: Dlvsym = mem::transmute(ptr::with_exposed_provenance::<()>(real));
        real(handle, name, version)
    };
    // SAFETY: the caller's promise.
    answer(handle, unsafe { CStr::from_ptr(name) }, found)
}

fn answer(handle: *mut c_void, name: &CStr, found: *mut c_void) -> *mut c_void {
    if name.to_bytes().starts_with(b"cu") {
        table::CUDA.answer(handle, name, found)
    } else {
        table::NVML.answer(handle, name, found)
    }
}
