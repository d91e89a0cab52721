//! The daemon's part in sharing a card's time: as often as the daemon does it looks who has work there, and writes the clock page.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, ptr};

use anyhow::{Result, ensure};
use divvy_region::Share;
use divvy_region::clock::{Busy, Page, SAMPLE_PERIOD_NS, Writer};
use divvy_region::layout::{self, LINE};
use divvy_region::snapshot::weight;

use crate::container::{Container, Site};
use crate::figures::now;

/// Processes of a container that are looked at: more than any check of time has.
const SLOTS: usize = 16;
const LOOK: Duration = Duration::from_nanos(SAMPLE_PERIOD_NS);

/// Plays the daemon until this is dropped.
pub(crate) struct Daemon {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Who may have work.
struct Watched {
    region: File,
    cores: u32,
}

// === impl Daemon ===

impl Daemon {
    /// For these containers, which are all on the card.
    pub(crate) fn play(site: &Site, containers: &[&Container<'_>]) -> Result<Self> {
        let page = map(&File::options().read(true).write(true).open(site.clock())?)?;
        let watched: io::Result<Vec<Watched>> = containers.iter().map(|container| Watched::of(container)).collect();
        let watched = watched?;
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            let mut writer = Writer::new(page, now());
            while !is_over.load(Ordering::Relaxed) {
                writer.publish(now(), busy(&watched));
                thread::sleep(LOOK);
            }
        });
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // A daemon that panicked has said so.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

// === impl Watched ===

impl Watched {
    fn of(container: &Container<'_>) -> io::Result<Self> {
        Ok(Self { region: container.region().try_clone()?, cores: container.share.cores })
    }

    /// 0: it has no work.
    fn weight(&self) -> u32 {
        let mut uses = [0; SLOTS * LINE];
        let start = layout::use_bytes(1, 0, SLOTS).start as u64;
        self.region.read_exact_at(&mut uses, start).map_or(0, |()| weight(&uses))
    }
}

fn busy(watched: &[Watched]) -> Busy {
    let mut busy = Busy::default();
    for (weight, watched) in watched.iter().map(|watched| (watched.weight(), watched)).filter(|(weight, _)| *weight > 0)
    {
        busy.add(weight, Share::from_parts(watched.cores * 100), None);
    }
    busy
}

/// The page of a file, which stays mapped.
fn map(file: &File) -> Result<&'static Page> {
    let length = usize::try_from(file.metadata()?.len())?;
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a mapping where the kernel likes it overlaps nothing.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), length, access, shared, file.as_raw_fd(), 0) };
    ensure!(mapped != libc::MAP_FAILED, "the clock page: {}", io::Error::last_os_error());
    // SAFETY: so many bytes are mapped writable, for ever, and nobody but the one writer writes to them.
    Ok(unsafe { Page::blank(mapped.cast(), length) }?)
}
