//! Lookup of functions in loaded libraries without the dynamic linker: a library that interposes `dlsym` has no other way to
//! the real one.

use core::ffi::{CStr, c_char, c_int};
use core::ptr::with_exposed_provenance;

use super::arch;
use tag::{GNU_HASH, STRTAB, SYMTAB};

/// Tags of the dynamic section (`elf.h`).
mod tag {
    pub(super) const NULL: i64 = 0;
    pub(super) const STRTAB: i64 = 5;
    pub(super) const SYMTAB: i64 = 6;
    pub(super) const GNU_HASH: i64 = 0x6fff_fef5;
}

/// `struct r_debug` (`link.h`), which the linker keeps for debuggers.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Module,
}

/// `struct link_map`, as far as debuggers of all C libraries know it.
#[repr(C)]
struct Module {
    base: usize,
    name: *const c_char,
    dynamic: usize,
    next: *const Self,
}

/// `Elf64_Dyn`.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The address of a function in the first library that has one of that name after this library; 0 if none has.
///
/// No function is called for it that a program may have put its own in place of: sanitizers and unwinders have their own
/// `dl_iterate_phdr`, and look up the real one by `dlsym`.
pub(super) fn after_own(name: &CStr) -> usize {
    let own = arch::own_dynamic();
    let debug = with_exposed_provenance::<Debug>(debug());
    if debug.is_null() {
        return 0;
    }
    // SAFETY: the linker keeps the list of what it has loaded there. What is between this library and the C library was
    // loaded when the program was, and stays.
    let modules = core::iter::successors(unsafe { (*debug).first.as_ref() }, |module| unsafe { module.next.as_ref() });
    let behind = modules.skip_while(|module| module.dynamic != own).skip(1);
    // SAFETY: these are libraries that are loaded.
    behind.map(|module| unsafe { find(module.base, module.dynamic, name) }).find(|found| *found != 0).unwrap_or(0)
}

/// Where the dynamic linker keeps what debuggers need; 0 if nobody knows. glibc exports it, and musl a pointer to it.
fn debug() -> usize {
    let [glibc, musl] = arch::debug_symbols();
    // SAFETY: musl's is a pointer.
    let of_musl = || unsafe { with_exposed_provenance::<usize>(musl).as_ref() }.copied();
    if glibc == 0 { of_musl().unwrap_or(0) } else { glibc }
}

/// # Safety
/// `dynamic` is the address of the dynamic section of a library that is loaded at `base`.
unsafe fn find(base: usize, dynamic: usize, name: &CStr) -> usize {
    let mut strings = 0;
    let mut symbols = 0;
    let mut hashes = 0;
    let mut entry: *const Dynamic = with_exposed_provenance(dynamic);
    // SAFETY: the section ends with an entry of the tag NULL.
    while unsafe { (*entry).tag } != tag::NULL {
        // SAFETY: as above.
        let Dynamic { tag, value } = unsafe { entry.read() };
        // glibc has made them absolute; the kernel's own library and musl's haven't been.
        let address = if value < base { base + value } else { value };
        match tag {
            STRTAB => strings = address,
            SYMTAB => symbols = address,
            GNU_HASH => hashes = address,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    if strings == 0 || symbols == 0 || hashes == 0 {
        return 0;
    }
    // SAFETY: the tables are where the dynamic section says, in the form that `elf.h` and binutils describe.
    unsafe { look_up(base, strings, symbols, hashes, name) }
}

/// # Safety
/// These are the tables of a library that is loaded at `base`.
unsafe fn look_up(base: usize, strings: usize, symbols: usize, hashes: usize, name: &CStr) -> usize {
    let word = |at: usize| with_exposed_provenance::<u32>(hashes).wrapping_add(at);
    // SAFETY: four words begin the table.
    let (buckets, first, blooms) = unsafe { (*word(0), *word(1), *word(2)) };
    if buckets == 0 {
        return 0;
    }
    let hash = name.to_bytes().iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
    let bucket = 4 + blooms as usize * (size_of::<usize>() / 4);
    let chain = bucket + buckets as usize;
    // SAFETY: there are so many buckets.
    let mut symbol = unsafe { *word(bucket + (hash % buckets) as usize) };
    if symbol < first {
        return 0;
    }
    loop {
        // SAFETY: each symbol from the first on has a word, the last of a chain an odd one.
        let found = unsafe { *word(chain + (symbol - first) as usize) };
        if found | 1 == hash | 1 {
            let entry = with_exposed_provenance::<Symbol>(symbols).wrapping_add(symbol as usize);
            // SAFETY: the chain names symbols of the table, and these names of the strings.
            let (entry, text) = unsafe {
                let entry = entry.read();
                let text = with_exposed_provenance::<c_char>(strings + entry.name as usize);
                (entry, CStr::from_ptr(text))
            };
            if entry.value != 0 && entry.section != 0 && text == name {
                return base + entry.value as usize;
            }
        }
        if found & 1 == 1 {
            return 0;
        }
        symbol += 1;
    }
}
