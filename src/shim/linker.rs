//! The dynamic linker's own functions, although this library defines functions of the same names before it.

#[cfg_attr(target_arch = "aarch64", path = "linker/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "linker/x86_64.rs")]
mod arch;
mod modules;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// The addresses of the linker's own functions; 0 before the first use. They are read by assembly.
pub(crate) static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
pub(crate) static REAL_DLVSYM: AtomicUsize = AtomicUsize::new(0);

/// `dlfcn.h`.
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
/// The libraries after the caller, which is this library.
pub(crate) const RTLD_NEXT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// The handle of a library if it is loaded, and stays so.
pub(crate) fn loaded(file: &CStr) -> Option<*mut c_void> {
    open(file, RTLD_LAZY | RTLD_NOLOAD)
}

/// Loads a library, if there is one of that name.
pub(crate) fn load(file: &CStr) {
    let _stays = open(file, RTLD_LAZY);
}

fn open(file: &CStr, mode: c_int) -> Option<*mut c_void> {
    let dlopen = of_libc(c"dlopen");
    if dlopen == 0 {
        return None;
    }
    // SAFETY: the linker's function of this name has these arguments. What it loads is the driver, which the program would.
    let handle = unsafe {
        let dlopen: Dlopen = mem::transmute(ptr::with_exposed_provenance::<()>(dlopen));
        dlopen(file.as_ptr(), mode)
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

pub(crate) extern "C" fn find_dlsym() -> usize {
    found(&REAL_DLSYM, c"dlsym")
}

pub(crate) extern "C" fn find_dlvsym() -> usize {
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
