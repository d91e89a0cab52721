//! Events.

use std::ffi::c_uint;
use std::sync::atomic::Ordering::Relaxed;

use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::context::{Event, Record, current};
use crate::driver::{Driver, finish};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;

/// What an event's clock counts in, in nanoseconds.
const RESOLUTION: u64 = 500;

/// The record of an event, unless it is in a capture; `None`: it was never recorded.
fn recorded(driver: &mut Driver, event: usize) -> Result<Option<Record>, Code> {
    let event = driver.events.get(event)?;
    driver.check(event.context)?;
    let (captured, record) = (event.captured.as_ref().map(|(id, _)| *id), event.record.clone());
    if let Some(id) = captured {
        if let Some(capture) = driver.captures.get_mut(&id) {
            capture.invalid = true;
        }
        return Err(Code::CAPTURED_EVENT);
    }
    Ok(record)
}

/// When an event of the current context was reached. The manual doesn't say that another's is refused, and lists the code.
fn moment(driver: &mut Driver, event: usize) -> Result<u64, Code> {
    let Event { context, flags, .. } = driver.events.get(event)?;
    if flags & NO_TIMING != 0 {
        return Err(Code::INVALID_HANDLE);
    }
    if *context != current() {
        return Err(Code::INVALID_CONTEXT);
    }
    let record = recorded(driver, event)?.ok_or(Code::INVALID_HANDLE)?;
    if !driver.is_done(record.device, record.ticket) {
        return Err(Code::NOT_READY);
    }
    Ok(record.at.load(Relaxed) / RESOLUTION)
}

/// # Safety
/// `milliseconds` is null or valid for writes.
unsafe fn elapsed(me: Entry, milliseconds: *mut f32, start: usize, end: usize) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let (start, end) = (moment(&mut driver, start)?, moment(&mut driver, end)?);
    let ticks = end.cast_signed() - start.cast_signed();
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "what a float can say")]
    let elapsed = (ticks as f64 * RESOLUTION as f64 / 1e6) as f32;
    // SAFETY: the caller's.
    unsafe { write::value(milliseconds, elapsed) }
}

functions! {
    [2000 cuEventCreate](event: *mut usize, flags: c_uint) = |me| {
        let mut driver = me.driver()?;
        driver.current()?;
        if flags > 7 || flags & 6 == 4 {
            return Err(Code::INVALID_VALUE);
        }
        let made = driver.events.add(Event { context: current(), flags, record: None, captured: None });
        write::value(event, made)
    };
    [2000 cuEventDestroy, 4000 cuEventDestroy_v2](event: usize) = |me| me.driver()?.events.remove(event).map(drop);
    [2000 cuEventRecord, 7000 cuEventRecord_ptsz](event: usize, stream: usize) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        driver.record_event(event, stream)
    };
    [11010 cuEventRecordWithFlags, 11010 cuEventRecordWithFlags_ptsz](
        event: usize, stream: usize, _flags: c_uint
    ) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        driver.record_event(event, stream)
    };
    [2000 cuEventQuery](event: usize) = |me| {
        let mut driver = me.driver()?;
        // Any context will do: `cudaEventQuery` may be called while another device is current.
        driver.current()?;
        let record = recorded(&mut driver, event)?;
        driver.unsafe_call()?;
        match record {
            Some(record) if !driver.is_done(record.device, record.ticket) => Err(Code::NOT_READY),
            _ => Ok(()),
        }
    };
    [2000 cuEventSynchronize](event: usize) = |me| {
        let mut driver = me.driver()?;
        let record = recorded(&mut driver, event)?;
        driver.unsafe_call()?;
        drop(driver);
        let Some(record) = record else { return Ok(()) };
        finish(record.device, record.ticket)?;
        let mut driver = crate::driver::driver()?;
        recorded(&mut driver, event)?;
        driver.settle_pools(record.device)
    };
    [2000 cuEventElapsedTime, 12080 cuEventElapsedTime_v2](milliseconds: *mut f32, start: usize, end: usize) = |me| {
        elapsed(me, milliseconds, start, end)
    };
}
