//! System calls on x86_64.

use core::arch::asm;

/// Calls by their numbers (`arch/x86/entry/syscalls/syscall_64.tbl`).
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Call {
    SigProcMask = 14,
    Fcntl = 72,
    ClockGetTime = 228,
}

/// # Safety
/// As the call demands of its arguments.
pub(super) unsafe fn call(number: Call, arguments: [usize; 4]) -> isize {
    let [first, second, third, fourth] = arguments;
    let returned;
    // SAFETY: the kernel keeps all registers but these, and the caller vouches for what the arguments point to.
    unsafe {
        asm!("syscall", inlateout("rax") number as usize as isize => returned, in("rdi") first,
             in("rsi") second, in("rdx") third,
             in("r10") fourth, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    returned
}

/// Where the thread's control block is: its first word is its own address.
pub(super) fn thread() -> usize {
    let address;
    // SAFETY: the psABI has it so for every thread.
    unsafe { asm!("mov {}, fs:0", out(reg) address, options(nostack, preserves_flags, readonly)) };
    address
}
