//! Functions of loaded libraries, found without the dynamic linker: it has no other way to its own `dlsym` for who stands
//! before it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::with_exposed_provenance;
use core::slice;

use tag::{GNU_HASH, STRTAB, SYMTAB};

/// Tags of the dynamic section (`elf.h`).
mod tag {
    pub(super) const NULL: i64 = 0;
    pub(super) const STRTAB: i64 = 5;
    pub(super) const SYMTAB: i64 = 6;
    pub(super) const GNU_HASH: i64 = 0x6fff_fef5;
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

/// `struct dl_phdr_info`, as far as all libraries have it.
#[repr(C)]
struct Module {
    base: usize,
    name: *const c_char,
    headers: *const Header,
    count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
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

struct Search<'a> {
    /// An address in the library after which to look.
    own: usize,
    name: &'a CStr,
    is_behind: bool,
    found: usize,
}

unsafe extern "C" {
    /// `link.h`; glibc and musl have it.
    fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*const Module, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// The address of a function in the first library that has one of that name after the library with the address `own`; 0 if
/// none has.
pub(super) fn after(own: usize, name: &CStr) -> usize {
    let mut search = Search { own, name, is_behind: false, found: 0 };
    // SAFETY: `visit` is handed back what is handed over, while it lives.
    unsafe { dl_iterate_phdr(visit, (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(module: *const Module, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the linker shows a module; `after` has handed over a search.
    let (module, search) = unsafe { (&*module, &mut *search.cast::<Search<'_>>()) };
    // SAFETY: the linker says where the headers are, and how many.
    let headers = unsafe { slice::from_raw_parts(module.headers, module.count.into()) };
    if !search.is_behind {
        let holds_own = |header: &Header| {
            let start = module.base.wrapping_add(header.address as usize);
            header.kind == PT_LOAD && (start..start.wrapping_add(header.memory_size as usize)).contains(&search.own)
        };
        search.is_behind = headers.iter().any(holds_own);
        return 0;
    }
    let Some(dynamic) = headers.iter().find(|header| header.kind == PT_DYNAMIC) else { return 0 };
    // SAFETY: a loaded library's dynamic section is where its header says.
    search.found = unsafe { find(module.base, module.base.wrapping_add(dynamic.address as usize), search.name) };
    c_int::from(search.found != 0)
}

/// # Safety
/// `dynamic` is the address of the dynamic section of a library that is loaded at `base`.
unsafe fn find(base: usize, dynamic: usize, name: &CStr) -> usize {
    let (mut strings, mut symbols, mut hashes) = (0, 0, 0);
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
