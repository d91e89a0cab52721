//! Copies.

use super::functions;
use super::moves::{array, in_stream, now, row, rows_2d, rows_3d};
use super::types::{Copy2d, Copy3d};

functions! {
    [4000 cuMemcpy, 7000 cuMemcpy_ptds](to: u64, from: u64, length: usize) = |me| {
        now(me, |_| Ok(row(to, from, length)))
    };
    [4000 cuMemcpyAsync, 7000 cuMemcpyAsync_ptsz](to: u64, from: u64, length: usize, stream: usize) = |me| {
        in_stream(me, stream, |_| Ok(row(to, from, length)))
    };
    [4000 cuMemcpyPeer, 7000 cuMemcpyPeer_ptds](
        to: u64, _to_context: usize, from: u64, _from_context: usize, length: usize
    ) = |me| now(me, |_| Ok(row(to, from, length)));
    [4000 cuMemcpyPeerAsync, 7000 cuMemcpyPeerAsync_ptsz](
        to: u64, _to_context: usize, from: u64, _from_context: usize, length: usize, stream: usize
    ) = |me| in_stream(me, stream, |_| Ok(row(to, from, length)));
    [3020 cuMemcpyHtoD_v2, 7000 cuMemcpyHtoD_v2_ptds](to: u64, from: usize, length: usize) = |me| {
        now(me, |_| Ok(row(to, from as u64, length)))
    };
    [3020 cuMemcpyDtoH_v2, 7000 cuMemcpyDtoH_v2_ptds](to: usize, from: u64, length: usize) = |me| {
        now(me, |_| Ok(row(to as u64, from, length)))
    };
    [3020 cuMemcpyDtoD_v2, 7000 cuMemcpyDtoD_v2_ptds](to: u64, from: u64, length: usize) = |me| {
        now(me, |_| Ok(row(to, from, length)))
    };
    [3020 cuMemcpyHtoDAsync_v2, 7000 cuMemcpyHtoDAsync_v2_ptsz](
        to: u64, from: usize, length: usize, stream: usize
    ) = |me| in_stream(me, stream, |_| Ok(row(to, from as u64, length)));
    [3020 cuMemcpyDtoHAsync_v2, 7000 cuMemcpyDtoHAsync_v2_ptsz](
        to: usize, from: u64, length: usize, stream: usize
    ) = |me| in_stream(me, stream, |_| Ok(row(to as u64, from, length)));
    [3020 cuMemcpyDtoDAsync_v2, 7000 cuMemcpyDtoDAsync_v2_ptsz](
        to: u64, from: u64, length: usize, stream: usize
    ) = |me| in_stream(me, stream, |_| Ok(row(to, from, length)));
    [3020 cuMemcpyHtoA_v2, 7000 cuMemcpyHtoA_v2_ptds](to: usize, offset: usize, from: usize, length: usize) = |me| {
        now(me, |driver| Ok(row(array(driver, to)?.0 + offset as u64, from as u64, length)))
    };
    [3020 cuMemcpyAtoH_v2, 7000 cuMemcpyAtoH_v2_ptds](to: usize, from: usize, offset: usize, length: usize) = |me| {
        now(me, |driver| Ok(row(to as u64, array(driver, from)?.0 + offset as u64, length)))
    };
    [3020 cuMemcpyDtoA_v2, 7000 cuMemcpyDtoA_v2_ptds](to: usize, offset: usize, from: u64, length: usize) = |me| {
        now(me, |driver| Ok(row(array(driver, to)?.0 + offset as u64, from, length)))
    };
    [3020 cuMemcpyAtoD_v2, 7000 cuMemcpyAtoD_v2_ptds](to: u64, from: usize, offset: usize, length: usize) = |me| {
        now(me, |driver| Ok(row(to, array(driver, from)?.0 + offset as u64, length)))
    };
    [
        3020 cuMemcpy2D_v2, 7000 cuMemcpy2D_v2_ptds, 3020 cuMemcpy2DUnaligned_v2, 7000 cuMemcpy2DUnaligned_v2_ptds,
    ](copy: *const Copy2d) = |me| now(me, |driver| rows_2d(driver, copy));
    [3020 cuMemcpy2DAsync_v2, 7000 cuMemcpy2DAsync_v2_ptsz](copy: *const Copy2d, stream: usize) = |me| {
        in_stream(me, stream, |driver| rows_2d(driver, copy))
    };
    [3020 cuMemcpy3D_v2, 7000 cuMemcpy3D_v2_ptds](copy: *const Copy3d) = |me| {
        now(me, |driver| rows_3d(driver, copy))
    };
    [3020 cuMemcpy3DAsync_v2, 7000 cuMemcpy3DAsync_v2_ptsz](copy: *const Copy3d, stream: usize) = |me| {
        in_stream(me, stream, |driver| rows_3d(driver, copy))
    };
}
