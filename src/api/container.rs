//! Paths and variables inside a container that daemon, webhook and libdivvy agree on.

use crate::card_id::CardId;

/// Mount point of a container's limits; read-only.
pub const LIMITS_MOUNT: &str = "/var/run/divvy/limits";
/// File in [`LIMITS_MOUNT`] with the memory that the driver charges beyond the container's own accounting: a line
/// `<card> <bytes>` for each card. It is missing where nothing was measured.
pub const OVERHEAD_FILE: &str = "overhead";
/// Mount point of a container's accounting region; writable.
pub const REGION_MOUNT: &str = "/var/run/divvy/region";
/// File in [`REGION_MOUNT`] that the container's processes share; `divvy_region` defines its layout.
pub const REGION_FILE: &str = "books";
/// Path of the library that holds processes to their limits on nodes of tier `shim` or `mps`; read-only.
pub const LIBRARY: &str = "/usr/lib/divvy/libdivvy.so";

/// Mount point of the MPS control daemon's pipe directory on nodes of tier `mps`; writable, because clients connect there.
pub const MPS_PIPE_MOUNT: &str = "/var/run/divvy/mps";
/// Mount point of the memory that clients share with the MPS server.
pub const SHARED_MEMORY_MOUNT: &str = "/dev/shm";
/// Variable that names the pipe directory, for clients and for the control daemon (NVIDIA's MPS documentation, as the two
/// that follow).
pub const MPS_PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Variable with the memory limit of one client for each card: `<ordinal>=<MiB>M`, separated by commas.
pub const MPS_MEMORY_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
/// Variable with the percentage of a card's multiprocessors that one client may use, the same on all its cards.
pub const MPS_THREAD_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// Variable from which NVIDIA's container runtime reads a container's devices.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Directory in which NVIDIA's container runtime looks for devices requested as mounts, one `/dev/null` a device.
pub const DEVICES_AS_MOUNTS: &str = "/var/run/nvidia-container-devices";
/// File that names the libraries that the dynamic linker preloads into every process, after those of `LD_PRELOAD`.
pub const PRELOAD_FILE: &str = "/etc/ld.so.preload";

/// File name of a card's clock page in [`LIMITS_MOUNT`]. Old UUIDs of MIG instances have slashes, which file names can't.
pub fn clock_file(card: &CardId) -> String {
    format!("clock-{}", card.as_str().replace('/', "-"))
}
