//! Writes of files and directories that containers may be reading.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use divvy_node_core::ports::SetupError;

pub(crate) use divvy_runtime::files::{make_directory, replace};

/// Replaces a file unless it has this content already.
pub(crate) fn keep(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) && fs::read(path)? == content {
        return Ok(());
    }
    remove_directory_at(path)?;
    replace(path, content)
}

/// Makes `path` a hard link to `source`, in place of what exists there. A temporary link has the extension `.new`.
pub(crate) fn link(source: &Path, path: &Path) -> io::Result<()> {
    let file = |path: &Path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    if file(path).ok() == Some(file(source)?) {
        return Ok(());
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::hard_link(source, &temporary)?,
    }
    remove_directory_at(path)?;
    fs::rename(temporary, path)
}

/// Opens a file where a tenant may have put anything in its place. No link is followed, nothing but a regular file is opened,
/// and the call never blocks.
pub(crate) fn open_tenants(path: &Path, options: &mut OpenOptions) -> io::Result<(File, Metadata)> {
    let regular =
        |found: Metadata| found.is_file().then_some(found).ok_or_else(|| io::Error::other("it is not a regular file"));
    // Looked at before it is opened, too: to open a device may do something.
    regular(fs::symlink_metadata(path)?)?;
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = regular(file.metadata()?)?;
    Ok((file, found))
}

/// Describes the I/O error of a step at `path`.
pub(crate) fn state(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SetupError {
    move |source| {
        let path = path.display();
        SetupError(format!("{doing} {path}: {source}: runDir must be a directory that the daemon can write to"))
    }
}

/// Maps the error of a missing file to success.
pub(crate) fn not_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Removes an empty directory at `path`: a runtime makes one of a mount source that is missing, and no file replaces it.
fn remove_directory_at(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir(path),
        _ => Ok(()),
    }
}
