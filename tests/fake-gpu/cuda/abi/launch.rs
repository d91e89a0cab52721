//! Launches.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{CUDA_LAUNCH_PARAMS, CUlaunchConfig};

use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::capture::Target;
use crate::driver::graph::{Does, Kernel, NodeKind};
use crate::driver::work::{Flag, Run, Task, Test, Work, Write};
use crate::driver::{Driver, make_room};

/// What a kernel takes that isn't called [`BUSY`], in nanoseconds.
const KERNEL: u64 = 10_000;

/// The kernel that takes as many nanoseconds as its grid is wide.
const BUSY: &[u8] = b"busy_ns";

/// `spin_until(unsigned *flag, unsigned value)`: has the card until the flag has at least this value.
const SPIN: &[u8] = b"spin_until";

/// `write_flag(unsigned *flag, unsigned value)`.
const WRITE: &[u8] = b"write_flag";

/// `meet_ns(u64 group, u32 rank, u32 ranks, u64 number, u64 lasts)`: has the card until the kernels of all ranks of the group
/// run that have this number, from 1 on, and for so many nanoseconds then. It is what those do that exchange data.
const MEET: &[u8] = b"meet_ns";

/// `read_nowhere`: fails, and its context with it.
const FAULT: &[u8] = b"read_nowhere";

/// A kernel's launch, if the card could do it.
///
/// # Safety
/// `arguments` is null or points to as many pointers as the function has arguments, and each of those to its value.
pub(super) unsafe fn kernel(
    driver: &mut Driver,
    function: usize,
    (grid, block): ([c_uint; 3], [c_uint; 3]),
    shared: c_uint,
    arguments: *mut *mut c_void,
) -> Result<Kernel, Code> {
    let name = driver.functions.get(function)?.name.as_bytes();
    let threads = block.iter().map(|side| u64::from(*side)).product::<u64>();
    if grid.contains(&0) || !(1..=1024).contains(&threads) || shared > 228 << 10 {
        return Err(Code::INVALID_VALUE);
    }
    let does = match name {
        BUSY => Does::Last(grid[0].into()),
        SPIN | WRITE => {
            // SAFETY: the caller's.
            let (flag, value): (u64, c_uint) = unsafe { (argument(arguments, 0)?, argument(arguments, 1)?) };
            let (address, value, is_long) = (driver.word(flag, false)?, value.into(), false);
            Does::Task(if name == SPIN {
                Task::Spin(Flag { address, value, is_long, test: Test::Reached })
            } else {
                Task::Write(Write { address, value, is_long })
            })
        }
        MEET => {
            // SAFETY: the caller's.
            let (group, rank, ranks): (u64, c_uint, c_uint) =
                unsafe { (argument(arguments, 0)?, argument(arguments, 1)?, argument(arguments, 2)?) };
            // SAFETY: the caller's.
            let (number, lasts) = unsafe { (argument(arguments, 3)?, argument(arguments, 4)?) };
            Does::Task(Task::Meet(driver.meeting(group, (rank, ranks), number)?, lasts))
        }
        FAULT => Does::Task(Task::Fault(driver.modules.get(driver.functions.get(function)?.module)?.context)),
        _ => Does::Last(KERNEL),
    };
    Ok(Kernel { function, grid, block, shared, does })
}

/// # Safety
/// As of [`kernel`], and the argument is of this type.
unsafe fn argument<T: Copy>(arguments: *mut *mut c_void, number: usize) -> Result<T, Code> {
    if arguments.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller's.
    unsafe { write::read(arguments.add(number).read().cast_const().cast()) }
}

/// # Safety
/// As of [`kernel`].
unsafe fn launch(
    me: Entry,
    function: usize,
    (grid, block): ([c_uint; 3], [c_uint; 3]),
    shared: c_uint,
    stream: usize,
    arguments: *mut *mut c_void,
) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let stream = driver.stream(stream, me.per_thread)?;
    // SAFETY: the caller's.
    let kernel = unsafe { kernel(&mut driver, function, (grid, block), shared, arguments) }?;
    driver.load_lazily(function, stream)?;
    match driver.target(stream)? {
        Target::Captured(id) => driver.capture(id, stream, NodeKind::Kernel(kernel)).map(|_node| ()),
        Target::Live => {
            let work = match kernel.does {
                Does::Last(lasts) => Work::Run(Run { lasts, kernels: 1, launches: 1 }),
                Does::Task(task) => Work::Kernel(task),
            };
            make_room(driver, stream)?.submit(stream, work).map(|_ticket| ())
        }
    }
}

/// The form without streams, on a grid of this size.
fn launch_grid(me: Entry, function: usize, width: c_int, height: c_int, stream: usize) -> Result<(), Code> {
    let side = |length: c_int| c_uint::try_from(length).map_err(|_negative| Code::INVALID_VALUE);
    // SAFETY: no arguments.
    unsafe { launch(me, function, ([side(width)?, side(height)?, 1], [1; 3]), 0, stream, ptr::null_mut()) }
}

functions! {
    [4000 cuLaunchKernel, 7000 cuLaunchKernel_ptsz](
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) = |me| launch(me, function, ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]), shared, stream, arguments);
    [9000 cuLaunchCooperativeKernel, 9000 cuLaunchCooperativeKernel_ptsz](
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, arguments: *mut *mut c_void
    ) = |me| launch(me, function, ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]), shared, stream, arguments);
    [11060 cuLaunchKernelEx, 11060 cuLaunchKernelEx_ptsz](
        config: *const CUlaunchConfig, function: usize, arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) = |me| {
        let one = write::read(config)?;
        let grid = [one.gridDimX, one.gridDimY, one.gridDimZ];
        let block = [one.blockDimX, one.blockDimY, one.blockDimZ];
        launch(me, function, (grid, block), one.sharedMemBytes, one.hStream.addr(), arguments)
    };
    [9000 cuLaunchCooperativeKernelMultiDevice](
        launches: *mut CUDA_LAUNCH_PARAMS, count: c_uint, _flags: c_uint
    ) = |me| {
        for one in write::list(launches.cast_const(), count as usize)? {
            let grid = [one.gridDimX, one.gridDimY, one.gridDimZ];
            let block = [one.blockDimX, one.blockDimY, one.blockDimZ];
            launch(me, one.function.addr(), (grid, block), one.sharedMemBytes, one.hStream.addr(), one.kernelParams)?;
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
