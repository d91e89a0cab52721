use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use divvy_region::layout;
use divvy_region::snapshot::Usage;
use nix::fcntl::{FcntlArg, fcntl};

use super::super::fixture::{Books, holder};
use super::super::processes;
use super::*;

const REGION: &str = "DIVVY_TEST_REGION";
const KEEPS_LOCK: &str = "DIVVY_TEST_KEEPS_LOCK";

/// A container's region and cgroup, and what a look at them told last.
struct Bench {
    directory: tempfile::TempDir,
    holder: Holder,
    kept: ContainerRegion,
    buffer: Vec<u8>,
    /// At each telling: the file, its generation, bytes held, GPU time.
    told: Vec<(u64, u64, u64, u64)>,
}

/// Makes something where the region should be.
type Make<'a> = &'a dyn Fn(&Path);

/// A process that holds 1000 bytes and has used 70 ns; killed at the end.
struct Tenant(Child);

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let holder = holder("a", true);
        let cgroup = directory.path().join("cgroup/kubepods/poduid-a");
        fs::create_dir_all(&cgroup).expect("a directory");
        fs::create_dir(directory.path().join("region")).expect("a directory");
        let bench = Self { directory, holder, kept: ContainerRegion::default(), buffer: Vec::new(), told: Vec::new() };
        fs::write(bench.path(), Books::new(0).0).expect("a file");
        bench.processes(&[]);
        bench
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("region/books")
    }

    fn processes(&self, tenants: &[&Tenant]) {
        let pids: Vec<String> = tenants.iter().map(|tenant| tenant.0.id().to_string()).collect();
        let file = self.directory.path().join("cgroup/kubepods/poduid-a/cgroup.procs");
        fs::write(file, pids.join("\n")).expect("a file");
    }

    fn look(&mut self) -> Option<Slots> {
        let (path, cgroups) = (self.path(), self.directory.path().join("cgroup"));
        self.told.clear();
        self.kept.look(&path, &self.holder, &cgroups, &mut self.buffer, |file, snapshot| {
            let totals = snapshot.totals(0).expect("a card");
            self.told.push((file, snapshot.generation(), totals.usage.committed, totals.usage.busy_ns));
        })
    }

    /// Bytes held and GPU time, at each telling of the last look.
    fn held(&self) -> Vec<(u64, u64)> {
        self.told.iter().map(|(.., held, busy)| (*held, *busy)).collect()
    }

    /// As the daemon makes one: under another name first.
    fn replace(&self, bytes: &[u8]) {
        let new = self.directory.path().join("region/new");
        fs::write(&new, bytes).expect("a file");
        fs::rename(new, self.path()).expect("ours");
    }

    fn start(&self, keeps_lock: bool) -> Tenant {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "--ignored", "--nocapture", "usage::region::tests::a_tenants_process"]);
        command.env(REGION, self.path()).env(KEEPS_LOCK, keeps_lock.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("seated")), "it has requested a slot");
        Tenant(child)
    }
}

impl Tenant {
    fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }

    /// Only it, by the host's number.
    fn slots(&self) -> Slots {
        let identity = processes::identity(self.0.id()).expect("it runs").expect("Linux tells");
        Slots { pids: [self.0.id()].into(), owners: [identity].into() }
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What `libdivvy` does in its process, in plain writes: the first slot whose lock is free.
#[test]
#[ignore = "a process that other tests start"]
fn a_tenants_process() {
    let Some(path) = std::env::var_os(REGION) else { return };
    let file = File::options().read(true).write(true).open(path).expect("the region");
    let lock = |slot: usize, kind: i32| {
        let lock = libc::flock {
            l_type: kind.try_into().expect("small"),
            l_whence: 0,
            l_start: slot.try_into().expect("small"),
            l_len: 1,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_SETLK(&lock)).is_ok()
    };
    let slot = (0..8).find(|slot| lock(*slot, libc::F_WRLCK)).expect("a free lock");
    let (pid, started) = processes::identity(std::process::id()).expect("it is us").expect("Linux tells");
    let mut books = Books(vec![0; layout::size(1)]);
    file.read_exact_at(&mut books.0, 0).expect("all of it");
    books.seat(slot, Some(Owner { pid, started, nonce: 9, comm: [0; 16] }));
    books.uses(slot, Usage { committed: 1000, busy_ns: 70, ..Usage::default() });
    file.write_all_at(&books.0, 0).expect("all of it");
    if std::env::var(KEEPS_LOCK).as_deref() == Ok("false") {
        lock(slot, libc::F_UNLCK);
    }
    println!("\nseated");
    io::stdin().lines().for_each(drop);
}

#[test]
fn memory_of_a_killed_process_is_released() {
    let mut bench = Bench::new();
    let (mut first, second) = (bench.start(true), bench.start(true));
    bench.processes(&[&first, &second]);
    let slots = bench.look().expect("a region");
    assert_eq!(slots.pids, [first.0.id(), second.0.id()].into());
    assert_eq!(bench.held(), [(2000, 140)]);
    first.kill();
    assert_eq!(bench.look(), Some(second.slots()));
    assert_eq!(bench.held(), [(2000, 140), (1000, 70)], "told before it is gone, and after");
    let third = bench.start(true);
    bench.processes(&[&second, &third]);
    bench.look();
    assert_eq!(bench.held(), [(2000, 140)], "its slot, and our lock of it, are free for another");
}

#[test]
fn live_process_without_lock_keeps_its_slot() {
    let mut bench = Bench::new();
    let mut tenant = bench.start(false);
    bench.processes(&[&tenant]);
    for _ in 0..2 {
        let slots = bench.look().expect("a region");
        assert_eq!((slots.pids.len(), slots.owners), (0, tenant.slots().owners));
        assert_eq!(bench.held(), [(1000, 70)]);
    }
    tenant.kill();
    assert_eq!(bench.look(), Some(Slots::default()));
}

#[test]
fn slots_are_kept_while_processes_are_hidden() {
    let mut bench = Bench::new();
    let mut tenant = bench.start(true);
    tenant.kill();
    fs::write(bench.directory.path().join("cgroup/kubepods/poduid-a/cgroup.procs"), "0\n").expect("a file");
    bench.look();
    assert_eq!(bench.held(), [(1000, 70)]);
    bench.processes(&[]);
    bench.look();
    assert_eq!(bench.held(), [(1000, 70), (0, 0)]);
}

#[test]
fn slot_is_freed_only_under_its_lock_and_unchanged() {
    let mut bench = Bench::new();
    let mut tenant = bench.start(true);
    bench.processes(&[&tenant]);
    bench.look();
    let (file, seen) = (bench.kept.file.as_ref().expect("a region"), bench.buffer.clone());
    assert!(!file.free(&seen, 0).expect("a region"), "somebody has its lock");
    tenant.kill();
    let mut other = Books(seen.clone());
    other.seat(0, Some(Owner { pid: 1, started: 2, nonce: 3, comm: [0; 16] }));
    fs::OpenOptions::new().write(true).open(bench.path()).expect("there").write_all_at(&other.0, 0).expect("written");
    assert!(!file.free(&seen, 0).expect("a region"), "it has another owner");
    assert_eq!(fs::read(bench.path()).expect("there"), other.0);
    assert!(file.free(&other.0, 0).expect("a region"));
    let freed = fs::read(bench.path()).expect("there");
    assert_eq!(Snapshot::new(&freed).expect("a region").owners().count(), 0);
}

#[test]
fn slot_lock_survives_closing_another_descriptor() {
    let mut bench = Bench::new();
    bench.look();
    let file = bench.kept.file.as_ref().expect("a region");
    assert!(file.try_lock(0).expect("a region"));
    drop(File::open(bench.path()).expect("there"));
    let tenant = bench.start(true);
    bench.processes(&[&tenant]);
    bench.look();
    let taken: Vec<_> = Snapshot::new(&bench.buffer).expect("a region").owners().map(|(slot, _)| slot).collect();
    assert_eq!(taken, [1], "the first was ours");
}

#[test]
fn invalid_region_is_not_read_and_does_not_block() {
    let mut bench = Bench::new();
    let sound = Books::new(0).0;
    let path = bench.path();
    let remake = |make: Make<'_>| {
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).expect("there");
        make(&path);
    };
    let file = |bytes: Vec<u8>| move |path: &Path| fs::write(path, &bytes).expect("a file");
    let elsewhere = bench.directory.path().join("elsewhere");
    fs::write(&elsewhere, &sound).expect("a file");
    let two_cards = [&layout::header(2, 0).expect("two")[..], &vec![0; layout::size(2)]].concat();
    let hostile: [(&str, Make<'_>); 7] = [
        ("not a regular file", &|path| symlink(&elsewhere, path).expect("a link")),
        ("not a regular file", &|path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO")),
        ("not a regular file", &|path| fs::create_dir(path).expect("a directory")),
        ("region of 0 bytes", &file(Vec::new())),
        ("are needed", &file(sound[..sound.len() / 2].to_vec())),
        ("begins with", &file(vec![7; sound.len()])),
        ("than the container's 1", &file(two_cards)),
    ];
    for (problem, make) in hostile {
        remake(make);
        let found = RegionReader::open(&path, bench.holder.parts.len(), None).expect_err("broken").to_string();
        assert!(found.contains(problem), "{found}");
        assert_eq!(bench.look(), None, "{found}");
    }
    remake(&file(sound));
    assert_eq!(bench.look(), Some(Slots::default()));
}

#[test]
fn removed_region_is_read_until_a_valid_one_replaces_it() {
    let mut bench = Bench::new();
    let tenant = bench.start(true);
    bench.processes(&[&tenant]);
    assert_eq!(bench.look(), Some(tenant.slots()));
    fs::remove_file(bench.path()).expect("there");
    assert_eq!(bench.look(), Some(tenant.slots()), "its processes have it still");
    fs::write(bench.path(), "nonsense").expect("a file");
    assert_eq!(bench.look(), Some(tenant.slots()));
    let before = bench.told[0].0;
    bench.replace(&Books::new(1).0);
    assert_eq!(bench.look(), Some(Slots::default()));
    assert!(bench.told[0].0 != before && bench.told[0].1 == 1, "{:?}", bench.told);
    fs::OpenOptions::new().write(true).open(bench.path()).expect("there").set_len(100).expect("cut");
    assert_eq!(bench.look(), None, "cut short");
    bench.replace(&Books::new(2).0);
    assert_eq!(bench.look(), Some(Slots::default()));
}

#[test]
fn forged_slots_are_freed() {
    let mut bench = Bench::new();
    let mut books = Books::new(0);
    for slot in 0..layout::SLOTS {
        books.seat(slot, Some(Owner { pid: 1, started: 1, nonce: 1, comm: [1; 16] }));
        books.uses(slot, Usage { committed: u64::MAX, busy_ns: u64::MAX, ..Usage::default() });
    }
    books.0[28..32].copy_from_slice(&u32::MAX.to_ne_bytes());
    bench.replace(&books.0);
    assert_eq!(bench.look(), Some(Slots::default()));
    assert_eq!(bench.held(), [(u64::MAX, u64::MAX), (0, 0)]);
}
