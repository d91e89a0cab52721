//! A tenant that does what a test tells it, word by word, and answers each line with the driver's code.

use std::collections::HashMap;
use std::{env, process, ptr};

use driver_api::sys::CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
use driver_api::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
use driver_api::sys::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEM_ALLOC_NODE_PARAMS, CUarray_format,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemPool_attribute, CUmemPoolProps,
};
use driver_api::{
    Code, Cuda, DEFAULT_STREAM, DRIVER, HOST, INVALID_VALUE, NON_BLOCKING, NarrowArray, NarrowArray3d, SUCCESS,
    ipc_handle, on_device, pinned,
};

use crate::container::{Container, MIB, Tenant, listen, say, words};

/// What the tenant has names for.
struct Shell {
    cuda: Cuda,
    named: HashMap<String, u64>,
}

/// `CU_STREAM_PER_THREAD`
const PER_THREAD: u64 = 2;
const CARD: CUmemLocation = on_device(0);
const DESCRIPTOR: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const FLOAT: CUarray_format = CUarray_format::CU_AD_FORMAT_FLOAT;

// === impl Tenant ===

impl Tenant {
    /// Has it do something, which must give this code.
    #[track_caller]
    pub(crate) fn does(&mut self, line: &str, code: Code) {
        self.tell(line);
        assert_eq!(self.heard().as_deref(), Some(code.0.to_string().as_str()), "{line}");
    }

    /// Has it do several things that must succeed.
    #[track_caller]
    pub(crate) fn succeeds_in(&mut self, lines: &[&str]) {
        for line in lines {
            self.does(line, SUCCESS);
        }
    }

    /// Has it answer a question.
    #[track_caller]
    pub(crate) fn answers(&mut self, line: &str) -> String {
        self.tell(line);
        self.heard().expect("an answer")
    }
}

// === impl Container ===

impl Container {
    /// A tenant that does as it is told.
    pub(crate) fn shell(&self) -> Tenant {
        self.tenant("shell::tenant", "with a context")
    }

    /// One that hasn't started CUDA yet.
    pub(crate) fn idle_shell(&self) -> Tenant {
        self.tenant("shell::tenant", "without a context")
    }

    /// What the books say is held of card 0, which must be what the card says, and that. In MiB.
    #[track_caller]
    pub(crate) fn holds(&self, mib: u64) {
        self.holds_bytes(mib * MIB);
    }

    /// The same in bytes.
    #[track_caller]
    pub(crate) fn holds_bytes(&self, bytes: u64) {
        let (booked, used) = (self.totals(0).usage, self.card(0).memory_used());
        assert_eq!(
            (booked.committed, booked.tentative, used),
            (bytes, 0, bytes),
            "booked, being tried for, and of the card"
        );
    }
}

#[test]
#[ignore = "a tenant of other tests"]
fn tenant() {
    let words = words();
    if words.is_empty() {
        return;
    }
    let cuda = if words[0] == "with" { Cuda::start(DRIVER) } else { Cuda::load(DRIVER).expect("a driver") };
    let mut shell = Shell { cuda, named: HashMap::new() };
    loop {
        let line = listen();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => return,
            ["info"] => {
                let (free, total) = shell.cuda.info();
                say(format_args!("{} of {}", free / MIB, total / MIB));
            }
            ["total"] => say(shell.cuda.get::<usize>(|cuda, to| cuda.cuDeviceTotalMem_v2(to, 0)) as u64 / MIB),
            ["belongs", name] => say(shell.belongs(name)),
            ["number", name] => say(shell.named[name]),
            ["holds", name, offset] => {
                let address = shell.named[name] + offset.parse::<u64>().expect("a number");
                say(shell.cuda.get::<u8>(|cuda, to| cuda.cuMemcpyDtoH_v2(to.cast(), address, 1)));
            }
            ["fork"] => fork(),
            ["exec"] => exec(),
            ["close-all"] => close_all(),
            ["exhaust"] => limit(libc::RLIMIT_NOFILE, 3),
            ["no-more-memory"] => {
                // This program and the stand-in go on with what the allocator keeps of it.
                drop(vec![1_u8; 100 << 10]);
                limit(libc::RLIMIT_AS, 4096);
            }
            ["move-to", directory] => move_to(directory),
            ["deny-calls"] => deny_calls(),
            ["work", kernels] => {
                let busy = shell.cuda.function(c"busy_ns");
                let count = 0..kernels.parse().expect("a number");
                let refused = count
                    .map(|_: u32| shell.cuda.launch(busy, 1_000_000, DEFAULT_STREAM))
                    .find(|code| *code != SUCCESS);
                say(refused.unwrap_or_else(|| shell.cuda.cuCtxSynchronize()).0);
            }
            _ => say(shell.does(&words).0),
        }
    }
}

// === impl Shell ===

impl Shell {
    /// The card that managed memory belongs on; of plain memory there is none but where it lies.
    fn belongs(&self, name: &str) -> String {
        let (address, number) = (self.named[name], CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION);
        match self.cuda.try_get::<i32>(|cuda, to| cuda.cuMemRangeGetAttribute(to.cast(), 4, number, address, 1)) {
            Ok(place) => place.to_string(),
            Err(INVALID_VALUE) => "plain".to_owned(),
            Err(code) => panic!("{code}"),
        }
    }

    #[expect(clippy::too_many_lines, reason = "a list")]
    fn does(&mut self, words: &[&str]) -> Code {
        let Self { cuda, named } = self;
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let size = |word: &str| number(word) as usize;
        let known = |name: &str| *named.get(name).unwrap_or(if name == "per-thread" { &PER_THREAD } else { &0 });
        let at = |address: &str, offset: &str| known(address) + number(offset);
        let (mut made, mut pitch) = (0_u64, 0);
        let to = &raw mut made;
        let code = match *words {
            ["init"] => cuda.cuInit(0),
            ["start"] => {
                let mut context = ptr::null_mut();
                match (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0)) {
                    (SUCCESS, SUCCESS) => cuda.cuCtxSetCurrent(context),
                    (_, code) => code,
                }
            }
            ["context", _] => cuda.cuCtxCreate_v2(to.cast(), 0, 0),
            ["attach"] => cuda.cuCtxAttach(to.cast(), 0),
            ["detach", name] => cuda.cuCtxDetach(handle(known(name))),
            ["end-context", name] => cuda.cuCtxDestroy_v2(handle(known(name))),
            ["green", _] => cuda.cuGreenCtxCreate(to.cast(), ptr::null_mut(), 0, 1),
            ["enter-green", name] => {
                let mut context = ptr::null_mut();
                match cuda.cuCtxFromGreenCtx(&raw mut context, handle(known(name))) {
                    SUCCESS => cuda.cuCtxSetCurrent(context),
                    code => code,
                }
            }
            ["end-green", name] => cuda.cuGreenCtxDestroy(handle(known(name))),
            ["release-primary"] => cuda.cuDevicePrimaryCtxRelease_v2(0),
            ["reset-primary"] => cuda.cuDevicePrimaryCtxReset_v2(0),
            ["allocate", _, bytes] => cuda.cuMemAlloc_v2(to, size(bytes)),
            ["managed", _, bytes] => cuda.cuMemAllocManaged(to, size(bytes), 1),
            ["pitched", _, width, height] => cuda.cuMemAllocPitch_v2(to, &raw mut pitch, size(width), size(height), 4),
            ["pitched", _, width, height, element] => {
                let element = u32::try_from(number(element)).expect("small");
                cuda.cuMemAllocPitch_v2(to, &raw mut pitch, size(width), size(height), element)
            }
            ["narrow", _, bytes] => {
                let mut narrow = 0;
                cuda.cuMemAlloc(&raw mut narrow, u32::try_from(number(bytes)).expect("small"))
            }
            ["narrow-pitched", _, width, height] => {
                let size = |word| u32::try_from(number(word)).expect("small");
                cuda.cuMemAllocPitch(&mut 0, &mut 0, size(width), size(height), 4)
            }
            ["free", name] => cuda.cuMemFree_v2(known(name)),
            ["bring", name, bytes] => cuda.cuMemPrefetchAsync_v2(known(name), size(bytes), CARD, 0, DEFAULT_STREAM),
            ["write", name, offset, value] => {
                cuda.cuMemsetD8_v2(at(name, offset), u8::try_from(number(value)).expect("a byte"), 16)
            }
            ["stream", _] => cuda.cuStreamCreate(to.cast(), NON_BLOCKING),
            ["allocate-async", _, bytes] => cuda.cuMemAllocAsync(to, size(bytes), DEFAULT_STREAM),
            ["allocate-async", _, bytes, stream] => cuda.cuMemAllocAsync(to, size(bytes), handle(known(stream))),
            ["free-async", name] => cuda.cuMemFreeAsync(known(name), DEFAULT_STREAM),
            ["free-async", name, stream] => cuda.cuMemFreeAsync(known(name), handle(known(stream))),
            ["synchronise"] => cuda.cuCtxSynchronize(),
            ["pool", _] => cuda.cuMemPoolCreate(to.cast(), &pool(CARD)),
            ["host-pool", _] => cuda.cuMemPoolCreate(to.cast(), &pool(HOST)),
            ["default-pool", _] => cuda.cuDeviceGetDefaultMemPool(to.cast(), 0),
            ["host-default-pool", _] => {
                let kind = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
                cuda.cuMemGetDefaultMemPool(to.cast(), &mut HOST.clone(), kind)
            }
            ["keep-all", pool] => {
                let (mut all, threshold) = (u64::MAX, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
                cuda.cuMemPoolSetAttribute(handle(known(pool)), threshold, (&raw mut all).cast())
            }
            ["allocate-from", _, bytes, pool] => {
                cuda.cuMemAllocFromPoolAsync(to, size(bytes), handle(known(pool)), DEFAULT_STREAM)
            }
            ["trim", pool, keep] => cuda.cuMemPoolTrimTo(handle(known(pool)), size(keep)),
            ["end-pool", pool] => cuda.cuMemPoolDestroy(handle(known(pool))),
            ["create", _, bytes, place] => {
                let location = if place == "host" { HOST } else { CARD };
                cuda.cuMemCreate(to, size(bytes), &pinned(location, DESCRIPTOR), 0)
            }
            ["release", name] => cuda.cuMemRelease(known(name)),
            ["reserve", _, bytes] => cuda.cuMemAddressReserve(to, size(bytes), 0, 0, 0),
            ["map", address, offset, bytes, name] => cuda.cuMemMap(at(address, offset), size(bytes), 0, known(name), 0),
            ["unmap", address, offset, bytes] => cuda.cuMemUnmap(at(address, offset), size(bytes)),
            ["retain", _, address, offset] => cuda.cuMemRetainAllocationHandle(to, handle(at(address, offset))),
            ["share", _, name] => {
                let mut descriptor = 0_i32;
                let code = cuda.cuMemExportToShareableHandle((&raw mut descriptor).cast(), known(name), DESCRIPTOR, 0);
                made = u64::try_from(descriptor).expect("a descriptor");
                code
            }
            ["import", _, descriptor] => cuda.cuMemImportFromShareableHandle(to, handle(known(descriptor)), DESCRIPTOR),
            ["array", _, width, height] => {
                let array =
                    CUDA_ARRAY_DESCRIPTOR { Width: size(width), Height: size(height), Format: FLOAT, NumChannels: 4 };
                cuda.cuArrayCreate_v2(to.cast(), &raw const array)
            }
            ["array", _, width, height, depth] => {
                cuda.cuArray3DCreate_v2(to.cast(), &array([width, height, depth].map(size)))
            }
            ["narrow-array", _, width, height] => {
                let [width, height] = [width, height].map(|word| u32::try_from(number(word)).expect("small"));
                let array = NarrowArray { width, height, format: FLOAT as u32, channels: 4 };
                cuda.cuArrayCreate(to.cast(), &raw const array)
            }
            ["narrow-array", _, width, height, depth] => {
                let size = |word| u32::try_from(number(word)).expect("small");
                let [width, height, depth] = [width, height, depth].map(size);
                let array = NarrowArray3d { width, height, depth, format: FLOAT as u32, channels: 4, flags: 0 };
                cuda.cuArray3DCreate(to.cast(), &raw const array)
            }
            ["mipmapped", _, width, height, levels] => {
                let levels = u32::try_from(number(levels)).expect("few");
                cuda.cuMipmappedArrayCreate(to.cast(), &array([size(width), size(height), 0]), levels)
            }
            ["end-array", name] => cuda.cuArrayDestroy(handle(known(name))),
            ["end-mipmapped", name] => cuda.cuMipmappedArrayDestroy(handle(known(name))),
            ["graph", _] => cuda.cuGraphCreate(to.cast(), 0),
            ["add-allocation", graph, bytes] => {
                let mut given = CUDA_MEM_ALLOC_NODE_PARAMS {
                    poolProps: pool(CARD),
                    accessDescs: ptr::null(),
                    accessDescCount: 0,
                    bytesize: size(bytes),
                    dptr: 0,
                };
                let node = &mut ptr::null_mut();
                cuda.cuGraphAddMemAllocNode(node, handle(known(graph)), ptr::null(), 0, &raw mut given)
            }
            ["instantiate", _, graph] => cuda.cuGraphInstantiateWithFlags(to.cast(), handle(known(graph)), 1),
            ["launch", graph, stream] => cuda.cuGraphLaunch(handle(known(graph)), handle(known(stream))),
            ["upload", graph, stream] => cuda.cuGraphUpload(handle(known(graph)), handle(known(stream))),
            ["spin", stream, flag] => {
                cuda.launch_on_flag(cuda.function(c"spin_until"), (known(flag), 1), handle(known(stream)))
            }
            ["raise", stream, flag] => {
                cuda.launch_on_flag(cuda.function(c"write_flag"), (known(flag), 1), handle(known(stream)))
            }
            ["launch", graph] => cuda.cuGraphLaunch(handle(known(graph)), DEFAULT_STREAM),
            ["end-executable", graph] => cuda.cuGraphExecDestroy(handle(known(graph))),
            ["trim-graphs"] => cuda.cuDeviceGraphMemTrim(0),
            ["capture", stream] => cuda.cuStreamBeginCapture_v2(handle(known(stream)), RELAXED),
            ["end-capture", _, stream] => cuda.cuStreamEndCapture(handle(known(stream)), to.cast()),
            ["export", _, name] => {
                let mut exported = [0; 64];
                let code = cuda.cuIpcGetMemHandle((&raw mut exported).cast(), known(name));
                std::fs::write(words[1], exported).expect("room");
                code
            }
            ["open", _, file] => {
                let exported = std::fs::read(file).expect("what was exported").try_into().expect("64 bytes");
                cuda.cuIpcOpenMemHandle_v2(to, ipc_handle(exported), 1)
            }
            ["close", name] => cuda.cuIpcCloseMemHandle(known(name)),
            _ => panic!("{words:?}"),
        };
        if code == SUCCESS && words.len() > 1 && made != 0 {
            named.insert(words[1].to_owned(), made);
            if pitch > 0 {
                named.insert("pitch".to_owned(), pitch as u64);
            }
        }
        code
    }
}

/// A handle that has a name.
fn handle<T>(known: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(known as usize)
}

/// An array of this width, height and depth.
fn array([width, height, depth]: [usize; 3]) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR { Width: width, Height: height, Depth: depth, Format: FLOAT, NumChannels: 1, Flags: 0 }
}

fn pool(location: CUmemLocation) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location,
        win32SecurityAttributes: ptr::null_mut(),
        maxSize: 0,
        usage: 0,
        reserved: [0; 54],
    }
}

/// A child that has used nothing of CUDA allocates for itself, and is gone.
fn fork() {
    // SAFETY: the child calls what its parent could.
    match unsafe { libc::fork() } {
        0 => {
            let cuda = Cuda::load(DRIVER).expect("a driver");
            let started = cuda.cuInit(0);
            let mut context = ptr::null_mut();
            let retained = cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0);
            let set = cuda.cuCtxSetCurrent(context);
            let allocated = cuda.try_allocate(10 * MIB).err().unwrap_or(SUCCESS);
            say([started, retained, set, allocated].into_iter().find(|code| *code != SUCCESS).unwrap_or(SUCCESS).0);
            listen();
            process::exit(0);
        }
        child => {
            let mut status = INVALID_VALUE.0.cast_signed();
            // SAFETY: a status is written to a status.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            say(status);
        }
    }
}

/// The same program begins again, as the same process.
fn exec() {
    use std::os::unix::process::CommandExt as _;
    let program = env::current_exe().expect("a program");
    let mut command = process::Command::new(program);
    panic!("{}", command.args(env::args().skip(1)).exec());
}

/// As daemons do at their start.
fn close_all() {
    // SAFETY: whoever has them is not asked.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    say(SUCCESS.0);
}

/// There is no more of it to be had than there was before, or than this.
fn limit(what: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a limit is read from a limit.
    say(unsafe { libc::setrlimit(what, &raw const limit) });
}

/// From now on this directory is all that there is: not even `/proc`.
fn move_to(directory: &str) {
    let directory = std::ffi::CString::new(directory).expect("text");
    // SAFETY: a path.
    say(unsafe { libc::chroot(directory.as_ptr()) | libc::chdir(c"/".as_ptr()) });
}

/// The kernel refuses what some sandboxes do: threads, names of threads and random numbers.
fn deny_calls() {
    let denied = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_prctl, libc::SYS_getrandom];
    let step = |code: u32, on_true, on_false, k| libc::sock_filter { code: code as u16, jt: on_true, jf: on_false, k };
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (at, call) in denied.iter().enumerate() {
        let rest = (denied.len() - at) as u8;
        filter.push(step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            rest,
            0,
            u32::try_from(*call).expect("a small number"),
        ));
    }
    filter.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a program of so many steps.
    say(unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    });
}
