//! What programs do with a driver. Whatever fails is a panic of the caller's.

use std::ffi::{CStr, OsStr, c_char, c_uint, c_void};
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraphExec, CUipcMemHandle, CUlaunchConfig,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUstream, CUstreamCaptureMode,
};

use crate::{Code, Cuda, SUCCESS};

/// The driver's name for the dynamic linker.
pub const DRIVER: &str = "libcuda.so.1";

/// The stream that every context has.
pub const DEFAULT_STREAM: CUstream = ptr::null_mut();

/// `CU_STREAM_NON_BLOCKING`
pub const NON_BLOCKING: c_uint = 1;

/// The host, as a place for memory.
pub const HOST: CUmemLocation = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, id: 0 };

/// A device, as a place for memory.
pub const fn on_device(id: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
}

/// What `cuMemCreate` makes pinned memory of.
pub const fn pinned(location: CUmemLocation, shared_by: CUmemAllocationHandleType) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: shared_by,
        location,
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// A handle of another process's memory.
pub fn ipc_handle(bytes: [u8; 64]) -> CUipcMemHandle {
    CUipcMemHandle { reserved: bytes.map(|byte| c_char::from_ne_bytes([byte])) }
}

/// What `cuLaunchKernelEx` takes for a grid of this width, of single threads.
pub const fn launch_config(width: c_uint, stream: CUstream) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: width,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: ptr::null_mut(),
        numAttrs: 0,
    }
}

// === impl Cuda ===

impl Cuda {
    /// Loads a library, initialises it and makes the primary context of device 0 current.
    #[track_caller]
    pub fn start(library: impl AsRef<OsStr>) -> Self {
        let cuda = Self::load(library).expect("a driver");
        assert_eq!(cuda.cuInit(0), SUCCESS);
        cuda.enter(0);
        cuda
    }

    /// Makes a device's primary context current.
    #[track_caller]
    pub fn enter(&self, device: CUdevice) -> CUcontext {
        let context = self.get(|cuda, to| cuda.cuDevicePrimaryCtxRetain(to, device));
        assert_eq!(self.cuCtxSetCurrent(context), SUCCESS);
        context
    }

    /// A value that a function writes through a pointer, or the function's error.
    pub fn try_get<T: Default>(&self, call: impl FnOnce(&Self, *mut T) -> Code) -> Result<T, Code> {
        let mut value = T::default();
        call(self, &raw mut value).ok()?;
        Ok(value)
    }

    /// A value that a function writes through a pointer.
    #[track_caller]
    pub fn get<T: Default>(&self, call: impl FnOnce(&Self, *mut T) -> Code) -> T {
        match self.try_get(call) {
            Ok(value) => value,
            Err(code) => panic!("{code}"),
        }
    }

    /// The address that `dlsym` finds for a name; null if it finds none.
    pub fn symbol(&self, name: &str) -> *mut c_void {
        // SAFETY: the symbol isn't used.
        unsafe { self.library.get::<*mut c_void>(name) }.map_or(ptr::null_mut(), |found| *found)
    }

    /// Free and total bytes of the current device.
    #[track_caller]
    pub fn info(&self) -> (u64, u64) {
        let (mut free, mut total) = (0, 0);
        assert_eq!(self.cuMemGetInfo_v2(&raw mut free, &raw mut total), SUCCESS);
        (free as u64, total as u64)
    }

    /// An allocation, or the reason why there is none.
    pub fn try_allocate(&self, size: u64) -> Result<CUdeviceptr, Code> {
        self.try_get(|cuda, to| cuda.cuMemAlloc_v2(to, usize::try_from(size).unwrap_or(usize::MAX)))
    }

    /// An allocation.
    #[track_caller]
    pub fn allocate(&self, size: u64) -> CUdeviceptr {
        self.get(|cuda, to| cuda.cuMemAlloc_v2(to, usize::try_from(size).unwrap_or(usize::MAX)))
    }

    /// A stream that doesn't wait for the default stream.
    #[track_caller]
    pub fn stream(&self) -> CUstream {
        self.get(|cuda, to| cuda.cuStreamCreate(to, NON_BLOCKING))
    }

    /// An event that keeps the time.
    #[track_caller]
    pub fn event(&self) -> CUevent {
        self.get(|cuda, to| cuda.cuEventCreate(to, 0))
    }

    /// Time between two events, to the nanosecond.
    #[track_caller]
    pub fn elapsed(&self, start: CUevent, end: CUevent) -> Duration {
        let milliseconds: f32 = self.get(|cuda, to| cuda.cuEventElapsedTime(to, start, end));
        Duration::from_secs_f64((f64::from(milliseconds) * 1e6).round() / 1e9)
    }

    /// A function of a module. The stand-in takes any image; what its functions do follows from their names: `busy_ns` lasts
    /// as many nanoseconds as its grid is wide.
    #[track_caller]
    pub fn function(&self, name: &CStr) -> CUfunction {
        let module = self.get(|cuda, to| cuda.cuModuleLoadData(to, c"any".as_ptr().cast()));
        self.get(|cuda, to| cuda.cuModuleGetFunction(to, module, name.as_ptr()))
    }

    /// A graph of what is launched in a stream meanwhile, ready to be launched.
    #[track_caller]
    pub fn captured(&self, stream: CUstream, launch: impl FnOnce()) -> CUgraphExec {
        assert_eq!(self.cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL), SUCCESS);
        launch();
        let graph = self.get(|cuda, to| cuda.cuStreamEndCapture(stream, to));
        self.get(|cuda, to| cuda.cuGraphInstantiateWithFlags(to, graph, 0))
    }

    /// Launches `spin_until`, which has the card until the flag is at least this value, or `write_flag`.
    pub fn launch_on_flag(
        &self,
        function: CUfunction,
        (mut flag, mut value): (CUdeviceptr, u32),
        stream: CUstream,
    ) -> Code {
        self.launch_with(function, &mut [(&raw mut flag).cast(), (&raw mut value).cast()], stream)
    }

    /// Launches `meet_ns`, which has the card until the kernels of all `ranks` with this number run, and `lasts` nanoseconds
    /// more.
    pub fn launch_meet(
        &self,
        function: CUfunction,
        (mut group, mut number): (u64, u64),
        (mut rank, mut ranks): (u32, u32),
        mut lasts: u64,
        stream: CUstream,
    ) -> Code {
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut group).cast(),
            (&raw mut rank).cast(),
            (&raw mut ranks).cast(),
            (&raw mut number).cast(),
            (&raw mut lasts).cast(),
        ];
        self.launch_with(function, &mut arguments, stream)
    }

    fn launch_with(&self, function: CUfunction, arguments: &mut [*mut c_void], stream: CUstream) -> Code {
        self.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments.as_mut_ptr(), ptr::null_mut())
    }

    /// Launches a function on a grid of this width.
    pub fn launch(&self, function: CUfunction, width: c_uint, stream: CUstream) -> Code {
        self.cuLaunchKernel(function, width, 1, 1, 1, 1, 1, 0, stream, ptr::null_mut(), ptr::null_mut())
    }
}
