mod damage;
mod histories;
pub(crate) mod model;

use divvy_api::{ContainerKind, Cores, GpuRequest, Memory, Share, Terms};

use super::*;

impl Ledger {
    /// Puts a full disk under the journal; answers what [`Self::mend_writes`] wants back.
    pub(crate) fn break_writes(&mut self) -> File {
        self.journal.break_writes()
    }

    pub(crate) fn mend_writes(&mut self, file: File) {
        self.journal.mend_writes(file);
    }
}

fn share(mib: u64, cores: u32) -> Share {
    Share { memory: Memory::mib(mib), cores: Cores::new(cores), ..Share::default() }
}

fn pod(uid: &str) -> PodRef {
    PodRef { uid: uid.to_owned(), namespace: "default".to_owned(), name: format!("pod-{uid}") }
}

fn app(name: &str) -> ContainerRequest {
    let request = GpuRequest { cards: 1, memory: "1Gi".parse().expect("amount"), cores: Cores::new(10) };
    ContainerRequest {
        name: name.to_owned(),
        kind: ContainerKind::App,
        profile: None,
        request: Some(request),
        counted: request.totals(),
    }
}

fn holding(card: &str, slot: u32) -> Holding {
    let part = Part { card: card.parse().expect("uuid"), slot: Some(slot), lost: None, share: share(1024, 10) };
    Holding { nonce: Nonce::random(), parts: vec![part], origin: Origin::Allocated, terms: Terms::default() }
}

/// Ends all of a pod's shares and returns what they were; `None` if it held nothing.
fn release(ledger: &mut Ledger, uid: &str, why: &str) -> Result<Option<PodEntry>, LedgerError> {
    let Some(entry) = ledger.allocations().pod(uid).cloned() else { return Ok(None) };
    ledger.apply(vec![Change::Release { pod: entry.pod.clone(), why: why.to_owned() }])?;
    Ok(Some(entry))
}

fn reopen(dir: &Path) -> (Ledger, ReplayReport) {
    Ledger::open(dir).expect("opens")
}

fn file(dir: &Path) -> PathBuf {
    dir.join("journal")
}

#[test]
fn allocation_survives_the_process() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, report) = reopen(dir.path());
    assert_eq!(report, ReplayReport::default());
    ledger.allocate(&pod("a"), &[app("x"), app("y")], "x", holding("GPU-1", 0)).expect("writes");
    ledger.allocate(&pod("a"), &[app("x"), app("y")], "y", holding("GPU-2", 0)).expect("writes");
    ledger.allocate(&pod("b"), &[app("x")], "x", holding("GPU-1", 1)).expect("writes");
    let freed = release(&mut ledger, "b", "gone").expect("writes").expect("known");
    assert_eq!(freed.pod, pod("b"));
    let before = (ledger.allocations().clone(), ledger.revision());
    drop(ledger);
    let (ledger, report) = reopen(dir.path());
    assert_eq!(ledger.allocations(), &before.0);
    assert_eq!(report, ReplayReport { records: 4, ..ReplayReport::default() });
    assert!(ledger.revision() > before.1);
    assert_eq!(ledger.allocations().changed_at("a"), Some(before.1 - 2), "b was booked and released since");
}

#[test]
fn reissued_slot_leaves_the_former_holders_share() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    ledger.allocate(&pod("a"), &[app("x")], "x", holding("GPU-1", 3)).expect("writes");
    ledger.allocate(&pod("b"), &[app("x")], "x", holding("GPU-1", 3)).expect("writes");
    drop(ledger);
    let (mut ledger, _) = reopen(dir.path());
    let card = "GPU-1".parse().expect("uuid");
    assert_eq!(
        ledger.allocations().holder_of(&"GPU-1::3".parse().expect("slot")).map(|entry| &entry.pod),
        Some(&pod("b"))
    );
    assert_eq!(
        ledger.allocations().pod("a").expect("lives").containers[0].holding.as_ref().expect("held").parts[0].slot,
        None
    );
    assert_eq!(ledger.allocations().held(&card, None).memory, Memory::mib(2048));
    assert_eq!(ledger.allocations().slots_held(&card, None), [3].into());
    release(&mut ledger, "b", "it failed").expect("writes");
    assert_eq!(ledger.allocations().slots_held(&card, None), [].into());
    let on_record: Vec<_> = ledger.allocations().slots_on_record().collect();
    assert_eq!(
        on_record,
        [("GPU-1::3".parse().expect("slot"), None)],
        "the kubelet may still list it for the first pod"
    );
    let violations = model::violations(ledger.allocations(), &[(card, Memory::mib(2048), Cores::FULL)]);
    assert_eq!(violations, Vec::<String>::new());
}

#[test]
fn second_allocate_replaces_the_containers_share() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    ledger.allocate(&pod("a"), &[app("x")], "x", holding("GPU-1", 3)).expect("writes");
    ledger.allocate(&pod("a"), &[app("x")], "x", holding("GPU-2", 3)).expect("writes");
    assert_eq!(ledger.allocations().held(&"GPU-1".parse().expect("uuid"), None), divvy_placement::Held::default());
    assert_eq!(ledger.allocations().held(&"GPU-2".parse().expect("uuid"), None).pods, 1);
}

#[test]
fn nothing_changes_where_nothing_is_known() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    let before = (ledger.revision(), fs::read(file(dir.path())).expect("journal"));
    assert_eq!(release(&mut ledger, "nobody", "gone").expect("nothing to write"), None);
    let release = Change::Release { pod: pod("nobody"), why: "gone".to_owned() };
    assert_eq!(ledger.apply(vec![release]).expect("nothing to write"), before.0);
    let error = ledger.allocate(&pod("a"), &[app("x")], "z", holding("GPU-1", 0)).expect_err("no such container");
    assert_eq!(error.to_string(), "pod default/pod-a (a) has no container \"z\"");
    assert_eq!((ledger.revision(), fs::read(file(dir.path())).expect("journal")), before);
}

#[test]
fn only_what_failed_is_tried_again_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    ledger.allocate(&pod("a"), &[app("x")], "x", holding("GPU-1", 0)).expect("writes");
    let length = |dir: &Path| fs::metadata(file(dir)).expect("journal").len();
    let before = (ledger.allocations().clone(), length(dir.path()));
    ledger.try_writing().expect("nothing has failed");
    assert_eq!(length(dir.path()), before.1, "nothing is written");

    let good = ledger.break_writes();
    ledger.allocate(&pod("b"), &[app("x")], "x", holding("GPU-1", 1)).expect_err("disk full");
    for _ in 0..100 {
        ledger.try_writing().expect_err("still full");
    }
    assert!(!ledger.journal_health().is_writable);
    ledger.mend_writes(good);
    ledger.try_writing().expect("there is space again");
    assert!(ledger.journal_health().is_writable);
    let written = length(dir.path()) - before.1;
    assert!((200..2000).contains(&written), "{written} bytes: about as many as couldn't be written");
    drop(ledger);
    let (ledger, report) = reopen(dir.path());
    assert_eq!((ledger.allocations(), report.damaged.len()), (&before.0, 0));
}

#[test]
fn failed_write_changes_nothing_and_the_next_one_works() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    ledger.allocate(&pod("a"), &[app("x")], "x", holding("GPU-1", 0)).expect("writes");
    let before = (ledger.allocations().clone(), ledger.revision());

    let good = ledger.break_writes();
    let error = ledger.allocate(&pod("b"), &[app("x")], "x", holding("GPU-1", 1)).expect_err("disk full");
    let path = file(dir.path());
    assert!(
        error.to_string().starts_with(&format!("{}: cannot write the ledger's journal: ", path.display())),
        "{error}"
    );
    assert_eq!((ledger.allocations(), ledger.revision()), (&before.0, before.1));
    release(&mut ledger, "a", "gone").expect_err("disk full");
    assert_eq!((ledger.allocations(), ledger.revision()), (&before.0, before.1));

    // The disk took half of a record before it was full.
    ledger.mend_writes(good);
    let mut bytes = fs::read(&path).expect("journal");
    bytes.extend_from_slice(b"\n0011aabb {\"revision\":");
    fs::write(&path, bytes).expect("writes");
    ledger.allocate(&pod("c"), &[app("x")], "x", holding("GPU-1", 1)).expect("there is space again");
    let allocations = ledger.allocations().clone();
    drop(ledger);
    let (ledger, report) = reopen(dir.path());
    assert_eq!((ledger.allocations(), report.damaged), (&allocations, vec![]));
}

#[test]
fn second_daemon_is_refused_while_the_first_runs() {
    let dir = tempfile::tempdir().expect("dir");
    let (first, _) = reopen(dir.path());
    let error = Ledger::open(dir.path()).expect_err("in use");
    assert_eq!(
        error.to_string(),
        format!("{}: another process keeps its ledger here: stop it first", dir.path().display())
    );
    drop(first);
    reopen(dir.path());
}

#[test]
fn journal_of_another_version_is_refused_unchanged() {
    let dir = tempfile::tempdir().expect("dir");
    drop(reopen(dir.path()));
    let json = r#"{"version":"v2","revision":7}"#;
    let theirs = format!("{:08x} {json}\nwhatever v2 writes", crc32fast::hash(json.as_bytes()));
    fs::write(file(dir.path()), &theirs).expect("writes");
    let error = Ledger::open(dir.path()).expect_err("refused");
    let path = file(dir.path());
    assert!(error.to_string().starts_with(&format!("{}: version \"v2\" is unknown", path.display())), "{error}");
    assert_eq!(fs::read_to_string(path).expect("still there"), theirs);
}

#[test]
fn uncreatable_directory_is_named_in_the_error() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("file");
    fs::write(&path, "").expect("writes");
    let error = Ledger::open(&path.join("ledger")).expect_err("no directory");
    assert!(error.to_string().contains(&path.join("ledger").display().to_string()), "{error}");
}

fn rewrite_if_overgrown(ledger: &mut Ledger) {
    if let Some(rewrite) = ledger.begin_rewrite() {
        ledger.finish_rewrite(rewrite.write());
    }
}

/// The kubelet's calls don't wait for the disk.
#[test]
fn changes_never_rewrite_the_journal() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(file(dir.path())).expect("journal"));
    let before = inode();
    for _ in 0..200 {
        ledger.allocate(&pod("b"), &[app("x")], "x", holding("GPU-1", 1)).expect("writes");
        release(&mut ledger, "b", "gone").expect("writes");
    }
    assert_eq!(inode(), before);
    let rewrite = ledger.begin_rewrite().expect("it is overgrown");
    assert!(ledger.begin_rewrite().is_none(), "one at a time");
    ledger.finish_rewrite(rewrite.write());
    assert_ne!(inode(), before);
}

#[test]
fn failed_rewrite_leaves_the_journal_in_use() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    for _ in 0..400 {
        ledger.allocate(&pod("b"), &[app("x")], "x", holding("GPU-1", 1)).expect("writes");
    }
    let rewrite = ledger.begin_rewrite().expect("it is overgrown");
    let obstacle = dir.path().join("journal.new");
    fs::create_dir(&obstacle).expect("makes");
    ledger.allocate(&pod("a"), &[app("x")], "x", holding("GPU-1", 0)).expect("writes");
    ledger.finish_rewrite(rewrite.write());
    assert!(!ledger.is_journal_overgrown(), "tried again when it is twice as long");
    assert_eq!(ledger.journal_health(), JournalHealth { is_writable: true, is_rewritten: false });
    ledger.allocate(&pod("c"), &[app("x")], "x", holding("GPU-2", 0)).expect("writes");
    let before = ledger.allocations().clone();
    drop(ledger);
    fs::remove_dir(&obstacle).expect("removes");
    assert_eq!(reopen(dir.path()).0.allocations(), &before);
}

#[test]
fn journal_is_compacted_once_it_outgrows_the_ledger() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    ledger.allocate(&pod("a"), &[app("x")], "x", holding("GPU-1", 0)).expect("writes");
    let mut longest = 0;
    for round in 0..500 {
        ledger.allocate(&pod("b"), &[app("x")], "x", holding("GPU-1", 1)).expect("writes");
        release(&mut ledger, "b", "gone").expect("writes");
        rewrite_if_overgrown(&mut ledger);
        longest = longest.max(fs::metadata(file(dir.path())).expect("journal").len());
        assert_eq!(ledger.allocations().pods().count(), 1, "round {round}");
    }
    assert!((60 << 10..70 << 10).contains(&longest), "{longest}");
    let revision = ledger.revision();
    drop(ledger);
    let (ledger, report) = reopen(dir.path());
    assert!(report.records < 500, "{report:?}");
    assert_eq!(ledger.allocations().pods().count(), 1);
    assert!(ledger.revision() > revision);
}

#[test]
fn books_that_cannot_be_rewritten_can_still_be_kept() {
    let dir = tempfile::tempdir().expect("dir");
    let (mut ledger, _) = reopen(dir.path());
    ledger.allocate(&pod("a"), &[app("x")], "x", holding("GPU-1", 0)).expect("writes");
    let revision = ledger.revision();
    drop(ledger);
    let mut bytes = fs::read(file(dir.path())).expect("journal");
    bytes.extend_from_slice(b"\n0011aabb {\"revi");
    fs::write(file(dir.path()), bytes).expect("writes");
    // Neither removed nor created as a file: what a read-only directory does to anyone but root.
    let obstacle = dir.path().join("journal.new");
    fs::create_dir(&obstacle).expect("makes");

    let (mut ledger, report) = reopen(dir.path());
    let problem = report.not_rewritten.expect("reported");
    assert_eq!(ledger.journal_health(), JournalHealth { is_writable: true, is_rewritten: false });
    assert!(problem.starts_with(&obstacle.display().to_string()), "{problem}");
    assert_eq!(report.torn, 15);
    assert!(ledger.revision() > revision);
    ledger.allocate(&pod("b"), &[app("x")], "x", holding("GPU-1", 1)).expect("appends");
    let before = (ledger.allocations().clone(), ledger.revision());
    drop(ledger);
    fs::remove_dir(&obstacle).expect("removes");
    let (ledger, report) = reopen(dir.path());
    assert_eq!(ledger.journal_health(), JournalHealth { is_writable: true, is_rewritten: true });
    assert_eq!((ledger.allocations(), report), (&before.0, ReplayReport { records: 2, ..ReplayReport::default() }));
    assert!(ledger.revision() > before.1);
}
