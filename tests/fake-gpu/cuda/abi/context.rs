//! Contexts.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::context::{Context, current, stack};
use crate::driver::{Driver, finish_all};

/// `CUlimit`s and what they are at first: stack, printf buffer, heap, and so on.
const LIMITS: [usize; 8] = [1 << 10, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0];

/// Makes a context and the current one of it.
///
/// # Safety
/// `context` is null or valid for writes.
unsafe fn create(me: Entry, context: *mut usize, flags: c_uint, device: c_int) -> Result<(), Code> {
    let made = me.unsafe_driver()?.create_context(device, flags)?;
    stack(|stack| stack.push(made));
    // SAFETY: the caller's.
    unsafe { write::value(context, made) }
}

/// Retains a card's primary context.
pub(super) fn retain(driver: &mut Driver, ordinal: c_int) -> Result<usize, Code> {
    let primary = &driver.device(ordinal)?.primary;
    let (context, flags, users) = (primary.context, primary.flags, primary.users);
    let context = match context {
        Some(context) if users > 0 => context,
        _ => driver.create_context(ordinal, flags)?,
    };
    let primary = &mut driver.device_mut(ordinal)?.primary;
    (primary.context, primary.users) = (Some(context), users + 1);
    Ok(context)
}

/// Releases it; the last to do so ends it.
pub(super) fn release(driver: &mut Driver, ordinal: c_int, all: bool) -> Result<(), Code> {
    let primary = &mut driver.device_mut(ordinal)?.primary;
    if primary.users == 0 {
        return if all { Ok(()) } else { Err(Code::INVALID_CONTEXT) };
    }
    primary.users = if all { 0 } else { primary.users - 1 };
    match primary.context.filter(|_| primary.users == 0) {
        Some(context) => {
            primary.context = None;
            driver.destroy_context(context)
        }
        None => Ok(()),
    }
}

fn destroy(driver: &mut Driver, context: usize) -> Result<(), Code> {
    if driver.devices.iter().any(|device| device.primary.context == Some(context)) {
        return Err(Code::INVALID_CONTEXT);
    }
    driver.destroy_context(context)?;
    stack(|stack| {
        if stack.last() == Some(&context) {
            stack.pop();
        }
    });
    Ok(())
}

/// Waits for all work of a context, which is that of its card.
fn synchronise(me: Entry, context: Option<usize>) -> Result<(), Code> {
    let mut driver = me.unsafe_driver()?;
    let context = context.unwrap_or_else(current);
    let device = driver.contexts.get(context).map_err(|_unknown| Code::INVALID_CONTEXT)?.device;
    let capturing = driver.streams.iter().find(|(_, stream)| stream.context == context && stream.capture.is_some());
    if let Some(stream) = capturing.map(|(handle, _)| handle) {
        driver.refuse_captured(stream)?;
    }
    let last = driver.devices[device].engine.last();
    drop(driver);
    finish_all(device, last)?;
    let mut driver = crate::driver::driver()?;
    driver.check(context)?;
    driver.settle_pools(device)
}

functions! {
    [2000 cuCtxCreate, 3020 cuCtxCreate_v2](context: *mut usize, flags: c_uint, device: c_int) = |me| {
        create(me, context, flags, device)
    };
    [11040 cuCtxCreate_v3](
        context: *mut usize, _affinities: *mut c_void, _count: c_int, flags: c_uint, device: c_int
    ) = |me| create(me, context, flags, device);
    [12050 cuCtxCreate_v4](context: *mut usize, _parameters: *mut c_void, flags: c_uint, device: c_int) = |me| {
        create(me, context, flags, device)
    };
    [2000 cuCtxDestroy, 4000 cuCtxDestroy_v2](context: usize) = |me| destroy(&mut *me.unsafe_driver()?, context);
    [2000 cuCtxAttach](context: *mut usize, _flags: c_uint) = |me| {
        let mut driver = me.driver()?;
        driver.contexts.get_mut(current()).map_err(|_none| Code::INVALID_CONTEXT)?.users += 1;
        write::value(context, current())
    };
    [2000 cuCtxDetach](context: usize) = |me| {
        let mut driver = me.unsafe_driver()?;
        match driver.contexts.get_mut(context).map_err(|_unknown| Code::INVALID_CONTEXT)? {
            Context { users: 0, .. } => destroy(&mut driver, context),
            Context { users, .. } => {
                *users -= 1;
                Ok(())
            }
        }
    };
    [7000 cuDevicePrimaryCtxRetain](context: *mut usize, device: c_int) = |me| {
        let retained = retain(&mut *me.driver()?, device)?;
        write::value(context, retained)
    };
    [7000 cuDevicePrimaryCtxRelease, 11000 cuDevicePrimaryCtxRelease_v2](device: c_int) = |me| {
        release(&mut *me.driver()?, device, false)
    };
    [7000 cuDevicePrimaryCtxReset, 11000 cuDevicePrimaryCtxReset_v2](device: c_int) = |me| {
        release(&mut *me.driver()?, device, true)
    };
    [7000 cuDevicePrimaryCtxGetState](device: c_int, flags: *mut c_uint, active: *mut c_int) = |me| {
        let driver = me.driver()?;
        let primary = &driver.device(device)?.primary;
        write::wanted(flags, primary.flags);
        write::wanted(active, c_int::from(primary.users > 0));
        Ok(())
    };
    [7000 cuDevicePrimaryCtxSetFlags, 11000 cuDevicePrimaryCtxSetFlags_v2](device: c_int, flags: c_uint) = |me| {
        me.driver()?.device_mut(device)?.primary.flags = flags;
        Ok(())
    };
    [2000 cuCtxPushCurrent, 4000 cuCtxPushCurrent_v2](context: usize) = |me| {
        me.driver()?.contexts.get(context).map_err(|_unknown| Code::INVALID_CONTEXT)?;
        stack(|stack| stack.push(context));
        Ok(())
    };
    [2000 cuCtxPopCurrent, 4000 cuCtxPopCurrent_v2](context: *mut usize) = |me| {
        drop(me.driver()?);
        let popped = stack(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
        write::wanted(context, popped);
        Ok(())
    };
    [4000 cuCtxSetCurrent](context: usize) = |me| {
        let driver = me.driver()?;
        if context != 0 {
            driver.contexts.get(context).map_err(|_unknown| Code::INVALID_CONTEXT)?;
        }
        stack(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    };
    [4000 cuCtxGetCurrent](context: *mut usize) = |me| {
        drop(me.driver()?);
        write::value(context, current())
    };
    [2000 cuCtxGetDevice](device: *mut c_int) = |me| {
        let index = me.driver()?.current()?.device;
        write::value(device, c_int::try_from(index).unwrap_or(0))
    };
    [13000 cuCtxGetDevice_v2](device: *mut c_int, context: usize) = |me| {
        let driver = me.driver()?;
        let context = if context == 0 { driver.current() } else { driver.contexts.get(context) };
        let index = context.map_err(|_unknown| Code::INVALID_CONTEXT)?.device;
        write::value(device, c_int::try_from(index).unwrap_or(0))
    };
    [7000 cuCtxGetFlags](flags: *mut c_uint) = |me| write::value(flags, me.driver()?.current()?.flags);
    [12010 cuCtxSetFlags](flags: c_uint) = |me| {
        let mut driver = me.driver()?;
        driver.current()?;
        driver.contexts.get_mut(current())?.flags = flags;
        Ok(())
    };
    [12000 cuCtxGetId](context: usize, id: *mut c_ulonglong) = |me| {
        let driver = me.driver()?;
        let context = if context == 0 { driver.current() } else { driver.contexts.get(context) };
        write::value(id, context.map_err(|_unknown| Code::CONTEXT_IS_DESTROYED)?.id)
    };
    [3020 cuCtxGetApiVersion](context: usize, version: *mut c_uint) = |me| {
        let driver = me.driver()?;
        if context != 0 {
            driver.contexts.get(context).map_err(|_unknown| Code::INVALID_CONTEXT)?;
        }
        write::value(version, 3020)
    };
    [3010 cuCtxGetLimit](value: *mut usize, limit: c_uint) = |me| {
        let driver = me.driver()?;
        let set = driver.current()?.limits.get(&limit).copied();
        let known = set.or_else(|| LIMITS.get(limit as usize).copied()).ok_or(Code::INVALID_VALUE)?;
        write::value(value, known)
    };
    [3010 cuCtxSetLimit](limit: c_uint, value: usize) = |me| {
        let mut driver = me.driver()?;
        driver.current()?;
        if limit as usize >= LIMITS.len() {
            return Err(Code::INVALID_VALUE);
        }
        driver.contexts.get_mut(current())?.limits.insert(limit, value);
        Ok(())
    };
    [3020 cuCtxGetCacheConfig](config: *mut c_uint) = |me| {
        me.driver()?.current()?;
        write::value(config, 0)
    };
    [3020 cuCtxSetCacheConfig](_config: c_uint) = |me| me.driver()?.current().map(|_| ());
    [4020 cuCtxGetSharedMemConfig](config: *mut c_uint) = |me| {
        me.driver()?.current()?;
        write::value(config, 1)
    };
    [4020 cuCtxSetSharedMemConfig](_config: c_uint) = |me| me.driver()?.current().map(|_| ());
    [5050 cuCtxGetStreamPriorityRange](least: *mut c_int, greatest: *mut c_int) = |me| {
        me.driver()?.current()?;
        write::wanted(least, 0);
        write::wanted(greatest, -5);
        Ok(())
    };
    [2000 cuCtxSynchronize]() = |me| synchronise(me, None);
    [13000 cuCtxSynchronize_v2](context: usize) = |me| synchronise(me, (context != 0).then_some(context));
    [4000 cuCtxEnablePeerAccess](peer: usize, _flags: c_uint) = |me| {
        me.driver()?.contexts.get(peer).map(|_| ()).map_err(|_unknown| Code::INVALID_CONTEXT)
    };
    [4000 cuCtxDisablePeerAccess](peer: usize) = |me| {
        me.driver()?.contexts.get(peer).map(|_| ()).map_err(|_unknown| Code::INVALID_CONTEXT)
    };
}
