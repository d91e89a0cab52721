//! Launches.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{CUDA_LAUNCH_PARAMS, CUlaunchConfig};

use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::capture::Target;
use crate::driver::engine::{Run, Work};
use crate::driver::graph::{Kernel, NodeKind};
use crate::driver::{Driver, make_room};

/// What a kernel takes that isn't called [`BUSY`], in nanoseconds.
const KERNEL: u64 = 10_000;

/// The kernel that takes as many nanoseconds as its grid is wide.
const BUSY: &[u8] = b"busy_ns";

/// A kernel's launch, if the card could do it.
pub(super) fn kernel(
    driver: &Driver,
    function: usize,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
) -> Result<Kernel, Code> {
    let name = driver.functions.get(function)?.name.as_bytes();
    let threads = block.iter().map(|side| u64::from(*side)).product::<u64>();
    if grid.contains(&0) || !(1..=1024).contains(&threads) || shared > 228 << 10 {
        return Err(Code::INVALID_VALUE);
    }
    let lasts = if name == BUSY { u64::from(grid[0]) } else { KERNEL };
    Ok(Kernel { function, grid, block, shared, run: Run { lasts, kernels: 1, launches: 1 } })
}

fn launch(
    me: Entry,
    function: usize,
    (grid, block): ([c_uint; 3], [c_uint; 3]),
    shared: c_uint,
    stream: usize,
) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let stream = driver.stream(stream, me.per_thread)?;
    let kernel = kernel(&driver, function, grid, block, shared)?;
    match driver.target(stream)? {
        Target::Captured(id) => driver.capture(id, stream, NodeKind::Kernel(kernel)).map(|_node| ()),
        Target::Live => {
            let device = driver.streams.get(stream)?.device;
            make_room(driver, device)?.submit(stream, Work::Run(kernel.run)).map(|_ticket| ())
        }
    }
}

/// The form without streams, on a grid of this size.
fn launch_grid(me: Entry, function: usize, width: c_int, height: c_int, stream: usize) -> Result<(), Code> {
    let side = |length: c_int| c_uint::try_from(length).map_err(|_negative| Code::INVALID_VALUE);
    launch(me, function, ([side(width)?, side(height)?, 1], [1; 3]), 0, stream)
}

functions! {
    [4000 cuLaunchKernel, 7000 cuLaunchKernel_ptsz](
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, _arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) = |me| launch(me, function, ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]), shared, stream);
    [9000 cuLaunchCooperativeKernel, 9000 cuLaunchCooperativeKernel_ptsz](
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, _arguments: *mut *mut c_void
    ) = |me| launch(me, function, ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]), shared, stream);
    [11060 cuLaunchKernelEx, 11060 cuLaunchKernelEx_ptsz](
        config: *const CUlaunchConfig, function: usize, _arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) = |me| {
        let one = write::read(config)?;
        let grid = [one.gridDimX, one.gridDimY, one.gridDimZ];
        let block = [one.blockDimX, one.blockDimY, one.blockDimZ];
        launch(me, function, (grid, block), one.sharedMemBytes, one.hStream.addr())
    };
    [9000 cuLaunchCooperativeKernelMultiDevice](
        launches: *mut CUDA_LAUNCH_PARAMS, count: c_uint, _flags: c_uint
    ) = |me| {
        for one in write::list(launches.cast_const(), count as usize)? {
            let grid = [one.gridDimX, one.gridDimY, one.gridDimZ];
            let block = [one.blockDimX, one.blockDimY, one.blockDimZ];
            launch(me, one.function.addr(), (grid, block), one.sharedMemBytes, one.hStream.addr())?;
        }
        Ok(())
    };
    [2000 cuLaunch](function: usize) = |me| launch_grid(me, function, 1, 1, 0);
    [2000 cuLaunchGrid](function: usize, width: c_int, height: c_int) = |me| {
        launch_grid(me, function, width, height, 0)
    };
    [2000 cuLaunchGridAsync](function: usize, width: c_int, height: c_int, stream: usize) = |me| {
        launch_grid(me, function, width, height, stream)
    };
}
