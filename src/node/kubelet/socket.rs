//! Detects changes of the sockets in the plugin directory.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inotify::{Inotify, WatchMask};
use tokio_stream::StreamExt as _;
use tracing::warn;

/// Identity of a socket file, which changes when the socket is recreated at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFile {
    device: u64,
    inode: u64,
    /// Change time, as some file systems reuse inodes at once.
    changed: (i64, i64),
}

/// Waits for changes in a directory.
#[derive(Debug)]
pub struct DirectoryWatch {
    path: PathBuf,
    events: Option<inotify::EventStream<[u8; 1024]>>,
}

/// Polling interval without inotify: `fs.inotify.max_user_instances` is only 128 on common machines.
const POLL: Duration = Duration::from_millis(100);
/// Longest interval between checks with inotify, in case an event was lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

// === impl SocketFile ===

impl SocketFile {
    /// The file at `path`, if there is one.
    pub fn at(path: &Path) -> Option<Self> {
        let meta = std::fs::symlink_metadata(path).ok()?;
        Some(Self { device: meta.dev(), inode: meta.ino(), changed: (meta.ctime(), meta.ctime_nsec()) })
    }
}

// === impl DirectoryWatch ===

impl DirectoryWatch {
    /// Watches `path`. Made before the first look, so that nothing falls between.
    pub fn new(path: &Path) -> Self {
        let events = Inotify::init().and_then(|inotify| {
            inotify
                .watches()
                .add(path, WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVED_TO | WatchMask::CLOSE_WRITE)?;
            inotify.into_event_stream([0; 1024])
        });
        let events = events.map_err(|error| {
            let path = path.display();
            warn!(%path, %error, "inotify is not available, polling every {}ms; raise fs.inotify.max_user_instances", POLL.as_millis());
        });
        Self { path: path.to_owned(), events: events.ok() }
    }

    /// Returns when something may have changed.
    pub async fn changed(&mut self) {
        let Some(events) = &mut self.events else { return tokio::time::sleep(POLL).await };
        // Elapsing is as good as an event: the caller looks either way.
        if let Ok(None | Some(Err(_))) = tokio::time::timeout(LOOK_ANYWAY, events.next()).await {
            warn!(path = %self.path.display(), "inotify ended, polling every {}ms", POLL.as_millis());
            self.events = None;
        }
    }
}
