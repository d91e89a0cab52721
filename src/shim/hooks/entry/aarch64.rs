//! The `dlsym` and `dlvsym` that programs of aarch64 call.

use core::arch::naked_asm;
use core::ffi::{c_char, c_void};

use super::library::{driver_dlsym, driver_dlvsym, is_hooked};
use crate::linker::{REAL_DLSYM, REAL_DLVSYM, find_dlsym, find_dlvsym};

/// What both do: a name that is hooked goes to `$driver`; all others to the real function, by a branch without a link, so
/// that it sees the caller's return address, which `RTLD_NEXT` and `RTLD_DEFAULT` depend on.
macro_rules! entry {
    ($name:ident, $real:ident, $find:ident, $driver:ident, ($($argument:ident : $type:ty),*)) => {
        /// The dynamic linker's function of this name, as programs see it.
        ///
        /// # Safety
        /// As the dynamic linker's.
        #[cfg_attr(panic = "abort", unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> *mut c_void {
            naked_asm!(
                "hint 34", // bti c
                "cbz x1, 4f",
                "ldrb w9, [x1]",
                "cmp w9, 0x63", // "cu" and a capital letter
                "b.ne 2f",
                "ldrb w9, [x1, 1]",
                "cmp w9, 0x75",
                "b.ne 4f",
                "ldrb w9, [x1, 2]",
                "sub w9, w9, 0x41",
                "cmp w9, 25",
                "b.ls 3f",
                "b 4f",
                "2:",
                "cmp w9, 0x6e", // "nvml"
                "b.ne 4f",
                "ldrb w9, [x1, 1]",
                "cmp w9, 0x76",
                "b.ne 4f",
                "ldrb w9, [x1, 2]",
                "cmp w9, 0x6d",
                "b.ne 4f",
                "ldrb w9, [x1, 3]",
                "cmp w9, 0x6c",
                "b.ne 4f",
                "3:",
                "stp x29, x30, [sp, -48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, 16]",
                "str x2, [sp, 32]",
                "mov x0, x1",
                "bl {is_hooked}",
                "mov w9, w0",
                "ldp x0, x1, [sp, 16]",
                "ldr x2, [sp, 32]",
                "ldp x29, x30, [sp], 48",
                "tbz w9, 0, 4f",
                "b {driver}",
                "4:",
                "adrp x16, {real}",
                "ldr x16, [x16, :lo12:{real}]",
                "cbz x16, 5f",
                "br x16",
                "5:",
                "stp x29, x30, [sp, -48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, 16]",
                "str x2, [sp, 32]",
                "bl {find}",
                "mov x16, x0",
                "ldp x0, x1, [sp, 16]",
                "ldr x2, [sp, 32]",
                "ldp x29, x30, [sp], 48",
                "cbz x16, 6f",
                "br x16",
                "6:",
                "mov x0, xzr",
                "ret",
                is_hooked = sym is_hooked,
                driver = sym $driver,
                real = sym $real,
                find = sym $find,
            )
        }
    };
}

entry!(dlsym, REAL_DLSYM, find_dlsym, driver_dlsym, (handle: *mut c_void, name: *const c_char));
entry!(dlvsym, REAL_DLVSYM, find_dlvsym, driver_dlvsym, (handle: *mut c_void, name: *const c_char, version: *const c_char));
