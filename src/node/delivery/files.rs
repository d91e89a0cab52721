//! Directories and files that containers see while they are written.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Makes a directory with exactly this mode, whatever the umask, or gives an existing one this mode.
pub(super) fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::set_permissions(path, Permissions::from_mode(mode)),
    }
}

/// Replaces a file, so that a reader finds the old text or the new one and never a part.
///
/// Not synced: what is written here is written again from the ledger, or from the cards, after a loss of power.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    // Made and written by our own calls: the crate's errors name the temporary file, another one each time, and an
    // error that stays the same must read the same, in the log and as a label.
    let mut file = tempfile::Builder::new().prefix(".divvy-").make_in(directory, |path| File::create_new(path))?;
    file.as_file_mut().write_all(text.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}
