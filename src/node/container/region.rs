//! Accounting region of a container on disk. The tenant may write to its directory, and may have put anything in its place.

mod reader;

use std::fs::{self, File, Permissions};
use std::io::{self, Error};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use divvy_api::container::REGION_FILE;
use divvy_region::layout;
use rustix::fs::{FallocateFlags, fallocate};
use uuid::Uuid;

pub(crate) use self::reader::{Lock, RegionError, RegionReader};
use super::directories::ContainerDirectories;
use super::files::{self, not_there};

/// The processes of a container run as any user.
const MODE: u32 = 0o666;

/// Makes the container's region for so many cards, unless there is one that will do: processes may be using it.
pub(super) fn ensure(container: &ContainerDirectories, cards: usize) -> io::Result<()> {
    let path = container.region().join(REGION_FILE);
    let generation = if container.is_new() {
        0
    } else {
        match RegionReader::open(&path, cards, None) {
            Ok(Some(RegionReader { file, .. })) if file.metadata()?.len() == layout::size(cards) as u64 => {
                return set_mode(&file);
            }
            _ => next_generation(container)?,
        }
    };
    put_directory_aside(&path)?;
    // Renamed when it is complete. Made beside it, as nothing is renamed from one file system to another; its name is new, as the
    // tenant may have put anything behind an old one.
    let temporary = container.region().join(format!(".{}", Uuid::new_v4().simple()));
    let made = make(&temporary, cards, generation).and_then(|()| fs::rename(&temporary, &path));
    made.inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Full-size at once, so that a file system that is full fails here and not under a process that writes there.
fn make(path: &Path, cards: usize, generation: u64) -> io::Result<()> {
    let cards = u32::try_from(cards).unwrap_or(u32::MAX);
    let header = layout::header(cards, generation).map_err(Error::other)?;
    let file = File::create_new(path)?;
    set_mode(&file)?;
    fallocate(&file, FallocateFlags::empty(), 0, layout::size(cards as usize) as u64)?;
    // Its first word last: what is still being made is no region.
    let (first, rest) = header.split_at(size_of::<u64>());
    file.write_all_at(rest, first.len() as u64)?;
    file.write_all_at(first, 0)
}

fn set_mode(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(MODE))
}

/// Generation of a new region: how often it was made before. The tenant may have overwritten the number in the old one.
fn next_generation(container: &ContainerDirectories) -> io::Result<u64> {
    let file = container.root().join("generation");
    let last = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0_u64);
    let next = last.wrapping_add(1);
    files::replace(&file, format!("{next}\n"))?;
    Ok(next)
}

/// A file takes the place of anything but a directory. That is put aside, and goes with the container: emptying it may take
/// long.
fn put_directory_aside(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::rename(path, path.with_extension(Uuid::new_v4().simple().to_string())),
        Ok(_) => Ok(()),
        Err(error) => not_there(error),
    }
}
