//! Which programs run in which part, and how.

/// A program and the ways in which it runs.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) part: u8,
    /// By its number in the review of the isolation.
    pub(super) experiment: &'static str,
    pub(super) program: &'static str,
    pub(super) limit_s: u64,
    /// Module of Python without which it is left out.
    pub(super) needs: Option<&'static str>,
    pub(super) variable: Option<(&'static str, &'static str)>,
    /// Whether its programs are clients of the multi-process service.
    pub(super) is_client: bool,
    pub(super) ways: &'static [Way],
}

#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Without the library.
    Native,
    /// With so many percent and MiB, beside so many busy containers.
    Held(u32, u64, u32),
}

use Way::{Held, Native};

const BOTH: &[Way] = &[Native, Held(50, 8192, 0)];
const SHARES: &[Way] = &[Native, Held(100, 8192, 0), Held(50, 8192, 0)];

const fn step(part: u8, experiment: &'static str, program: &'static str, limit_s: u64, ways: &'static [Way]) -> Step {
    Step { part, experiment, program, limit_s, needs: None, variable: None, is_client: false, ways }
}

const fn of(needs: &'static str, step: Step) -> Step {
    Step { needs: Some(needs), ..step }
}

const fn with(variable: (&'static str, &'static str), step: Step) -> Step {
    Step { variable: Some(variable), ..step }
}

const fn clients(step: Step) -> Step {
    Step { is_client: true, ..step }
}

const ALLOCATOR: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// All of them, in the order in which they run.
pub(super) const STEPS: &[Step] = &[
    step(1, "E0", "machine", 20, &[Native]),
    step(1, "E0", "preloads", 30, &[Held(50, 8192, 0)]),
    step(1, "E1", "routes", 30, BOTH),
    of("torch", step(1, "E2", "torch_memory", 60, BOTH)),
    of("torch", with((ALLOCATOR, "expandable_segments:True"), step(1, "E2", "torch_memory", 60, &[Held(50, 8192, 0)]))),
    of("torch", with((ALLOCATOR, "backend:cudaMallocAsync"), step(1, "E2", "torch_memory", 60, &[Held(50, 8192, 0)]))),
    step(1, "E2", "cudart", 20, BOTH),
    step(1, "E3", "memory", 60, BOTH),
    step(1, "E3", "many_graphs", 60, BOTH),
    of("torch", step(1, "E3", "torch_costs", 40, BOTH)),
    of("torch", step(1, "E3", "torch_graph_costs", 40, BOTH)),
    of("triton", step(1, "E11", "triton_kernel", 60, &[Held(50, 8192, 0)])),
    step(2, "E4", "graphs", 20, SHARES),
    of("torch", step(2, "E4", "torch_graphs", 40, SHARES)),
    of("torch", step(2, "E4", "torch_capture", 30, BOTH)),
    of(
        "jax",
        with(("XLA_FLAGS", "--xla_gpu_enable_command_buffer=FUSION,CUBLAS"), step(2, "E4", "jax_memory", 40, BOTH)),
    ),
    step(2, "E5", "hang_spin", 10, BOTH),
    step(2, "E5", "hang_value", 10, BOTH),
    step(2, "E5", "hang_host", 10, BOTH),
    of("jax", step(2, "E5", "jax_callback", 40, BOTH)),
    step(2, "E6", "long_share", 26, &[Native, Held(25, 8192, 0), Held(50, 8192, 0), Held(75, 8192, 0)]),
    of("torch", step(2, "E6", "torch_share", 45, BOTH)),
    of("torch", step(2, "E6", "torch_model", 30, SHARES)),
    step(2, "E7", "time_slice", 12, &[Native]),
    step(2, "E7", "share", 12, &[Held(30, 8192, 1), Held(50, 8192, 2)]),
    step(2, "E7", "streams", 12, &[Held(50, 8192, 1)]),
    step(2, "E7", "processes", 15, &[Held(50, 8192, 1)]),
    step(2, "E7", "launch_bound", 12, &[Native, Held(30, 8192, 0), Held(30, 8192, 1)]),
    of("torch", step(2, "E7", "torch_share", 45, &[Held(30, 8192, 1)])),
    step(3, "E9", "exits", 90, BOTH),
    of("torch", step(3, "E9", "torch_exits", 60, BOTH)),
    of("cupy", step(3, "E9", "cupy_exits", 60, BOTH)),
    step(3, "E10", "tools", 100, BOTH),
    of("torch", step(3, "E10", "torch_profile", 40, BOTH)),
    step(3, "E11", "sizing", 60, &[Held(50, 8192, 0)]),
    of("torch", step(3, "E11", "torch_compile", 90, SHARES)),
    of("cupy", step(3, "E11", "cupy_pools", 60, BOTH)),
    clients(step(3, "E13", "service", 30, BOTH)),
];
