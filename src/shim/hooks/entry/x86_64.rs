//! The `dlsym` and `dlvsym` that programs of x86_64 call.

use core::arch::naked_asm;
use core::ffi::{c_char, c_void};

use super::library::{driver_dlsym, driver_dlvsym, is_hooked};
use crate::linker::{REAL_DLSYM, REAL_DLVSYM, find_dlsym, find_dlvsym};

/// What both do: a name that is hooked goes to `$driver`; all others to the real function, by a jump, so that it sees the
/// caller's return address, which `RTLD_NEXT` and `RTLD_DEFAULT` depend on.
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
                "endbr64",
                "test rsi, rsi",
                "jz 4f",
                "cmp byte ptr [rsi], 0x63", // "cu" and a capital letter
                "jne 2f",
                "cmp byte ptr [rsi + 1], 0x75",
                "jne 4f",
                "movzx eax, byte ptr [rsi + 2]",
                "sub eax, 0x41",
                "cmp eax, 25",
                "jbe 3f",
                "jmp 4f",
                "2:",
                "cmp byte ptr [rsi], 0x6e", // "nvml"
                "jne 4f",
                "cmp byte ptr [rsi + 1], 0x76",
                "jne 4f",
                "cmp byte ptr [rsi + 2], 0x6d",
                "jne 4f",
                "cmp byte ptr [rsi + 3], 0x6c",
                "jne 4f",
                "3:",
                "push rdi",
                "push rsi",
                "push rdx",
                "mov rdi, rsi",
                "call {is_hooked}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test al, al",
                "jz 4f",
                "jmp {driver}",
                "4:",
                "mov rax, qword ptr [rip + {real}]",
                "test rax, rax",
                "jz 5f",
                "jmp rax",
                "5:",
                "push rdi",
                "push rsi",
                "push rdx",
                "call {find}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rax, rax",
                "jz 6f",
                "jmp rax",
                "6:",
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
