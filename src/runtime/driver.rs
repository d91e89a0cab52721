//! NVIDIA's driver, which is installed on the host or in a container of its own: where a program in another container finds its
//! libraries.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

/// NVML's library.
const NVML: &str = "libnvidia-ml.so.1";

/// The first of the usual directories of libraries below `root` that has `library`, as a path below `root`: those of Debian, Red
/// Hat, container-optimised systems and Arch.
pub fn library_directory(root: &Path, library: &str) -> Option<PathBuf> {
    let multiarch = format!("usr/lib/{ARCH}-linux-gnu");
    let directories = [&multiarch, "usr/lib64", "lib64", "usr/lib"].map(Path::new);
    let found = directories.into_iter().find(|directory| root.join(directory).join(library).exists());
    found.map(Path::to_owned)
}

/// Path of NVML's library in the installation at `root`. Its name alone, which the dynamic loader looks up, for this program's own
/// root, and where nothing is found: NVIDIA's container runtime puts it where the loader looks.
pub fn nvml_library(root: &Path) -> PathBuf {
    let elsewhere = (root != Path::new("/")).then_some(root);
    let directory = elsewhere.and_then(|root| library_directory(root, NVML));
    directory.map_or_else(|| NVML.into(), |directory| root.join(directory).join(NVML))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn library_of_the_installation_comes_before_the_loaders() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(nvml_library(root.path()), Path::new(NVML), "a driver container isn't there yet");
        for directory in ["usr/lib", "usr/lib64"] {
            let directory = root.path().join(directory);
            fs::create_dir_all(&directory).expect("a directory");
            fs::write(directory.join(NVML), "").expect("a file");
        }
        assert_eq!(
            nvml_library(root.path()),
            root.path().join("usr/lib64").join(NVML),
            "usr/lib may be that of 32 bits"
        );
        assert_eq!(nvml_library(Path::new("/")), Path::new(NVML));
        assert_eq!(library_directory(root.path(), "libcuda.so.1"), None);
    }
}
