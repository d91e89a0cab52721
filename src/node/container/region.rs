//! The region of one container on disk. Its directory belongs to the tenant, who may have put anything in its place.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Error};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use divvy_api::container::REGION_FILE;
use divvy_region::layout::{self, LINE};
use divvy_region::snapshot::Head;
use rustix::fs::{FallocateFlags, fallocate};
use uuid::Uuid;

use super::directories::Container;
use super::files::{self, not_there};

/// The processes of a container run as any user.
const MODE: u32 = 0o666;

/// A region that was found sound, open for reading.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) head: Head,
}

/// Opens the file at `path`, if it is a region of exactly the size that its header states.
pub(super) fn open(path: &Path) -> io::Result<Opened> {
    let (file, metadata) = files::open_tenants(path, OpenOptions::new().read(true))?;
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    let head = read_head(&file, length)?;
    if layout::size(head.cards) != length {
        return Err(Error::other("longer than its header states"));
    }
    Ok(Opened { file, head })
}

/// What the region says of itself now. `length`: of its file.
pub(super) fn read_head(file: &File, length: usize) -> io::Result<Head> {
    let mut line = [0; LINE];
    file.read_exact_at(&mut line, 0)?;
    Head::read(&line, length).map_err(Error::other)
}

/// Makes the container's region for so many cards, unless there is one that will do: processes may be using it.
pub(super) fn ensure(container: &Container, cards: usize) -> io::Result<()> {
    let path = container.region().join(REGION_FILE);
    let generation = if container.is_new() {
        0
    } else {
        match open(&path) {
            Ok(Opened { file, head }) if head.cards == cards => return set_mode(&file),
            _ => next_generation(container)?,
        }
    };
    make_way(&path)?;
    // Made where no tenant sees it, and named when it is whole.
    let temporary = container.root().join(".books");
    fs::remove_file(&temporary).or_else(not_there)?;
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

/// How often the region was made before this time. What the old one says of that, if it is still there, its tenant wrote.
fn next_generation(container: &Container) -> io::Result<u64> {
    let file = container.root().join("generation");
    let last = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0_u64);
    let next = last.wrapping_add(1);
    files::replace(&file, format!("{next}\n"))?;
    Ok(next)
}

/// A file takes the place of anything but a directory. That is put aside, and goes with the container: emptying it may take
/// long.
fn make_way(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::rename(path, path.with_extension(Uuid::new_v4().simple().to_string())),
        Ok(_) => Ok(()),
        Err(error) => not_there(error),
    }
}
