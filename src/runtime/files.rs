//! Directories and files that other processes read while they are written.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Makes a directory with exactly this mode, whatever the umask, or gives an existing one this mode; whether it is new.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<bool> {
    let is_new = match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        created => created.map(|()| true)?,
    };
    fs::set_permissions(path, Permissions::from_mode(mode)).map(|()| is_new)
}

/// Replaces a file, so that a reader finds the old text or the new one and never a part.
///
/// Not synced: what is written here is written again from the ledger, or from the cards, after a loss of power.
pub fn replace(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    // Made and written by our own calls: the crate's errors name the temporary file, another one each time, and an
    // error that stays the same must read the same, in the log and as a label.
    let mut file = tempfile::Builder::new().prefix(".divvy-").make_in(directory, |path| File::create_new(path))?;
    file.as_file_mut().write_all(content.as_ref())?;
    file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}
