//! Libraries, which are modules of no context, the linker, and green contexts.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::context::{release, retain};
use super::{functions, module, write};
use crate::codes::Code;
use crate::driver::context::current;

/// What the linker makes: any bytes are an image.
static IMAGE: [u8; 16] = *b"\x7fELF fake-cuda\0\0";

/// The linker and its state, of which there is none.
const LINKER: usize = 0x4c49_4e4b;

functions! {
    [12000 cuLibraryLoadData](
        library: *mut usize, code: *const c_void, _options: *mut c_uint, _values: *mut *mut c_void, _count: c_uint,
        _library_options: *mut c_uint, _library_values: *mut *mut c_void, _library_count: c_uint
    ) = |me| {
        let mut driver = me.driver()?;
        if code.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        write::value(library, driver.load(0, true))
    };
    [12000 cuLibraryLoadFromFile](
        library: *mut usize, path: *const c_char, _options: *mut c_uint, _values: *mut *mut c_void, _count: c_uint,
        _library_options: *mut c_uint, _library_values: *mut *mut c_void, _library_count: c_uint
    ) = |me| {
        let path = write::name(path)?;
        if !std::path::Path::new(&*path.to_string_lossy()).is_file() {
            return Err(Code::FILE_NOT_FOUND);
        }
        let loaded = me.driver()?.load(0, true);
        write::value(library, loaded)
    };
    [12000 cuLibraryUnload](library: usize) = |me| me.driver()?.unload(library);
    [12000 cuLibraryGetKernel](kernel: *mut usize, library: usize, name: *const c_char) = |me| {
        let found = me.driver()?.function(library, write::name(name)?)?;
        write::value(kernel, found)
    };
    [12000 cuLibraryGetModule](module: *mut usize, library: usize) = |me| {
        let driver = me.driver()?;
        driver.current()?;
        driver.modules.get(library)?;
        write::value(module, library)
    };
    [12000 cuLibraryGetGlobal, 12000 cuLibraryGetManaged](
        address: *mut u64, bytes: *mut usize, library: usize, name: *const c_char
    ) = |me| {
        write::name(name)?;
        let (base, size) = module::global(&mut *me.driver()?, library)?;
        write::wanted(address, base);
        write::wanted(bytes, size);
        Ok(())
    };
    // A kernel is its function.
    [12000 cuKernelGetFunction](function: *mut usize, kernel: usize) = |me| {
        me.driver()?.functions.get(kernel)?;
        write::value(function, kernel)
    };
    [12000 cuKernelGetAttribute](value: *mut c_int, number: c_uint, kernel: usize, device: c_int) = |me| {
        let driver = me.driver()?;
        driver.device(device)?;
        let set = driver.functions.get(kernel)?.attributes.get(&number).copied();
        write::value(value, set.map_or_else(|| module::attribute(number), Ok)?)
    };
    [12000 cuKernelSetAttribute](number: c_uint, value: c_int, kernel: usize, device: c_int) = |me| {
        module::attribute(number)?;
        let mut driver = me.driver()?;
        driver.device(device)?;
        driver.functions.get_mut(kernel)?.attributes.insert(number, value);
        Ok(())
    };
    [12030 cuKernelGetName](name: *mut *const c_char, kernel: usize) = |me| {
        write::value(name, me.driver()?.functions.get(kernel)?.name.as_ptr())
    };
    [5050 cuLinkCreate, 6050 cuLinkCreate_v2](
        _count: c_uint, _options: *mut c_uint, _values: *mut *mut c_void, state: *mut usize
    ) = |me| {
        me.driver()?.current()?;
        write::value(state, LINKER)
    };
    [5050 cuLinkAddData, 6050 cuLinkAddData_v2](
        state: usize, _kind: c_uint, data: *mut c_void, _size: usize, _name: *const c_char, _count: c_uint,
        _options: *mut c_uint, _values: *mut *mut c_void
    ) = |me| {
        drop(me.driver()?);
        if state == LINKER && !data.is_null() { Ok(()) } else { Err(Code::INVALID_VALUE) }
    };
    [5050 cuLinkComplete](state: usize, image: *mut *mut c_void, size: *mut usize) = |me| {
        drop(me.driver()?);
        if state != LINKER {
            return Err(Code::INVALID_VALUE);
        }
        write::value(image, IMAGE.as_ptr().cast_mut().cast())?;
        write::wanted(size, IMAGE.len());
        Ok(())
    };
    [5050 cuLinkDestroy](state: usize) = |me| {
        drop(me.driver()?);
        if state == LINKER { Ok(()) } else { Err(Code::INVALID_VALUE) }
    };
    // A green context costs what a context costs, and its multiprocessors are all. It keeps the card's primary context alive,
    // and what was allocated in it is left to that.
    [12040 cuGreenCtxCreate](context: *mut usize, _resources: usize, device: c_int, _flags: c_uint) = |me| {
        let mut driver = me.unsafe_driver()?;
        retain(&mut driver, device)?;
        let made = driver.create_context(device, 0);
        if made.is_err() {
            release(&mut driver, device, false)?;
        }
        write::value(context, made?)
    };
    [12040 cuGreenCtxDestroy](context: usize) = |me| {
        let mut driver = me.unsafe_driver()?;
        let device = driver.contexts.get(context).map_err(|_unknown| Code::INVALID_CONTEXT)?.device;
        let primary = driver.devices[device].primary.context.ok_or(Code::INVALID_CONTEXT)?;
        driver.leave(context, primary)?;
        release(&mut driver, c_int::try_from(device).map_err(|_large| Code::INVALID_DEVICE)?, false)
    };
    [12040 cuCtxFromGreenCtx](context: *mut usize, green: usize) = |me| {
        me.driver()?.contexts.get(green)?;
        write::value(context, green)
    };
    [12050 cuGreenCtxStreamCreate](stream: *mut usize, green: usize, flags: c_uint, priority: c_int) = |me| {
        let mut driver = me.driver()?;
        let device = driver.contexts.get(green)?.device;
        let made = driver.add_stream(green, device, flags, priority);
        write::value(stream, made)
    };
    [12050 cuCtxRecordEvent](context: usize, event: usize) = |me| {
        let mut driver = me.driver()?;
        let context = if context == 0 { current() } else { context };
        let stream = driver.contexts.get(context)?.legacy;
        driver.record_event(event, stream)
    };
}
