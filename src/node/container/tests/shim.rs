//! Containers that libdivvy holds to their shares.

use divvy_region::layout;
use divvy_region::map::PAGE;
use divvy_region::snapshot::Head;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::container::isolation::tests::shim;

const TERMS: Terms = Terms { tier: Tier::Shim, compute: Compute::Burst, compute_limit: None, priority: None };

impl Host {
    /// A daemon that starts with this library.
    fn shimmed(&self, library: &str) -> Containers {
        Containers::new(self.options("envvar"), shim(&self.path("run"), library))
    }

    fn inode(&self, path: &str) -> u64 {
        fs::symlink_metadata(self.path(path)).expect(path).ino()
    }

    fn region(&self, nonce: &str) -> PathBuf {
        self.path(&format!("run/containers/{nonce}/region/books"))
    }

    /// What the region says of itself, read to its end.
    fn head(&self, nonce: &str) -> Head {
        let bytes = fs::read(self.region(nonce)).expect("a region");
        Head::read(&bytes, bytes.len()).expect("sound")
    }

    fn libraries(&self) -> Vec<String> {
        let names = fs::read_dir(self.path("run/state/lib")).expect("a directory");
        let mut names: Vec<String> =
            names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }
}

fn shimmed(nonce: &str, shares: &[(CardId, Share)]) -> AllocatedContainer<'static> {
    AllocatedContainer { terms: TERMS, ..allocated(nonce, shares) }
}

fn whole(card: &str) -> (CardId, Share) {
    (id(card), Share { memory: Memory::mib(81_559), cores: Cores::FULL, exclusive: true, ..Share::default() })
}

#[test]
fn library_and_preload_file_are_mounted() {
    let host = Host::new();
    let answer = host.shimmed("1").prepare(&shimmed("n-1", &[share(A, 8192)])).expect("an answer");
    let mounts = answer.mounts.iter().map(|mount| {
        let Mount { container_path, host_path, read_only } = mount;
        let access = if *read_only { "ro" } else { "rw" };
        host.steady(&format!("{container_path} <- {host_path} {access}\n"))
    });
    insta::assert_snapshot!(mounts.collect::<String>(), @r"
    /var/run/divvy/limits <- /host/run/containers/n-1/limits ro
    /var/run/divvy/region <- /host/run/containers/n-1/region rw
    /usr/lib/divvy/libdivvy.so <- /host/run/state/lib/n-1.so ro
    /etc/ld.so.preload <- /host/run/state/lib/ld.so.preload ro
    ");
    let preload = fs::read_to_string(host.path("run/state/lib/ld.so.preload")).expect("a file");
    assert_eq!(preload, "/usr/lib/divvy/libdivvy.so\n");
    assert_eq!(fs::read(host.path("run/state/lib/n-1.so")).expect("a file"), b"1");
    let limits = host.limits("n-1");
    assert_eq!((limits.terms.tier, limits.terms.compute), (Tier::Shim, Compute::Burst));
}

#[test]
fn shim_container_has_full_region_and_clock_pages() {
    let host = Host::new();
    let delivery = host.shimmed("1");
    delivery.prepare(&shimmed("n-1", &[share(A, 8192), share(B, 8192)])).expect("an answer");
    let region = fs::metadata(host.region("n-1")).expect("a region");
    assert_eq!((mode(&host.region("n-1")), region.len()), (0o666, layout::size(2) as u64));
    assert!(region.blocks() * 512 >= region.len(), "no hole that a full file system could make deadly");
    assert_eq!(host.head("n-1"), Head { cards: 2, high: 0, generation: 0 });
    for card in [A, B] {
        let (page, name) = (format!("run/clocks/{card}"), format!("run/containers/n-1/limits/clock-{card}"));
        assert_eq!(host.inode(&page), host.inode(&name));
        assert_eq!(
            (mode(&host.path(&name)), fs::metadata(host.path(&name)).expect("a page").len()),
            (0o644, PAGE as u64)
        );
    }
    assert_eq!(fs::read_dir(host.path("run/containers/n-1/limits")).expect("a directory").count(), 3);
}

#[test]
fn shim_is_needed_only_with_a_partial_gpu() {
    let host = Host::new();
    let delivery = host.shimmed("1");
    let answer = delivery.prepare(&shimmed("n-1", &[whole(A), whole(B)])).expect("an answer");
    assert_eq!(answer.mounts.len(), 2);
    assert!(!host.region("n-1").exists() && !host.path("run/clocks").exists());
    let text = fs::read_to_string(host.path("run/containers/n-1/limits/limits")).expect("limits");
    assert!(text.contains("\n# shim: whole GPUs, allocated to no other container\n"), "{text}");
    let answer = delivery.prepare(&shimmed("n-2", &[whole(A), share(B, 1)])).expect("an answer");
    assert_eq!((answer.mounts.len(), host.head("n-2").cards), (4, 2));
}

#[test]
fn restarted_container_keeps_its_weaker_tier() {
    let host = Host::new();
    let shares = [share(A, 1)];
    host.delivery("envvar").prepare(&allocated("n-1", &shares)).expect("an answer");
    host.shimmed("1").write_limits(&allocated("n-1", &shares)).expect("written");
    assert!(!host.region("n-1").exists());
    assert_eq!(host.limits("n-1").terms.tier, Tier::Accounting);
}

#[test]
fn restarted_container_keeps_its_region() {
    let host = Host::new();
    let (delivery, shares) = (host.shimmed("1"), [share(A, 1)]);
    delivery.prepare(&shimmed("n-1", &shares)).expect("an answer");
    let (inode, at) = (host.inode("run/containers/n-1/region/books"), layout::slot_bytes(1, 3).start);
    let mut bytes = fs::read(host.region("n-1")).expect("a region");
    bytes[at] = 1;
    fs::write(host.region("n-1"), &bytes).expect("what a process does");
    fs::set_permissions(host.region("n-1"), Permissions::from_mode(0o600)).expect("what root in a container may do");
    delivery.write_limits(&shimmed("n-1", &shares)).expect("written");
    host.shimmed("1").write_limits(&shimmed("n-1", &shares)).expect("by the next daemon");
    assert_eq!((host.inode("run/containers/n-1/region/books"), host.head("n-1").generation), (inode, 0));
    assert_eq!((fs::read(host.region("n-1")).expect("a region"), mode(&host.region("n-1"))), (bytes, 0o666));
}

#[test]
fn invalid_region_is_replaced_on_prepare() {
    type Tamper = fn(&Host, &Path);
    let tamper: [(&str, Tamper); 10] = [
        ("nothing", |_, path| fs::remove_file(path).expect("removed")),
        ("a link", |host, path| {
            fs::remove_file(path).expect("removed");
            symlink(host.path("outside"), path).expect("a link");
        }),
        ("a link to another region", |host, path| {
            host.shimmed("1").prepare(&shimmed("n-2", &[share(A, 1)])).expect("an answer");
            fs::remove_file(path).expect("removed");
            symlink(host.region("n-2"), path).expect("a link");
        }),
        ("a pipe", |_, path| {
            fs::remove_file(path).expect("removed");
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        }),
        ("a directory", |_, path| {
            fs::remove_file(path).expect("removed");
            fs::create_dir_all(path.join("deep/er")).expect("a directory");
        }),
        ("less", |_, path| drop(fs::File::options().write(true).open(path).expect("open").set_len(100_000))),
        ("no bytes", |_, path| drop(fs::File::create(path).expect("cut"))),
        ("more", |_, path| drop(fs::File::options().write(true).open(path).expect("open").set_len(1 << 40))),
        ("another size", |_, path| {
            let header = layout::header(2, 7).expect("two cards");
            let bytes = [&header[..], &vec![0; layout::size(2) - header.len()]].concat();
            fs::write(path, bytes).expect("written");
        }),
        ("anything", |_, path| fs::write(path, vec![0xff; layout::size(1)]).expect("written")),
    ];
    for (what, tamper) in tamper {
        let host = Host::new();
        host.file("outside");
        let (delivery, shares) = (host.shimmed("1"), [share(A, 1)]);
        delivery.prepare(&shimmed("n-1", &shares)).expect("an answer");
        for generation in [1, 2] {
            tamper(&host, &host.region("n-1"));
            let before = fs::symlink_metadata(host.region("n-1")).map(|found| found.ino()).ok();
            delivery.write_limits(&shimmed("n-1", &shares)).expect(what);
            let region = fs::symlink_metadata(host.region("n-1")).expect("a region");
            assert!(region.is_file() && before != Some(region.ino()), "{what}: another file");
            assert_eq!((region.len(), host.head("n-1").generation), (layout::size(1) as u64, generation), "{what}");
        }
        assert_eq!(fs::read_to_string(host.path("outside")).expect("a file"), "outside", "{what}");
        assert!(host.remove(&delivery, "n-1"), "{what}");
    }
}

#[test]
fn container_keeps_its_library_until_it_restarts() {
    let host = Host::new();
    let shares = [share(A, 1)];
    host.shimmed("1").prepare(&shimmed("n-1", &shares)).expect("an answer");
    let first = host.inode("run/state/lib/n-1.so");
    let preload = host.inode("run/state/lib/ld.so.preload");
    let second = host.shimmed("2");
    assert_eq!(host.inode("run/state/lib/n-1.so"), first, "a new library doesn't touch it");
    assert_eq!(host.inode("run/state/lib/ld.so.preload"), preload, "it is mounted");
    assert_eq!(host.libraries().len(), 3, "the earlier one is gone: {:?}", host.libraries());
    second.write_limits(&shimmed("n-1", &shares)).expect("written");
    assert_eq!(fs::read(host.path("run/state/lib/n-1.so")).expect("a file"), b"2");
    let installed = format!("run/state/lib/{}", host.libraries()[2]);
    assert_eq!(host.inode("run/state/lib/n-1.so"), host.inode(&installed));
    assert!(host.remove(&second, "n-1"));
    assert_eq!(host.libraries().len(), 2, "its name of the library goes with it: {:?}", host.libraries());
}

#[test]
fn prepare_replaces_directories_made_for_missing_files() {
    let host = Host::new();
    let shares = [share(A, 1)];
    host.shimmed("1").prepare(&shimmed("n-1", &shares)).expect("an answer");
    fs::remove_dir_all(host.path("run")).expect("gone");
    for source in ["run/state/lib/ld.so.preload", "run/state/lib/n-1.so", "run/containers/n-1/limits"] {
        fs::create_dir_all(host.path(source)).expect("what a runtime does");
    }
    host.shimmed("1").write_limits(&shimmed("n-1", &shares)).expect("written");
    for file in ["run/state/lib/ld.so.preload", "run/state/lib/n-1.so", "run/containers/n-1/region/books"] {
        assert!(host.path(file).is_file(), "{file}");
    }
}

#[test]
fn clock_page_lives_as_long_as_its_containers() {
    let host = Host::new();
    let delivery = host.shimmed("1");
    let page = format!("run/clocks/{A}");
    for nonce in ["n-1", "n-2"] {
        delivery.prepare(&shimmed(nonce, &[share(A, 1)])).expect("an answer");
    }
    let inode = host.inode(&page);
    let next = host.shimmed("2");
    next.prepare(&shimmed("n-3", &[share(A, 1), share(B, 1)])).expect("an answer");
    assert_eq!(host.inode(&page), inode, "the next daemon goes on with it");
    next.remove(Vec::new());
    assert!(host.remove(&next, "n-1"));
    assert_eq!(next.sweep(&HashSet::from([nonce("n-3")])).expect("swept"), [nonce("n-2")]);
    assert_eq!(host.inode(&page), inode);
    assert!(host.remove(&next, "n-3"));
    assert_eq!(fs::read_dir(host.path("run/clocks")).expect("a directory").count(), 0);
}

const FULL: &str = "DIVVY_TEST_FULL";

/// A file system of 512 KiB is mounted where the second argument says, and the rest is run there.
const MOUNT_AND_RUN: &str = r#"mount -t tmpfs -o size=512k,nr_inodes=80 none "$0" && TMPDIR="$0" exec "$@""#;

#[test]
fn full_filesystem_fails_only_new_containers() {
    let (mount, own) = (tempfile::tempdir().expect("a directory"), std::env::current_exe().expect("a program"));
    let in_namespace = |program: &Path| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", MOUNT_AND_RUN]).arg(mount.path()).arg(program);
        command
    };
    if !in_namespace(Path::new("true")).status().is_ok_and(|status| status.success()) {
        eprintln!("left out: this machine allows no mounts in a namespace");
        return;
    }
    let mut test = in_namespace(&own);
    test.args(["--ignored", "--exact", "container::tests::shim::on_a_full_filesystem"]).env(FULL, "yes");
    let output = test.output().expect("a program that runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by another test, where there is little room"]
fn on_a_full_filesystem() {
    if std::env::var_os(FULL).is_none() {
        return;
    }
    let host = Host::new();
    let (delivery, shares) = (host.shimmed("1"), [share(A, 1)]);
    let prepare = |nonce: &str| delivery.prepare(&shimmed(nonce, &shares));
    let names: Vec<String> = (0..).map(|number| format!("n-{number}")).take(20).collect();
    let fits = names.iter().take_while(|nonce| prepare(nonce).is_ok()).count();
    assert!((1..10).contains(&fits), "{fits}");
    // Where there is room for nothing, and where there are no names of files to be had.
    let inodes = (0..).map(|number| host.path(&format!("inode-{number}")));
    let refused = |nonce: &str| prepare(nonce).expect_err("full").to_string();
    let said = refused(&names[fits]);
    assert!(said.contains("making region") && said.contains("No space left on device"), "{said}");
    assert!(!host.region(&names[fits]).exists(), "half a region");
    let region = host.path(&format!("run/containers/{}/region", names[fits]));
    assert_eq!(fs::read_dir(region).expect("a directory").count(), 0, "half a region, under another name");
    assert!(host.remove(&delivery, &names[fits]));
    let taken: Vec<PathBuf> = inodes.take_while(|path| fs::File::create_new(path).is_ok()).collect();
    let said = refused("n-29");
    assert!(said.contains("making directory") && said.contains("No space left on device"), "{said}");
    // What runs has all its room, and keeps its limits where no others can be written.
    let (before, more) = (host.limits("n-0"), [share(A, 2)]);
    delivery.write_limits(&shimmed("n-0", &more)).expect_err("full");
    assert_eq!(host.limits("n-0"), before);
    fs::write(host.region("n-0"), vec![1; layout::size(1)]).expect("room that was made for it");
    for path in taken {
        fs::remove_file(path).expect("removed");
    }
    assert!(host.remove(&delivery, "n-0"));
    prepare("n-29").expect("there is room now");
    assert_eq!(host.head("n-29").generation, 0);
}
