//! Memsets.

use std::ffi::{c_uchar, c_uint, c_ushort};

use super::functions;
use super::moves::{in_stream, now};
use crate::driver::graph::{Fill, NodeKind};

/// One row of `width` elements.
fn row<T: Into<u32>>(to: u64, value: T, width: usize) -> NodeKind {
    rows(to, 0, value, (width, 1))
}

fn rows<T: Into<u32>>(to: u64, pitch: usize, value: T, (width, height): (usize, usize)) -> NodeKind {
    let element = size_of::<T>() as u32;
    let (pitch, width, height) = (pitch as u64, width as u64, height as u64);
    NodeKind::Fill(Fill { to, pitch, value: value.into(), element, width, height })
}

functions! {
    [3020 cuMemsetD8_v2, 7000 cuMemsetD8_v2_ptds](to: u64, value: c_uchar, count: usize) = |me| {
        now(me, |_| Ok(row(to, value, count)))
    };
    [3020 cuMemsetD16_v2, 7000 cuMemsetD16_v2_ptds](to: u64, value: c_ushort, count: usize) = |me| {
        now(me, |_| Ok(row(to, value, count)))
    };
    [3020 cuMemsetD32_v2, 7000 cuMemsetD32_v2_ptds](to: u64, value: c_uint, count: usize) = |me| {
        now(me, |_| Ok(row(to, value, count)))
    };
    [3020 cuMemsetD8Async, 7000 cuMemsetD8Async_ptsz](to: u64, value: c_uchar, count: usize, stream: usize) = |me| {
        in_stream(me, stream, |_| Ok(row(to, value, count)))
    };
    [3020 cuMemsetD16Async, 7000 cuMemsetD16Async_ptsz](to: u64, value: c_ushort, count: usize, stream: usize) = |me| {
        in_stream(me, stream, |_| Ok(row(to, value, count)))
    };
    [3020 cuMemsetD32Async, 7000 cuMemsetD32Async_ptsz](to: u64, value: c_uint, count: usize, stream: usize) = |me| {
        in_stream(me, stream, |_| Ok(row(to, value, count)))
    };
    [3020 cuMemsetD2D8_v2, 7000 cuMemsetD2D8_v2_ptds](
        to: u64, pitch: usize, value: c_uchar, width: usize, height: usize
    ) = |me| now(me, |_| Ok(rows(to, pitch, value, (width, height))));
    [3020 cuMemsetD2D16_v2, 7000 cuMemsetD2D16_v2_ptds](
        to: u64, pitch: usize, value: c_ushort, width: usize, height: usize
    ) = |me| now(me, |_| Ok(rows(to, pitch, value, (width, height))));
    [3020 cuMemsetD2D32_v2, 7000 cuMemsetD2D32_v2_ptds](
        to: u64, pitch: usize, value: c_uint, width: usize, height: usize
    ) = |me| now(me, |_| Ok(rows(to, pitch, value, (width, height))));
    [3020 cuMemsetD2D8Async, 7000 cuMemsetD2D8Async_ptsz](
        to: u64, pitch: usize, value: c_uchar, width: usize, height: usize, stream: usize
    ) = |me| in_stream(me, stream, |_| Ok(rows(to, pitch, value, (width, height))));
    [3020 cuMemsetD2D16Async, 7000 cuMemsetD2D16Async_ptsz](
        to: u64, pitch: usize, value: c_ushort, width: usize, height: usize, stream: usize
    ) = |me| in_stream(me, stream, |_| Ok(rows(to, pitch, value, (width, height))));
    [3020 cuMemsetD2D32Async, 7000 cuMemsetD2D32Async_ptsz](
        to: u64, pitch: usize, value: c_uint, width: usize, height: usize, stream: usize
    ) = |me| in_stream(me, stream, |_| Ok(rows(to, pitch, value, (width, height))));
}
