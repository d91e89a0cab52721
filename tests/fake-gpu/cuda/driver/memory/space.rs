//! The addresses of device memory, and the bytes behind them.

use std::collections::BTreeMap;
use std::{io, ptr};

/// Least and most addresses that all cards of a process have together.
const LEAST: u64 = 64 << 30;
const MOST: u64 = 8 << 40;

/// What the system gives and takes.
const PAGE: u64 = 4096;

/// A range for addresses, and one of the same size for bytes.
pub(crate) struct Space {
    base: u64,
    span: u64,
    /// From an address to its bytes.
    distance: u64,
    /// Free stretches: start to length.
    free: BTreeMap<u64, u64>,
}

fn map(size: u64, access: i32) -> io::Result<u64> {
    let length = usize::try_from(size).map_err(io::Error::other)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping takes nothing away from anybody.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped.expose_provenance() as u64) }
}

fn protect(address: u64, size: u64, access: i32) -> bool {
    let start: *mut libc::c_void = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: pages of this range hold one block alone, which the caller owns.
    unsafe { libc::mprotect(start, size as usize, access) == 0 }
}

/// Gives whole pages of bytes back to the system; their content is lost.
fn forget(bytes: u64, size: u64) {
    let (start, end) = (bytes.next_multiple_of(PAGE), (bytes + size) / PAGE * PAGE);
    if start < end {
        // SAFETY: the pages are ours, and nobody has a reference to what is in them.
        unsafe {
            let start = ptr::with_exposed_provenance_mut(start as usize);
            libc::madvise(start, (end - bytes.next_multiple_of(PAGE)) as usize, libc::MADV_DONTNEED);
        }
    }
}

/// Host memory for the program.
pub(crate) fn map_host(size: u64) -> io::Result<u64> {
    map(size, libc::PROT_READ | libc::PROT_WRITE)
}

/// Takes it back.
pub(crate) fn unmap_host(address: u64, size: u64) {
    let start: *mut libc::c_void = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: a mapping of `map_host`, which the program has given back.
    unsafe { libc::munmap(start, size as usize) };
}

// === impl Space ===

impl Space {
    /// Addresses for cards that have so many bytes together: eight times that, for programs that reserve more than they
    /// map.
    pub(crate) fn reserve(total: u64) -> io::Result<Self> {
        const GRAIN: u64 = 2 << 20;
        let span = total.saturating_mul(8).clamp(LEAST, MOST);
        let base = map(span + GRAIN, libc::PROT_NONE)?.next_multiple_of(GRAIN);
        let bytes = map(span + GRAIN, libc::PROT_READ | libc::PROT_WRITE)?.next_multiple_of(GRAIN);
        let distance = bytes.wrapping_sub(base);
        Ok(Self { base, span, distance, free: BTreeMap::from([(base, span)]) })
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.span
    }

    /// Where the bytes of an address are.
    pub(crate) fn shadow(&self, address: u64) -> u64 {
        address.wrapping_add(self.distance)
    }

    /// Takes addresses, the first that fit.
    pub(crate) fn take(&mut self, size: u64, alignment: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(super::ALIGNMENT)?;
        let fits = |(start, length): (&u64, &u64)| {
            let aligned = start.checked_next_multiple_of(alignment)?;
            (aligned - start).checked_add(size).filter(|needed| needed <= length).map(|_| (*start, *length, aligned))
        };
        let (start, length, aligned) = self.free.iter().find_map(fits)?;
        self.cut(start, length, aligned, size);
        Some(aligned)
    }

    /// Takes these very addresses.
    pub(crate) fn take_at(&mut self, address: u64, size: u64) -> Option<()> {
        let (start, length) = self.free.range(..=address).next_back().map(|(start, length)| (*start, *length))?;
        if address.checked_add(size)? > start + length {
            return None;
        }
        self.cut(start, length, address, size);
        Some(())
    }

    fn cut(&mut self, start: u64, length: u64, from: u64, size: u64) {
        self.free.remove(&start);
        if from > start {
            self.free.insert(start, from - start);
        }
        if start + length > from + size {
            self.free.insert(from + size, start + length - from - size);
        }
    }

    /// Gives addresses back, with what is written there. `opened`: the program could touch them.
    pub(crate) fn give(&mut self, address: u64, size: u64, opened: bool) {
        let size = size.next_multiple_of(if opened { PAGE } else { super::ALIGNMENT });
        if opened {
            forget(address, size);
            protect(address, size, libc::PROT_NONE);
        } else {
            forget(self.shadow(address), size);
        }
        let (mut start, mut length) = (address, size);
        if let Some((before, its)) = self.free.range(..address).next_back().map(|(start, length)| (*start, *length))
            && before + its == address
        {
            (start, length) = (before, its + length);
        }
        if let Some(after) = self.free.remove(&(address + size)) {
            length += after;
        }
        self.free.insert(start, length);
    }

    /// Takes whole pages that the program can touch.
    pub(crate) fn take_open(&mut self, size: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(PAGE)?;
        let address = self.take(size, PAGE)?;
        protect(address, size, libc::PROT_READ | libc::PROT_WRITE).then_some(address)
    }
}
