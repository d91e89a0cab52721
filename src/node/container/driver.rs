//! Files of NVIDIA's driver: libraries, programs and device nodes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Libraries of the container toolkit's capabilities `compute` and `utility`, without `.so.…`.
const LIBRARIES: [&str; 9] = [
    "libcuda",
    "libcudadebugger",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-ptxjitcompiler",
];

/// Programs of the same capabilities.
const PROGRAMS: [&str; 4] = ["nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];

/// The device node by which every program reaches the driver.
pub(super) const CONTROL_NODE: &str = "nvidiactl";

/// Device nodes that every container with a card needs, as far as the driver has made them.
pub(super) const SHARED_NODES: [&str; 4] = [CONTROL_NODE, "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];

/// The library without which nothing runs on a card.
pub(super) const CUDA: &str = "libcuda.so.1";

/// A file of the driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DriverFile {
    /// Path under the driver's root, with links resolved.
    pub host: PathBuf,
    /// Where a program looks for it.
    pub container: PathBuf,
}

/// The driver's files, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Driver {
    /// Where containers find the libraries; `None`: there is no [`CUDA`] in any of the usual directories.
    pub library_directory: Option<PathBuf>,
    pub files: BTreeSet<DriverFile>,
}

/// Major and minor number of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub major: u32,
    pub minor: u32,
}

// === impl Driver ===

impl Driver {
    /// Looks under `seen`, which is `root` on the host.
    pub(super) fn find(root: &Path, seen: &Path) -> Self {
        let Ok(seen) = seen.canonicalize() else { return Self::default() };
        let tree = Tree { root, seen: &seen };
        // All libraries are taken from the first directory that has CUDA, as another may hold those of 32 bits.
        let library_directory = divvy_runtime::driver::library_directory(&seen, CUDA);
        let libraries = library_directory.iter().flat_map(|directory| tree.libraries(directory));
        let program = |name: &&str| ["usr/bin", "bin"].iter().find_map(|bin| tree.file(&Path::new(bin).join(name)));
        let files = libraries.chain(PROGRAMS.iter().filter_map(program)).collect();
        Self { library_directory: library_directory.map(|directory| Path::new("/").join(directory)), files }
    }
}

/// One directory tree by its two names.
struct Tree<'a> {
    root: &'a Path,
    seen: &'a Path,
}

impl Tree<'_> {
    fn libraries(&self, directory: &Path) -> Vec<DriverFile> {
        let Ok(entries) = fs::read_dir(self.seen.join(directory)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        // A link and its file are two entries: without ldconfig in the container only the link's name is looked for.
        let wanted = |name: &String| name.split_once(".so.").is_some_and(|(stem, _)| LIBRARIES.contains(&stem));
        names.filter(wanted).filter_map(|name| self.file(&directory.join(name))).collect()
    }

    /// The file at `path` below the root; `None` where there is none, or a link that leads out of the tree.
    fn file(&self, path: &Path) -> Option<DriverFile> {
        let real = self.seen.join(path).canonicalize().ok().filter(|real| real.is_file())?;
        let host = self.root.join(real.strip_prefix(self.seen).ok()?);
        Some(DriverFile { host, container: Path::new("/").join(path) })
    }
}

// === impl Numbers ===

impl Numbers {
    /// Numbers of the character device at `path`; `None` if there is none, or none that can be seen from here.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let node = fs::metadata(path).ok().filter(|node| node.file_type().is_char_device())?;
        Some(Self { major: libc::major(node.rdev()), minor: libc::minor(node.rdev()) })
    }
}
