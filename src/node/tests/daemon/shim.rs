//! Tier `shim`: what is mounted into containers and lies on disk for them, and that it follows the configuration.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use divvy_node::container::limits::{Limits, read};
use divvy_region::layout;
use divvy_region::snapshot::Snapshot;
use divvy_testkit::pods::GPU;
use serde_json::json;

use crate::bench::{Bench, Stderr, part, pod};

/// A node with a library, which is none but in its first bytes.
async fn shimmed() -> Bench {
    let mut bench = Bench::stopped(json!({})).await;
    fs::write(bench.path("libdivvy.so"), b"\x7fELF").unwrap();
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench
}

/// Where on the host this is that the pod's container was given at that path.
fn source(bench: &Bench, uid: &str, container_path: &str) -> Option<(PathBuf, bool)> {
    let view = bench.kubelet.view();
    let given = view.pods[uid].containers[0].given.as_ref().expect("it was started");
    let mount = given.mounts.iter().find(|mount| mount.container_path == container_path)?;
    Some((PathBuf::from(&mount.host_path), mount.read_only))
}

fn limits(bench: &Bench, uid: &str) -> Limits {
    let (directory, _) = source(bench, uid, "/var/run/divvy/limits").expect("mounted");
    read(&fs::read_to_string(directory.join("limits")).unwrap()).unwrap()
}

fn books(bench: &Bench, uid: &str) -> PathBuf {
    let (directory, read_only) = source(bench, uid, "/var/run/divvy/region").expect("mounted");
    assert!(!read_only);
    directory.join("books")
}

fn generation(bench: &Bench, uid: &str) -> u64 {
    Snapshot::new(&fs::read(books(bench, uid)).unwrap()).expect("sound").generation()
}

async fn restart(bench: &Bench, uid: &str) {
    let before = bench.kubelet.view().pods[uid].containers[0].starts;
    bench.kubelet.restart_container(uid, "main").unwrap();
    bench.until("another start", |view| view.pods[uid].containers[0].starts > before).await;
}

#[tokio::test]
async fn shim_container_gets_library_region_clock_and_tier() {
    let bench = shimmed().await;
    let uid = bench.run(part("100").annotation("divvy.dev/compute", "burst")).await;
    for (path, end) in [("/usr/lib/divvy/libdivvy.so", "so"), ("/etc/ld.so.preload", "preload")] {
        let (file, read_only) = source(&bench, &uid, path).expect("mounted");
        let there = file.starts_with(bench.path("state/lib")) && file.extension().is_some_and(|found| found == end);
        assert!(read_only && file.is_file() && there, "{}", file.display());
    }
    let books = fs::metadata(books(&bench, &uid)).unwrap();
    assert_eq!((books.len(), books.permissions().mode() & 0o777), (layout::size(1) as u64, 0o666));
    assert!(books.blocks() * 512 >= books.len());
    assert_eq!(generation(&bench, &uid), 0);
    let limits = limits(&bench, &uid);
    assert_eq!((limits.terms.tier.as_str(), limits.terms.compute.as_str()), ("shim", "burst"));
    let (directory, _) = source(&bench, &uid, "/var/run/divvy/limits").unwrap();
    let page = directory.join(format!("clock-{}", limits.cards[0].0));
    let heartbeat =
        || fs::read(&page).ok().filter(|page| page.starts_with(b"divvyclk")).map(|page| page[16..24].to_vec());
    let first = bench.until_so("a clock", async || heartbeat()).await;
    bench.until_so("a heartbeat", async || heartbeat().filter(|next| *next != first)).await;
    let (_, config) = bench.admin_page("/config").await.unwrap();
    assert!(
        config.starts_with("# tier in effect: shim (auto: there is /") && config.contains("tier: auto"),
        "{config}"
    );
    let (_, metrics) = bench.page("/metrics").await.unwrap();
    assert!(metrics.contains(r#"divvy_tier_info{tier="shim"} 1.0"#), "{metrics}");
    assert!(bench.log().contains("isolation tier: shim (auto: there is /"), "{}", bench.log());
}

#[tokio::test]
async fn allowed_namespace_may_ask_for_accounting_alone() {
    let mut bench = Bench::publishing().await;
    fs::write(bench.path("libdivvy.so"), b"\x7fELF").unwrap();
    bench.set_key("accountingNamespaces", json!(["default"]));
    bench.set_key("tier", "shim");
    bench.write_keys();
    bench.killed(|_| {}).await;
    let accounted = bench.run(part("100").annotation("divvy.dev/tier", "accounting")).await;
    assert_eq!(source(&bench, &accounted, "/usr/lib/divvy/libdivvy.so"), None);
    assert_eq!(limits(&bench, &accounted).terms.tier.as_str(), "accounting");
    let annotation = bench.until_annotated(&accounted).await;
    assert!(annotation.to_string().contains("\"accounting\""), "{annotation}");
    // One that doesn't ask is held to its share, and so is who asks where it isn't allowed.
    let other = bench.run(part("100")).await;
    assert_eq!(limits(&bench, &other).terms.tier.as_str(), "shim");
    bench.set_key("accountingNamespaces", json!(["research"]));
    bench.write_keys();
    bench.killed(|_| {}).await;
    let not_allowed = bench.run(part("100").annotation("divvy.dev/tier", "accounting")).await;
    assert_eq!(limits(&bench, &not_allowed).terms.tier.as_str(), "shim");
    assert_eq!(limits(&bench, &accounted).terms.tier.as_str(), "accounting", "what runs stays");
}

#[tokio::test]
async fn unmodified_manifest_gets_a_whole_gpu() {
    let bench = shimmed().await;
    let uid = bench.run(pod(&[(GPU, "2")])).await;
    assert_eq!(source(&bench, &uid, "/usr/lib/divvy/libdivvy.so"), None);
    assert_eq!(source(&bench, &uid, "/etc/ld.so.preload"), None);
    assert!(!books(&bench, &uid).exists());
}

#[tokio::test]
async fn restart_keeps_a_valid_region_and_replaces_others() {
    let mut bench = shimmed().await;
    let uid = bench.run(part("100")).await;
    let inode = || fs::symlink_metadata(books(&bench, &uid)).unwrap().ino();
    let first = inode();
    restart(&bench, &uid).await;
    assert_eq!((inode(), generation(&bench, &uid)), (first, 0));
    fs::write(books(&bench, &uid), "anything").unwrap();
    restart(&bench, &uid).await;
    assert_eq!(generation(&bench, &uid), 1);
    assert_ne!(inode(), first);
    let second = inode();
    bench.killed(|_| {}).await;
    restart(&bench, &uid).await;
    assert_eq!(fs::symlink_metadata(books(&bench, &uid)).unwrap().ino(), second);
    let page = bench.path("run/clocks").join(bench.given(&uid)[0].0.clone());
    assert!(page.exists());
    bench.gone(&uid).await;
    bench.until_so("the page's end", async || (!page.exists()).then_some(())).await;
}

#[tokio::test]
async fn full_filesystem_fails_the_pod_not_a_process_later() {
    let bench = shimmed().await;
    let running = bench.run(part("100")).await;
    bench.limit_file_size(Some(50_000)).await;
    let message = bench.refused(part("100")).await;
    assert!(message.contains("making region") && message.contains("File too large"), "{message}");
    bench.limit_file_size(None).await;
    let uid = bench.run(part("200")).await;
    assert_eq!((generation(&bench, &uid), generation(&bench, &running)), (0, 0));
}

#[tokio::test]
async fn running_containers_follow_the_tier_that_is_configured() {
    let mut bench = shimmed().await;
    let uid = bench.run(part("100")).await;
    assert_eq!(limits(&bench, &uid).terms.tier.as_str(), "shim");
    let mut change = async |tier: &str, stated: &str| {
        bench.set_key("tier", tier);
        bench.write_keys();
        bench.until_so(stated, async || (limits(&bench, &uid).terms.tier.as_str() == stated).then_some(())).await;
    };
    change("accounting", "accounting").await;
    change("shim", "shim").await;
    // One that can't be served changes nothing.
    fs::remove_file(bench.path("libdivvy.so")).unwrap();
    bench.set_key("tier", "shim");
    bench.set_key("slotsPerCard", 16);
    bench.write_keys();
    bench.until_said("tier shim can't be served: libdivvyPath: ").await;
    assert!(bench.runs());
}
