use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use divvy_api::{Card, Compute, Cores, Links, Memory, MigInstance, Terms};
use divvy_node_core::inventory::{DeviceInfo, MigPlace};
use divvy_node_core::pod::PodRef;
use tempfile::TempDir;

use super::*;
use crate::container::isolation::Accounting;

mod mig;
mod mps;
mod shim;

const A: &str = "GPU-5c3f2a10-0000-4000-8000-00000000000a";
const B: &str = "GPU-5c3f2a10-0000-4000-8000-00000000000b";

/// A host in a temporary directory: two cards, their driver and NVIDIA's hook.
struct Host {
    root: TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Self { root: tempfile::tempdir().expect("a temporary directory") };
        let libraries = format!("driver/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        for library in ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"] {
            host.file(&format!("{libraries}/{library}.so.550.54.15"));
            host.link(&format!("{library}.so.550.54.15"), &format!("{libraries}/{library}.so.1"));
        }
        host.link("libcuda.so.1", &format!("{libraries}/libcuda.so"));
        host.file(&format!("{libraries}/libcrypt.so.1"));
        host.file("driver/usr/bin/nvidia-smi");
        host.file("usr/bin/nvidia-cdi-hook");
        // A link to a device node is one to whoever asks for its numbers; making a node takes rights that tests lack.
        for node in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"] {
            host.link("/dev/null", &format!("dev/{node}"));
        }
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        let path = nonces().fold(path.to_owned(), |path, (nonce, name)| path.replace(&name, &nonce));
        self.root.path().join(path)
    }

    /// Ends the container: whether it had directories, and they are gone.
    fn remove(&self, containers: &Containers, name: &str) -> bool {
        let directories = self.path(&format!("run/containers/{name}"));
        let existed = directories.exists();
        containers.remove(vec![nonce(name)]);
        let is_away = !directories.exists();
        containers.remove_dead().expect("nothing is left");
        existed && is_away
    }

    fn parent(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("not the root")).expect("making directories");
        path
    }

    fn file(&self, path: &str) {
        fs::write(self.parent(path), path).expect("writing a file");
    }

    fn link(&self, target: &str, path: &str) {
        symlink(target, self.parent(path)).expect("making a link");
    }

    fn options(&self, strategies: &str) -> ContainerOptions {
        let names = strategies.split(',').map(str::to_owned).collect();
        ContainerOptions {
            run_dir: self.path("run"),
            device_list_strategy: crate::config::List(names).try_into().expect("strategies"),
            cdi_dir: self.path("cdi"),
            host_root: absolute(self.root.path()),
            driver_root: AbsolutePath::new("/driver"),
            nvidia_cdi_hook: self.path("usr/bin/nvidia-cdi-hook"),
            procfs: self.path("proc"),
        }
    }

    /// With both cards published.
    fn delivery(&self, strategies: &str) -> Containers {
        let delivery = Containers::new(self.options(strategies), Box::new(Accounting));
        delivery.publish_cards(&found(cards())).expect("a directory that can be written");
        delivery
    }

    /// Text in which the host's temporary directory is `/host`.
    fn steady(&self, text: &str) -> String {
        let text = nonces().fold(text.to_owned(), |text, (nonce, name)| text.replace(&nonce, &name));
        text.replace(&self.root.path().display().to_string(), "/host").replace(std::env::consts::ARCH, "ARCH")
    }

    fn limits(&self, nonce: &str) -> Limits {
        let text = fs::read_to_string(self.path(&format!("run/containers/{nonce}/limits/limits")));
        limits::read(&text.expect("a limits file")).expect("a whole one")
    }
}

fn absolute(path: &Path) -> AbsolutePath {
    path.display().to_string().try_into().expect("absolute")
}

fn id(text: &str) -> CardId {
    text.parse().expect("a UUID")
}

fn found(cards: impl IntoIterator<Item = (Card, DeviceInfo)>) -> Inventory {
    Inventory::new(cards, Links::default())
}

fn cards() -> Vec<(Card, DeviceInfo)> {
    // In an order that isn't the file's.
    [(B, 1), (A, 0)].map(|(id, minor)| card(id, Some(minor), None)).to_vec()
}

fn card(uuid: &str, minor: Option<u32>, instance: Option<(u32, u32)>) -> (Card, DeviceInfo) {
    let mig = MigInstance { profile: "1g.10gb".parse().expect("a profile"), by_profile: false };
    let card = Card { mig: instance.map(|_| mig), ..Card::healthy(id(uuid), Memory::mib(1024)) };
    let place = instance.map(|(gi, ci)| MigPlace { gpu: id(B), gi, ci });
    (card, DeviceInfo { minor, place, ..DeviceInfo::default() })
}

fn share(card: &str, memory: u64) -> (CardId, Share) {
    (id(card), Share { memory: Memory::mib(memory), cores: Cores::new(30), ..Share::default() })
}

fn pod(uid: &str, namespace: &str, name: &str) -> PodRef {
    PodRef { uid: uid.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Nonce of the container that is `n-<number>` in these tests, in the paths of [`Host::path`] and in snapshots.
fn nonce(name: &str) -> Nonce {
    let number = name.strip_prefix("n-").and_then(|number| number.parse::<u32>().ok()).expect("n-<number>");
    format!("{number:032x}").parse().expect("32 digits")
}

/// Names of containers, with the nonces that they stand for; `n-12` before `n-1`.
fn nonces() -> impl Iterator<Item = (String, String)> {
    (0..30).rev().map(|number| format!("n-{number}")).map(|name| (nonce(&name).to_string(), name))
}

fn allocated(name: &str, shares: &[(CardId, Share)]) -> AllocatedContainer<'static> {
    static POD: LazyLock<PodRef> =
        LazyLock::new(|| pod("0d9f3f0e-7c1b-4b53-a6a5-0d7d5e0f8a11", "default", "trainer-0"));
    AllocatedContainer { pod: &POD, name: "main", nonce: nonce(name), shares: shares.to_vec(), terms: Terms::default() }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a directory").permissions().mode() & 0o7777
}

#[test]
fn each_strategy_answers_like_nvidias_plugin() {
    let host = Host::new();
    let shares = [share(A, 8192), share(B, 8192)];
    for strategy in ["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"] {
        let answer = host.delivery(strategy).prepare(&allocated("n-1", &shares)).expect("an answer");
        insta::assert_snapshot!(strategy, host.steady(&format!("{answer:#?}")));
    }
}

#[test]
fn strategies_can_be_combined() {
    let host = Host::new();
    let shares = [share(A, 8192)];
    let answer = |strategies| host.delivery(strategies).prepare(&allocated("n-1", &shares)).expect("an answer");
    let both = answer("envvar,volume-mounts");
    assert_eq!(
        both.envs["NVIDIA_VISIBLE_DEVICES"], "/var/run/nvidia-container-devices",
        "mounts win, as with NVIDIA's"
    );
    assert_eq!(both.mounts.len(), 3);
    let both = answer("cdi-cri,cdi-annotations,envvar");
    assert_eq!(both.envs["NVIDIA_VISIBLE_DEVICES"], A);
    assert_eq!((both.annotations.len(), both.cdi_devices.len()), (1, 1));
}

#[test]
fn cdi_spec_names_gpus_by_uuid_and_mounts_the_driver() {
    let host = Host::new();
    host.delivery("cdi-cri");
    let spec = fs::read_to_string(host.path("cdi/divvy.dev-gpu.json")).expect("a specification");
    insta::assert_snapshot!("cdi_specification", host.steady(&spec));
}

#[test]
fn cdi_spec_omits_a_missing_hook_and_escaping_links() {
    let host = Host::new();
    fs::remove_file(host.path("usr/bin/nvidia-cdi-hook")).expect("no hook");
    // A link that leads out of the driver's tree would be another file on the host.
    let escape = format!("driver/usr/lib/{}-linux-gnu/libnvidia-cfg.so.1", std::env::consts::ARCH);
    host.link("/etc/hostname", &escape);
    Containers::new(host.options("cdi-cri"), Box::new(Accounting)).publish_cards(&found(cards())).expect("published");
    let spec = fs::read_to_string(host.path("cdi/divvy.dev-gpu.json")).expect("a specification");
    let spec: serde_json::Value = serde_json::from_str(&spec).expect("JSON");
    assert_eq!(spec["cdiVersion"], "0.3.0", "no hostPath of a device node");
    assert!(spec["devices"][0]["containerEdits"]["deviceNodes"][0].get("hostPath").is_none());
    assert!(spec["containerEdits"].get("hooks").is_none());
    assert!(!spec.to_string().contains("libnvidia-cfg"));
}

#[test]
fn cdi_spec_has_the_nodes_of_a_driver_container() {
    let host = Host::new();
    for node in ["nvidia0", "nvidia1", "nvidiactl"] {
        host.link("/dev/null", &format!("driver/dev/{node}"));
        fs::remove_file(host.path(&format!("dev/{node}"))).expect("a node of the host");
    }
    let delivery = Containers::new(host.options("auto"), Box::new(Accounting));
    delivery.publish_cards(&found(cards())).expect("published");
    assert_eq!(delivery.strategies().reason, "auto: the CDI specification is written");
    let spec = fs::read_to_string(host.path("cdi/divvy.dev-gpu.json")).expect("a specification");
    let spec: serde_json::Value = serde_json::from_str(&spec).expect("JSON");
    let node = &spec["devices"][0]["containerEdits"]["deviceNodes"][0];
    assert_eq!(node["path"], "/dev/nvidia0");
    assert_eq!(node["hostPath"], "/driver/dev/nvidia0", "where the runtime finds it");
    assert_eq!((&node["type"], &node["major"]), (&"c".into(), &1.into()), "seen below hostRoot");
}

#[test]
fn cdi_spec_is_written_only_when_changed() {
    let host = Host::new();
    let delivery = host.delivery("auto");
    let inode = || fs::metadata(host.path("cdi/divvy.dev-gpu.json")).expect("a specification").ino();
    let first = inode();
    let mut reversed = cards();
    reversed.reverse();
    delivery.publish_cards(&found(reversed)).expect("published");
    assert_eq!(inode(), first);
    delivery.publish_cards(&found(cards().into_iter().take(1))).expect("published");
    assert_ne!(inode(), first);
    let left: Vec<_> = fs::read_dir(host.path("cdi")).expect("a directory").collect();
    assert_eq!(left.len(), 1, "no temporary file stays: {left:?}");
}

#[test]
fn cdi_spec_is_written_only_for_cdi_strategies() {
    let host = Host::new();
    let strategies = host.delivery("envvar,volume-mounts").strategies();
    assert!(!host.path("cdi").exists());
    assert!(strategies.bypassable, "a pod's own variable comes after ours");
    assert_eq!(strategies.reason, "configured");
    assert!(!host.delivery("volume-mounts").strategies().bypassable);
}

#[test]
fn auto_is_cdi_where_the_driver_is_found() {
    let host = Host::new();
    let delivery = host.delivery("auto");
    let strategies = delivery.strategies();
    assert_eq!(strategies.active, [Strategy::CdiCri].into());
    assert_eq!(strategies.reason, "auto: the CDI specification is written");
    let answer = delivery.prepare(&allocated("n-1", &[share(A, 1)])).expect("an answer");
    assert_eq!((answer.cdi_devices.len(), answer.envs.len()), (1, 0));
}

/// What `auto` makes of the host after `change`, and why.
fn auto_after(change: impl FnOnce(&Host, &mut ContainerOptions)) -> String {
    let host = Host::new();
    let mut options = host.options("auto");
    change(&host, &mut options);
    let delivery = Containers::new(options, Box::new(Accounting));
    let outcome = delivery.publish_cards(&found(cards()));
    let strategies = delivery.strategies();
    assert_eq!(strategies.active, [Strategy::VolumeMounts].into());
    let answer = delivery.prepare(&allocated("n-1", &[share(A, 1)])).expect("an answer");
    assert_eq!((answer.cdi_devices.len(), answer.mounts.len()), (0, 3), "auto falls back");
    let reason = strategies.reason.strip_prefix("auto: no CDI specification: ").expect("the reason");
    assert!(outcome.map_or_else(|error| error.to_string() == reason, |()| true), "{reason}");
    host.steady(reason)
}

#[test]
fn auto_falls_back_to_mounts_with_a_reason() {
    let no_driver = auto_after(|_, options| options.driver_root = AbsolutePath::new("/nonexistent"));
    assert_eq!(no_driver, "libcuda.so.1 is in none of the usual directories under /host/nonexistent");
    let no_node = auto_after(|host, _| fs::remove_file(host.path("dev/nvidia1")).expect("a link"));
    assert_eq!(no_node, "/dev/nvidia1 is no device node");
    let no_directory = auto_after(|host, _| host.file("cdi"));
    assert_eq!(
        no_directory,
        "writing CDI specification /host/cdi/divvy.dev-gpu.json: File exists (os error 17): mount cdiDir writable into the daemon's pod, or set deviceListStrategy to volume-mounts"
    );
    // Takes no file, not even root's.
    let not_writable = auto_after(|_, options| options.cdi_dir = "/proc".into());
    assert_eq!(
        not_writable,
        "writing CDI specification /proc/divvy.dev-gpu.json: No such file or directory (os error 2): mount cdiDir writable into the daemon's pod, or set deviceListStrategy to volume-mounts",
        "nothing of the temporary file, whose name is never the same"
    );
    let unpublished = Containers::new(Host::new().options("auto"), Box::new(Accounting)).strategies();
    assert_eq!(unpublished.active, [Strategy::VolumeMounts].into());
}

#[test]
fn configured_cdi_without_devices_refuses_allocation() {
    let host = Host::new();
    host.file("cdi");
    let delivery = Containers::new(host.options("cdi-cri"), Box::new(Accounting));
    let published = delivery.publish_cards(&found(cards())).expect_err("a file is no directory").to_string();
    let error = delivery.prepare(&allocated("n-1", &[share(A, 1)])).expect_err("no specification").to_string();
    assert_eq!(error, format!("{A} has no CDI device, which deviceListStrategy requires: {published}"));
    assert!(!host.path("run").exists(), "nothing is made for a container that is refused");
}

#[test]
fn gpu_without_device_node_is_given_by_mounts() {
    let host = Host::new();
    let old = "MIG-GPU-5c3f2a10/1/0";
    let odd = [card(old, Some(0), Some((1, 0))), card(B, None, None)];
    let all = [&cards()[1..], &odd].concat();
    let auto = Containers::new(host.options("auto"), Box::new(Accounting));
    auto.publish_cards(&found(all.clone())).expect("published");
    let ways = |card| {
        let answer = auto.prepare(&allocated("n-1", &[share(card, 1)])).expect("an answer");
        (answer.cdi_devices.len(), answer.mounts.len())
    };
    assert_eq!((ways(A), ways(B), ways(old)), ((1, 2), (0, 3), (0, 3)));
    let demanded = Containers::new(host.options("cdi-annotations"), Box::new(Accounting));
    demanded.publish_cards(&found(all.clone())).expect("published");
    let error = demanded.prepare(&allocated("n-1", &[share(A, 1), share(B, 1)])).expect_err("B has no node");
    assert!(error.to_string().starts_with(&format!("{B} has no CDI device")), "{error}");
}

#[test]
fn container_gets_readonly_limits_and_a_writable_region() {
    let host = Host::new();
    let delivery = host.delivery("volume-mounts");
    let shares = [
        share(A, 8192),
        (id(B), Share { memory: Memory::mib(81_559), cores: Cores::FULL, exclusive: true, ..Share::default() }),
    ];
    delivery.prepare(&allocated("n-1", &shares)).expect("an answer");
    let container = host.path("run/containers/n-1");
    assert_eq!(mode(&host.path("run/containers")), 0o700, "one tenant's directories are not another's");
    assert_eq!((mode(&container.join("limits")), mode(&container.join("region"))), (0o755, 0o1777));
    assert_eq!(mode(&container.join("limits/limits")), 0o644);
    insta::assert_snapshot!(fs::read_to_string(container.join("limits/limits")).expect("limits"), @"
    divvy-limits v1
    # accounting: recorded in the node's ledger, not enforced
    tier accounting
    compute cap
    pod 0d9f3f0e-7c1b-4b53-a6a5-0d7d5e0f8a11 default trainer-0
    container main
    card GPU-5c3f2a10-0000-4000-8000-00000000000a memory-mib 8192 cores 30 exclusive 0
    card GPU-5c3f2a10-0000-4000-8000-00000000000b memory-mib 81559 cores 100 exclusive 1
    end
    ");
    assert_eq!(host.limits("n-1").cards, shares);
}

#[test]
fn limits_come_back_after_everything_is_gone() {
    let host = Host::new();
    let delivery = host.delivery("volume-mounts");
    delivery.prepare(&allocated("n-1", &[share(A, 1)])).expect("an answer");
    fs::remove_dir_all(host.path("run")).expect("gone");
    delivery.write_limits(&allocated("n-1", &[share(A, 2)])).expect("written");
    assert_eq!(host.limits("n-1").cards, [share(A, 2)]);
    assert!(host.path("run/containers/n-1/region").is_dir());
}

#[test]
fn reader_never_sees_a_partial_limits_file() {
    let host = Host::new();
    let delivery = host.delivery("volume-mounts");
    let (few, many) = ([share(A, 1)], [share(A, 81_559), share(B, 81_559)]);
    delivery.prepare(&allocated("n-1", &few)).expect("an answer");
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..300 {
                let shares: &[_] = if turn % 2 == 0 { &many } else { &few };
                delivery.write_limits(&allocated("n-1", shares)).expect("written");
            }
            written.store(true, Ordering::Release);
        });
        while !written.load(Ordering::Acquire) {
            let seen = host.limits("n-1").cards;
            assert!(seen == few || seen == many, "{seen:?}");
        }
    });
}

#[test]
fn only_unheld_directories_are_removed() {
    let host = Host::new();
    let delivery = host.delivery("volume-mounts");
    assert_eq!(delivery.sweep(&HashSet::new()).expect("no directory yet"), []);
    for nonce in ["n-1", "n-2", "n-3"] {
        delivery.prepare(&allocated(nonce, &[share(A, 1)])).expect("an answer");
    }
    host.file("outside/kept");
    symlink(host.path("outside"), host.path("run/containers/n-2/region/way-out")).expect("what a tenant may do");
    host.file("run/containers/n-2/region/deep/er/file");
    host.file("run/containers/README.md");
    let swept = delivery.sweep(&HashSet::from([nonce("n-1")])).expect("swept");
    assert_eq!(swept, ["n-2", "n-3"].map(nonce));
    assert_eq!(host.limits("n-1").cards, [share(A, 1)]);
    assert!(host.path("outside/kept").exists() && host.path("run/containers/README.md").exists());
    assert!(host.remove(&delivery, "n-1"));
    assert!(!host.remove(&delivery, "n-1"), "a release can be repeated");
}

#[test]
fn directories_that_may_be_in_use_stay() {
    let host = Host::new();
    let delivery = host.delivery("volume-mounts");
    for nonce in ["n-1", "n-2", "n-3"] {
        delivery.prepare(&allocated(nonce, &[share(A, 1)])).expect("an answer");
    }
    let file = host.path("run/containers/n-2/limits/limits");
    let newer = fs::read_to_string(&file).expect("limits").replace("divvy-limits v1", "divvy-limits v2");
    fs::write(&file, &newer).expect("written");
    let uid = allocated("n-1", &[]).pod.uid.clone();
    let unmatched = HashSet::from([uid.clone()]);
    delivery.remove_all_but(&HashSet::new(), &unmatched).expect("swept");
    let exist = || ["n-1", "n-2", "n-3"].map(|name| host.path(&format!("run/containers/{name}")).exists());
    assert_eq!(exist(), [true; 3], "of a listed pod that the ledger doesn't know");
    delivery.remove_all_but(&HashSet::from([nonce("n-1")]), &HashSet::new()).expect("swept");
    assert_eq!(exist(), [true, true, false], "of a newer build");
    delivery.renew_limits(&allocated("n-2", &[share(A, 2)])).expect("left alone");
    assert_eq!(fs::read_to_string(&file).expect("limits"), newer);
    assert!(host.remove(&delivery, "n-1"));
    let found = FoundContainer { nonce: nonce("n-2"), ..FoundContainer::unknown() };
    assert_eq!(delivery.find(&uid, "main"), Some(found), "it is still found");
    assert_eq!(delivery.find(&uid, "mai"), None);
    delivery.write_limits(&allocated("n-2", &[share(A, 2)])).expect("written at the next start");
    assert_eq!(host.limits("n-2").cards, [share(A, 2)]);
}

#[test]
fn names_that_would_leave_their_place_are_refused() {
    let host = Host::new();
    let delivery = host.delivery("volume-mounts");
    let shares = [share(A, 1)];
    let long = "a".repeat(41);
    for nonce in ["", ".", "..", "../n-1", "a/b", "/etc", "N-1", "n_1", "n-1\n", "n-\u{e4}", &long] {
        assert!(nonce.parse::<Nonce>().is_err(), "{nonce:?}");
    }
    let pods = [
        (pod("u\ntier mig", "ns", "p"), "c", "pod UID"),
        (pod("u", "", "p"), "c", "namespace"),
        (pod("u", "ns", "p q"), "c", "pod name"),
        (pod("u", "ns", "p"), "c\n", "container name"),
    ];
    for (pod, name, field) in &pods {
        let container = AllocatedContainer { pod, name, ..allocated("n-1", &shares) };
        let error = delivery.prepare(&container).expect_err(field).to_string();
        assert!(error.starts_with(&format!("{field} \"")), "{error}");
    }
    let error = |shares| delivery.prepare(&allocated("n-1", shares)).expect_err("refused").to_string();
    assert_eq!(error(&[]), "container \"main\" has no GPU allocated");
    assert_eq!(error(&[share(A, 1), share(A, 2)]), format!("{A} is listed twice"));
    assert!(!host.path("run").exists());
}

#[test]
fn invalid_run_directory_is_named_in_the_error() {
    let host = Host::new();
    host.file("run");
    let error = host.delivery("volume-mounts").prepare(&allocated("n-1", &[share(A, 1)])).expect_err("a file");
    assert_eq!(
        host.steady(&error.to_string()),
        "making directory /host/run/containers/n-1: Not a directory (os error 20): runDir must be a directory that the daemon can write to"
    );
}

#[test]
fn unwritable_directory_keeps_the_old_limits() {
    let host = Host::new();
    let delivery = host.delivery("volume-mounts");
    delivery.prepare(&allocated("n-1", &[share(A, 1)])).expect("an answer");
    let limits = host.path("run/containers/n-1/limits/limits");
    fs::remove_file(&limits).expect("limits");
    fs::create_dir(&limits).expect("what no file can replace");
    let error = delivery.write_limits(&allocated("n-1", &[share(A, 2)])).expect_err("a directory").to_string();
    assert!(host.steady(&error).starts_with("writing limits /host/run/containers/n-1/limits/limits: "), "{error}");
    let left = fs::read_dir(host.path("run/containers/n-1/limits")).expect("a directory").count();
    assert_eq!(left, 1, "no temporary file stays");
}

/// Root may write anywhere, so this says something only for other users; the errors before it hold for all.
#[test]
fn readonly_cdi_directory_is_an_error() {
    let host = Host::new();
    fs::create_dir(host.path("cdi")).expect("a directory");
    fs::set_permissions(host.path("cdi"), Permissions::from_mode(0o555)).expect("read-only");
    let writable = fs::write(host.path("cdi/probe"), "").is_ok();
    let published = Containers::new(host.options("auto"), Box::new(Accounting)).publish_cards(&found(cards()));
    assert_eq!(published.is_ok(), writable);
}
