//! Modules and functions. Any bytes are an image, and every image has a function of any name.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::Driver;
use crate::driver::context::current;
use crate::driver::memory::Kind;

/// Bytes of a variable, whatever its name.
const GLOBAL: usize = 4096;

/// # Safety
/// `module` is null or valid for writes.
unsafe fn load(me: Entry, module: *mut usize, image: *const c_void) -> Result<(), Code> {
    let mut driver = me.driver()?;
    driver.current()?;
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let loaded = driver.load(current(), false);
    // SAFETY: the caller's.
    unsafe { write::value(module, loaded) }
}

/// A variable of a module, made when it is first asked for.
pub(super) fn global(driver: &mut Driver, module: usize) -> Result<(u64, usize), Code> {
    driver.modules.get(module)?;
    let kind = Kind::Global { module };
    let known = driver.memory.blocks().find(|(_, block)| block.kind == kind).map(|(base, _)| base);
    let address = known.map_or_else(|| driver.allocate(GLOBAL as u64, kind.clone()), Ok)?;
    Ok((address, GLOBAL))
}

/// `CUfunction_attribute`: what a function answers that nobody has set.
pub(super) fn attribute(number: c_uint) -> Result<c_int, Code> {
    match number {
        0 => Ok(1024),   // threads per block
        4 => Ok(32),     // registers
        5 | 6 => Ok(90), // PTX and binary version
        1..=15 => Ok(0),
        _ => Err(Code::INVALID_VALUE),
    }
}

functions! {
    [2000 cuModuleLoad](module: *mut usize, path: *const c_char) = |me| {
        let path = write::name(path)?;
        if !std::path::Path::new(&*path.to_string_lossy()).is_file() {
            return Err(Code::FILE_NOT_FOUND);
        }
        load(me, module, path.as_ptr().cast())
    };
    [2000 cuModuleLoadData, 2000 cuModuleLoadFatBinary](module: *mut usize, image: *const c_void) = |me| {
        load(me, module, image)
    };
    [2010 cuModuleLoadDataEx](
        module: *mut usize, image: *const c_void, _count: c_uint, _options: *mut c_uint, _values: *mut *mut c_void
    ) = |me| load(me, module, image);
    [2000 cuModuleUnload](module: usize) = |me| {
        let mut driver = me.driver()?;
        if driver.modules.get(module)?.library {
            return Err(Code::NOT_PERMITTED);
        }
        driver.unload(module)
    };
    [11070 cuModuleGetLoadingMode](mode: *mut c_uint) = |me| {
        me.check()?;
        write::value(mode, 2)
    };
    [2000 cuModuleGetFunction](function: *mut usize, module: usize, name: *const c_char) = |me| {
        let found = me.driver()?.function(module, write::name(name)?)?;
        write::value(function, found)
    };
    [2000 cuModuleGetGlobal](address: *mut c_uint, bytes: *mut c_uint, module: usize, _name: *const c_char) = |me| {
        // The addresses of a 64-bit program don't fit.
        me.driver()?.modules.get(module)?;
        write::wanted(address, 0);
        write::wanted(bytes, 0);
        Err(Code::NOT_SUPPORTED)
    };
    [3020 cuModuleGetGlobal_v2](address: *mut u64, bytes: *mut usize, module: usize, name: *const c_char) = |me| {
        write::name(name)?;
        let (base, size) = global(&mut *me.driver()?, module)?;
        write::wanted(address, base);
        write::wanted(bytes, size);
        Ok(())
    };
    [12040 cuModuleGetFunctionCount](count: *mut c_uint, module: usize) = |me| {
        let functions = me.driver()?.modules.get(module)?.functions.len();
        write::value(count, c_uint::try_from(functions).unwrap_or(c_uint::MAX))
    };
    [2020 cuFuncGetAttribute](value: *mut c_int, number: c_uint, function: usize) = |me| {
        let driver = me.driver()?;
        let set = driver.functions.get(function)?.attributes.get(&number).copied();
        write::value(value, set.map_or_else(|| attribute(number), Ok)?)
    };
    [9000 cuFuncSetAttribute](function: usize, number: c_uint, value: c_int) = |me| {
        attribute(number)?;
        me.driver()?.functions.get_mut(function)?.attributes.insert(number, value);
        Ok(())
    };
    [3000 cuFuncSetCacheConfig](function: usize, _config: c_uint) = |me| {
        me.driver()?.functions.get(function).map(|_| ())
    };
    [4020 cuFuncSetSharedMemConfig](function: usize, _config: c_uint) = |me| {
        me.driver()?.functions.get(function).map(|_| ())
    };
    [2000 cuFuncSetBlockShape](function: usize, _x: c_int, _y: c_int, _z: c_int) = |me| {
        me.driver()?.functions.get(function).map(|_| ())
    };
    [2000 cuFuncSetSharedSize](function: usize, _bytes: c_uint) = |me| {
        me.driver()?.functions.get(function).map(|_| ())
    };
    [2000 cuParamSetSize](function: usize, _bytes: c_uint) = |me| me.driver()?.functions.get(function).map(|_| ());
    [2000 cuParamSetv](function: usize, _offset: c_int, _value: *mut c_void, _bytes: c_uint) = |me| {
        me.driver()?.functions.get(function).map(|_| ())
    };
    [11000 cuFuncGetModule](module: *mut usize, function: usize) = |me| {
        write::value(module, me.driver()?.functions.get(function)?.module)
    };
    [12030 cuFuncGetName](name: *mut *const c_char, function: usize) = |me| {
        // The text lives in the function and moves with nothing: `CString` keeps it on the heap.
        write::value(name, CStr::as_ptr(&me.driver()?.functions.get(function)?.name))
    };
    [12040 cuFuncIsLoaded](state: *mut c_uint, function: usize) = |me| {
        me.driver()?.functions.get(function)?;
        write::value(state, 1)
    };
    [12040 cuFuncLoad](function: usize) = |me| me.driver()?.functions.get(function).map(|_| ());
    [6050 cuOccupancyMaxActiveBlocksPerMultiprocessor](
        blocks: *mut c_int, function: usize, size: c_int, _shared: usize
    ) = |me| {
        me.driver()?.functions.get(function)?;
        write::value(blocks, if (1..=1024).contains(&size) { (2048 / size).min(32) } else { 0 })
    };
    [7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags](
        blocks: *mut c_int, function: usize, size: c_int, _shared: usize, _flags: c_uint
    ) = |me| {
        me.driver()?.functions.get(function)?;
        write::value(blocks, if (1..=1024).contains(&size) { (2048 / size).min(32) } else { 0 })
    };
    [6050 cuOccupancyMaxPotentialBlockSize](
        grid: *mut c_int, size: *mut c_int, function: usize, _shared_of: *const c_void, _shared: usize, limit: c_int
    ) = |me| {
        let driver = me.driver()?;
        driver.functions.get(function)?;
        let multiprocessors = driver.devices[driver.current()?.device].card.multiprocessors;
        write::wanted(grid, multiprocessors * 2);
        write::wanted(size, if limit > 0 { limit.min(1024) } else { 1024 });
        Ok(())
    };
}
