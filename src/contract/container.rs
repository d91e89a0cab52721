//! What stands in a container, by the names that daemon, webhook and tenants know it by.

/// Where a container finds its limits; read-only.
pub const LIMITS_MOUNT: &str = "/var/run/divvy/limits";
/// Where its processes account for what they use; writable.
pub const REGION_MOUNT: &str = "/var/run/divvy/region";
/// The file there that its processes share, of the layout that `divvy_region` has.
pub const REGION_FILE: &str = "books";

/// The variable that NVIDIA's container runtime reads the cards of a container from.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Where that runtime looks for cards given as mounts, one `/dev/null` a card.
pub const DEVICES_AS_MOUNTS: &str = "/var/run/nvidia-container-devices";
/// The file that names what the dynamic linker loads into every process, before all but `LD_PRELOAD`.
pub const PRELOAD_FILE: &str = "/etc/ld.so.preload";
