//! Files that aren't what the daemon left there.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, fcntl_lock, flock, mknodat};

use crate::node::{Node, Region};

/// Runs one pod that does something, measures and clocks meanwhile, restarts its container, and ends it. What `attack` returns is
/// kept to the end.
async fn outlive<T>(attack: impl Fn(&Path, &Node) -> T) {
    for kind in [Region::Plain, Region::Bounded] {
        let Some(mut node) = Node::new(kind).await else { continue };
        let uid = node.run().await;
        let kept = attack(&node.region(&uid), &node);
        node.measured().await;
        node.restart_container(&uid).await;
        node.survives(&uid).await;
        drop(kept);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_links_are_removed() {
    outlive(|region, node| {
        let linked =
            (0..1000).take_while(|n| fs::hard_link(region.join("books"), region.join(format!("l{n}"))).is_ok());
        assert!(linked.count() > 40);
        fs::hard_link(node.innocent_books(), region.join("theirs")).unwrap_or_default();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_to_other_files_are_not_followed() {
    outlive(|region, node| {
        let theirs = node.innocent_books();
        fs::remove_file(region.join("books")).unwrap();
        symlink(&theirs, region.join("books")).unwrap();
        symlink(theirs.parent().unwrap(), region.join("directory")).unwrap();
        symlink("/", region.join("root")).unwrap();
        symlink("loop", region.join("loop")).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifos_and_sockets_are_not_opened() {
    outlive(|region, _| {
        fs::remove_file(region.join("books")).unwrap();
        for name in ["books", "fifo"] {
            mknodat(CWD, region.join(name), FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
        // A socket's path is short, and this one's isn't.
        let here = File::open(region).unwrap();
        let short = format!("/proc/self/fd/{}/socket", std::os::fd::AsRawFd::as_raw_fd(&here));
        UnixListener::bind(short).unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sparse_and_cut_files_harm_nobody() {
    for length in [0, 1, 4095, 1 << 40] {
        outlive(|region, _| {
            OpenOptions::new().write(true).open(region.join("books")).unwrap().set_len(length).unwrap();
            File::create(region.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_and_locked_files_are_removed() {
    outlive(|region, _| {
        let books = OpenOptions::new().read(true).write(true).open(region.join("books")).unwrap();
        fcntl_lock(&books, FlockOperation::LockExclusive).unwrap();
        let other = File::create(region.join("other")).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        fs::create_dir(region.join("directory")).unwrap();
        let inside = File::create(region.join("directory/inside")).unwrap();
        inside.write_all_at(b"open", 0).unwrap();
        [books, other, inside, File::open(region.join("directory")).unwrap()]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_swapped_while_they_are_read_harm_nobody() {
    for kind in [Region::Plain, Region::Bounded] {
        let Some(mut node) = Node::new(kind).await else { continue };
        let uid = node.run().await;
        let (region, theirs) = (node.region(&uid), node.innocent_books());
        let swapping = std::thread::spawn(move || {
            let books = region.join("books");
            let sound = fs::read(&books).unwrap();
            // Until the daemon has taken the directory away.
            while fs::exists(&region).unwrap() {
                let away = region.join("away");
                let swaps: [&dyn Fn(); 5] = [
                    &|| fs::write(&books, &sound).unwrap_or_default(),
                    &|| fs::write(&books, b"divvyreg").unwrap_or_default(),
                    &|| mknodat(CWD, &books, FileType::Fifo, Mode::RWXU, 0).unwrap_or_default(),
                    &|| symlink(&theirs, &books).unwrap_or_default(),
                    &|| fs::create_dir(&books).unwrap_or_default(),
                ];
                for swap in swaps {
                    swap();
                    fs::rename(&books, &away).unwrap_or_default();
                    fs::remove_file(&away).or_else(|_| fs::remove_dir(&away)).unwrap_or_default();
                }
            }
        });
        node.measured().await;
        node.survives(&uid).await;
        swapping.join().unwrap();
    }
}
