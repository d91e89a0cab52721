//! The driver's own way to look up its functions. It is asked as the program asks; what it answers is exchanged for the hook
//! that stands before it. A driver may answer with other addresses than those of its exported symbols: then it is asked for
//! each hooked function by the version that this came with, and the answers are compared. A revision that isn't known passes,
//! and is counted and logged.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use crate::cuda::{CUresult, ERROR_NOT_FOUND, SUCCESS};
use crate::log;
use crate::process;
use crate::text::Text;

use super::CUDA;

type Resolve = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult;
type ResolveV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> CUresult;

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` and `…_PER_THREAD_DEFAULT_STREAM`.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;

/// `cuGetProcAddress` of CUDA 11.3 to 11.8.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn resolve(
    real: Resolve,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: a name; an address is written to an address.
    let ask = |name: &CStr, version, flags, found| unsafe { real(name.as_ptr(), found, version, flags) };
    // SAFETY: the caller's arguments as they came.
    unsafe { exchanged(real(symbol, pfn, version, flags), symbol, pfn, ask) }
}

/// `cuGetProcAddress` since CUDA 12.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn resolve_v2(
    real: ResolveV2,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> CUresult {
    // SAFETY: as above; no status is wanted.
    let ask =
        |name: &CStr, version, flags, found| unsafe { real(name.as_ptr(), found, version, flags, ptr::null_mut()) };
    // SAFETY: the caller's arguments as they came.
    unsafe { exchanged(real(symbol, pfn, version, flags, status), symbol, pfn, ask) }
}

/// # Safety
/// `symbol` and `pfn` are arguments with which the driver answered `result`.
unsafe fn exchanged(
    result: CUresult,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    ask: impl Fn(&CStr, c_int, u64, *mut *mut c_void) -> CUresult,
) -> CUresult {
    static UNKNOWN: log::LogOnce = log::LogOnce::new();
    if result != SUCCESS || pfn.is_null() {
        return result;
    }
    // SAFETY: the driver has just written there.
    let found = unsafe { *pfn };
    if found.is_null() {
        return result;
    }
    // SAFETY: the driver has read this name.
    let name = unsafe { CStr::from_ptr(symbol) }.to_bytes();
    let by_symbol = CUDA.hook_before(found.addr());
    if by_symbol.is_none() && !is_hooked_in_part(name) {
        return result;
    }
    if let Some(hook) = by_symbol.or_else(|| hook_by_version(found, ask)) {
        // SAFETY: as above.
        unsafe { *pfn = ptr::with_exposed_provenance_mut(hook) };
        return result;
    }
    process::count_unknown();
    let shown = str::from_utf8(name).unwrap_or("?");
    UNKNOWN.log(format_args!(
        "the driver has a revision of {shown} that isn't known here: what it does isn't held to the share; Divvy must be updated"
    ));
    if family(name) != b"cuGetProcAddress" {
        return result;
    }
    // Nothing that is looked up by it would be held to anything.
    // SAFETY: as above.
    unsafe { *pfn = ptr::null_mut() };
    ERROR_NOT_FOUND
}

/// The hook before the function that the driver answers with this address, other than that of a symbol. Of several revisions
/// it is the newest.
fn hook_by_version(found: *mut c_void, ask: impl Fn(&CStr, c_int, u64, *mut *mut c_void) -> CUresult) -> Option<usize> {
    let same = CUDA.hooks.iter().filter(|hook| driver_function(hook, &ask) == Some(found));
    same.max_by_key(|hook| hook.since).map(|hook| (hook.address)())
}

/// The function before which a hook stands, as the driver answers for its name, revision and kind of stream.
fn driver_function(
    hook: &super::Hook,
    ask: impl Fn(&CStr, c_int, u64, *mut *mut c_void) -> CUresult,
) -> Option<*mut c_void> {
    let exact = hook.name.to_bytes();
    let flags = if is_per_thread(exact) { PER_THREAD_STREAM } else { LEGACY_STREAM };
    let name = Text::<64>::formatted(format_args!("{}", str::from_utf8(family(exact)).unwrap_or_default()));
    let mut found = ptr::null_mut();
    (ask(name.as_c(), hook.since, flags, &raw mut found) == SUCCESS).then_some(found)
}

fn is_per_thread(name: &[u8]) -> bool {
    name.ends_with(b"_ptsz") || name.ends_with(b"_ptds")
}

/// Whether some revision of this function is hooked.
pub(crate) fn is_hooked_in_part(name: &[u8]) -> bool {
    let family = family(name);
    CUDA.hooks.iter().any(|hook| self::family(hook.name.to_bytes()) == family)
}

/// A name without what tells revisions and variants apart.
fn family(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"_ptsz").or(name.strip_suffix(b"_ptds")).unwrap_or(name);
    match name {
        [family @ .., b'_', b'v', b'2'..=b'9'] => family,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_and_variants_are_one_family() {
        for name in ["cuMemAlloc", "cuMemAlloc_v2", "cuMemAlloc_v9_ptsz", "cuMemAlloc_ptds"] {
            assert_eq!(family(name.as_bytes()), b"cuMemAlloc", "{name}");
        }
        assert!(is_hooked_in_part(b"cuGetProcAddress_v7") && !is_hooked_in_part(b"cuCtxGetApiVersion"));
    }
}
