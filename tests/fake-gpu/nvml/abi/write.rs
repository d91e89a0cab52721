//! Answers through a caller's pointers. NVML takes a null pointer as an invalid argument.

use std::ffi::{c_char, c_uint};
use std::ptr;

use crate::scenario::NvmlReturn;

/// Writes a value.
///
/// # Safety
/// `to` is null or valid for writes.
pub(super) unsafe fn value<T>(to: *mut T, value: T) -> Result<(), NvmlReturn> {
    if to.is_null() {
        return Err(NvmlReturn::InvalidArgument);
    }
    // SAFETY: not null, so valid for writes.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a C string into a buffer of `length` bytes.
///
/// # Safety
/// `to` is null or valid for writes of `length` bytes.
pub(super) unsafe fn text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), NvmlReturn> {
    if to.is_null() {
        return Err(NvmlReturn::InvalidArgument);
    }
    if text.len() >= length as usize {
        return Err(NvmlReturn::InsufficientSize);
    }
    // SAFETY: the buffer has room for the text and its terminator, and can't overlap a text of ours.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes a list into an array that has room for `*count` items, and its length into `count`.
///
/// # Safety
/// `count` is null or valid for reads and writes, `to` for writes of `*count` items.
pub(super) unsafe fn list<T: Copy>(to: *mut T, count: *mut c_uint, items: &[T]) -> Result<(), NvmlReturn> {
    if count.is_null() {
        return Err(NvmlReturn::InvalidArgument);
    }
    let length = c_uint::try_from(items.len()).map_err(|_long| NvmlReturn::Memory)?;
    // SAFETY: not null, so valid for reads and writes.
    let room = unsafe { count.replace(length) };
    if room < length {
        return Err(NvmlReturn::InsufficientSize);
    }
    if !items.is_empty() {
        // SAFETY: the array has room for that many items, and can't overlap a list of ours.
        unsafe { ptr::copy_nonoverlapping(items.as_ptr(), to, items.len()) };
    }
    Ok(())
}

/// A text in a C array that holds at least its terminator.
pub(super) fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, byte) in array.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = byte.cast_signed();
    }
    array
}
