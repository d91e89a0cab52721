//! Streams and their captures.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::capture::{CaptureMode, exchange_mode};
use crate::driver::context::{Stream, current};
use crate::driver::graph::NodeKind;
use crate::driver::work::{Flag, HostCall, Test, Work, Write};
use crate::driver::{Driver, driver, finish};

/// `CUstreamCaptureStatus`.
const NONE: c_uint = 0;
const ACTIVE: c_uint = 1;
const INVALIDATED: c_uint = 2;

/// Writes something of a stream.
///
/// # Safety
/// `to` is null or valid for writes.
unsafe fn get<T>(me: Entry, stream: usize, to: *mut T, what: impl FnOnce(&Stream) -> T) -> Result<(), Code> {
    let driver = me.driver()?;
    let stream = driver.stream(stream, me.per_thread)?;
    // SAFETY: the caller's.
    unsafe { write::value(to, what(driver.streams.get(stream)?)) }
}

/// # Safety
/// `stream` is null or valid for writes.
unsafe fn create(me: Entry, stream: *mut usize, flags: c_uint, priority: c_int) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let device = driver.current()?.device;
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let made = driver.add_stream(current(), device, flags, priority.clamp(-5, 0));
    // SAFETY: the caller's.
    unsafe { write::value(stream, made) }
}

/// # Safety
/// The pointers are null or valid for writes.
unsafe fn capture_info(
    driver: &Driver,
    stream: &Stream,
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut usize,
) -> Result<(), Code> {
    let capture = stream.capture.and_then(|id| Some((id, driver.captures.get(&id)?)));
    // SAFETY: the caller's.
    unsafe {
        match capture {
            None => write::value(status, NONE),
            Some((_, capture)) if capture.invalid => write::value(status, INVALIDATED),
            Some((number, capture)) => {
                write::wanted(id, number);
                write::wanted(graph, capture.graph);
                write::value(status, ACTIVE)
            }
        }
    }
}

/// Writes a value to memory, in the order of a stream.
fn write(me: Entry, stream: usize, (address, value, is_long): (u64, u64, bool)) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let stream = driver.stream(stream, me.per_thread)?;
    let address = driver.word(address, is_long)?;
    let write = Write { address, value, is_long };
    driver.submit_or_capture(stream, Work::Write(write), NodeKind::Write(write))
}

/// Makes a stream wait until memory has a value.
fn wait(me: Entry, stream: usize, (address, value, is_long): (u64, u64, bool), flags: c_uint) -> Result<(), Code> {
    const FLUSH: c_uint = 1 << 30;
    let test = match flags & !FLUSH {
        0 => Test::Reached,
        1 => Test::Equal,
        2 => Test::AnyBit,
        3 => Test::NotAll,
        _ => return Err(Code::INVALID_VALUE),
    };
    let mut driver = me.driver()?;
    let stream = driver.stream(stream, me.per_thread)?;
    let flag = Flag { address: driver.word(address, is_long)?, value, is_long, test };
    driver.submit_or_capture(stream, Work::Await(flag), NodeKind::Await(flag))
}

functions! {
    [2000 cuStreamCreate](stream: *mut usize, flags: c_uint) = |me| create(me, stream, flags, 0);
    [5050 cuStreamCreateWithPriority](stream: *mut usize, flags: c_uint, priority: c_int) = |me| {
        create(me, stream, flags, priority)
    };
    [2000 cuStreamDestroy, 4000 cuStreamDestroy_v2](stream: usize) = |me| {
        let mut driver = me.driver()?;
        driver.refuse_captured(stream)?;
        let state = driver.streams.get(stream)?;
        let context = driver.contexts.get(state.context)?;
        if context.legacy == stream || context.per_thread == stream {
            return Err(Code::INVALID_HANDLE);
        }
        driver.streams.remove(stream).map(drop)
    };
    [2000 cuStreamSynchronize, 7000 cuStreamSynchronize_ptsz](stream: usize) = |me| {
        let mut state = me.driver()?;
        let stream = state.stream(stream, me.per_thread)?;
        state.refuse_captured(stream)?;
        state.unsafe_call()?;
        state.target(stream)?;
        let Stream { context, device, .. } = *state.streams.get(stream)?;
        // The default stream waits for others.
        let turn = state.submit(stream, Work::Join)?;
        drop(state);
        finish(device, turn)?;
        let mut state = driver()?;
        state.check(context)?;
        state.settle_pools(device)
    };
    [2000 cuStreamQuery, 7000 cuStreamQuery_ptsz](stream: usize) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        driver.refuse_captured(stream)?;
        driver.unsafe_call()?;
        let (device, last) = { let stream = driver.streams.get(stream)?; (stream.device, stream.last) };
        if driver.is_done(device, last) { Ok(()) } else { Err(Code::NOT_READY) }
    };
    [3020 cuStreamWaitEvent, 7000 cuStreamWaitEvent_ptsz](stream: usize, event: usize, _flags: c_uint) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        driver.wait_event(stream, event)
    };
    [5000 cuStreamAddCallback, 7000 cuStreamAddCallback_ptsz](
        stream: usize, function: Option<unsafe extern "C" fn(usize, u32, *mut c_void)>, data: *mut c_void, flags: c_uint
    ) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        let function = function.filter(|_| flags == 0).ok_or(Code::INVALID_VALUE)?;
        driver.refuse_captured(stream)?;
        let call = HostCall::Callback { function, stream, data: data.expose_provenance() };
        driver.submit(stream, Work::Host(call)).map(drop)
    };
    [10000 cuLaunchHostFunc, 10000 cuLaunchHostFunc_ptsz](
        stream: usize, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void
    ) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let call = HostCall::Function { function, data: data.expose_provenance() };
        driver.submit_or_capture(stream, Work::Host(call), NodeKind::Host(call))
    };
    [8000 cuStreamWriteValue32, 8000 cuStreamWriteValue32_ptsz,
     11070 cuStreamWriteValue32_v2, 11070 cuStreamWriteValue32_v2_ptsz](
        stream: usize, address: u64, value: u32, _flags: c_uint
    ) = |me| write(me, stream, (address, value.into(), false));
    [9000 cuStreamWriteValue64, 9000 cuStreamWriteValue64_ptsz,
     11070 cuStreamWriteValue64_v2, 11070 cuStreamWriteValue64_v2_ptsz](
        stream: usize, address: u64, value: u64, _flags: c_uint
    ) = |me| write(me, stream, (address, value, true));
    [8000 cuStreamWaitValue32, 8000 cuStreamWaitValue32_ptsz,
     11070 cuStreamWaitValue32_v2, 11070 cuStreamWaitValue32_v2_ptsz](
        stream: usize, address: u64, value: u32, flags: c_uint
    ) = |me| wait(me, stream, (address, value.into(), false), flags);
    [9000 cuStreamWaitValue64, 9000 cuStreamWaitValue64_ptsz,
     11070 cuStreamWaitValue64_v2, 11070 cuStreamWaitValue64_v2_ptsz](
        stream: usize, address: u64, value: u64, flags: c_uint
    ) = |me| wait(me, stream, (address, value, true), flags);
    [5050 cuStreamGetPriority, 7000 cuStreamGetPriority_ptsz](stream: usize, priority: *mut c_int) = |me| {
        get(me, stream, priority, |stream| stream.priority)
    };
    [5050 cuStreamGetFlags, 7000 cuStreamGetFlags_ptsz](stream: usize, flags: *mut c_uint) = |me| {
        get(me, stream, flags, |stream| stream.flags)
    };
    [12000 cuStreamGetId, 12000 cuStreamGetId_ptsz](stream: usize, id: *mut c_ulonglong) = |me| {
        get(me, stream, id, |stream| stream.id)
    };
    [9020 cuStreamGetCtx, 9020 cuStreamGetCtx_ptsz](stream: usize, context: *mut usize) = |me| {
        get(me, stream, context, |stream| stream.context)
    };
    [12050 cuStreamGetCtx_v2, 12050 cuStreamGetCtx_v2_ptsz](
        stream: usize, context: *mut usize, green: *mut usize
    ) = |me| {
        write::wanted(green, 0);
        get(me, stream, context, |stream| stream.context)
    };
    [12080 cuStreamGetDevice, 12080 cuStreamGetDevice_ptsz](stream: usize, device: *mut c_int) = |me| {
        get(me, stream, device, |stream| c_int::try_from(stream.device).unwrap_or(0))
    };
    [6000 cuStreamAttachMemAsync, 7000 cuStreamAttachMemAsync_ptsz](
        stream: usize, _address: u64, _length: usize, _flags: c_uint
    ) = |me| me.driver()?.stream(stream, me.per_thread).map(drop);
    // The first form knew global captures alone.
    [10000 cuStreamBeginCapture, 10000 cuStreamBeginCapture_ptsz](stream: usize) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        driver.begin_capture(stream, CaptureMode::Global, None)
    };
    [10010 cuStreamBeginCapture_v2, 10010 cuStreamBeginCapture_v2_ptsz](stream: usize, mode: c_uint) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        driver.begin_capture(stream, CaptureMode::from_number(mode)?, None)
    };
    [12030 cuStreamBeginCaptureToGraph, 12030 cuStreamBeginCaptureToGraph_ptsz](
        stream: usize, graph: usize, dependencies: *const usize, _edges: *const c_void, count: usize, mode: c_uint
    ) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        driver.graphs.get(graph)?;
        let dependencies = write::list(dependencies, count)?;
        driver.begin_capture(stream, CaptureMode::from_number(mode)?, Some(graph))?;
        driver.streams.get_mut(stream)?.frontier = dependencies;
        Ok(())
    };
    [10000 cuStreamEndCapture, 10000 cuStreamEndCapture_ptsz](stream: usize, graph: *mut usize) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        let ended = driver.end_capture(stream);
        write::wanted(graph, ended.unwrap_or(0));
        ended.map(drop)
    };
    [10000 cuStreamIsCapturing, 10000 cuStreamIsCapturing_ptsz](stream: usize, status: *mut c_uint) = |me| {
        let driver = me.driver()?;
        let stream = driver.streams.get(driver.stream(stream, me.per_thread)?)?;
        let (id, graph) = (std::ptr::null_mut(), std::ptr::null_mut());
        capture_info(&driver, stream, status, id, graph)
    };
    [10010 cuStreamGetCaptureInfo, 10010 cuStreamGetCaptureInfo_ptsz](
        stream: usize, status: *mut c_uint, id: *mut u64
    ) = |me| {
        let driver = me.driver()?;
        let stream = driver.streams.get(driver.stream(stream, me.per_thread)?)?;
        capture_info(&driver, stream, status, id, std::ptr::null_mut())
    };
    // What nodes point to stays as it is until the next call about the stream.
    [11030 cuStreamGetCaptureInfo_v2, 11030 cuStreamGetCaptureInfo_v2_ptsz](
        stream: usize, status: *mut c_uint, id: *mut u64, graph: *mut usize, dependencies: *mut *const usize,
        count: *mut usize
    ) = |me| {
        let driver = me.driver()?;
        let stream = driver.streams.get(driver.stream(stream, me.per_thread)?)?;
        write::wanted(dependencies, stream.frontier.as_ptr());
        write::wanted(count, stream.frontier.len());
        capture_info(&driver, stream, status, id, graph)
    };
    [12030 cuStreamGetCaptureInfo_v3, 12030 cuStreamGetCaptureInfo_v3_ptsz](
        stream: usize, status: *mut c_uint, id: *mut u64, graph: *mut usize, dependencies: *mut *const usize,
        edges: *mut *const c_void, count: *mut usize
    ) = |me| {
        let driver = me.driver()?;
        let stream = driver.streams.get(driver.stream(stream, me.per_thread)?)?;
        write::wanted(dependencies, stream.frontier.as_ptr());
        write::wanted(edges, std::ptr::null());
        write::wanted(count, stream.frontier.len());
        capture_info(&driver, stream, status, id, graph)
    };
    [11030 cuStreamUpdateCaptureDependencies, 11030 cuStreamUpdateCaptureDependencies_ptsz](
        stream: usize, dependencies: *mut usize, count: usize, flags: c_uint
    ) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        let given = write::list(dependencies.cast_const(), count)?;
        let state = driver.streams.get_mut(stream)?;
        state.capture.ok_or(Code::ILLEGAL_STATE)?;
        if flags == 0 {
            state.frontier.extend(given);
        } else {
            state.frontier = given;
        }
        Ok(())
    };
    [10010 cuThreadExchangeStreamCaptureMode](mode: *mut c_uint) = |me| {
        drop(me.driver()?);
        let wanted = CaptureMode::from_number(write::read(mode.cast_const())?)?;
        write::value(mode, exchange_mode(wanted) as c_uint)
    };
}
