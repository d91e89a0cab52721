//! A stand-in for `libnvidia-ml.so.1`: NVML's C functions, answering from a scenario file.
//!
//! ```text
//! Scenario ──write──▶ file ──stat on every call──▶ driver: faults first, then sessions, handles, event sets ──▶ abi: C
//! ```
//!
//! The library is loaded by its path. Its scenario is the file that the environment variable `FAKE_NVML_SCENARIO` of the
//! calling process names, else `scenario.json` beside the library. A loader knows a library by its inode, so two callers
//! in one process that want different scenarios load two copies ([`install()`]).
//!
//! Where `FAKE_CUDA_STATE` names the directory of fake-cuda's state, memory, utilization and processes of a card are those of
//! its scenario and of the programs that use it there.
//!
//! The file is read again whenever it has changed; a broken one is complained about on stderr, with line and column, and
//! the last good one stays. What isn't said has a default:
//!
//! ```json
//! {
//!   "cards": [{
//!     "uuid": "GPU-1", "model": "NVIDIA L4", "memory_total": 24000000000, "pci_bus_id": "00000000:17:00.0", "minor": 0,
//!     "sensors": { "temperature": 61, "power": 70500 }
//!   }],
//!   "events": [{ "seq": 1, "card": "GPU-1", "xid": 79 }],
//!   "errors": { "nvmlDeviceGetName": "NVML_ERROR_UNKNOWN" },
//!   "hangs": { "nvmlDeviceGetMemoryInfo_v2@GPU-1": 60000 }
//! }
//! ```

mod abi;
mod driver;
mod functions;
mod install;
pub mod scenario;
mod shared;

pub use install::{install, install_driver};
pub use scenario::{
    Call, CardScenario, CardState, FabricScenario, InstanceScenario, LinkScenario, MigScenario, NvmlReturn, PciLevel,
    Process, RemappedRows, Scenario, ScenarioError, SensorScenario, XidEvent,
};
