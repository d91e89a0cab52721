//! A tenant that does what a test tells it, word by word, and answers each line with the driver's code.

use std::collections::HashMap;
use std::{env, process, ptr};

use crate::container::{Container, MIB, Tenant, listen, say, words};
use crate::cuda::{Array, Array3d, Cuda, GraphAllocation, INVALID_VALUE, IpcHandle, Location, Physical, Pool, SUCCESS};

/// What the tenant has names for.
struct Shell {
    cuda: Cuda,
    named: HashMap<String, u64>,
}

/// A card, by its ordinal.
const CARD: Location = Location { kind: 1, id: 0 };
/// `CU_MEM_LOCATION_TYPE_HOST`.
const HOST: Location = Location { kind: 2, id: 0 };

// === impl Tenant ===

impl Tenant {
    /// Has it do something, which must give this code.
    #[track_caller]
    pub(crate) fn does(&mut self, line: &str, code: u32) {
        self.tell(line);
        assert_eq!(self.heard().as_deref(), Some(code.to_string().as_str()), "{line}");
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
    let cuda = if words[0] == "with" { Cuda::start() } else { Cuda::load() };
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
            ["fork"] => fork(),
            ["exec"] => exec(),
            ["close-all"] => close_all(),
            ["exhaust"] => limit(libc::RLIMIT_NOFILE, 3),
            ["no-more-memory"] => limit(libc::RLIMIT_AS, 4096),
            ["move-to", directory] => move_to(directory),
            ["deny-calls"] => deny_calls(),
            ["work", kernels] => {
                let busy = shell.cuda.function(c"busy_ns");
                let count = 0..kernels.parse().expect("a number");
                let refused = count.map(|_: u32| shell.cuda.launch(busy, 1_000_000, 0)).find(|code| *code != SUCCESS);
                say(refused.unwrap_or_else(|| shell.cuda.cuCtxSynchronize()));
            }
            _ => say(shell.does(&words)),
        }
    }
}

// === impl Shell ===

impl Shell {
    #[expect(clippy::too_many_lines, reason = "a list")]
    fn does(&mut self, words: &[&str]) -> u32 {
        let Self { cuda, named } = self;
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let size = |word: &str| number(word) as usize;
        let known = |name: &str| *named.get(name).unwrap_or(&0);
        let handle = |name: &str| known(name) as usize;
        let mut made = 0_u64;
        let mut wide = 0_usize;
        let code = match *words {
            ["init"] => cuda.cuInit(0),
            ["start"] => {
                let mut context = 0;
                match (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0)) {
                    (SUCCESS, SUCCESS) => cuda.cuCtxSetCurrent(context),
                    (_, code) => code,
                }
            }
            ["context", _] => cuda.cuCtxCreate_v2(&raw mut wide, 0, 0),
            ["end-context", name] => cuda.cuCtxDestroy_v2(handle(name)),
            ["green", _] => cuda.cuGreenCtxCreate(&raw mut wide, 0, 0, 1),
            ["enter-green", name] => {
                let mut context = 0;
                match cuda.cuCtxFromGreenCtx(&raw mut context, handle(name)) {
                    SUCCESS => cuda.cuCtxSetCurrent(context),
                    code => code,
                }
            }
            ["end-green", name] => cuda.cuGreenCtxDestroy(handle(name)),
            ["release-primary"] => cuda.cuDevicePrimaryCtxRelease_v2(0),
            ["reset-primary"] => cuda.cuDevicePrimaryCtxReset_v2(0),
            ["allocate", _, bytes] => cuda.cuMemAlloc_v2(&raw mut made, size(bytes)),
            ["managed", _, bytes] => cuda.cuMemAllocManaged(&raw mut made, size(bytes), 1),
            ["pitched", _, width, height] => {
                cuda.cuMemAllocPitch_v2(&raw mut made, &raw mut wide, size(width), size(height), 4)
            }
            ["narrow", _, bytes] => {
                let mut narrow = 0;
                cuda.cuMemAlloc(&raw mut narrow, u32::try_from(number(bytes)).expect("small"))
            }
            ["free", name] => cuda.cuMemFree_v2(known(name)),
            ["stream", _] => cuda.cuStreamCreate(&raw mut wide, 1),
            ["allocate-async", _, bytes] => cuda.cuMemAllocAsync(&raw mut made, size(bytes), 0),
            ["allocate-async", _, bytes, stream] => cuda.cuMemAllocAsync(&raw mut made, size(bytes), handle(stream)),
            ["free-async", name] => cuda.cuMemFreeAsync(known(name), 0),
            ["free-async", name, stream] => cuda.cuMemFreeAsync(known(name), handle(stream)),
            ["synchronise"] => cuda.cuCtxSynchronize(),
            ["pool", _] => {
                let pool = Pool { kind: 1, location: CARD, ..Pool::default() };
                cuda.cuMemPoolCreate(&raw mut wide, &raw const pool)
            }
            ["host-pool", _] => {
                let pool = Pool { kind: 1, location: HOST, ..Pool::default() };
                cuda.cuMemPoolCreate(&raw mut wide, &raw const pool)
            }
            ["default-pool", _] => cuda.cuDeviceGetDefaultMemPool(&raw mut wide, 0),
            ["keep-all", pool] => {
                let mut threshold = u64::MAX;
                cuda.cuMemPoolSetAttribute(handle(pool), 4, &raw mut threshold)
            }
            ["allocate-from", _, bytes, pool] => {
                cuda.cuMemAllocFromPoolAsync(&raw mut made, size(bytes), handle(pool), 0)
            }
            ["trim", pool, keep] => cuda.cuMemPoolTrimTo(handle(pool), size(keep)),
            ["end-pool", pool] => cuda.cuMemPoolDestroy(handle(pool)),
            ["create", _, bytes, place] => {
                let location = if place == "host" { HOST } else { CARD };
                let physical = Physical { kind: 1, handle_types: 1, location, ..Physical::default() };
                cuda.cuMemCreate(&raw mut made, size(bytes), &raw const physical, 0)
            }
            ["release", name] => cuda.cuMemRelease(known(name)),
            ["reserve", _, bytes] => cuda.cuMemAddressReserve(&raw mut made, size(bytes), 0, 0, 0),
            ["map", address, at, bytes, name] => {
                cuda.cuMemMap(known(address) + number(at), size(bytes), 0, known(name), 0)
            }
            ["unmap", address, at, bytes] => cuda.cuMemUnmap(known(address) + number(at), size(bytes)),
            ["retain", _, address, at] => cuda.cuMemRetainAllocationHandle(&raw mut made, known(address) + number(at)),
            ["share", _, name] => {
                let mut descriptor = 0;
                let code = cuda.cuMemExportToShareableHandle(&raw mut descriptor, known(name), 1, 0);
                made = u64::try_from(descriptor).expect("a descriptor");
                code
            }
            ["import", _, descriptor] => cuda.cuMemImportFromShareableHandle(&raw mut made, handle(descriptor), 1),
            ["array", _, width, height] => {
                let array = Array { width: size(width), height: size(height), format: 0x20, channels: 4 };
                cuda.cuArrayCreate_v2(&raw mut wide, &raw const array)
            }
            ["array", _, width, height, depth] => {
                let (width, height, depth) = (size(width), size(height), size(depth));
                let array = Array3d { width, height, depth, format: 0x20, channels: 1, flags: 0 };
                cuda.cuArray3DCreate_v2(&raw mut wide, &raw const array)
            }
            ["mipmapped", _, width, height, levels] => {
                let (width, height) = (size(width), size(height));
                let array = Array3d { width, height, depth: 0, format: 0x20, channels: 1, flags: 0 };
                cuda.cuMipmappedArrayCreate(
                    &raw mut wide,
                    &raw const array,
                    u32::try_from(number(levels)).expect("few"),
                )
            }
            ["end-array", name] => cuda.cuArrayDestroy(handle(name)),
            ["end-mipmapped", name] => cuda.cuMipmappedArrayDestroy(handle(name)),
            ["graph", _] => cuda.cuGraphCreate(&raw mut wide, 0),
            ["add-allocation", graph, bytes] => {
                let pool = Pool { kind: 1, location: CARD, ..Pool::default() };
                let mut given = GraphAllocation { pool, size: size(bytes), ..GraphAllocation::default() };
                let mut node = 0;
                cuda.cuGraphAddMemAllocNode(&raw mut node, handle(graph), ptr::null(), 0, &raw mut given)
            }
            ["instantiate", _, graph] => cuda.cuGraphInstantiateWithFlags(&raw mut wide, handle(graph), 1),
            ["launch", graph] => cuda.cuGraphLaunch(handle(graph), 0),
            ["end-executable", graph] => cuda.cuGraphExecDestroy(handle(graph)),
            ["trim-graphs"] => cuda.cuDeviceGraphMemTrim(0),
            ["capture", stream] => cuda.cuStreamBeginCapture_v2(handle(stream), 2),
            ["end-capture", _, stream] => cuda.cuStreamEndCapture(handle(stream), &raw mut wide),
            ["export", _, name] => {
                let mut exported = [0; 64];
                let code = cuda.cuIpcGetMemHandle(&raw mut exported, known(name));
                std::fs::write(words[1], exported).expect("room");
                code
            }
            ["open", _, file] => {
                let exported = std::fs::read(file).expect("what was exported").try_into().expect("64 bytes");
                cuda.cuIpcOpenMemHandle_v2(&raw mut made, IpcHandle(exported), 1)
            }
            ["close", name] => cuda.cuIpcCloseMemHandle(known(name)),
            _ => panic!("{words:?}"),
        };
        if code == SUCCESS && words.len() > 1 && (made, wide) != (0, 0) {
            named.insert(words[1].to_owned(), made.max(wide as u64));
        }
        code
    }
}

/// A child that has used nothing of CUDA allocates for itself, and is gone.
fn fork() {
    // SAFETY: the child calls what its parent could.
    match unsafe { libc::fork() } {
        0 => {
            let cuda = Cuda::load();
            let started = cuda.cuInit(0);
            let mut context = 0;
            let retained = cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0);
            let set = cuda.cuCtxSetCurrent(context);
            let allocated = cuda.try_allocate(10 * MIB).err().unwrap_or(SUCCESS);
            say([started, retained, set, allocated].into_iter().find(|code| *code != SUCCESS).unwrap_or(SUCCESS));
            listen();
            process::exit(0);
        }
        child => {
            let mut status = INVALID_VALUE.cast_signed();
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
    say(SUCCESS);
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
