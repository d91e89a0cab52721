//! The driver's own way to look up its functions. It is asked as the program asks; what it answers is exchanged for the hook
//! that stands before it. A revision that isn't known passes, and is counted.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use crate::cuda::{CUresult, SUCCESS};
use crate::process;

use super::CUDA;

type Resolve = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult;
type ResolveV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> CUresult;

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
    // SAFETY: the caller's arguments as they came.
    unsafe { exchanged(real(symbol, pfn, version, flags), symbol, pfn) }
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
    // SAFETY: the caller's arguments as they came.
    unsafe { exchanged(real(symbol, pfn, version, flags, status), symbol, pfn) }
}

/// # Safety
/// `symbol` and `pfn` are arguments with which the driver answered `result`.
unsafe fn exchanged(result: CUresult, symbol: *const c_char, pfn: *mut *mut c_void) -> CUresult {
    if result != SUCCESS || pfn.is_null() {
        return result;
    }
    // SAFETY: the driver has just written there.
    let found = unsafe { *pfn };
    match CUDA.hook_before(found.addr()) {
        // SAFETY: as above.
        Some(hook) => unsafe { *pfn = ptr::with_exposed_provenance_mut(hook) },
        None if !found.is_null() => {
            // SAFETY: the driver has read this name.
            let symbol = unsafe { CStr::from_ptr(symbol) };
            if is_hooked_in_part(symbol.to_bytes()) {
                process::count_unknown();
            }
        }
        None => {}
    }
    result
}

/// Whether some revision of this function is hooked.
pub(crate) fn is_hooked_in_part(name: &[u8]) -> bool {
    let family = family(name);
    CUDA.hooks.iter().any(|(hooked, _)| self::family(hooked.to_bytes()) == family)
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
