//! Addresses that only an assembler of x86_64 can name.

use core::arch::asm;

/// Where this library's dynamic section is.
pub(super) fn own_dynamic() -> usize {
    let address;
    // SAFETY: the address of what the linker editor defines in every library.
    unsafe { asm!("lea {}, [rip + _DYNAMIC]", out(reg) address, options(nostack, preserves_flags, nomem)) };
    address
}

/// The addresses of `_r_debug` and `_dl_debug_addr`, 0 where a symbol isn't defined.
pub(super) fn debug_symbols() -> [usize; 2] {
    let (glibc, musl): (usize, usize);
    // SAFETY: addresses out of this library's own table.
    unsafe {
        asm!(
            ".weak _r_debug",
            ".weak _dl_debug_addr",
            "mov {glibc}, qword ptr [rip + _r_debug@GOTPCREL]",
            "mov {musl}, qword ptr [rip + _dl_debug_addr@GOTPCREL]",
            glibc = out(reg) glibc,
            musl = out(reg) musl,
            options(nostack, preserves_flags, readonly)
        );
    }
    [glibc, musl]
}
