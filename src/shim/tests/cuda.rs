//! The driver's functions as programs find them: by `dlopen` and `dlsym`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::{mem, ptr};

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const OUT_OF_MEMORY: u32 = 2;
pub(crate) const NOT_PERMITTED: u32 = 800;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// The functions, found.
        #[allow(non_snake_case, reason = "CUDA's names")]
        pub(crate) struct Cuda { $($name: usize),* }

        #[allow(non_snake_case, clippy::too_many_arguments, dead_code, reason = "CUDA's own, for every test program")]
        impl Cuda {
            fn find(library: *mut c_void) -> Self {
                let find = |name: &[u8]| {
                    let name = CStr::from_bytes_with_nul(name).expect("a name of C");
                    // SAFETY: a library that is loaded, and a name.
                    unsafe { libc::dlsym(library, name.as_ptr()) }.expose_provenance()
                };
                Self { $($name: find(concat!(stringify!($name), "\0").as_bytes())),* }
            }

            $(
                #[track_caller]
                pub(crate) fn $name(&self, $($argument: $type),*) -> u32 {
                    assert!(self.$name != 0, concat!("no ", stringify!($name)));
                    let function: unsafe extern "C" fn($($type),*) -> u32 =
                        // SAFETY: the type is the function's.
                        unsafe { mem::transmute(ptr::with_exposed_provenance::<()>(self.$name)) };
                    // SAFETY: tests give pointers that are valid.
                    unsafe { function($($argument),*) }
                }
            )*
        }
    };
}

functions! {
    cuInit(flags: c_uint);
    cuArray3DCreate_v2(array: *mut usize, descriptor: *const Array3d);
    cuArrayCreate_v2(array: *mut usize, descriptor: *const Array);
    cuArrayDestroy(array: usize);
    cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int);
    cuCtxDestroy_v2(context: usize);
    cuCtxFromGreenCtx(context: *mut usize, green: usize);
    cuCtxSetCurrent(context: usize);
    cuGreenCtxCreate(green: *mut usize, resources: usize, device: c_int, flags: c_uint);
    cuGreenCtxDestroy(green: usize);
    cuCtxSynchronize();
    cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int);
    cuDeviceGetGraphMemAttribute(device: c_int, number: c_uint, value: *mut u64);
    cuDeviceGraphMemTrim(device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuDevicePrimaryCtxReset_v2(device: c_int);
    cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int);
    cuDeviceTotalMem(bytes: *mut c_uint, device: c_int);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);
    cuEventCreate(event: *mut usize, flags: c_uint);
    cuEventRecord(event: usize, stream: usize);
    cuEventSynchronize(event: usize);
    cuGraphAddMemAllocNode(
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, given: *mut GraphAllocation
    );
    cuGraphCreate(graph: *mut usize, flags: c_uint);
    cuGraphDestroy(graph: usize);
    cuGraphExecDestroy(exec: usize);
    cuGraphInstantiateWithFlags(exec: *mut usize, graph: usize, flags: u64);
    cuGraphLaunch(exec: usize, stream: usize);
    cuGraphLaunch_ptsz(exec: usize, stream: usize);
    cuGraphUpload(exec: usize, stream: usize);
    cuIpcCloseMemHandle(address: u64);
    cuIpcGetMemHandle(handle: *mut [u8; 64], address: u64);
    cuIpcOpenMemHandle_v2(address: *mut u64, handle: IpcHandle, flags: c_uint);
    cuLaunch(function: usize);
    cuLaunchCooperativeKernel(
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, arguments: *mut c_void
    );
    cuLaunchCooperativeKernelMultiDevice(launches: *mut Launch, count: c_uint, flags: c_uint);
    cuLaunchCooperativeKernel_ptsz(
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, arguments: *mut c_void
    );
    cuLaunchGrid(function: usize, width: c_int, height: c_int);
    cuLaunchGridAsync(function: usize, width: c_int, height: c_int, stream: usize);
    cuLaunchKernel(
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, arguments: *mut c_void, extra: *mut c_void
    );
    cuLaunchKernelEx(config: *const LaunchConfig, function: usize, arguments: *mut c_void, extra: *mut c_void);
    cuLaunchKernelEx_ptsz(config: *const LaunchConfig, function: usize, arguments: *mut c_void, extra: *mut c_void);
    cuLaunchKernel_ptsz(
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, arguments: *mut c_void, extra: *mut c_void
    );
    cuMemAddressFree(address: u64, size: usize);
    cuMemAddressReserve(address: *mut u64, size: usize, alignment: usize, wanted: u64, flags: u64);
    cuMemAlloc(address: *mut c_uint, size: c_uint);
    cuMemAllocAsync(address: *mut u64, size: usize, stream: usize);
    cuMemAllocFromPoolAsync(address: *mut u64, size: usize, pool: usize, stream: usize);
    cuMemAllocManaged(address: *mut u64, size: usize, flags: c_uint);
    cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemAlloc_v2(address: *mut u64, size: usize);
    cuMemCreate(handle: *mut u64, size: usize, properties: *const Physical, flags: u64);
    cuMemExportToShareableHandle(shared: *mut c_int, handle: u64, kind: c_uint, flags: u64);
    cuMemFreeAsync(address: u64, stream: usize);
    cuMemFree_v2(address: u64);
    cuMemGetInfo(free: *mut c_uint, total: *mut c_uint);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemImportFromShareableHandle(handle: *mut u64, shared: usize, kind: c_uint);
    cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64);
    cuMemPoolCreate(pool: *mut usize, properties: *const Pool);
    cuMemPoolDestroy(pool: usize);
    cuMemPoolSetAttribute(pool: usize, number: c_uint, value: *mut u64);
    cuMemPoolTrimTo(pool: usize, keep: usize);
    cuMemRelease(handle: u64);
    cuMemRetainAllocationHandle(handle: *mut u64, address: u64);
    cuMemUnmap(address: u64, size: usize);
    cuMipmappedArrayCreate(array: *mut usize, descriptor: *const Array3d, levels: c_uint);
    cuMipmappedArrayDestroy(array: usize);
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    cuModuleLoadData(module: *mut usize, image: *const c_void);
    cuStreamBeginCapture_v2(stream: usize, mode: c_uint);
    cuStreamCreate(stream: *mut usize, flags: c_uint);
    cuStreamDestroy_v2(stream: usize);
    cuStreamEndCapture(stream: usize, graph: *mut usize);
    cuStreamSynchronize(stream: usize);
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: usize,
    pub(crate) attributes: usize,
    pub(crate) attribute_count: c_uint,
}

/// `CUDA_LAUNCH_PARAMS`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Launch {
    pub(crate) function: usize,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: usize,
    pub(crate) arguments: usize,
}

/// `CUmemLocation`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Location {
    /// 1: a card, 2: the host.
    pub(crate) kind: c_uint,
    pub(crate) id: c_int,
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Physical {
    pub(crate) kind: c_uint,
    pub(crate) handle_types: c_uint,
    pub(crate) location: Location,
    pub(crate) rest: [u64; 2],
}

/// `CUmemPoolProps`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Pool {
    pub(crate) kind: c_uint,
    pub(crate) handle_types: c_uint,
    pub(crate) location: Location,
    pub(crate) rest: [u64; 9],
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct GraphAllocation {
    pub(crate) pool: Pool,
    pub(crate) access: [u64; 2],
    pub(crate) size: usize,
    pub(crate) address: u64,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Array {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Array3d {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
    pub(crate) flags: c_uint,
}

/// `CUipcMemHandle`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

// === impl Cuda ===

impl Cuda {
    /// The driver, loaded and not initialised.
    pub(crate) fn load() -> Self {
        let name: *const c_char = c"libcuda.so.1".as_ptr();
        // SAFETY: a name; the library has no constructors.
        let library = unsafe { libc::dlopen(name, libc::RTLD_NOW) };
        assert!(!library.is_null(), "a driver");
        Self::find(library)
    }

    /// With the primary context of card 0.
    pub(crate) fn start() -> Self {
        let cuda = Self::load();
        assert_eq!(cuda.cuInit(0), SUCCESS);
        let context = cuda.get(|cuda, to| cuda.cuDevicePrimaryCtxRetain(to, 0));
        assert_eq!(cuda.cuCtxSetCurrent(context), SUCCESS);
        cuda
    }

    /// A value that a function writes through a pointer.
    #[track_caller]
    pub(crate) fn get<T: Default>(&self, call: impl FnOnce(&Self, *mut T) -> u32) -> T {
        let mut value = T::default();
        assert_eq!(call(self, &raw mut value), SUCCESS);
        value
    }

    /// A function of a module; one called `busy_ns` takes as many nanoseconds as its grid is wide.
    pub(crate) fn function(&self, name: &CStr) -> usize {
        let module: usize = self.get(|cuda, to| cuda.cuModuleLoadData(to, c"any".as_ptr().cast()));
        self.get(|cuda, to| cuda.cuModuleGetFunction(to, module, name.as_ptr()))
    }

    /// Launches a function on a grid of this width.
    pub(crate) fn launch(&self, function: usize, width: c_uint, stream: usize) -> u32 {
        let none = ptr::null_mut();
        self.cuLaunchKernel(function, width, 1, 1, 1, 1, 1, 0, stream, none, none)
    }

    /// Free and total bytes of the card.
    pub(crate) fn info(&self) -> (u64, u64) {
        let (mut free, mut total) = (0, 0);
        assert_eq!(self.cuMemGetInfo_v2(&raw mut free, &raw mut total), SUCCESS);
        (free as u64, total as u64)
    }

    /// An allocation that must succeed.
    #[track_caller]
    pub(crate) fn allocate(&self, size: u64) -> u64 {
        self.get(|cuda, to| cuda.cuMemAlloc_v2(to, usize::try_from(size).unwrap_or(usize::MAX)))
    }

    /// Whether there is room for so much more.
    pub(crate) fn try_allocate(&self, size: u64) -> Result<u64, u32> {
        let mut address = 0;
        match self.cuMemAlloc_v2(&raw mut address, usize::try_from(size).unwrap_or(usize::MAX)) {
            SUCCESS => Ok(address),
            error => Err(error),
        }
    }
}
