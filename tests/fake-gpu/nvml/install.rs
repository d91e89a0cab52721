use std::path::{Path, PathBuf};
use std::{fs, io};

/// Copies the library into the driver's installation below `root`, which is made, and returns the directory in which it is, where
/// a scenario of its own may be.
pub fn install_driver(library: &Path, root: &Path) -> io::Result<PathBuf> {
    let directory = root.join("usr/lib64");
    fs::create_dir_all(&directory)?;
    install(library, &directory)?;
    Ok(directory)
}

/// Copies the library into `directory`, for a scenario of its own in `scenario.json` beside it, and returns its path.
///
/// A copy, because the loader takes a link to a library it has loaded for that library.
pub fn install(library: &Path, directory: &Path) -> io::Result<PathBuf> {
    let (half, whole) = (directory.join("libnvidia-ml.so.1.half"), directory.join("libnvidia-ml.so.1"));
    // A loader that maps a library while it is written dies of SIGBUS beyond the end of the file.
    fs::copy(library, &half)?;
    fs::rename(half, &whole)?;
    Ok(whole)
}
