//! Age of the kubelet: the time since it made its socket, which it does at every start.
//!
//! Shares end by it, so no step of the wall clock may change it. The file's time is compared with the wall clock once, for
//! the first socket that this process sees, because that kubelet may be older than the process; from then on a clock
//! counts that is never set, and each later socket was made when it was first seen.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use super::socket::SocketFile;

/// Age of the kubelet that has made the socket at one path.
#[derive(Debug)]
pub struct KubeletAge {
    socket: PathBuf,
    first: Mutex<Option<FirstSight>>,
}

/// When this process first saw a socket, and how old it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FirstSight {
    file: SocketFile,
    at: Instant,
    age: Duration,
}

/// What the clocks show at one moment.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    /// Never set.
    monotonic: Instant,
    /// Set by people and programs.
    wall: SystemTime,
    /// Time since the machine was booted, which nothing that runs on it exceeds.
    boot: Duration,
}

// === impl KubeletAge ===

impl KubeletAge {
    /// The age of the kubelet whose socket is at this path.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, first: Mutex::default() }
    }

    /// Time since the kubelet made its socket; zero while there is none.
    pub fn get(&self) -> Duration {
        let Some(file) = SocketFile::at(&self.socket) else { return Duration::ZERO };
        let made = std::fs::symlink_metadata(&self.socket).and_then(|meta| meta.modified()).ok();
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        FirstSight::age(&mut first, file, made, Clocks::now())
    }
}

// === impl FirstSight ===

impl FirstSight {
    /// Age of a file that was `made` at this time of the wall clock, by its first sight, which is remembered in `first`.
    fn age(first: &mut Option<Self>, file: SocketFile, made: Option<SystemTime>, now: Clocks) -> Duration {
        let seen = first.filter(|seen| seen.file == file).unwrap_or_else(|| {
            // Made in the future: the clock was set back since.
            let by_wall = made.filter(|_| first.is_none()).and_then(|made| now.wall.duration_since(made).ok());
            Self { file, at: now.monotonic, age: by_wall.unwrap_or_default().min(now.boot) }
        });
        *first = Some(seen);
        seen.age + now.monotonic.saturating_duration_since(seen.at)
    }
}

// === impl Clocks ===

impl Clocks {
    fn now() -> Self {
        let boot = clock_gettime(ClockId::Boottime);
        let boot = Duration::try_from(boot).unwrap_or_default();
        Self { monotonic: Instant::now(), wall: SystemTime::now(), boot }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::os::unix::net::UnixListener;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOURS: Duration = Duration::from_secs(5 * 3600);

    /// A machine whose clocks are told what to show.
    struct Machine {
        socket: tempfile::TempDir,
        start: Instant,
        up: Duration,
        wall: SystemTime,
        first: Option<FirstSight>,
    }

    impl Machine {
        /// Booted for so long; the kubelet makes its socket now.
        fn new(up: Duration) -> Self {
            let socket = tempfile::tempdir().unwrap();
            UnixListener::bind(socket.path().join("kubelet.sock")).unwrap();
            Self { socket, start: Instant::now(), up, wall: SystemTime::UNIX_EPOCH + 10_000 * HOURS, first: None }
        }

        /// Age after this time has passed, by clocks that the wall clock follows.
        fn age_after(&mut self, passed: Duration, made: SystemTime) -> u64 {
            self.up += passed;
            self.wall += passed;
            let now = Clocks { monotonic: self.start + self.up, wall: self.wall, boot: self.up };
            let file = SocketFile::at(&self.socket.path().join("kubelet.sock")).unwrap();
            FirstSight::age(&mut self.first, file, Some(made), now).as_secs()
        }
    }

    #[test]
    fn kubelet_that_was_there_before_is_as_old_as_its_socket() {
        let mut machine = Machine::new(HOURS);
        let made = machine.wall;
        assert_eq!(machine.age_after(7 * SECOND, made), 7);
        assert_eq!(machine.age_after(7 * SECOND, made), 14);
    }

    #[test]
    fn step_of_the_clock_changes_no_age() {
        let mut machine = Machine::new(HOURS);
        let made = machine.wall;
        assert_eq!(machine.age_after(SECOND, made), 1);
        machine.wall += HOURS;
        assert_eq!(machine.age_after(SECOND, made), 2, "forwards");
        machine.wall -= 2 * HOURS;
        assert_eq!(machine.age_after(SECOND, made), 3, "backwards");
    }

    #[test]
    fn clock_stepped_before_the_first_sight_is_bounded_by_the_boot() {
        let mut machine = Machine::new(20 * SECOND);
        let made = machine.wall;
        machine.wall += HOURS;
        assert_eq!(machine.age_after(5 * SECOND, made), 25, "the machine is no older");
        let mut machine = Machine::new(HOURS);
        let made = machine.wall;
        machine.wall -= HOURS;
        assert_eq!(machine.age_after(SECOND, made), 0, "made in the future");
        assert_eq!(machine.age_after(30 * SECOND, made), 30, "it ages from then on");
    }

    #[test]
    fn kubelet_that_restarts_is_young_again() {
        let mut machine = Machine::new(HOURS);
        let made = machine.wall;
        assert_eq!(machine.age_after(SECOND, made), 1);
        let path = machine.socket.path().join("kubelet.sock");
        std::fs::remove_file(&path).unwrap();
        UnixListener::bind(&path).unwrap();
        let long_ago = machine.wall - HOURS;
        assert_eq!(machine.age_after(2 * SECOND, long_ago), 0, "it was seen now");
        assert_eq!(machine.age_after(2 * SECOND, long_ago), 2);
    }

    #[test]
    fn socket_with_a_time_of_the_past_or_the_future_ages_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.sock");
        let boot = Clocks::now().boot;
        for made in [SystemTime::UNIX_EPOCH, SystemTime::now() + HOURS] {
            // A plain file can be opened to set its time.
            File::create(&path).unwrap().set_times(FileTimes::new().set_modified(made)).unwrap();
            let age = KubeletAge::new(path.clone());
            let (first, second) = (age.get(), age.get());
            assert!(first <= boot + HOURS && first <= second, "{first:?}, {second:?}");
            assert_eq!(made == SystemTime::UNIX_EPOCH, first >= boot, "{first:?} of {boot:?}");
            assert!(second < first + HOURS, "{first:?}, {second:?}");
        }
        assert_eq!(KubeletAge::new(directory.path().join("none")).get(), Duration::ZERO);
    }
}
