"""Programs of `gpu-check experiments`: each does what real programs do with a GPU, and prints one line of JSON.

    python3 programs.py NAME

They call the driver by ctypes, so that they run on the stand-in too. Kernels are PTX; the stand-in knows them by their names.
Those that need a framework are in frameworks.py.
"""

import ctypes
import glob
import importlib.metadata
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

MIB = 1 << 20
GIB = 1 << 30
# Steps of the kernel in a nanosecond on this GPU; without it a kernel lasts as many nanoseconds as its grid is wide, which
# the stand-in goes by. The kernel keeps time by its work: a clock would go on while the GPU serves another process.
STEPS = float(os.environ.get("GPU_CHECK_STEPS", 0))
# The environment of programs that are not under the library.
PLAIN = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .global .align 4 .u32 result;
.visible .entry busy_ns(.param .u64 steps)
{
    .reg .pred %p<3>;
    .reg .b32 %x;
    .reg .b64 %left;
    .reg .b64 %to;
    ld.param.u64 %left, [steps];
    setp.eq.u64 %p1, %left, 0;
    @%p1 bra END;
    cvt.u32.u64 %x, %left;
STEP:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    shr.u32 %x, %x, 1;
    sub.u64 %left, %left, 1;
    setp.ne.u64 %p2, %left, 0;
    @%p2 bra STEP;
    mov.u64 %to, result;
    st.global.u32 [%to], %x;
END:
    ret;
}
.visible .entry spin_until(.param .u64 flag, .param .u32 value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %a<2>;
    ld.param.u64 %a1, [flag];
    ld.param.u32 %r1, [value];
WAIT:
    ld.volatile.global.u32 %r2, [%a1];
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra WAIT;
    ret;
}
.visible .entry write_flag(.param .u64 flag, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %a<2>;
    ld.param.u64 %a1, [flag];
    ld.param.u32 %r1, [value];
    st.volatile.global.u32 [%a1], %r1;
    ret;
}
"""

# Functions that libdivvy intercepts, as cuda.h names them.
FUNCTIONS = """cuInit cuGetProcAddress cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel cuGraphLaunch
cuStreamSynchronize cuEventSynchronize cuCtxSynchronize cuStreamDestroy cuCtxCreate cuCtxDestroy cuDevicePrimaryCtxRelease
cuDevicePrimaryCtxReset cuDevicePrimaryCtxRetain cuGreenCtxCreate cuGreenCtxDestroy cuMemAlloc cuMemAllocManaged
cuMemAllocPitch cuMemFree cuMemFreeAsync cuIpcOpenMemHandle cuIpcCloseMemHandle cuMemAllocAsync cuMemAllocFromPoolAsync
cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemCreate cuMemMap cuMemRelease cuMemUnmap cuArrayCreate
cuArray3DCreate cuArrayDestroy cuMipmappedArrayCreate cuGraphInstantiate cuGraphInstantiateWithFlags
cuGraphInstantiateWithParams cuGraphExecDestroy cuDeviceTotalMem cuMemGetInfo""".split()
VERSIONS = [2000, 3020, 4000, 7000, 10000, 11000, 11030, 11040, 11060, 11080, 12000, 12050, 12080, 13000, 13010]


class Cuda:
    """The driver, with the primary context of device 0."""

    def __init__(self, has_context=True):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        if has_context:
            self.enter()

    def code(self, name, *arguments):
        return getattr(self.lib, name)(*arguments)

    def call(self, name, *arguments):
        code = self.code(name, *arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def enter(self):
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)

    def made(self, name, *arguments):
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def kernels(self):
        module = self.made("cuModuleLoadData", PTX)
        return {
            name: self.made("cuModuleGetFunction", module, name.encode())
            for name in ("busy_ns", "spin_until", "write_flag")
        }

    def stream(self):
        return self.made("cuStreamCreate", 1)

    def launch(self, kernel, ns, stream):
        """Launches `busy_ns`."""
        steps = ctypes.c_uint64(int(ns * STEPS))
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(steps))
        self.call("cuLaunchKernel", kernel, 1 if STEPS else ns, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    def launch_on_flag(self, kernel, flag, value, stream):
        address, number = ctypes.c_uint64(flag), ctypes.c_uint32(value)
        pointers = (ctypes.c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(number))
        self.call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def try_allocate(self, size):
        address = ctypes.c_uint64()
        code = self.code("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return None if code else address.value

    def free(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def captured(self, stream, launch):
        self.call("cuStreamBeginCapture_v2", stream, 0)
        launch()
        graph = self.made_from_stream(stream)
        return self.made("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))

    def made_from_stream(self, stream):
        graph = ctypes.c_void_p()
        self.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        return graph

    def synchronise(self):
        self.call("cuCtxSynchronize")


def machine():
    """E0: what this machine is."""
    commands = (["nvidia-smi", "-q"], ["nvidia-smi", "-L"], ["uname", "-a"], ["ldd", "--version"])
    figures = {" ".join(command): output(command) for command in commands}
    names = ("torch", "jax", "cupy", "triton", "nvidia", "cuda")
    found = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    figures["python"] = sys.version
    figures["packages"] = {name: version for name, version in sorted(found.items()) if name and name.lower().startswith(names)}
    return figures


def output(command, environment=None):
    """What a program prints, with its exit code and complaints if there are; None if it isn't there."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=8, env=environment)
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        return "timed out"
    return ended.stdout if (ended.returncode, ended.stderr) == (0, "") else [ended.returncode, ended.stdout, ended.stderr]


def preloads():
    """E0: programs that use no GPU, or only ask about it, are as they are without the library."""
    alike, wrong = [], {}
    for program in ("true", "bash", "python3", "nvidia-smi", "nvcc"):
        without, held = output([program, "--version"], PLAIN), output([program, "--version"])
        if without == held and without is not None:
            alike.append(program)
        elif without != held:
            wrong[program] = {"without": without, "with": held}
    return {"alike": alike, "wrong": wrong}


def routes():
    """E1: whether cuGetProcAddress answers with exported symbols, and what asks for a context."""
    cuda = Cuda()
    address = lambda name: ctypes.cast(getattr(cuda.lib, name, None), ctypes.c_void_p).value if hasattr(cuda.lib, name) else 0
    suffixes = [a + b for a in ("", "_v2", "_v3", "_v4") for b in ("", "_ptsz", "_ptds")]
    aliases = {"cuGraphInstantiate": ["cuGraphInstantiateWithFlags"]}
    asked, strange = 0, []
    for name in FUNCTIONS:
        bases = [name] + aliases.get(name, [])
        known = {address(base + suffix) for base in bases for suffix in suffixes} - {0, None}
        for version in VERSIONS:
            for flags in (0, 1, 2):
                found, status = ctypes.c_void_p(), ctypes.c_int(-1)
                code = cuda.code(
                    "cuGetProcAddress_v2", name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags),
                    ctypes.byref(status),
                )
                if code == 0 and found.value:
                    asked += 1
                    if found.value not in known:
                        strange.append([name, version, flags])
                found = ctypes.c_void_p()
                code = cuda.code("cuGetProcAddress", name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags))
                if code == 0 and found.value and found.value not in known:
                    strange.append([name, version, flags, "cuGetProcAddress"])
    events = [cuda.made("cuEventCreate", 0) for _ in range(2)]
    for event in events:
        cuda.call("cuEventRecord", event, None)
    cuda.synchronise()
    elapsed, status = ctypes.c_float(), ctypes.c_int()
    codes = {}

    def ask(where):
        if where == "in another context":
            cuda.made("cuCtxCreate_v2", 0, 0)
        codes[where] = {
            "query": cuda.code("cuEventQuery", events[0]),
            "elapsed": cuda.code("cuEventElapsedTime", ctypes.byref(elapsed), events[0], events[1]),
            "capturing": cuda.code("cuStreamIsCapturing", None, ctypes.byref(status)),
        }

    for where in ("without a context", "in another context"):
        thread = threading.Thread(target=ask, args=[where])
        thread.start()
        thread.join()
    return {"asked": asked, "other_addresses": strange, "codes": codes}


def driver_bytes():
    """What the driver attributes to this process, by nvidia-smi; None if it doesn't say."""
    try:
        text = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=10, env=PLAIN,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = [line.split(",") for line in text.splitlines() if "," in line]
    own = [int(mib) for pid, mib in rows if int(pid) == os.getpid() and mib.strip().isdigit()]
    return own[0] * MIB if own else None


def memory():
    """E3: what the driver charges beyond allocations."""
    cuda = Cuda()
    kernels, stream = cuda.kernels(), cuda.stream()
    steps = {}

    def step(name, act):
        before = cuda.info()[0]
        result = act()
        steps[name] = before - cuda.info()[0]
        return result

    steps["context"], steps["context by nvidia-smi"] = cuda.info()[1] - cuda.info()[0], driver_bytes()
    step("first launch", lambda: (cuda.launch(kernels["busy_ns"], 1000, stream), cuda.synchronise()))
    many = lambda nodes: lambda: [cuda.launch(kernels["busy_ns"], 1000, stream) for _ in range(nodes)]
    for nodes in (10, 100, 1000):
        step(f"graph of {nodes} kernels", lambda: cuda.captured(stream, many(nodes)))
    step("50 graphs of 100 kernels", lambda: [cuda.captured(stream, many(100)) for _ in range(50)])
    steps.update(imported(cuda))
    for size, count in ((1, 1000), (4096, 1000), (1100 * 1024, 200), (3 * MIB, 100)):
        held = step(f"{count} times {size} bytes", lambda: [cuda.allocate(size) for _ in range(count)])
        for address in held:
            cuda.free(address)
    # Width, height, format (floats) and channels of CUDA_ARRAY_DESCRIPTOR.
    array = (ctypes.c_uint64 * 3)(4096, 4096, 0x20 | 1 << 32)
    step("array of 4096 x 4096 floats", lambda: cuda.made("cuArrayCreate_v2", ctypes.byref(array)))
    address = ctypes.c_uint64()
    step("1 byte of a pool", lambda: cuda.call("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(1), stream))
    before = driver_bytes()
    step("1 GiB managed", lambda: cuda.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(GIB), 1))
    steps["1 GiB managed by nvidia-smi"] = difference(driver_bytes(), before)
    return steps


def imported(cuda):
    """At which end 256 MiB count that one process allocates and another imports: what each is charged."""
    before = cuda.info()[0], driver_bytes()
    address, handle = ctypes.c_uint64(cuda.allocate(256 * MIB)), (ctypes.c_byte * 64)()
    cuda.call("cuIpcGetMemHandle", ctypes.byref(handle), address)
    command = [sys.executable, __file__, "importer"]
    ended = subprocess.run(command, input=bytes(handle).hex(), capture_output=True, text=True, timeout=20, check=True)
    exporter = {"free": before[0] - cuda.info()[0], "nvidia-smi": difference(driver_bytes(), before[1])}
    cuda.free(address.value)
    return {"256 MiB exported": exporter, "the same imported": json.loads(ended.stdout)}


class Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = [("reserved", ctypes.c_byte * 64)]


def importer():
    """The other end of `imported`."""
    cuda = Cuda()
    handle, address = Handle.from_buffer_copy(bytes.fromhex(sys.stdin.read())), ctypes.c_uint64()
    before = cuda.info()[0], driver_bytes()
    cuda.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, 1)
    return {"free": before[0] - cuda.info()[0], "nvidia-smi": difference(driver_bytes(), before[1])}


def difference(after, before):
    return None if after is None or before is None else after - before


def many_graphs():
    """E3: what graphs take by their number and size; where memory ends before, how many there were and the code."""
    cuda = Cuda()
    kernel, stream, figures = cuda.kernels()["busy_ns"], cuda.stream(), {}
    cuda.launch(kernel, 1000, stream)
    cuda.synchronise()
    for nodes in (10, 1000):
        cuda.call("cuStreamBeginCapture_v2", stream, 0)
        for _ in range(nodes):
            cuda.launch(kernel, 1000, stream)
        graph, before, made, code = cuda.made_from_stream(stream), cuda.info()[0], [], 0
        for wanted in (1, 50, 500):
            while len(made) < wanted and not code:
                instance = ctypes.c_void_p()
                code = cuda.code("cuGraphInstantiateWithFlags", ctypes.byref(instance), graph, ctypes.c_uint64(0))
                made += [] if code else [instance]
            figures[f"{wanted} graphs of {nodes} kernels"] = {
                "made": len(made), "code": code, "bytes": before - cuda.info()[0],
            }
        for instance in made:
            cuda.call("cuGraphExecDestroy", instance)
        figures[f"graphs of {nodes} kernels, destroyed"] = before - cuda.info()[0]
    return figures


def hang_spin():
    """E5: a kernel spins for a flag that another stream sets behind some work."""
    cuda = Cuda()
    kernels, flag, one, other = cuda.kernels(), cuda.allocate(4), cuda.stream(), cuda.stream()
    cuda.call("cuMemsetD32_v2", ctypes.c_uint64(flag), 0, ctypes.c_size_t(1))
    for number in range(1, 6):
        cuda.launch_on_flag(kernels["spin_until"], flag, number, one)
        cuda.launch(kernels["busy_ns"], 2_000_000, other)
        cuda.launch_on_flag(kernels["write_flag"], flag, number, other)
    cuda.synchronise()
    return {}


def hang_value():
    """E5: a stream waits for a value, with work behind that, and another stream writes it."""
    cuda = Cuda()
    kernels, flag, one, other = cuda.kernels(), cuda.allocate(4), cuda.stream(), cuda.stream()
    cuda.call("cuMemsetD32_v2", ctypes.c_uint64(flag), 0, ctypes.c_size_t(1))
    for number in range(1, 6):
        cuda.call("cuStreamWaitValue32_v2", one, ctypes.c_uint64(flag), number, 0)
        for _ in range(4):
            cuda.launch(kernels["busy_ns"], 2_000_000, one)
        cuda.launch(kernels["busy_ns"], 2_000_000, other)
        cuda.call("cuStreamWriteValue32_v2", other, ctypes.c_uint64(flag), number, 0)
    cuda.synchronise()
    return {}


def hang_host():
    """E5: a function of a stream waits for a thread that launches."""
    cuda = Cuda()
    kernels, one = cuda.kernels(), cuda.stream()
    launched = threading.Semaphore(0)
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: launched.acquire())

    def launch():
        cuda.call("cuCtxSetCurrent", cuda.context)
        other = cuda.stream()
        for _ in range(5):
            cuda.launch(kernels["busy_ns"], 2_000_000, other)
            launched.release()

    thread = threading.Thread(target=launch)
    thread.start()
    for _ in range(5):
        cuda.call("cuLaunchHostFunc", one, wait, None)
        for _ in range(4):
            cuda.launch(kernels["busy_ns"], 2_000_000, one)
    thread.join()
    cuda.synchronise()
    return {}


# Kernels of a millisecond between two synchronisations, as of a step of training.
STEP = 8


def busy(seconds, streams=1):
    """Kernels for so long: how many each second, and how long a step of them takes."""
    cuda = Cuda()
    kernel, streams = cuda.kernels()["busy_ns"], [cuda.stream() for _ in range(streams)]
    spans, each, began = [], [0] * seconds, time.monotonic()
    while (start := time.monotonic()) - began < seconds:
        for number in range(STEP):
            cuda.launch(kernel, 1_000_000, streams[number % len(streams)])
        cuda.synchronise()
        end = time.monotonic()
        spans.append((end - start) * 1000)
        for number in range(STEP):
            # A step that spans the end of a second counts in both.
            at = int(start - began + (end - start) * (number + 0.5) / STEP)
            each[min(at, seconds - 1)] += 1
    return {
        "kernels_per_second": len(spans) * STEP / (time.monotonic() - began),
        "deviation": statistics.pstdev(each[1:]), **percentiles(spans, "step_ms"),
    }


def percentiles(values, unit):
    values = sorted(values)
    return {f"{unit}_p50": values[len(values) // 2], f"{unit}_p99": values[len(values) * 99 // 100]}


def share():
    return busy(6)


def long_share():
    """E6: long enough for the deviation over seconds to mean something."""
    return busy(20)


def streams():
    return busy(6, streams=4)


def processes():
    """E7: two processes of a container."""
    command = [sys.executable, __file__, "share"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return {"each": [json.loads(one.communicate()[0])["kernels_per_second"] for one in both]}


def time_slice():
    """E7: how long the driver lets each of two busy processes have the GPU: gaps in work of 20 us, and what lies between them."""
    cuda = Cuda()
    kernel, stream = cuda.kernels()["busy_ns"], cuda.stream()
    other = subprocess.Popen([sys.executable, __file__, "long_share"], stdout=subprocess.DEVNULL)
    try:
        return slices(cuda, kernel, stream)
    finally:
        other.kill()
        other.wait()


def slices(cuda, kernel, stream):
    # Before the neighbour has begun, there are no gaps; a gap is what takes ten times as long as it would alone.
    least_ms, gaps, between, own = 0.2, [], [], None
    events, elapsed = [cuda.made("cuEventCreate", 0) for _ in range(513)], ctypes.c_float()
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        cuda.call("cuEventRecord", events[0], stream)
        for event in events[1:]:
            cuda.launch(kernel, 20_000, stream)
            cuda.call("cuEventRecord", event, stream)
        cuda.call("cuStreamSynchronize", stream)
        own = None
        for start, end in zip(events, events[1:]):
            cuda.call("cuEventElapsedTime", ctypes.byref(elapsed), start, end)
            if elapsed.value < least_ms:
                own = None if own is None else own + elapsed.value
                continue
            gaps.append(elapsed.value)
            between += [] if own is None else [own]
            own = 0.0
    of = lambda values, name: percentiles(values, name) if values else {name: None}
    return {"gaps": len(gaps), **of(gaps, "gap_ms"), **of(between, "own_ms")}


def launch_bound():
    """E7: kernels of 20 us with as long a pause behind each, as of a program that waits for its host."""
    cuda = Cuda()
    kernel, stream = cuda.kernels()["busy_ns"], cuda.stream()
    seconds, spans = [], []
    began = time.monotonic()
    while time.monotonic() - began < 6:
        start = time.monotonic()
        cuda.launch(kernel, 20_000, stream)
        cuda.call("cuStreamSynchronize", stream)
        end = time.monotonic()
        spans.append((end - start) * 1e6)
        seconds.append(int(end - began))
        while time.monotonic() - end < 20e-6:
            pass
    return {"kernels_per_second": [seconds.count(second) for second in range(6)], **percentiles(spans, "us")}


def graphs():
    """E4: 81 graphs replayed in sequence, as vLLM's pieces of a step are, for 8 sizes of a batch in turn; ms a step."""
    cuda = Cuda()
    kernel, stream, steps = cuda.kernels()["busy_ns"], cuda.stream(), []
    piece = lambda size: cuda.captured(stream, lambda: [cuda.launch(kernel, 5000 * size, stream) for _ in range(5)])
    sizes = [[piece(size) for _ in range(81)] for size in range(1, 9)]
    for _ in range(15):
        for pieces in sizes:
            began = time.monotonic()
            for each in pieces:
                cuda.call("cuGraphLaunch", each, stream)
            cuda.call("cuStreamSynchronize", stream)
            steps.append((time.monotonic() - began) * 1000)
    return percentiles(steps[len(sizes):], "ms")


def sizing():
    """E11: vLLM's arithmetic, then steps for longer than it takes to measure the overhead."""
    cuda = Cuda()
    kernels, stream = cuda.kernels(), cuda.stream()
    before, total = cuda.info()
    cuda.allocate(total // 3)
    peak = cuda.allocate(total // 10)
    cuda.launch(kernels["busy_ns"], 1000, stream)
    cuda.synchronise()
    cuda.free(peak)
    launch = lambda: [cuda.launch(kernels["busy_ns"], 1000, stream) for _ in range(300)]
    pieces = [cuda.captured(stream, launch) for _ in range(35)]
    after, _ = cuda.info()
    cache = total * 95 // 100 - (total - after) - total // 10
    cuda.allocate(cache)
    refused, deadline = 0, time.monotonic() + 25
    while time.monotonic() < deadline:
        step = cuda.try_allocate(total // 12)
        refused += step is None
        if step is not None:
            cuda.free(step)
        for piece in pieces:
            cuda.call("cuGraphLaunch", piece, stream)
        cuda.synchronise()
        time.sleep(0.05)
    return {"total": total, "before": before, "after": after, "cache": cache, "refused": refused}


def exits():
    """E9: programs that end in the middle of work; how each ended."""
    return ends(
        f"import os, sys; sys.argv = ['']; exec(open({__file__!r}).read()); cuda = Cuda(); k = cuda.kernels(); s = cuda.stream();"
        "[cuda.launch(k['busy_ns'], 500000, s) for _ in range(40)]"
    )


def ends(work):
    """Runs a program and ends it in five ways, six times each, some at once; the codes, and what it did to end otherwise."""
    ways = {
        "return": ("", 0), "os._exit": ("os._exit(0)", 0), "exception": ("raise ValueError", 1),
        "SIGTERM": ("os.kill(os.getpid(), 15)", -15), "abort": ("os.kill(os.getpid(), 6)", -6),
    }
    codes, wrong = {}, {}
    for name, (end, expected) in ways.items():
        command = [sys.executable, "-c", f"{work}; {end}"]
        running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(6)]
        said = [program.communicate()[1] for program in running]
        codes[name] = sorted(program.returncode for program in running)
        unlike = [text[-400:] for text, program in zip(said, running) if program.returncode != expected]
        if unlike:
            wrong[name] = unlike
    return {**codes, "wrong": wrong}


def few_kernels():
    """What a tool can run one kernel at a time."""
    cuda = Cuda()
    kernel, stream = cuda.kernels()["busy_ns"], cuda.stream()
    for _ in range(3):
        cuda.launch(kernel, 100_000, stream)
    cuda.synchronise()
    return {}


def tools():
    """E10: NVIDIA's tools over a program; their exit codes, None if they aren't installed."""
    program = [sys.executable, __file__, "few_kernels"]
    commands = {
        "ncu": ["ncu", "--clock-control", "none"], "compute-sanitizer": ["compute-sanitizer", "--tool", "memcheck"],
        "cuda-gdb": ["cuda-gdb", "-batch", "-ex", "run", "--args"],
    }
    codes = {}
    for name, command in commands.items():
        try:
            codes[name] = subprocess.run(command + program, capture_output=True, timeout=30).returncode
        except FileNotFoundError:
            codes[name] = None
        except subprocess.TimeoutExpired:
            codes[name] = "timed out"
    return codes


def client(most=None):
    """Work, and pieces of 64 MiB until they are refused, or so many MiB; what this client of MPS is shown."""
    cuda = Cuda()
    stream = cuda.stream()
    cuda.launch(cuda.kernels()["busy_ns"], 1_000_000, stream)
    cuda.synchronise()
    processors = ctypes.c_int()
    code = cuda.code("cuDeviceGetAttribute", ctypes.byref(processors), 16, 0)
    figures = {"multiprocessors": None if code else processors.value, "total_mib": cuda.info()[1] // MIB, "mib": 0, "code": 0}
    address = ctypes.c_uint64()
    while not figures["code"] and (most is None or figures["mib"] < most):
        figures["code"] = cuda.code("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(64 * MIB))
        figures["mib"] += 0 if figures["code"] else 64
    return figures


def client_beside():
    print(json.dumps(client(512)), flush=True)
    sys.stdin.read()
    return {}


def service():
    """E13: two clients of MPS at once; what refuses memory, and which limits count."""
    beside = subprocess.Popen([sys.executable, __file__, "client_beside"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first = json.loads(beside.stdout.readline())
    second = client()
    pipe = os.environ["SERVICE_PIPE"]
    control = {**PLAIN, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
    ask = lambda command: subprocess.run(
        [os.environ["SERVICE_CONTROL"]], input=command + "\n", capture_output=True, text=True, timeout=8, env=control,
        check=True,
    ).stdout.strip()
    servers = ask("get_server_list")
    clients = {server: ask(f"get_client_list {server}").split("\n") for server in servers.split()}
    beside.communicate()
    return {"first": first, "second": second, "pids": [beside.pid, os.getpid()], "clients": clients}


def shown_by_nvml():
    """The first GPU's memory in MiB as nvidia-smi and pynvml show it here, and as the driver has it; None where it isn't known."""
    query = ["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
    try:
        import pynvml

        pynvml.nvmlInit()
        shown = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
        by_module = [shown.total // MIB, shown.used // MIB]
    except ImportError:
        by_module = None
    by_driver = {"nvidia-smi": output(query, PLAIN), "bytes of this process": driver_bytes()}
    return {"nvidia-smi": output(query), "pynvml": by_module, "by the driver": by_driver}


def cudart():
    """E2: the runtime of CUDA 12, loaded as a library of its own, fills its memory; None if Python has none."""
    packages = [os.path.join(path, "nvidia") for path in sys.path]
    found = [each for path in packages for each in glob.glob(f"{path}/**/libcudart.so.12", recursive=True)]
    if not found:
        return {"cudart": None}
    runtime, address = ctypes.CDLL(found[0]), ctypes.c_void_p()
    free, total, mib, code = ctypes.c_size_t(), ctypes.c_size_t(), 0, 0
    runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    while not code:
        code = runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(64 * MIB))
        mib += 0 if code else 64
    pooled = runtime.cudaMallocAsync(ctypes.byref(address), ctypes.c_size_t(64 * MIB), None)
    return {"cudart": found[0], "total_mib": total.value // MIB, "mib": mib, "code": code, "code of a pool": pooled}


def main(programs):
    """Runs the one that is asked for."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    answer = programs[sys.argv[1]]()
    print(json.dumps(answer), flush=True)
    sys.exit(1 if answer.get("wrong") else 0)


if __name__ == "__main__" and len(sys.argv) > 1 and sys.argv[1]:
    main(globals())
