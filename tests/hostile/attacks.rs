//! What a process in a container can do to a directory. Each returns how much of it there was room for.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

/// Names in [`odd_names`].
pub(crate) const LONG: usize = 500;

/// Directories, each in the one before it.
pub(crate) fn nest(region: &Path, depth: usize) -> usize {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut at = openat(CWD, region, flags, Mode::empty()).unwrap();
    for made in 0..depth {
        if mkdirat(&at, "a", Mode::RWXU).is_err() {
            return made;
        }
        at = openat(&at, "a", flags, Mode::empty()).unwrap();
    }
    depth
}

/// Empty files.
pub(crate) fn files(region: &Path, count: usize) -> usize {
    (0..count).take_while(|number| File::create_new(region.join(number.to_string())).is_ok()).count()
}

/// Directories with one directory each.
pub(crate) fn siblings(region: &Path, count: usize) -> usize {
    (0..count).take_while(|number| fs::create_dir_all(region.join(format!("{number}/b"))).is_ok()).count()
}

/// Names of 255 bytes that no text contains, and some that programs take for something else, of files and directories by turns.
pub(crate) fn odd_names(region: &Path, count: usize) -> usize {
    let make = |number: &usize| {
        let [high, low] = [number / 100, number % 100].map(|part| u8::try_from(part + 1).unwrap());
        let start: &[u8] = [&b"-rf "[..], b"\n", b"..", b"\xff\xfe", b"\\", b"*"][number % 6];
        let mut name = [start, &[high, low].map(|byte| if byte == b'/' { 0xf0 } else { byte })].concat();
        name.resize(255, 0x80 | low);
        let path = region.join(OsStr::from_bytes(&name));
        if number.is_multiple_of(2) { fs::create_dir(path).is_ok() } else { File::create_new(path).is_ok() }
    };
    (0..count).take_while(make).count()
}
