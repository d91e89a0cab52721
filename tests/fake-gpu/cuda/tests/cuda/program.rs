//! Machines with a library of their own, and the programs on them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use driver_api::sys::CUstream;
use driver_api::{Cuda, SUCCESS};
use fake_cuda::Machine;
use fake_cuda::card::{Card, Usage};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// A machine and its copy of the library.
pub(crate) struct Site {
    directory: TempDir,
    library: PathBuf,
}

/// A process of a test, ended with it.
pub(crate) struct Worker(Child);

// === impl Site ===

impl Site {
    pub(crate) fn new(machine: &Machine) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let built = env::current_exe().unwrap().with_file_name("libfake_cuda.so");
        let library = fake_cuda::install(&built, directory.path(), &machine.lacks).unwrap();
        machine.write(&directory.path().join("cards.json")).unwrap();
        Self { directory, library }
    }

    /// One card of a GiB.
    pub(crate) fn small() -> Self {
        Self::new(&Machine::uniform(1, GIB))
    }

    pub(crate) fn card(&self, number: u32) -> Card {
        Card::open(&self.directory.path().join("state"), &Machine::uuid(number)).unwrap()
    }

    /// Where the state of the cards is.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The state of card 0, once some process has made it.
    pub(crate) fn opened(&self) -> Option<Card> {
        Card::open(&self.directory.path().join("state"), &Machine::uuid(0)).ok()
    }

    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Loads the library and makes card 0's primary context current.
    pub(crate) fn program(&self) -> Cuda {
        Cuda::start(&self.library)
    }

    /// Another process that does as [`crate::turns::worker`] understands.
    pub(crate) fn worker(&self, what: &str) -> Worker {
        self.worker_with(what, &[])
    }

    pub(crate) fn worker_with(&self, what: &str, variables: &[(&str, &str)]) -> Worker {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "turns::worker", "--nocapture"]);
        command.env("FAKE_CUDA_WORKER", what).env("FAKE_CUDA_LIBRARY", &self.library);
        // For programs that find the library by its name.
        command.env("LD_LIBRARY_PATH", self.directory.path());
        command.envs(variables.iter().copied()).stdout(Stdio::null());
        Worker(command.spawn().unwrap())
    }
}

/// Waits for something.
pub(crate) fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it didn't come");
        thread::sleep(Duration::from_millis(1));
    }
}

// === impl Worker ===

impl Worker {
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    pub(crate) fn wait(&mut self) -> io::Result<bool> {
        Ok(self.0.wait()?.success())
    }

    /// What it has of a card, once it is there.
    pub(crate) fn usage(&self, card: Card) -> Usage {
        eventually(|| card.usage_of(self.0.id()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Keeps the card busy while what follows is submitted: else its time has gaps in which the test wasn't fast enough.
pub(crate) fn busy_meanwhile(cuda: &Cuda, stream: CUstream) {
    assert_eq!(cuda.launch(cuda.function(c"busy_ns"), 30_000_000, stream), SUCCESS);
}
