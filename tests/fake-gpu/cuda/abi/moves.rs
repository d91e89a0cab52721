//! Moving bytes. What a call moves is settled with the lock held, and moved without it.

use std::ptr;
use std::sync::MutexGuard;

use super::types::{Copy2d, Copy3d, End2d, End3d};
use super::{Entry, write};
use crate::codes::Code;
use crate::driver::capture::Target;
use crate::driver::graph::{Copy, Fill, NodeKind};
use crate::driver::work::{Run, Work};
use crate::driver::{Driver, driver, finish, make_room};

/// Most bytes that lie in one row: more are no size but a mistake, as negative numbers are.
const LONGEST: u64 = 1 << 46;

/// Copies or fills, in the default stream and with the program waiting.
pub(super) fn now(me: Entry, describe: impl Fn(&Driver) -> Result<NodeKind, Code>) -> Result<(), Code> {
    let mut state = me.unsafe_driver()?;
    let (stream, device) = (state.stream(0, me.per_thread)?, state.current()?.device);
    if let Target::Captured(_) = state.target(stream)? {
        return state.refuse_captured(stream);
    }
    let turn = state.submit(stream, Work::Join)?;
    drop(state);
    finish(device, turn)?;
    let state = driver()?;
    let kind = describe(&state)?;
    let moves = resolve(&state, &kind)?;
    drop(state);
    // SAFETY: the program says that what it named can be read and written.
    unsafe { perform(&moves) };
    take_time(me.unsafe_driver()?, stream, &kind)
}

/// Copies or fills in a stream. The bytes move at once: nothing that runs on the card could tell.
pub(super) fn in_stream(
    me: Entry,
    stream: usize,
    describe: impl Fn(&Driver) -> Result<NodeKind, Code>,
) -> Result<(), Code> {
    let mut state = me.driver()?;
    let stream = state.stream(stream, me.per_thread)?;
    let kind = describe(&state)?;
    let moves = resolve(&state, &kind)?;
    match state.target(stream)? {
        Target::Captured(id) => return state.capture(id, stream, kind).map(|_node| ()),
        Target::Live => {}
    }
    drop(state);
    // SAFETY: as above.
    unsafe { perform(&moves) };
    take_time(me.driver()?, stream, &kind)
}

/// The card is busy with what was moved already; a program that doesn't wait doesn't notice.
fn take_time(state: MutexGuard<'static, Driver>, stream: usize, kind: &NodeKind) -> Result<(), Code> {
    let lasts = state.move_time(kind);
    if lasts == 0 {
        return Ok(());
    }
    make_room(state, stream)?.submit(stream, Work::Run(Run { lasts, ..Run::default() })).map(|_ticket| ())
}

/// What the launch of a graph moves.
pub(super) fn of_graph(state: MutexGuard<'_, Driver>, kinds: &[NodeKind]) -> Result<(), Code> {
    let moves = kinds.iter().map(|kind| resolve(&state, kind)).collect::<Result<Vec<_>, _>>()?;
    drop(state);
    for moves in moves {
        // SAFETY: as above.
        unsafe { perform(&moves) };
    }
    Ok(())
}

/// Where the bytes really are.
fn resolve(driver: &Driver, kind: &NodeKind) -> Result<NodeKind, Code> {
    match kind {
        NodeKind::Copy(rows) => {
            let row = |row: &Copy| {
                let (to, from) = (driver.bytes(row.to, row.length)?, driver.bytes(row.from, row.length)?);
                if to == 0 || from == 0 || row.length > LONGEST {
                    return Err(Code::INVALID_VALUE);
                }
                Ok(Copy { to, from, length: row.length })
            };
            let rows = rows.iter().filter(|row| row.length > 0).map(row);
            Ok(NodeKind::Copy(rows.collect::<Result<_, _>>()?))
        }
        NodeKind::Fill(fill) => {
            let row = fill.width.checked_mul(fill.element.into()).filter(|row| *row <= LONGEST);
            let row = row.ok_or(Code::INVALID_VALUE)?;
            let before_last = fill.pitch.checked_mul(fill.height.saturating_sub(1));
            let length = before_last.and_then(|bytes| bytes.checked_add(row)).ok_or(Code::INVALID_VALUE)?;
            if fill.height > 1 && fill.pitch < row || !matches!(fill.element, 1 | 2 | 4) {
                return Err(Code::INVALID_VALUE);
            }
            let height = if row == 0 { 0 } else { fill.height };
            Ok(NodeKind::Fill(Fill { to: driver.bytes(fill.to, length)?, height, ..*fill }))
        }
        other => Ok(other.clone()),
    }
}

/// # Safety
/// What is named can be read and written, as the program promised.
unsafe fn perform(moves: &NodeKind) {
    match moves {
        NodeKind::Copy(rows) => {
            for row in rows {
                let from: *const u8 = ptr::with_exposed_provenance(row.from as usize);
                let to: *mut u8 = ptr::with_exposed_provenance_mut(row.to as usize);
                // SAFETY: the caller's.
                unsafe { ptr::copy(from, to, row.length as usize) };
            }
        }
        NodeKind::Fill(fill) => {
            let bytes = fill.value.to_le_bytes();
            let pattern = bytes.get(..fill.element as usize).unwrap_or(&bytes);
            for row in 0..fill.height {
                let start: *mut u8 = ptr::with_exposed_provenance_mut((fill.to + row * fill.pitch) as usize);
                let length = fill.width as usize * pattern.len();
                // SAFETY: the caller's; of the row, what is filled is copied behind itself.
                unsafe {
                    ptr::copy_nonoverlapping(pattern.as_ptr(), start, pattern.len());
                    let mut filled = pattern.len();
                    while filled < length {
                        let more = filled.min(length - filled);
                        ptr::copy_nonoverlapping(start, start.add(filled), more);
                        filled += more;
                    }
                }
            }
        }
        _ => {}
    }
}

/// One row.
pub(super) fn row(to: u64, from: u64, length: usize) -> NodeKind {
    NodeKind::Copy(vec![Copy { to, from, length: length as u64 }])
}

/// Where an array's bytes begin, and how far its rows are apart.
pub(super) fn array(driver: &Driver, handle: usize) -> Result<(u64, u64), Code> {
    let array = driver.arrays.get(handle)?;
    let row = array.shape.element().map(|element| element * array.shape.width as u64);
    Ok((array.address, row.ok_or(Code::INVALID_VALUE)?))
}

/// The rows of a copy in three dimensions.
///
/// # Safety
/// `copy` is null or valid for reads.
pub(super) unsafe fn rows_3d(driver: &Driver, copy: *const Copy3d) -> Result<NodeKind, Code> {
    // SAFETY: the caller's.
    let copy = unsafe { write::read(copy) }?;
    let place = |end: &End3d| {
        let (base, pitch) = match end.kind {
            1 => (end.host as u64, end.pitch as u64),
            2 | 4 => (end.device, end.pitch as u64),
            3 => array(driver, end.array)?,
            _ => return Err(Code::INVALID_VALUE),
        };
        let height = if end.height == 0 { copy.height } else { end.height };
        Ok((base, pitch, pitch.wrapping_mul(height as u64)))
    };
    let ((from, from_pitch, from_slice), (to, to_pitch, to_slice)) = (place(&copy.from)?, place(&copy.to)?);
    if (copy.depth as u64).saturating_mul(copy.height as u64) > 1 << 24 {
        return Err(Code::INVALID_VALUE);
    }
    let at = |base: u64, end: &End3d, (pitch, slice): (u64, u64), (y, z): (usize, usize)| {
        let line = ((end.y + y) as u64).wrapping_mul(pitch);
        base.wrapping_add(line).wrapping_add(((end.z + z) as u64).wrapping_mul(slice)).wrapping_add(end.x as u64)
    };
    let lines = (0..copy.depth).flat_map(|z| (0..copy.height).map(move |y| (y, z)));
    let rows = lines.map(|line| Copy {
        to: at(to, &copy.to, (to_pitch, to_slice), line),
        from: at(from, &copy.from, (from_pitch, from_slice), line),
        length: copy.width as u64,
    });
    Ok(NodeKind::Copy(rows.collect()))
}

/// The rows of a copy in two dimensions.
///
/// # Safety
/// `copy` is null or valid for reads.
pub(super) unsafe fn rows_2d(driver: &Driver, copy: *const Copy2d) -> Result<NodeKind, Code> {
    // SAFETY: the caller's.
    let copy = unsafe { write::read(copy) }?;
    let end = |end: End2d| End3d {
        x: end.x,
        y: end.y,
        z: 0,
        level: 0,
        kind: end.kind,
        host: end.host,
        device: end.device,
        array: end.array,
        reserved: 0,
        pitch: end.pitch,
        height: 0,
    };
    let (from, to) = (end(copy.from), end(copy.to));
    let copy = Copy3d { from, to, width: copy.width, height: copy.height, depth: 1 };
    // SAFETY: a value of ours.
    unsafe { rows_3d(driver, &raw const copy) }
}
