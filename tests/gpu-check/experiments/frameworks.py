"""Programs of `gpu-check experiments` that need a framework: each does what users of it do, and prints one line of JSON.

    python3 frameworks.py NAME
"""

import os
import threading
import time

from programs import MIB, ends, main, percentiles, shown_by_nvml


def torch_memory():
    """E2: PyTorch fills its memory twice; what it is shown."""
    import torch

    figures = {"torch": torch.__version__, "devices": torch.cuda.device_count()}
    figures["total"] = torch.cuda.get_device_properties(0).total_memory
    for turn in ("first", "second"):
        held, refused = [], None
        while refused is None:
            try:
                held.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
            except Exception as error:  # noqa: BLE001 - the type is what is asked
                refused = type(error).__name__
        figures[turn] = {"mib": 64 * len(held), "refused by": refused, "info": torch.cuda.mem_get_info(), **shown_by_nvml()}
        del held
        torch.cuda.empty_cache()
    return figures


def torch_costs():
    """E3: bytes of the GPU that a framework's first calls take, by what is free afterwards."""
    import torch

    torch.zeros(1, device="cuda")
    figures, x = {}, torch.randn(256, 256, device="cuda")
    image, weights = torch.randn(1, 8, 64, 64, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")

    def one_rank():
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
        torch.distributed.init_process_group("nccl", rank=0, world_size=1)
        torch.distributed.all_reduce(x)

    steps = {"sum": lambda: x.sum(), "cuBLAS": lambda: x @ x, "cuDNN": lambda: torch.conv2d(image, weights), "NCCL": one_rank}
    for name, act in steps.items():
        before = torch.cuda.mem_get_info()[0]
        act()
        torch.cuda.synchronize()
        figures[name] = before - torch.cuda.mem_get_info()[0]
    return figures


def torch_graph_costs():
    """E3: bytes of the GPU that captured kernels of PyTorch take, by what is free afterwards: 50 graphs of 100, which allocate
    nothing."""
    import torch

    x, out = torch.randn(512, 512, device="cuda"), torch.empty(512, 512, device="cuda")
    steps = {"sums in place": lambda: x.add_(1), "products": lambda: torch.mm(x, x, out=out)}
    figures = {}
    for name, step in steps.items():
        graphs = []
        # What a library makes at its first call can't be captured.
        step()
        torch.cuda.synchronize()

        def capture():
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1]):
                for _ in range(100):
                    step()

        capture()
        before, pooled = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
        for _ in range(50):
            capture()
        taken = before - torch.cuda.mem_get_info()[0]
        figures[name] = {"bytes": taken, "of these the allocator's": torch.cuda.memory_reserved() - pooled}
    return figures


def torch_profile():
    """E10: PyTorch's profiler, which uses CUPTI; how often it has seen the kernel of 20 products."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(512, 512, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(20):
            x @ x
        torch.cuda.synchronize()
    return {"most of a kind": max((event.count for event in seen.key_averages()), default=0)}


def torch_capture():
    """E4: captures in a loop while another stream works, and graphed callables; whether results are right."""
    import torch

    x, side = torch.ones(64, 64, device="cuda"), torch.cuda.Stream()
    busy = torch.randn(2048, 2048, device="cuda")
    for _ in range(20):
        with torch.cuda.stream(side):
            for _ in range(4):
                busy @ busy
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y = x + 1
        graph.replay()
    torch.cuda.synchronize()
    layer, x = torch.nn.Linear(64, 64).cuda(), x.clone().requires_grad_()
    graphed = torch.cuda.make_graphed_callables(torch.nn.Linear(64, 64).cuda(), (x,))
    graphed.load_state_dict(layer.state_dict())
    wrong = [] if torch.all(y == 2) and torch.allclose(graphed(x), layer(x), atol=1e-3) else ["results"]
    return {"torch": torch.__version__, "wrong": wrong}


def torch_compile():
    """E11: a compiled model that replays graphs; ms a step."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(512, 8, batch_first=True).cuda().half().eval()
    step, x = torch.compile(layer, mode="reduce-overhead"), torch.randn(4, 128, 512, device="cuda", dtype=torch.half)
    with torch.no_grad():
        for _ in range(5):
            step(x)
        torch.cuda.synchronize()
        began = time.monotonic()
        for _ in range(200):
            step(x)
        torch.cuda.synchronize()
    return {"ms": (time.monotonic() - began) * 1000 / 200}


def torch_share():
    """E6: products of matrices for 8 s; how many a second, by their size."""
    import torch

    figures = {}
    for size in (1024, 4096, 8192):
        a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        torch.mm(a, a)
        torch.cuda.synchronize()
        count, began = 0, time.monotonic()
        while time.monotonic() - began < 8:
            for _ in range(max(1, 2_000_000_000_000 // (2 * size**3))):
                torch.mm(a, a)
                count += 1
            torch.cuda.synchronize()
        figures[str(size)] = count / (time.monotonic() - began)
    return figures


def torch_model():
    """E6: a model of GPT-2's size, eager and a token at a time, so that its host bounds it; ms a step, and how busy the GPU is."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    layer = lambda: torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, activation="gelu")
    model = torch.nn.Sequential(*[layer() for _ in range(12)]).cuda().half().eval()
    x, steps = torch.randn(1, 1, 768, device="cuda", dtype=torch.half), []

    def step():
        began = time.monotonic()
        model(x)
        torch.cuda.synchronize()
        steps.append((time.monotonic() - began) * 1000)

    with torch.no_grad():
        for _ in range(20):
            step()
        steps.clear()
        began = time.monotonic()
        while time.monotonic() - began < 8:
            step()
        figures = percentiles(steps, "ms")
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            began = time.monotonic()
            for _ in range(50):
                step()
            took_us = (time.monotonic() - began) * 1e6
    busy_us = sum(getattr(event, "self_device_time_total", 0) for event in seen.key_averages())
    return {**figures, "busy_percent": 100 * busy_us / took_us}


def torch_exits():
    """E9: PyTorch ends in the middle of work; how each ended."""
    return ends("import os, torch; a = torch.randn(4096, 4096, device='cuda'); [None for _ in range(40) if a @ a is None]")


def cupy_exits():
    """E9: CuPy ends in the middle of work; how each ended."""
    return ends("import os, cupy; a = cupy.ones((4096, 4096), dtype='f'); [None for _ in range(40) if a @ a is None]")


def torch_graphs():
    """E4: a captured step and torch.compile with graphs; ms a step."""
    import torch

    layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(24)]).cuda().half()
    x = torch.randn(8, 1024, device="cuda", dtype=torch.half)
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                layers(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            layers(x)
        figures = {}
        for name, step in (("eager", lambda: layers(x)), ("graph", graph.replay)):
            torch.cuda.synchronize()
            began = time.monotonic()
            for _ in range(500):
                step()
            torch.cuda.synchronize()
            figures[name] = (time.monotonic() - began) * 1000 / 500
    return figures


def jax_callback():
    """E5: a callback of JAX that runs JAX."""
    import jax
    import jax.numpy as jnp

    inner = jax.jit(lambda x: x @ x)
    f = jax.jit(lambda x: jax.pure_callback(lambda y: inner(jnp.asarray(y)), jax.ShapeDtypeStruct((512, 512), x.dtype), x) + 1)
    x = jnp.ones((512, 512))
    for _ in range(3):
        x = f(x / 512)
    x.block_until_ready()
    return {"jax": jax.__version__}


def jax_memory():
    """E4 and E11: JAX takes three quarters of the memory at its start; a step with command buffers, ms."""
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, y: jnp.tanh(y @ y / 512), x))
    x = step(jnp.ones((512, 512))).block_until_ready()
    began = time.monotonic()
    for _ in range(100):
        x = step(x)
    x.block_until_ready()
    figures = {"ms": (time.monotonic() - began) * 1000 / 100, **shown_by_nvml()}
    return {"jax": jax.__version__, "limit": (jax.devices()[0].memory_stats() or {}).get("bytes_limit"), **figures}


def cupy_pools():
    """E11: CuPy's pools, and a host function that waits for another thread's launch."""
    import cupy

    event = threading.Event()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        cupy.cuda.Stream.launch_host_func(stream, lambda _: event.wait(), None)
    a = cupy.ones((4096, 4096))
    (a @ a).sum()
    event.set()
    stream.synchronize()
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        cupy.ones(64 * MIB, dtype=cupy.uint8)
    return {"cupy": cupy.__version__}


def triton_kernel():
    """A kernel that Triton compiles and tunes."""
    import torch
    import triton
    import triton.language as tl

    @triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (128, 256, 512, 1024)], key=["n"])
    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

    x = torch.rand(1 << 20, device="cuda")
    out = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, out, x.numel())
    assert torch.equal(out, x + x)
    return {"triton": triton.__version__}


if __name__ == "__main__":
    main(globals())
