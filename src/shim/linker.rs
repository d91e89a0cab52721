//! Between programs and the dynamic linker: whoever looks up a function of the driver that is hooked gets the hook.

#[cfg_attr(target_arch = "aarch64", path = "linker/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "linker/x86_64.rs")]
mod entry;
mod modules;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::address::Addresses;
use crate::table;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The linker's own functions; 0 until somebody needed them. They are read by assembly.
static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
static REAL_DLVSYM: AtomicUsize = AtomicUsize::new(0);

/// `dlfcn.h`.
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
/// After the caller, which is this library.
const RTLD_NEXT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// A name, and the address of the function of ours that stands before the driver's.
pub(crate) type Hooked = (&'static CStr, fn() -> usize);

/// A library of the driver's, and what is hooked of it and needed besides.
pub(crate) struct Library<const HOOKS: usize, const NEEDS: usize> {
    pub(crate) hooks: [Hooked; HOOKS],
    addresses: Addresses<HOOKS>,
    needs: &'static [&'static CStr],
    needed: Addresses<NEEDS>,
    /// How the driver's library calls itself.
    file: &'static CStr,
    is_bound: AtomicBool,
}

// === impl Library ===

impl<const HOOKS: usize, const NEEDS: usize> Library<HOOKS, NEEDS> {
    pub(crate) const fn new(file: &'static CStr, needs: &'static [&'static CStr], hooks: [Hooked; HOOKS]) -> Self {
        let is_bound = AtomicBool::new(false);
        Self { hooks, addresses: Addresses::new(), needs, needed: Addresses::new(), file, is_bound }
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

    /// The hook of a name.
    fn position(&self, name: &CStr) -> Option<usize> {
        self.hooks.iter().position(|(hooked, _)| *hooked == name)
    }

    /// What a program gets that looks a name up: `found` is what the linker would give it.
    fn answer(&'static self, handle: *mut c_void, name: &CStr, found: *mut c_void) -> *mut c_void {
        let Some(hook) = self.position(name) else { return found };
        let ours = (self.hooks[hook].1)();
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

    /// Learns where all the real functions are, from the library that the first of them was found in. Nobody has found any
    /// yet where a program only asks whether there is a driver: then somebody asks again.
    fn bind(&'static self, handle: *mut c_void) {
        if self.is_bound.load(Ordering::Acquire) {
            return;
        }
        let is_in = |handle: &*mut c_void| self.hooks.iter().any(|(name, ours)| real_of(*handle, name, ours()) != 0);
        // What a plugin is linked to stands in the plugin's own scope alone; and what comes next may be a tracer's, which asks
        // us for what comes after it.
        let driver = if handle == RTLD_NEXT { loaded(self.file) } else { None };
        let Some(handle) = driver.into_iter().chain([handle]).find(is_in) else { return };
        for (hook, (name, ours)) in self.hooks.iter().enumerate() {
            let found = Some(real_of(handle, name, ours())).filter(|found| *found != 0);
            self.addresses.learn(hook, found.unwrap_or_else(|| real_of(RTLD_NEXT, name, ours())));
        }
        for (need, name) in self.needs.iter().enumerate() {
            self.needed.learn(need, look_up(handle, name));
        }
        self.is_bound.store(true, Ordering::Release);
        // One that is found ends what `dlerror` would say of those that weren't.
        of_libc(c"dlopen");
    }
}

/// The address of a function of the driver's; 0 if there is none, or none but the hook before it.
fn real_of(handle: *mut c_void, name: &CStr, ours: usize) -> usize {
    let found = look_up(handle, name);
    if found == ours { 0 } else { found }
}

/// The handle of a library if it is loaded, and stays so.
fn loaded(file: &CStr) -> Option<*mut c_void> {
    let dlopen = of_libc(c"dlopen");
    if dlopen == 0 {
        return None;
    }
    // SAFETY: the linker's function of this name has these arguments; it loads nothing, so nothing runs.
    let handle = unsafe {
        let dlopen: Dlopen = mem::transmute(ptr::with_exposed_provenance::<()>(dlopen));
        dlopen(file.as_ptr(), RTLD_LAZY | RTLD_NOLOAD)
    };
    Some(handle).filter(|handle| !handle.is_null())
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
    let found = unsafe { real(handle, name.as_ptr()) };
    // The linker looks who calls it: that mustn't become a jump, which would show it the program.
    core::hint::black_box(found).expose_provenance()
}

/// The address of a function of the C library; 0 if it has none of that name.
pub(crate) fn of_libc(name: &CStr) -> usize {
    look_up(RTLD_NEXT, name)
}

extern "C" fn find_dlsym() -> usize {
    found(&REAL_DLSYM, c"dlsym")
}

extern "C" fn find_dlvsym() -> usize {
    found(&REAL_DLVSYM, c"dlvsym")
}

fn found(cell: &AtomicUsize, name: &CStr) -> usize {
    let known = cell.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let found = modules::after_own(name);
    cell.store(found, Ordering::Relaxed);
    found
}

/// Whether a function of this name is hooked.
///
/// # Safety
/// It ends with a zero byte.
unsafe extern "C" fn is_hooked(name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    table::CUDA.position(name).or_else(|| table::NVML.position(name)).is_some()
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
