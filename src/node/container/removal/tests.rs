use std::fs::File;
use std::os::unix::fs::symlink;

use rustix::fs::mkdirat;

use super::*;

fn nest(path: &Path, depth: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = openat(CWD, path, flags, Mode::empty()).expect("a directory");
    for _ in 0..depth {
        mkdirat(&at, "a", Mode::RWXU).expect("made");
        at = openat(&at, "a", flags, Mode::empty()).expect("a directory");
    }
}

fn count(path: &Path) -> usize {
    fs::read_dir(path).expect("a directory").count()
}

#[test]
fn depth_and_number_of_entries_cost_no_stack() {
    let dead = tempfile::tempdir().expect("a directory");
    for nonce in ["a", "b"] {
        let region = dead.path().join(nonce).join(REGION);
        fs::create_dir_all(&region).expect("made");
        (0..TURN + 10).for_each(|number| drop(File::create(region.join(number.to_string())).expect("made")));
        (0..3).for_each(|number| fs::create_dir_all(region.join(format!("wide-{number}/er/still"))).expect("made"));
        nest(&region, 3000);
    }
    File::create(dead.path().join("file")).expect("made");
    let path = dead.path().to_owned();
    let emptied = thread::Builder::new().stack_size(128 << 10).spawn(move || empty(&path)).expect("a thread");
    emptied.join().expect("no panic").expect("emptied");
    assert_eq!(count(dead.path()), 0);
    empty(&dead.path().join("never-made")).expect("nothing to do");
}

#[test]
fn half_removed_directory_is_removed_later() {
    let dead = tempfile::tempdir().expect("a directory");
    let container = dead.path().join("a");
    fs::create_dir_all(container.join(REGION)).expect("made");
    (0..2 * TURN).for_each(|number| drop(File::create(container.join(REGION).join(number.to_string())).expect("made")));
    nest(&container.join(REGION), 300);
    assert_eq!(remove_some(&container).expect("some are gone"), Progress::More);
    assert!(count(&container) > 0, "as a crash leaves it");
    empty(dead.path()).expect("emptied");
    assert_eq!(count(dead.path()), 0);
}

#[test]
fn links_are_removed_and_not_followed() {
    let (dead, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    fs::create_dir(outside.path().join("deep")).expect("made");
    fs::create_dir_all(dead.path().join("a/region/b")).expect("made");
    for link in ["a/link", "a/region/link", "a/region/b/link", "link"] {
        symlink(outside.path(), dead.path().join(link)).expect("linked");
    }
    empty(dead.path()).expect("emptied");
    assert_eq!((count(dead.path()), count(outside.path())), (0, 1));
}
