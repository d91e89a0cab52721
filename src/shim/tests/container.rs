//! A container as the daemon prepares one, with limits, books and the library, on a machine with a stand-in driver; and
//! programs in it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use divvy_region::Owner;
use divvy_region::clock::{DriverMemory, MAGIC, VERSION};
use divvy_region::layout;
use divvy_region::snapshot::{Snapshot, Totals, Usage};
use fake_cuda::Machine;
use fake_cuda::card::Card;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// For a C compiler: the program is linked to the driver.
pub(crate) const LINKED: [&str; 4] = ["-DLINKED", "-Wl,--no-as-needed", "-l:libcuda.so.1", "-Llib"];

/// What the limits file says of one card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// In MiB.
    pub(crate) memory: u64,
    /// Percent.
    pub(crate) cores: u32,
    pub(crate) compute: &'static str,
}

/// A directory that is the container's root to the library which is built for tests.
pub(crate) struct Container {
    directory: TempDir,
}

/// A program in a container, ended with this.
pub(crate) struct Tenant {
    child: Child,
    said: BufReader<ChildStdout>,
}

/// Waits for something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not in 30 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `libdivvy.so` for tests, built by the first who asks.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/libdivvy");
        let built = Command::new(script).arg("--test").stderr(Stdio::inherit()).output().expect("a script that runs");
        assert!(built.status.success(), "hack/libdivvy --test: {}", built.status);
        let path = String::from_utf8(built.stdout).expect("a path");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        root.join(path.trim_end()).canonicalize().expect("the library that was built")
    })
}

// === impl Share ===

impl Share {
    /// So many MiB, and nothing said of time.
    pub(crate) fn of_memory(memory: u64) -> Self {
        Self { memory, cores: 100, compute: "cap" }
    }
}

// === impl Container ===

impl Container {
    /// With the first cards of a machine, one for each share.
    pub(crate) fn new(machine: &Machine, shares: &[Share]) -> Self {
        let container = Self { directory: tempfile::tempdir().expect("a directory") };
        for directory in ["lib", "limits", "region"] {
            fs::create_dir(container.path(directory)).expect("a directory");
        }
        let driver = env::current_exe().expect("a program").with_file_name("libfake_cuda.so");
        fake_cuda::install(&driver, &container.path("lib"), &machine.lacks).expect("a driver");
        machine.write(&container.path("lib/cards.json")).expect("a machine");
        container.limit(shares);
        let cards = u32::try_from(shares.len()).expect("a few");
        let books = File::create(container.path("region/books")).expect("a file");
        books.set_len(layout::size(shares.len()) as u64).expect("room");
        (&books).write_all(&layout::header(cards, 0).expect("a number of cards")).expect("room");
        container
    }

    /// So many MiB of a card that has 1 GiB.
    pub(crate) fn of_memory(mib: u64) -> Self {
        Self::new(&Machine::uniform(1, GIB), &[Share::of_memory(mib)])
    }

    /// A path in the container.
    pub(crate) fn path(&self, rest: &str) -> PathBuf {
        self.directory.path().join(rest)
    }

    /// Writes the limits file and puts it in place, as the daemon does.
    pub(crate) fn limit(&self, shares: &[Share]) {
        self.limit_by("shim", shares);
    }

    /// The same, on a node of another tier.
    pub(crate) fn limit_by(&self, tier: &str, shares: &[Share]) {
        let compute = shares.first().map_or("cap", |share| share.compute);
        let card = |(number, share): (u32, &Share)| {
            let Share { memory, cores, .. } = share;
            format!("card {} memory-mib {memory} cores {cores} exclusive 0\n", Machine::uuid(number))
        };
        let cards: String = (0..).zip(shares).map(card).collect();
        let text = format!("divvy-limits v1\ntier {tier}\ncompute {compute}\npod u ns p\ncontainer c\n{cards}end\n");
        fs::write(self.path("limits/next"), text).expect("room");
        fs::rename(self.path("limits/next"), self.path("limits/limits")).expect("a directory");
    }

    /// Says on the clock page of card 0 what the driver takes for contexts and graphs, as the daemon does.
    pub(crate) fn say_driver_memory(&self, memory: DriverMemory) {
        let DriverMemory { context_bytes, graph_node_bytes } = memory;
        let words = [MAGIC, VERSION.into(), 0, 0, 0, 0, context_bytes, graph_node_bytes];
        let path = self.path(&format!("limits/clock-{}", Machine::uuid(0)));
        fs::write(path, words.map(u64::to_ne_bytes).concat()).expect("room");
    }

    /// A program in the container. What it writes to standard error is gathered: [`Container::complaints`].
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command_without_library(program);
        command.env("LD_PRELOAD", library());
        command
    }

    /// The same, held to nothing.
    pub(crate) fn command_without_library(&self, program: impl AsRef<OsStr>) -> Command {
        let complaints = File::options().create(true).append(true).open(self.path("stderr")).expect("a file");
        let mut command = Command::new(program);
        command.current_dir(self.directory.path()).env("LD_LIBRARY_PATH", self.path("lib")).stderr(complaints);
        command
    }

    /// Compiles a program in C. It is linked to the driver if it `is_linked`.
    pub(crate) fn compile(&self, name: &str, is_linked: bool) -> PathBuf {
        self.build(name, name, if is_linked { &LINKED } else { &[] })
    }

    /// Compiles a file of `tests/`, with more flags, to this path in the container.
    pub(crate) fn build(&self, name: &str, to: &str, flags: &[&str]) -> PathBuf {
        self.compile_with("cc", name, to, flags).expect("a C compiler called cc")
    }

    /// Compiles by any compiler; `None` if there is none of that name, or it refuses.
    pub(crate) fn compile_with(&self, compiler: &str, name: &str, to: &str, flags: &[&str]) -> Option<PathBuf> {
        let program = self.path(to);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).with_extension("c");
        let mut command = Command::new(compiler);
        command.args(["-O1", "-Wall", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
        let made = command.args(flags).arg("-ldl").current_dir(self.directory.path()).output().ok()?;
        if !made.status.success() {
            eprintln!("{compiler} {flags:?}: {}", String::from_utf8_lossy(&made.stderr));
        }
        made.status.success().then_some(program)
    }

    /// This very program again, as the tenant that is the ignored test of this name. It is given words: [`words`].
    pub(crate) fn tenant(&self, name: &str, words: &str) -> Tenant {
        let command = self.command(env::current_exe().expect("a program"));
        Tenant::start(command, name, words)
    }

    /// The same, held to nothing.
    pub(crate) fn tenant_without_library(&self, name: &str, words: &str) -> Tenant {
        let command = self.command_without_library(env::current_exe().expect("a program"));
        Tenant::start(command, name, words)
    }

    /// What programs have written to standard error so far.
    pub(crate) fn complaints(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    /// The books as the daemon reads them.
    pub(crate) fn totals(&self, card: usize) -> Totals {
        let bytes = fs::read(self.path("region/books")).expect("books");
        Snapshot::new(&bytes).expect("books").totals(card).expect("a card")
    }

    /// What each process with a slot uses of a card.
    pub(crate) fn usages(&self, card: usize) -> Vec<(Owner, Usage)> {
        let bytes = fs::read(self.path("region/books")).expect("books");
        let snapshot = Snapshot::new(&bytes).expect("books");
        snapshot.owners().filter_map(|(slot, owner)| Some((owner, snapshot.usage(card, slot)?))).collect()
    }

    /// A card as the stand-in driver knows it, once a program has used it.
    pub(crate) fn card(&self, number: u32) -> Card {
        let look = || Card::open(&self.path("lib/state"), &Machine::uuid(number)).ok();
        eventually("the state of a card", look)
    }
}

// === impl Tenant ===

impl Tenant {
    pub(crate) fn start(mut command: Command, name: &str, words: &str) -> Self {
        command.args(["--ignored", "--exact", name, "--nocapture", "--test-threads=1"]).env("DIVVY_TENANT", words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program that runs");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, said }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next thing that it [says](say); nothing if it ends before.
    pub(crate) fn heard(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.said.read_line(&mut line).expect("text") == 0 {
                return None;
            }
            // The test harness writes to the same place, and not always whole lines.
            if let Some((_, said)) = line.trim_end().split_once("> ") {
                return Some(said.to_owned());
            }
        }
    }

    /// The same, and nothing else.
    #[track_caller]
    pub(crate) fn says(&mut self, expected: &str) {
        assert_eq!(self.heard().as_deref(), Some(expected));
    }

    /// Has it [go on](listen).
    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "{line}").expect("a program that listens");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("a child")
    }

    /// Waits for its end, which must be a good one.
    #[track_caller]
    pub(crate) fn succeeds(&mut self) {
        drop(self.child.stdin.take());
        let rest: Vec<_> = std::iter::from_fn(|| self.heard()).collect();
        let status = self.wait();
        assert!(status.success(), "{status}, after {rest:?}");
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// In a tenant: the words that it was started with; nothing if it is no tenant but the test program itself.
pub(crate) fn words() -> Vec<String> {
    let words = env::var("DIVVY_TENANT").unwrap_or_default();
    if !words.is_empty() {
        // SAFETY: a number. A tenant that hangs ends, and its test with it.
        unsafe { libc::alarm(60) };
    }
    words.split_whitespace().map(str::to_owned).collect()
}

/// In a tenant: tells the test something.
pub(crate) fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "> {line}").and_then(|()| out.flush()).expect("a test that listens");
}

/// In a tenant: waits for what the test [tells](Tenant::tell) it; empty when the test has gone.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a test that tells");
    line.trim_end().to_owned()
}
