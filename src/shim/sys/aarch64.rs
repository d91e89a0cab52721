//! System calls on aarch64.

use core::arch::asm;

/// Calls by their numbers (`include/uapi/asm-generic/unistd.h`).
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Call {
    Fcntl = 25,
    ClockGetTime = 113,
    SigProcMask = 135,
}

/// # Safety
/// As the call demands of its arguments.
pub(super) unsafe fn call(number: Call, arguments: [usize; 4]) -> isize {
    let [first, second, third, fourth] = arguments;
    let returned;
    // SAFETY: the kernel keeps all registers but this one, and the caller vouches for what the arguments point to.
    unsafe {
        asm!("svc 0", in("x8") number as usize, inlateout("x0") first as isize => returned, in("x1") second,
             in("x2") third, in("x3") fourth, options(nostack));
    }
    returned
}

/// Where the thread's control block is.
pub(super) fn thread() -> usize {
    let address;
    // SAFETY: every thread may read the register, in which the C library keeps it.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) address, options(nostack, preserves_flags, nomem)) };
    address
}
