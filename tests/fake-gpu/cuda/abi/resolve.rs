//! `cuGetProcAddress`: functions by name, version and default stream.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;

use super::{functions, symbols, write};
use crate::codes::Code;
use crate::driver;
use crate::machine::Machine;

/// `CUdriverProcAddressQueryResult`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Success = 0,
    NotFound = 1,
    VersionNotSufficient = 2,
}

/// `CU_GET_PROC_ADDRESS_…`.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// Names that came to mean a function of another name, and with which version.
const ALIASES: &[(&str, i32, &str)] = &[("cuGraphInstantiate", 12_000, "cuGraphInstantiateWithFlags")];

/// A revision of a function.
struct Revision {
    since: i32,
    per_thread: bool,
    address: usize,
}

/// The revisions of each function, by its name without `_v2`, `_ptsz` and so on.
static REVISIONS: LazyLock<BTreeMap<&'static str, Vec<Revision>>> =
    LazyLock::new(|| driver::machine(super::is_known).map(revisions).unwrap_or_default());

fn revisions(machine: &'static Machine) -> BTreeMap<&'static str, Vec<Revision>> {
    let mut all: BTreeMap<&str, Vec<Revision>> = BTreeMap::new();
    for symbol in symbols().filter(|symbol| !machine.lacks.contains(symbol.name)) {
        let (base, per_thread) = split(symbol.name);
        let exported = symbol.address.expose_provenance();
        let address = if machine.inner_addresses { trampoline(exported).unwrap_or(exported) } else { exported };
        let revision = Revision { since: symbol.since, per_thread, address };
        all.entry(base).or_default().push(revision);
    }
    for (base, since, exported) in ALIASES {
        if let Some(symbol) = symbols().find(|symbol| symbol.name == *exported && !machine.lacks.contains(*exported)) {
            let revision = Revision { since: *since, per_thread: false, address: symbol.address.expose_provenance() };
            all.entry(base).or_default().push(revision);
        }
    }
    for (name, gain) in &machine.gains {
        let (base, per_thread) = split(name);
        let like = symbols().find(|symbol| symbol.name == gain.like);
        if let Some(address) = like.and_then(|like| trampoline(like.address.expose_provenance())) {
            all.entry(base).or_default().push(Revision { since: gain.since, per_thread, address });
        }
    }
    all
}

/// A name without its suffixes, and whether the default stream is the thread's own.
fn split(name: &str) -> (&str, bool) {
    let plain = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
    let versioned = plain.unwrap_or(name);
    let base = match versioned.rsplit_once("_v") {
        Some((base, digits)) if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) => base,
        _ => versioned,
    };
    (base, plain.is_some())
}

/// Code at an address of its own that goes on at another.
fn trampoline(to: usize) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    let jump: [u8; 8] = [0xff, 0x25, 2, 0, 0, 0, 0, 0]; // jmp *2(%rip), which lies behind two bytes of filling
    #[cfg(target_arch = "aarch64")]
    let jump: [u8; 8] = [0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6]; // ldr x16, 8; br x16
    let bytes = [jump, to.to_le_bytes()].concat();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new page, which is filled before it becomes code and is never undone.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), page.cast(), bytes.len());
        (libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC) == 0).then(|| page.expose_provenance())
    }
}

/// The newest revision that a program of this version knows.
fn resolve(name: &str, version: c_int, flags: u64) -> Result<(Status, usize), Code> {
    if flags & !(LEGACY_STREAM | PER_THREAD_DEFAULT_STREAM) != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if driver::machine(super::is_known).is_none_or(|machine| version > machine.cuda_version) {
        return Err(Code::INVALID_VALUE);
    }
    let Some(revisions) = REVISIONS.get(name) else { return Ok((Status::NotFound, 0)) };
    let driver_version = driver::machine(super::is_known).map_or(0, |machine| machine.cuda_version);
    if revisions.iter().all(|revision| revision.since > driver_version) {
        return Ok((Status::NotFound, 0));
    }
    let newest = |per_thread: bool| {
        let known = revisions.iter().filter(|revision| revision.since <= version && revision.per_thread == per_thread);
        known.max_by_key(|revision| revision.since)
    };
    let per_thread = if flags & PER_THREAD_DEFAULT_STREAM == 0 { None } else { newest(true) };
    Ok(match per_thread.or_else(|| newest(false)) {
        Some(revision) => (Status::Success, revision.address),
        None => (Status::VersionNotSufficient, 0),
    })
}

/// # Safety
/// `symbol` is null or a C string.
unsafe fn look_up(symbol: *const c_char, version: c_int, flags: u64) -> Result<(Status, usize), Code> {
    // SAFETY: the caller's.
    let name = unsafe { write::name(symbol) }?;
    name.to_str().map_or(Ok((Status::NotFound, 0)), |name| resolve(name, version, flags))
}

functions! {
    // The first form has the code say that there is no such function, the second the status alone.
    [11030 cuGetProcAddress](symbol: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64) = |me| {
        me.check()?;
        let (status, address) = look_up(symbol, version, flags)?;
        write::value(found, std::ptr::with_exposed_provenance_mut(address))?;
        if status == Status::Success { Ok(()) } else { Err(Code::NOT_FOUND) }
    };
    [12000 cuGetProcAddress_v2](
        symbol: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_uint
    ) = |me| {
        me.check()?;
        let (found_status, address) = look_up(symbol, version, flags)?;
        write::value(found, std::ptr::with_exposed_provenance_mut(address))?;
        write::wanted(status, found_status as c_uint);
        Ok(())
    };
}
