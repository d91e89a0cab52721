//! Addresses, memory and mappings, each with its own life.

use driver_api::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle,
};
use driver_api::{Cuda, HOST, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, on_device, pinned};

use crate::program::{GIB, MIB, Site};
use std::ptr;

const PIECE: usize = (4 * MIB) as usize;

/// Exportable memory of card 0.
const PINNED: CUmemAllocationProp = pinned(on_device(0), DESCRIPTOR);
const DESCRIPTOR: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

const READ_WRITE: CUmemAccessDesc =
    CUmemAccessDesc { location: on_device(0), flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

fn create(cuda: &Cuda) -> CUmemGenericAllocationHandle {
    cuda.get(|cuda, to| cuda.cuMemCreate(to, PIECE, &PINNED, 0))
}

#[test]
fn memory_lives_until_its_handles_and_mappings_are_gone() {
    let cuda = Site::small().program();
    let used = || GIB - cuda.info().0;
    let base = cuda.get(|cuda, to| cuda.cuMemAddressReserve(to, 4 * PIECE, 0, 0, 0));
    assert_eq!(used(), 0, "addresses are free");
    let handle = create(&cuda);
    assert_eq!(used(), PIECE as u64);
    assert_eq!(cuda.cuMemMap(base, PIECE, 0, handle, 0), SUCCESS);
    assert_eq!(cuda.cuMemMap(base, PIECE, 0, handle, 0), INVALID_VALUE, "mapped already");
    assert_eq!(cuda.cuMemMap(base + 2 * PIECE as u64, PIECE, 0, handle, 0), SUCCESS, "twice at two places");
    assert_eq!(cuda.cuMemRelease(handle), SUCCESS);
    assert_eq!(cuda.cuMemRelease(handle), INVALID_VALUE);
    assert_eq!(used(), PIECE as u64, "the mappings hold it");
    let again =
        cuda.get(|cuda, to| cuda.cuMemRetainAllocationHandle(to, ptr::with_exposed_provenance_mut(base as usize)));
    assert_eq!(again, handle);
    assert_eq!(cuda.cuMemAddressFree(base, 4 * PIECE), INVALID_VALUE, "something is mapped there");
    assert_eq!(cuda.cuMemUnmap(base, PIECE), SUCCESS);
    assert_eq!(cuda.cuMemUnmap(base + 2 * PIECE as u64, PIECE), SUCCESS);
    assert_eq!(used(), PIECE as u64, "the retained handle holds it");
    assert_eq!(cuda.cuMemRelease(again), SUCCESS);
    assert_eq!(used(), 0);
    assert_eq!(cuda.cuMemAddressFree(base, 4 * PIECE), SUCCESS);
}

#[test]
fn mapped_memory_can_be_used_once_it_may_be() {
    let cuda = Site::small().program();
    let base = cuda.get(|cuda, to| cuda.cuMemAddressReserve(to, 2 * PIECE, 0, 0, 0));
    let handles = [create(&cuda), create(&cuda)];
    for (handle, place) in handles.into_iter().zip([base, base + PIECE as u64]) {
        assert_eq!(cuda.cuMemMap(place, PIECE, 0, handle, 0), SUCCESS);
    }
    assert_eq!(cuda.cuMemsetD8_v2(base, 1, 2 * PIECE), INVALID_VALUE, "no access yet");
    assert_eq!(cuda.cuMemSetAccess(base, 2 * PIECE, &READ_WRITE, 1), SUCCESS);
    assert_eq!(cuda.cuMemsetD8_v2(base, 1, 2 * PIECE), SUCCESS, "over both");
    assert_eq!(cuda.cuMemUnmap(base, 2 * PIECE), SUCCESS);
    assert_eq!(cuda.cuMemsetD8_v2(base, 1, 1), INVALID_VALUE);
}

#[test]
fn sizes_are_multiples_and_limits_hold() {
    let cuda = Site::small().program();
    let mut handle = 0;
    assert_eq!(cuda.cuMemCreate(&raw mut handle, 1000, &PINNED, 0), INVALID_VALUE);
    assert_eq!(cuda.cuMemCreate(&raw mut handle, (2 * GIB) as usize, &PINNED, 0), OUT_OF_MEMORY);
    let host = pinned(HOST, DESCRIPTOR);
    assert_eq!(cuda.cuMemCreate(&raw mut handle, (2 * GIB) as usize, &raw const host, 0), SUCCESS, "on the host");
    assert_eq!(cuda.info().0, GIB);
}

#[test]
fn an_exported_handle_is_imported_without_a_charge() {
    let cuda = Site::small().program();
    let handle = create(&cuda);
    let descriptor = cuda.get::<i32>(|cuda, to| cuda.cuMemExportToShareableHandle(to.cast(), handle, DESCRIPTOR, 0));
    let by_number = ptr::without_provenance_mut(descriptor as usize);
    let imported = cuda.get(|cuda, to| cuda.cuMemImportFromShareableHandle(to, by_number, DESCRIPTOR));
    assert_ne!(imported, handle);
    assert_eq!(GIB - cuda.info().0, PIECE as u64);
    assert_eq!(cuda.cuMemRelease(imported), SUCCESS);
    assert_eq!(GIB - cuda.info().0, PIECE as u64);
    // SAFETY: the descriptor is this test's.
    unsafe { libc::close(descriptor) };
}
