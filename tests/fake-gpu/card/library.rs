//! The stand-in library that this crate is part of.

use std::ffi::{CStr, OsStr, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The path that the loader knows the library by that this function was linked into.
pub fn own_path() -> Option<PathBuf> {
    let address: *const c_void = (own_path as fn() -> Option<PathBuf>) as *const c_void;
    // SAFETY: all zeroes are valid for a struct of pointers.
    let mut info: libc::Dl_info = unsafe { mem::zeroed() };
    // SAFETY: `address` lies in this library, and `info` is valid for writes.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr answered, so the name is a C string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
