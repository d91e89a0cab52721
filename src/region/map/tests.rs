use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::vec;

use super::*;
use crate::clock::VERSION;

const MS: u64 = 1_000_000;

fn file(bytes: usize) -> File {
    let file = tempfile::tempfile().expect("a file");
    file.write_all_at(&vec![0; bytes], 0).expect("written");
    file
}

/// Heartbeat, ns, and weight, as they stand in the file.
fn words(file: &File) -> [u64; 2] {
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 16).expect("read");
    let (words, _) = bytes.as_chunks();
    [u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])]
}

#[test]
fn published_page_is_in_the_file() {
    let file = file(PAGE);
    let mut page = ClockPage::map(file.as_raw_fd(), 1000 * MS).expect("mapped");
    let mut start = [0; 12];
    file.read_exact_at(&mut start, 0).expect("read");
    assert_eq!(start, *[b"divvyclk".as_slice(), &VERSION.to_ne_bytes()].concat());
    page.publish(1010 * MS, Busy { tenants: 2, weight: 512, guaranteed: 3000, unguaranteed: 1, ..Busy::default() });
    page.publish(1030 * MS, Busy { tenants: 1, weight: 256, guaranteed: 3000, ..Busy::default() });
    assert_eq!(words(&file), [1030 * MS, 256]);
}

#[test]
fn remapped_page_keeps_its_values() {
    let file = file(PAGE);
    let mut page = ClockPage::map(file.as_raw_fd(), 1000 * MS).expect("mapped");
    page.publish(1040 * MS, Busy { tenants: 1, weight: 7, ..Busy::default() });
    drop(page);
    drop(ClockPage::map(file.as_raw_fd(), 1050 * MS).expect("mapped"));
    assert_eq!(words(&file), [1050 * MS, 7]);
}

#[test]
fn invalid_page_file_is_refused() {
    let map = |file: &File| ClockPage::map(file.as_raw_fd(), 0).err();
    assert_eq!(map(&file(PAGE - 1)), Some(libc::EINVAL));
    assert_eq!(map(&File::open("/dev/zero").expect("a device")), Some(libc::EINVAL));
    assert_eq!(ClockPage::map(-1, 0).err(), Some(libc::EBADF));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("page");
    std::fs::write(&path, [0; PAGE]).expect("written");
    assert_eq!(map(&File::open(path).expect("read-only")), Some(libc::EACCES));
}
