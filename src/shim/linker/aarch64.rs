//! Addresses that only an assembler of aarch64 can name.

use core::arch::asm;

/// Where this library's dynamic section is.
pub(super) fn own_dynamic() -> usize {
    let address;
    // SAFETY: the address of what the linker editor defines in every library.
    unsafe {
        asm!(
            "adrp {address}, _DYNAMIC",
            "add {address}, {address}, :lo12:_DYNAMIC",
            address = out(reg) address,
            options(nostack, preserves_flags, nomem)
        );
    }
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
            "adrp {glibc}, :got:_r_debug",
            "ldr {glibc}, [{glibc}, :got_lo12:_r_debug]",
            "adrp {musl}, :got:_dl_debug_addr",
            "ldr {musl}, [{musl}, :got_lo12:_dl_debug_addr]",
            glibc = out(reg) glibc,
            musl = out(reg) musl,
            options(nostack, preserves_flags, readonly)
        );
    }
    [glibc, musl]
}
