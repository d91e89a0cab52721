//! A kernel that takes as long as it is told.

use std::ptr;

use anyhow::Result;
use driver_api::sys::{CUfunction, CUstream};
use driver_api::{Code, Cuda, launch_config};

use crate::figures::median;

/// One thread that counts down. It keeps time by its own work, not by a clock, which would go on while the card serves
/// somebody else. Its result depends on every step, or the compiler would leave the loop out.
const IMAGE: &[u8] = b"\
.version 6.0
.target sm_50
.address_size 64
.visible .global .align 4 .u32 result;
.visible .entry busy_ns(.param .u64 steps)
{
    .reg .pred %is_done;
    .reg .pred %has_more;
    .reg .u32 %x;
    .reg .u64 %left;
    .reg .u64 %to;
    ld.param.u64 %left, [steps];
    setp.eq.u64 %is_done, %left, 0;
    @%is_done bra END;
    cvt.u32.u64 %x, %left;
STEP:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    shr.u32 %x, %x, 1;
    sub.u64 %left, %left, 1;
    setp.ne.u64 %has_more, %left, 0;
    @%has_more bra STEP;
    mov.u64 %to, result;
    st.global.u32 [%to], %x;
END:
    ret;
}
\0";

/// The kernel on this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    function: CUfunction,
    speed: Speed,
}

/// What a kernel's duration is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    /// A card's: steps of the loop in a nanosecond.
    Steps(f64),
    /// The stand-in's: it lasts as many nanoseconds as the grid is wide.
    Grid,
}

/// Steps that are timed to find out the speed: some milliseconds.
const TRIAL: u64 = 1 << 20;

// === impl Kernel ===

impl Kernel {
    pub(crate) fn load(cuda: &Cuda, speed: Speed) -> Result<Self, Code> {
        let module = cuda.try_get(|cuda, module| cuda.cuModuleLoadData(module, IMAGE.as_ptr().cast()))?;
        let function =
            cuda.try_get(|cuda, function| cuda.cuModuleGetFunction(function, module, c"busy_ns".as_ptr()))?;
        Ok(Self { function, speed })
    }

    /// Launches it for about so many nanoseconds; 0: for as short as it can be.
    pub(crate) fn launch(&self, cuda: &Cuda, ns: u64, stream: CUstream) -> Result<(), Code> {
        let (grid, steps) = self.size(ns);
        let mut arguments = [(&raw const steps).cast_mut().cast()];
        let arguments = arguments.as_mut_ptr();
        cuda.cuLaunchKernel(self.function, grid, 1, 1, 1, 1, 1, 0, stream, arguments, ptr::null_mut()).ok()
    }

    /// Launches by `cuLaunchKernelEx`.
    pub(crate) fn launch_ex(&self, cuda: &Cuda, ns: u64, stream: CUstream) -> Result<(), Code> {
        let (grid, steps) = self.size(ns);
        let mut arguments = [(&raw const steps).cast_mut().cast()];
        let arguments = arguments.as_mut_ptr();
        cuda.cuLaunchKernelEx(&launch_config(grid, stream), self.function, arguments, ptr::null_mut()).ok()
    }

    fn size(&self, ns: u64) -> (u32, u64) {
        match self.speed {
            Speed::Steps(of_ns) => (1, (ns as f64 * of_ns) as u64),
            Speed::Grid => (u32::try_from(ns.max(1)).unwrap_or(u32::MAX), 0),
        }
    }

    /// Steps in a nanosecond, by the driver's events. The first runs only warm the card up.
    pub(crate) fn measure(&self, cuda: &Cuda, stream: CUstream) -> Result<f64, Code> {
        let unmeasured = Self { speed: Speed::Steps(1.0), ..*self };
        let start = cuda.try_get(|cuda, event| cuda.cuEventCreate(event, 0))?;
        let end = cuda.try_get(|cuda, event| cuda.cuEventCreate(event, 0))?;
        let mut speeds = Vec::new();
        for round in 0..60 {
            cuda.cuEventRecord(start, stream).ok()?;
            unmeasured.launch(cuda, TRIAL, stream)?;
            cuda.cuEventRecord(end, stream).ok()?;
            cuda.cuEventSynchronize(end).ok()?;
            let took = cuda.try_get(|cuda, took| cuda.cuEventElapsedTime(took, start, end))?;
            if round >= 20 {
                speeds.push(TRIAL as f64 / (f64::from(took) * 1e6));
            }
        }
        Ok(median(&mut speeds))
    }
}
