//! Machines with a library of their own, and the programs on them.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, ptr, thread};

use fake_cuda::Machine;
use fake_cuda::card::{Card, Usage};
use libloading::Library;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const OUT_OF_MEMORY: u32 = 2;
pub(crate) const NOT_READY: u32 = 600;

/// A machine and its copy of the library.
pub(crate) struct Site {
    directory: TempDir,
    library: PathBuf,
}

/// `CUipcMemHandle`.
#[repr(C)]
pub(crate) struct Handle(pub(crate) [u8; 64]);

/// A process of a test, ended with it.
pub(crate) struct Worker(Child);

/// A loaded library with a current context on card 0.
pub(crate) struct Program {
    library: Library,
    pub(crate) context: usize,
}

// === impl Site ===

impl Site {
    pub(crate) fn new(machine: &Machine) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let built = env::current_exe().unwrap().with_file_name("libfake_cuda.so");
        let library = fake_cuda::install(&built, directory.path(), &machine.lacks).unwrap();
        machine.write(&directory.path().join("cards.json")).unwrap();
        Self { directory, library }
    }

    /// One card of a GiB.
    pub(crate) fn small() -> Self {
        Self::new(&Machine::uniform(1, GIB))
    }

    pub(crate) fn card(&self, number: u32) -> Card {
        Card::open(&self.directory.path().join("state"), &Machine::uuid(number)).unwrap()
    }

    /// Where the state of the cards is.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The state of card 0, once some process has made it.
    pub(crate) fn opened(&self) -> Option<Card> {
        Card::open(&self.directory.path().join("state"), &Machine::uuid(0)).ok()
    }

    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    pub(crate) fn load(&self) -> Library {
        // SAFETY: the library has no constructors.
        unsafe { Library::new(&self.library) }.unwrap()
    }

    /// Loads the library and makes card 0's primary context current.
    pub(crate) fn program(&self) -> Program {
        Program::on(self.load(), 0)
    }

    /// Another process that does as [`crate::turns::worker`] understands.
    pub(crate) fn worker(&self, what: &str) -> Worker {
        self.worker_with(what, &[])
    }

    pub(crate) fn worker_with(&self, what: &str, variables: &[(&str, &str)]) -> Worker {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "turns::worker", "--nocapture"]);
        command.env("FAKE_CUDA_WORKER", what).env("FAKE_CUDA_LIBRARY", &self.library);
        // For programs that find the library by its name.
        command.env("LD_LIBRARY_PATH", self.directory.path());
        command.envs(variables.iter().copied()).stdout(Stdio::null());
        Worker(command.spawn().unwrap())
    }
}

/// Waits for something.
pub(crate) fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it didn't come");
        thread::sleep(Duration::from_millis(1));
    }
}

// === impl Worker ===

impl Worker {
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    pub(crate) fn wait(&mut self) -> io::Result<bool> {
        Ok(self.0.wait()?.success())
    }

    /// What it has of a card, once it is there.
    pub(crate) fn usage(&self, card: Card) -> Usage {
        eventually(|| card.usage_of(self.0.id()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

// === impl Program ===

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "CUDA's own")]
        impl Program {
            $(
                pub(crate) fn $name(&self, $($argument: $type),*) -> u32 {
                    type Function = unsafe extern "C" fn($($type),*) -> u32;
                    // SAFETY: the type is the function's, and tests give pointers that are valid.
                    unsafe { self.library.get::<Function>(stringify!($name)).unwrap()($($argument),*) }
                }
            )*
        }
    };
}

calls! {
    cuInit(flags: c_uint);
    cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int);
    cuCtxDestroy_v2(context: usize);
    cuCtxSetCurrent(context: usize);
    cuCtxSynchronize();
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int);
    cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int);
    cuDeviceGetGraphMemAttribute(device: c_int, number: c_uint, value: *mut c_void);
    cuDeviceGraphMemTrim(device: c_int);
    cuEventCreate(event: *mut usize, flags: c_uint);
    cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize);
    cuEventQuery(event: usize);
    cuEventRecord(event: usize, stream: usize);
    cuEventSynchronize(event: usize);
    cuGetProcAddress_v2(
        name: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_uint
    );
    cuGetProcAddress(name: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64);
    cuGraphDestroy(graph: usize);
    cuGraphExecDestroy(exec: usize);
    cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize);
    cuGraphInstantiateWithFlags(exec: *mut usize, graph: usize, flags: u64);
    cuGraphLaunch(exec: usize, stream: usize);
    cuIpcCloseMemHandle(address: u64);
    cuIpcGetMemHandle(handle: *mut [u8; 64], address: u64);
    cuIpcOpenMemHandle(address: *mut u64, handle: Handle, flags: c_uint);
    cuLaunchHostFunc(stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void);
    cuLaunchKernel(
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: usize, arguments: *mut c_void, extra: *mut c_void
    );
    cuMemAddressFree(address: u64, size: usize);
    cuMemAddressReserve(address: *mut u64, size: usize, alignment: usize, wanted: u64, flags: u64);
    cuMemAllocAsync(address: *mut u64, size: usize, stream: usize);
    cuMemAllocManaged(address: *mut u64, size: usize, flags: c_uint);
    cuMemAlloc_v2(address: *mut u64, size: usize);
    cuMemCreate(handle: *mut u64, size: usize, properties: *const [u32; 8], flags: u64);
    cuMemExportToShareableHandle(shared: *mut c_int, handle: u64, kind: c_uint, flags: u64);
    cuMemImportFromShareableHandle(handle: *mut u64, shared: usize, kind: c_uint);
    cuMemFreeAsync(address: u64, stream: usize);
    cuMemFree_v2(address: u64);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64);
    cuMemPoolGetAttribute(pool: usize, number: c_uint, value: *mut u64);
    cuMemPoolSetAttribute(pool: usize, number: c_uint, value: *mut u64);
    cuMemPoolTrimTo(pool: usize, keep: usize);
    cuMemRelease(handle: u64);
    cuMemRetainAllocationHandle(handle: *mut u64, address: u64);
    cuMemSetAccess(address: u64, size: usize, access: *const [u32; 3], count: usize);
    cuMemUnmap(address: u64, size: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, length: usize);
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, length: usize);
    cuMemsetD8_v2(to: u64, value: u8, count: usize);
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    cuModuleLoadData(module: *mut usize, image: *const c_void);
    cuStreamBeginCapture_v2(stream: usize, mode: c_uint);
    cuStreamCreate(stream: *mut usize, flags: c_uint);
    cuStreamEndCapture(stream: usize, graph: *mut usize);
    cuStreamIsCapturing(stream: usize, status: *mut c_uint);
    cuStreamQuery(stream: usize);
    cuStreamSynchronize(stream: usize);
    cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
}

impl Program {
    /// Without a context, and not initialised.
    pub(crate) fn bare(library: Library) -> Self {
        Self { library, context: 0 }
    }

    pub(crate) fn on(library: Library, device: c_int) -> Self {
        let mut program = Self::bare(library);
        assert_eq!(program.cuInit(0), SUCCESS);
        let mut context = 0;
        assert_eq!(program.cuDevicePrimaryCtxRetain(&raw mut context, device), SUCCESS);
        assert_eq!(program.cuCtxSetCurrent(context), SUCCESS);
        program.context = context;
        program
    }

    /// A value that a function writes through a pointer.
    pub(crate) fn get<T: Default>(&self, call: impl FnOnce(&Self, *mut T) -> u32) -> T {
        let mut value = T::default();
        assert_eq!(call(self, &raw mut value), SUCCESS);
        value
    }

    pub(crate) fn function(&self, name: &str) -> usize {
        let module: usize = self.get(|cuda, to| cuda.cuModuleLoadData(to, c"any".as_ptr().cast()));
        let name = CString::new(name).unwrap();
        self.get(|cuda, to| cuda.cuModuleGetFunction(to, module, name.as_ptr()))
    }

    pub(crate) fn launch(&self, function: usize, width: c_uint, stream: usize) -> u32 {
        self.cuLaunchKernel(function, width, 1, 1, 1, 1, 1, 0, stream, ptr::null_mut(), ptr::null_mut())
    }

    /// Keeps the card busy while what follows is submitted: else its time has gaps in which we weren't fast enough.
    pub(crate) fn busy_meanwhile(&self, stream: usize) {
        assert_eq!(self.launch(self.function("busy_ns"), 30_000_000, stream), SUCCESS);
    }

    pub(crate) fn event(&self) -> usize {
        self.get(|cuda, to| cuda.cuEventCreate(to, 0))
    }

    pub(crate) fn stream(&self) -> usize {
        self.get(|cuda, to| cuda.cuStreamCreate(to, 1))
    }

    pub(crate) fn allocate(&self, size: u64) -> u64 {
        self.get(|cuda, to| cuda.cuMemAlloc_v2(to, size as usize))
    }

    /// Free and total bytes of the card.
    pub(crate) fn info(&self) -> (u64, u64) {
        let (mut free, mut total) = (0, 0);
        assert_eq!(self.cuMemGetInfo_v2(&raw mut free, &raw mut total), SUCCESS);
        (free as u64, total as u64)
    }

    pub(crate) fn elapsed(&self, start: usize, end: usize) -> Duration {
        let milliseconds: f32 = self.get(|cuda, to| cuda.cuEventElapsedTime(to, start, end));
        Duration::from_nanos((f64::from(milliseconds) * 1e6).round() as u64)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        // SAFETY: the symbol isn't called.
        unsafe { self.library.get::<*const c_void>(name) }.is_ok()
    }

    /// What `cuGetProcAddress_v2` answers: status and address.
    pub(crate) fn look_up(&self, name: &str, version: c_int, flags: u64) -> (c_uint, usize) {
        let (mut found, mut status) = (ptr::null_mut(), 9);
        let name = CString::new(name).unwrap();
        let code = self.cuGetProcAddress_v2(name.as_ptr(), &raw mut found, version, flags, &raw mut status);
        assert_eq!(code, SUCCESS);
        (status, found.addr())
    }

    /// The address of an exported function.
    pub(crate) fn address(&self, name: &str) -> usize {
        // SAFETY: the symbol isn't called.
        unsafe { self.library.get::<unsafe extern "C" fn()>(name) }.map_or(0, |symbol| (*symbol as *const ()).addr())
    }
}
