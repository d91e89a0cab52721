//! The hooks of launches.
//!
//! Functions whose names end in `_ptsz` differ in one thing: no stream is the calling thread's own default stream.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use super::work::Work;
use super::{Admitted, MAX_DEVICES, admit, is_unrestricted};
use crate::cuda::{
    CUDA_LAUNCH_PARAMS, CUcontext, CUfunction, CUgraphExec, CUlaunchConfig, CUresult, CUstream, SUCCESS,
};
use crate::driver::cuda::{cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuStreamGetCtx};

/// Each thread has a default stream of its own.
pub(crate) const PER_THREAD: bool = true;
/// All threads of a context share one.
pub(crate) const SHARED: bool = false;

/// Launches work once it may go on.
#[inline]
pub(super) fn paced(stream: CUstream, is_per_thread: bool, work: Work, launch: impl FnOnce() -> CUresult) -> CUresult {
    if is_unrestricted() {
        return launch();
    }
    match admit(stream, is_per_thread, work) {
        Ok(None) => launch(),
        Ok(Some(admitted)) => {
            admitted.begin();
            admitted.done(launch())
        }
        Err(refused) => refused,
    }
}

macro_rules! launches {
    ($($(#[$doc:meta])* $name:ident ( $stream:ident: $work:expr; $($argument:ident : $type:ty),* );)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the driver's.
            #[allow(clippy::too_many_arguments, reason = "the driver's own")]
            pub(crate) unsafe fn $name<const IS_PER_THREAD: bool>(
                real: unsafe extern "C" fn($($type),*) -> CUresult,
                $($argument: $type),*
            ) -> CUresult {
                // SAFETY: the caller's arguments as they came.
                paced($stream, IS_PER_THREAD, $work, || unsafe { real($($argument),*) })
            }
        )*
    };
}

launches! {
    /// `cuLaunchKernel`.
    kernel(stream: Work::Kernel;
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void);

    /// `cuLaunchCooperativeKernel`.
    cooperative(stream: Work::Kernel;
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void);

    /// `cuGraphLaunch`.
    graph(stream: Work::Graph(exec.expose_provenance()); exec: CUgraphExec, stream: CUstream);

    /// `cuLaunchGridAsync`.
    grid_async(stream: Work::Kernel; function: CUfunction, width: c_int, height: c_int, stream: CUstream);
}

/// `cuLaunchKernelEx`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn extended<const IS_PER_THREAD: bool>(
    real: unsafe extern "C" fn(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void) -> CUresult,
    config: *const CUlaunchConfig,
    function: CUfunction,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    // SAFETY: null, or a configuration that the driver reads too.
    let stream = unsafe { config.as_ref() }.map_or(ptr::null_mut(), |config| config.stream);
    // SAFETY: the caller's arguments as they came.
    paced(stream, IS_PER_THREAD, Work::Kernel, || unsafe { real(config, function, arguments, extra) })
}

/// `cuLaunch`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn single(real: unsafe extern "C" fn(CUfunction) -> CUresult, function: CUfunction) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    paced(ptr::null_mut(), SHARED, Work::Kernel, || unsafe { real(function) })
}

/// `cuLaunchGrid`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn grid(
    real: unsafe extern "C" fn(CUfunction, c_int, c_int) -> CUresult,
    function: CUfunction,
    width: c_int,
    height: c_int,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    paced(ptr::null_mut(), SHARED, Work::Kernel, || unsafe { real(function, width, height) })
}

/// `cuLaunchCooperativeKernelMultiDevice`: a kernel on each of several cards, all of whose gates have to let it pass.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn on_many(
    real: unsafe extern "C" fn(*mut CUDA_LAUNCH_PARAMS, c_uint, c_uint) -> CUresult,
    launches: *mut CUDA_LAUNCH_PARAMS,
    count: c_uint,
    flags: c_uint,
) -> CUresult {
    let mut all: [Option<Admitted>; MAX_DEVICES as usize] = [None; MAX_DEVICES as usize];
    let is_unrestricted = launches.is_null() || count > MAX_DEVICES || is_unrestricted();
    let streams = (0..if is_unrestricted { 0 } else { count as usize })
        // SAFETY: the driver reads so many too.
        .map(|index| unsafe { (*launches.wrapping_add(index)).stream });
    let mut refused = SUCCESS;
    for (admitted, stream) in all.iter_mut().zip(streams) {
        match in_context_of(stream, || admit(stream, SHARED, Work::Kernel)) {
            Ok(let_through) => *admitted = let_through,
            Err(error) => {
                refused = error;
                break;
            }
        }
    }
    let mut each = |act: &dyn Fn(&mut Admitted)| {
        for admitted in all.iter_mut().flatten() {
            in_context_of(ptr::with_exposed_provenance_mut(admitted.stream.handle), || act(admitted));
        }
    };
    let result = match refused {
        SUCCESS => {
            each(&Admitted::begin_late);
            // SAFETY: the caller's arguments as they came.
            unsafe { real(launches, count, flags) }
        }
        refused => refused,
    };
    each(&|admitted| {
        admitted.done(result);
    });
    result
}

/// What is done with a stream of another context has that one to be current.
fn in_context_of<T>(stream: CUstream, act: impl FnOnce() -> T) -> T {
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: a context is written to a context; contexts are pushed as the driver names them.
    let is_pushed =
        unsafe { cuStreamGetCtx(stream, &raw mut context) == SUCCESS && cuCtxPushCurrent_v2(context) == SUCCESS };
    let done = act();
    if is_pushed {
        // SAFETY: the context that was pushed.
        let _popped = unsafe { cuCtxPopCurrent_v2(&raw mut context) };
    }
    done
}
