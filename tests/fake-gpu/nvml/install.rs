use std::path::{Path, PathBuf};
use std::{fs, io};

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
