//! The driver's functions, found as programs find them: by `dlopen` and `dlsym`. No toolkit is needed.

use std::ffi::{CStr, c_void};
use std::fmt::{self, Display};
use std::mem;

use anyhow::{Result, bail};

/// What a function answered that isn't success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

/// `CUmemAllocationProp` of pinned memory of a card.
#[repr(C)]
pub(crate) struct Physical {
    kind: u32,
    shareable_as: u32,
    location: [u32; 2],
    windows: usize,
    flags: [u8; 8],
}

/// `CUipcMemHandle`, which goes by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) [u8; 64]);

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct Launch {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) stream: usize,
    pub(crate) attributes: usize,
    pub(crate) attribute_count: u32,
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The functions.
        #[allow(non_snake_case, reason = "CUDA's names")]
        pub(crate) struct Cuda { $($name: *mut c_void,)* }

        #[allow(non_snake_case, reason = "CUDA's names")]
        #[allow(clippy::too_many_arguments, reason = "CUDA's functions")]
        impl Cuda {
            fn find(library: *mut c_void) -> Self {
                // SAFETY: a library that is loaded, and a name that ends with a zero byte.
                let find = |name: &'static str| unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                Self { $($name: find(concat!(stringify!($name), "\0")),)* }
            }

            $(
                /// The driver's function of this name.
                pub(crate) fn $name(&self, $($argument: $type),*) -> Result<(), Code> {
                    if self.$name.is_null() {
                        return Err(Code::NOT_FOUND);
                    }
                    // SAFETY: the driver's function of this name has these arguments (cuda.h); a reference is a pointer to C.
                    let function: unsafe extern "C" fn($($type),*) -> u32 = unsafe { mem::transmute(self.$name) };
                    // SAFETY: references are valid, and handles are such that the driver has given out.
                    Code::of(unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

functions! {
    cuInit(flags: u32);
    cuDriverGetVersion(version: &mut i32);
    cuDeviceGet(device: &mut i32, number: i32);
    cuDeviceGetName(name: &mut [u8; 256], length: i32, device: i32);
    cuDeviceGetUuid_v2(uuid: &mut [u8; 16], device: i32);
    cuDeviceTotalMem_v2(bytes: &mut usize, device: i32);
    cuDevicePrimaryCtxRetain(context: &mut usize, device: i32);
    cuCtxSetCurrent(context: usize);
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);

    cuMemAlloc_v2(address: &mut u64, size: usize);
    cuMemAllocPitch_v2(address: &mut u64, pitch: &mut usize, width: usize, height: usize, element: u32);
    cuMemAllocManaged(address: &mut u64, size: usize, flags: u32);
    cuMemFree_v2(address: u64);
    cuMemAllocAsync(address: &mut u64, size: usize, stream: usize);
    cuMemFreeAsync(address: u64, stream: usize);
    cuDeviceGetDefaultMemPool(pool: &mut usize, device: i32);
    cuMemPoolTrimTo(pool: usize, keep: usize);
    cuMemGetAllocationGranularity(size: &mut usize, physical: &Physical, option: u32);
    cuMemCreate(handle: &mut u64, size: usize, physical: &Physical, flags: u64);
    cuMemRelease(handle: u64);
    cuMemAddressReserve(address: &mut u64, size: usize, alignment: usize, wanted: u64, flags: u64);
    cuMemAddressFree(address: u64, size: usize);
    cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64);
    cuMemUnmap(address: u64, size: usize);
    cuIpcGetMemHandle(handle: &mut [u8; 64], address: u64);
    cuIpcOpenMemHandle_v2(address: &mut u64, handle: Shared, flags: u32);
    cuIpcCloseMemHandle(address: u64);

    cuModuleLoadData(module: &mut usize, image: &[u8; super::kernel::IMAGE.len()]);
    cuModuleGetFunction(function: &mut usize, module: usize, name: &[u8; 8]);
    cuLaunchKernel(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: usize, arguments: &[&u64; 1], extra: usize);
    cuLaunchKernelEx(launch: &Launch, function: usize, arguments: &[&u64; 1], extra: usize);
    cuStreamCreate(stream: &mut usize, flags: u32);
    cuStreamSynchronize(stream: usize);
    cuStreamBeginCapture_v2(stream: usize, mode: u32);
    cuStreamEndCapture(stream: usize, graph: &mut usize);
    cuGraphInstantiateWithFlags(exec: &mut usize, graph: usize, flags: u64);
    cuGraphLaunch(exec: usize, stream: usize);
    cuGraphExecDestroy(exec: usize);
    cuGraphDestroy(graph: usize);
    cuEventCreate(event: &mut usize, flags: u32);
    cuEventRecord(event: usize, stream: usize);
    cuEventSynchronize(event: usize);
    cuEventElapsedTime(milliseconds: &mut f32, start: usize, end: usize);
    cuGetProcAddress_v2(name: &[u8; 11], function: &mut usize, version: i32, flags: u64, status: &mut i32);
}

/// A library that programs have loaded.
pub(crate) struct Library(*mut c_void);

// === impl Library ===

impl Library {
    /// Loads it, if it is there.
    pub(crate) fn open(name: &CStr) -> Option<Self> {
        // SAFETY: a name; what a driver's library does when it is loaded is what every program relies on.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        (!library.is_null()).then_some(Self(library))
    }

    /// The address of a function; null if it lacks it.
    pub(crate) fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a library that is loaded, and a name.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

// === impl Cuda ===

impl Cuda {
    /// The driver's library, and its functions.
    pub(crate) fn load() -> Result<(Library, Self)> {
        let Some(library) = Library::open(c"libcuda.so.1") else {
            bail!("libcuda.so.1: no such library, or one that doesn't load")
        };
        let cuda = Self::find(library.0);
        Ok((library, cuda))
    }

    /// A value that a function writes.
    pub(crate) fn get<T: Default>(call: impl FnOnce(&mut T) -> Result<(), Code>) -> Result<T, Code> {
        let mut value = T::default();
        call(&mut value)?;
        Ok(value)
    }
}

// === impl Physical ===

impl Physical {
    /// Pinned memory of a card, by its ordinal.
    pub(crate) fn of(device: i32) -> Self {
        Self { kind: 1, shareable_as: 0, location: [1, device.cast_unsigned()], windows: 0, flags: [0; 8] }
    }
}

// === impl Code ===

impl Code {
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_FOUND: Self = Self(500);

    fn of(result: u32) -> Result<(), Self> {
        if result == 0 { Ok(()) } else { Err(Self(result)) }
    }
}

impl Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA answers {}", self.0)
    }
}

impl std::error::Error for Code {}
