//! What stands in a container, by the names that daemon, webhook and tenants know it by.

use crate::card::CardId;

/// Where a container finds its limits; read-only.
pub const LIMITS_MOUNT: &str = "/var/run/divvy/limits";
/// The file there that says what the driver charges the container beyond its own books: a line `<card> <bytes>` for each
/// card. It is missing where nothing was measured.
pub const OVERHEAD_FILE: &str = "overhead";
/// Where its processes account for what they use; writable.
pub const REGION_MOUNT: &str = "/var/run/divvy/region";
/// The file there that its processes share, of the layout that `divvy_region` has.
pub const REGION_FILE: &str = "books";
/// Where the library lies that holds its processes to the limits, where the node's tier is `shim` or `mps`; read-only.
pub const LIBRARY: &str = "/usr/lib/divvy/libdivvy.so";

/// Where its processes find the control daemon of CUDA's multi-process service, where the node's tier is `mps`; writable,
/// as whoever connects must be able to.
pub const MPS_PIPE_MOUNT: &str = "/var/run/divvy/mps";
/// Where they share memory with that service's server.
pub const SHARED_MEMORY_MOUNT: &str = "/dev/shm";
/// The variable that names that directory to CUDA, for clients and for the service itself (NVIDIA's MPS documentation,
/// as the two that follow).
pub const MPS_PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// The most memory that one client may have of each card: `<ordinal>=<MiB>M`, parted by commas.
pub const MPS_MEMORY_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
/// The part of a card's multiprocessors that one client may use, in percent; the same on all its cards.
pub const MPS_THREAD_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// The variable that NVIDIA's container runtime reads the cards of a container from.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Where that runtime looks for cards given as mounts, one `/dev/null` a card.
pub const DEVICES_AS_MOUNTS: &str = "/var/run/nvidia-container-devices";
/// The file that names what the dynamic linker loads into every process, before all but `LD_PRELOAD`.
pub const PRELOAD_FILE: &str = "/etc/ld.so.preload";

/// Name of a card's clock page, beside the limits. Old names of MIG instances have slashes, which a file's can't have.
pub fn clock_file(card: &CardId) -> String {
    format!("clock-{}", card.as_str().replace('/', "-"))
}
