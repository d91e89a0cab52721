//! Functions that the library has and doesn't do: they answer that this isn't supported, as on cards without the feature.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::{Entry, functions};
use crate::codes::Code;

fn refuse(me: Entry) -> Result<(), Code> {
    drop(me.driver()?);
    Err(Code::NOT_SUPPORTED)
}

functions! {
    [12010 cuMulticastCreate](_handle: *mut c_ulonglong, _properties: *const c_void) = |me| refuse(me);
    [12010 cuMulticastAddDevice](_handle: c_ulonglong, _device: c_int) = |me| refuse(me);
    [12010 cuMulticastBindMem](
        _handle: c_ulonglong, _offset: usize, _memory: c_ulonglong, _memory_offset: usize, _size: usize,
        _flags: c_ulonglong
    ) = |me| refuse(me);
    [12010 cuMulticastBindAddr](
        _handle: c_ulonglong, _offset: usize, _address: u64, _size: usize, _flags: c_ulonglong
    ) = |me| refuse(me);
    [12010 cuMulticastUnbind](_handle: c_ulonglong, _device: c_int, _offset: usize, _size: usize) = |me| refuse(me);
    [12010 cuMulticastGetGranularity](_size: *mut usize, _properties: *const c_void, _which: c_uint) = |me| refuse(me);
    [11010 cuMemMapArrayAsync, 11010 cuMemMapArrayAsync_ptsz](
        _maps: *mut c_void, _count: c_uint, _stream: usize
    ) = |me| refuse(me);
    [11020 cuMemPoolExportToShareableHandle](
        _handle: *mut c_void, _pool: usize, _kind: c_uint, _flags: c_ulonglong
    ) = |me| refuse(me);
    [11020 cuMemPoolImportFromShareableHandle](
        _pool: *mut usize, _handle: *mut c_void, _kind: c_uint, _flags: c_ulonglong
    ) = |me| refuse(me);
    [11020 cuMemPoolExportPointer](_data: *mut c_void, _address: u64) = |me| refuse(me);
    [11020 cuMemPoolImportPointer](_address: *mut u64, _pool: usize, _data: *mut c_void) = |me| refuse(me);
    [10000 cuExternalMemoryGetMappedMipmappedArray](
        _array: *mut usize, _memory: usize, _description: *const c_void
    ) = |me| refuse(me);
    [4010 cuIpcGetEventHandle](_handle: *mut c_void, _event: usize) = |me| refuse(me);
    [4010 cuIpcOpenEventHandle](_event: *mut usize, _handle: cudarc::driver::sys::CUipcEventHandle) = |me| refuse(me);
    [12080 cuMemcpyBatchAsync, 12080 cuMemcpyBatchAsync_ptsz](
        _to: *mut u64, _from: *mut u64, _sizes: *mut usize, _count: usize, _attributes: *mut c_void,
        _indices: *mut usize, _attribute_count: usize, _failed: *mut usize, _stream: usize
    ) = |me| refuse(me);
    [13000 cuMemcpyBatchAsync_v2, 13000 cuMemcpyBatchAsync_v2_ptsz](
        _to: *mut u64, _from: *mut u64, _sizes: *mut usize, _count: usize, _attributes: *mut c_void,
        _indices: *mut usize, _attribute_count: usize, _stream: usize
    ) = |me| refuse(me);
    [12040 cuDeviceGetDevResource](_device: c_int, _resource: *mut c_void, _kind: c_uint) = |me| refuse(me);
    [12040 cuDevResourceGenerateDesc](
        _description: *mut usize, _resources: *mut c_void, _count: c_uint
    ) = |me| refuse(me);
}
