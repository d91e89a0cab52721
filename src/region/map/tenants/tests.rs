use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::vec::Vec;
use std::{thread, vec};

use super::*;

const LENGTH: usize = 5 * 4096;

/// Each of whose bytes says on which page it is.
fn region() -> (File, TenantRegion) {
    let file = tempfile::tempfile().expect("a file");
    write(&file);
    let region = TenantRegion::map(file.as_raw_fd(), LENGTH).expect("mapped");
    (file, region)
}

fn write(file: &File) {
    let pages = (0..5).flat_map(|page| [b'0' + page; 4096]);
    file.write_all_at(&pages.collect::<Vec<_>>(), 0).expect("written");
}

/// What was copied.
fn copied(parts: &[Part<'_>]) -> Result<Vec<u8>, c_int> {
    let to = tempfile::tempfile().expect("a file");
    let mut bytes = vec![0; copy(parts, to.as_raw_fd())?];
    to.read_exact_at(&mut bytes, 0).expect("as many");
    Ok(bytes)
}

#[test]
fn parts_of_many_regions_come_one_behind_the_other() {
    let ((one, a), (other, b)) = (region(), region());
    drop((one, other));
    let parts = [a.part(0..1), b.part(4095..4097), b.part(7..7), a.part(LENGTH - 1..LENGTH + 9), b.part(LENGTH..9)];
    assert_eq!(parts.map(|part| part.length()), [1, 2, 0, 1, 0]);
    assert_eq!(copied(&parts).as_deref(), Ok(b"0014".as_slice()));
    assert_eq!(copied(&[]).as_deref(), Ok(b"".as_slice()));
}

#[test]
fn what_was_cut_off_ends_the_copy_and_nothing_else() {
    let ((_kept, a), (cut, b)) = (region(), region());
    cut.set_len(2 * 4096 + 1).expect("cut");
    assert_eq!(
        copied(&[a.part(0..1), b.part(0..2), b.part(3 * 4096..LENGTH), a.part(0..1)]).as_deref(),
        Ok(b"000".as_slice())
    );
    assert_eq!(
        copied(&[b.part(3 * 4096 - 2..LENGTH)]).as_deref(),
        Ok(b"\0\0".as_slice()),
        "a page that begins is there"
    );
    assert_eq!(copied(&[b.part(3 * 4096..LENGTH), a.part(0..1)]), Err(libc::EFAULT));
    write(&cut);
    assert_eq!(copied(&[b.part(LENGTH - 1..LENGTH)]).as_deref(), Ok(b"4".as_slice()));
}

#[test]
fn a_file_that_is_cut_all_the_time_ends_nobody() {
    let ((_kept, a), (cut, b)) = (region(), region());
    let (is_over, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                cut.set_len(0).expect("cut");
                cut.set_len(LENGTH as u64).expect("a hole");
                has_begun.store(true, Ordering::Relaxed);
            }
        });
        while !has_begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let to = tempfile::tempfile().expect("a file");
        let parts = [a.part(0..2), b.part(0..LENGTH), a.part(0..2)];
        let (all, mut seen) = (LENGTH + 4, [0_u32; 2]);
        while seen.contains(&0) || seen.iter().sum::<u32>() < 20_000 {
            let length = copy(&parts, to.as_raw_fd()).expect("what is there of them");
            assert!((2..=LENGTH + 1).contains(&length) || length == all, "{length}");
            seen[usize::from(length == all)] += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_cannot_be_mapped_or_written_to_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = File::open(directory.path()).expect("open");
    assert_eq!(TenantRegion::map(directory.as_raw_fd(), LENGTH).err(), Some(libc::ENODEV));
    assert_eq!(TenantRegion::map(-1, LENGTH).err(), Some(libc::EBADF));
    let (_file, region) = region();
    assert_eq!(copy(&[region.part(0..1)], -1), Err(libc::EBADF));
}
