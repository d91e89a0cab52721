//! Answers through a caller's pointers, and questions. CUDA takes a null pointer as an invalid value.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use crate::codes::Code;

/// Writes a value.
///
/// # Safety
/// `to` is null or valid for writes.
pub(super) unsafe fn value<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for writes. Programs needn't align what the driver only copies.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes a value if it is wanted.
///
/// # Safety
/// `to` is null or valid for writes.
pub(super) unsafe fn wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, so valid for writes.
        unsafe { to.write_unaligned(value) };
    }
}

/// Reads a value.
///
/// # Safety
/// `from` is null or valid for reads, and any bytes are a value of the type.
pub(super) unsafe fn read<T: Copy>(from: *const T) -> Result<T, Code> {
    if from.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for reads.
    Ok(unsafe { from.read_unaligned() })
}

/// Reads a list.
///
/// # Safety
/// `from` is null or valid for reads of `count` values, and any bytes are a value of the type.
pub(super) unsafe fn list<T: Copy>(from: *const T, count: usize) -> Result<Vec<T>, Code> {
    if count > 0 && from.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the array holds that many.
    Ok((0..count).map(|index| unsafe { from.add(index).read_unaligned() }).collect())
}

/// Writes as much of a list as there is room for in `*count`, and how much it was. Without a place only its length.
///
/// # Safety
/// `count` is null or valid for reads and writes, `to` null or valid for writes of `*count` items.
pub(super) unsafe fn all<T: Copy>(to: *mut T, count: *mut usize, items: &[T]) -> Result<(), Code> {
    // SAFETY: null or valid for reads.
    let room = unsafe { read(count) }?;
    let written = if to.is_null() { items.len() } else { items.len().min(room) };
    if !to.is_null() {
        // SAFETY: there is room for that many, and nobody else's list can overlap ours.
        unsafe { ptr::copy_nonoverlapping(items.as_ptr(), to, written) };
    }
    // SAFETY: not null, or it couldn't have been read.
    unsafe { value(count, written) }
}

/// Writes as much of a text as fits into a buffer of `length` bytes, as CUDA does.
///
/// # Safety
/// `to` is null or valid for writes of `length` bytes.
pub(super) unsafe fn text(to: *mut c_char, length: c_int, text: &str) -> Result<(), Code> {
    let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1)).ok_or(Code::INVALID_VALUE)?;
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let written = text.len().min(room);
    // SAFETY: the buffer has room for so much and a terminator, and can't overlap a text of ours.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), to, written);
        to.add(written).write(0);
    }
    Ok(())
}

/// Reads a name.
///
/// # Safety
/// `from` is null or a C string.
pub(super) unsafe fn name(from: *const c_char) -> Result<CString, Code> {
    if from.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a C string.
    Ok(unsafe { CStr::from_ptr(from) }.to_owned())
}
