//! A node with one daemon and an innocent tenant.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use divvy_testkit::binaries::Binaries;
use divvy_testkit::daemon::{self, NodeFiles};
use divvy_testkit::namespace::MountNamespace;
use divvy_testkit::outside::SLOTS_PER_CARD;
use divvy_testkit::pages;
use divvy_testkit::pods::GPU;
use divvy_testkit::process::{Process, own_address};
use fake_kubelet::{Admission, Kubelet, KubeletOptions, KubeletView, Phase, Workload};
use fake_nvml::Scenario;
use serde_json::json;
use tokio::sync::OnceCell;

/// How long anything may take on a machine that builds at the same time.
const PATIENCE: Duration = Duration::from_secs(240);
const CARDS: u32 = 2;

/// What regions are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// The file system that `runDir` is on: the daemon can't mount any.
    Plain,
    /// As before, and that one is small.
    Small,
    /// A file system of their own each.
    Bounded,
}

/// A node whose daemon has registered its cards.
pub(crate) struct Node {
    pub(crate) kubelet: Kubelet,
    daemon: Process,
    /// Where the daemon's mounts are seen.
    namespace: Option<MountNamespace>,
    /// A pod that does no harm.
    innocent: String,
    directory: tempfile::TempDir,
}

fn workload() -> Workload {
    static BORN: AtomicU32 = AtomicU32::new(0);
    let limits = [(GPU, "1"), ("nvidia.com/gpumem", "100")];
    Workload::new(format!("p{}", BORN.fetch_add(1, Ordering::Relaxed))).app("main", &limits)
}

impl Drop for Node {
    fn drop(&mut self) {
        // What a failed test leaves may be nested deeper than the standard library can remove.
        std::process::Command::new("rm").arg("-rf").arg(self.run_dir()).status().map(drop).unwrap_or_default();
    }
}

// === impl Node ===

impl Node {
    /// `None`, with a message, where this machine allows no mounts and `region` needs some.
    pub(crate) async fn new(region: Region) -> Option<Self> {
        static BINARIES: OnceCell<Binaries> = OnceCell::const_new();
        let binaries = BINARIES.get_or_init(async || Binaries::get(false).await.expect("they can be built")).await;
        // As the default, /run, is.
        let directory = tempfile::Builder::new().prefix("divvy-hostile-").tempdir_in("/dev/shm").unwrap();
        let (run_dir, library) = (directory.path().join("run"), directory.path().join("libdivvy.so"));
        fs::create_dir(&run_dir).unwrap();
        let namespace = match region {
            Region::Plain => None,
            Region::Small => Some(MountNamespace::sized(&run_dir, "size=4m,nr_inodes=400")?),
            Region::Bounded => Some(MountNamespace::shared(&run_dir)?),
        };
        let mut files = NodeFiles::new(directory.path().to_owned());
        files.prefix = namespace.as_ref().map(MountNamespace::prefix).unwrap_or_default();
        fs::write(&library, b"\x7fELF").unwrap();
        // A crowded machine may keep the kubelet from answering in time, and the pod isn't admitted then.
        let own = json!({ "tier": "shim", "libdivvyPath": library, "probeInterval": "100ms", "kubeletTimeout": "5s" });
        files.keys = own.as_object().unwrap().clone();
        let scenario = Scenario::uniform(CARDS, "NVIDIA L4", 16 << 30);
        scenario.write(&files.scenario).unwrap();
        scenario.write_sysfs(&files.root.join("host/sys")).unwrap();
        let kubelet = Kubelet::start(KubeletOptions::new(files.root.join("k"), "node", 1)).await.unwrap();
        kubelet.add_pod(Workload::new("divvy-node").namespace("divvy-system").app("divvy-node", &[]).pod()).unwrap();
        let daemon = daemon::start(binaries, &files, &kubelet, (own_address(), 9402).into(), "envvar").unwrap();
        let mut node = Self { kubelet, daemon, namespace, innocent: String::new(), directory };
        node.registered(0).await;
        node.innocent = node.run().await;
        Some(node)
    }

    // --- the process ---

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.daemon.log).unwrap_or_default()
    }

    pub(crate) async fn kill(&mut self) {
        self.daemon.kill().await.unwrap();
    }

    pub(crate) async fn start(&mut self) {
        let before = self.kubelet.view().registrations.len();
        self.daemon.start_again().unwrap();
        self.registered(before).await;
    }

    async fn registered(&self, before: usize) {
        let all = (CARDS * SLOTS_PER_CARD) as usize;
        let has_slots = |view: &KubeletView| view.healthy.get(GPU).is_some_and(|ids| ids.len() == all);
        self.until("all slots", |view| view.registrations.len() > before && has_slots(view)).await;
    }

    pub(crate) async fn page(&self, path: &str) -> String {
        pages::page(self.daemon.pages(), path).await.unwrap()
    }

    async fn usage(&self) -> String {
        let address = SocketAddr::new(self.daemon.pages().ip(), divvy_api::installation::ADMIN_PORT);
        pages::page(address, "usage").await.unwrap()
    }

    // --- waiting ---

    async fn until(&self, what: &str, mut condition: impl FnMut(&KubeletView) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, self.kubelet.wait_until(&mut condition)).await;
        assert!(waited.is_ok(), "waiting for {what}: {}", self.log());
    }

    async fn until_so(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let asked = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, asked).await.is_ok(), "waiting for {what}: {}", self.log());
    }

    /// Waits until so many directories of ended containers are there.
    pub(crate) async fn until_dead(&self, what: &str, condition: impl Fn(usize) -> bool) {
        self.until_so(what, async || condition(self.count("dead"))).await;
    }

    /// Waits until so many containers have directories.
    pub(crate) async fn until_containers(&self, what: &str, condition: impl Fn(usize) -> bool) {
        self.until_so(what, async || condition(self.count("containers"))).await;
    }

    fn count(&self, directory: &str) -> usize {
        fs::read_dir(self.seen(self.run_dir().join(directory))).map_or(0, Iterator::count)
    }

    /// Waits until the daemon has measured the use of every container since.
    pub(crate) async fn measured(&self) {
        let uid = self.run().await;
        let name = format!("\"{}\"", self.kubelet.view().pods[&uid].name);
        self.until_so("a measurement", async || self.usage().await.contains(&name)).await;
        self.end(&uid).await;
    }

    // --- pods ---

    /// Runs a pod with part of a GPU; returns its UID.
    pub(crate) async fn run(&self) -> String {
        let uid = self.kubelet.add_pod(workload().pod()).unwrap();
        let admitted = tokio::time::timeout(PATIENCE, self.kubelet.admitted(&uid)).await;
        assert_eq!(admitted.expect("an answer in time"), Ok(Admission::Admitted), "{}", self.log());
        self.until("the pod to run", |view| view.pods[&uid].phase == Phase::Running).await;
        uid
    }

    /// Why a pod is refused.
    pub(crate) async fn refused(&self) -> String {
        let uid = self.kubelet.add_pod(workload().pod()).unwrap();
        match self.kubelet.admitted(&uid).await {
            Ok(Admission::Rejected(refusal)) => refusal.message,
            other => panic!("not refused but {other:?}"),
        }
    }

    pub(crate) async fn delete(&self, uid: &str) {
        self.kubelet.delete(uid).unwrap();
        self.until("the pod's end", |view| !view.pods.contains_key(uid)).await;
    }

    /// Ends the pod, and waits until its container has no directories.
    pub(crate) async fn end(&self, uid: &str) {
        let container = self.region(uid).parent().unwrap().to_owned();
        self.delete(uid).await;
        self.until_so("the container's end", async || !container.exists()).await;
    }

    pub(crate) async fn restart_container(&self, uid: &str) {
        let before = self.kubelet.view().pods[uid].containers[0].starts;
        self.kubelet.restart_container(uid, "main").unwrap();
        self.until("another start", |view| view.pods[uid].containers[0].starts > before).await;
    }

    // --- files ---

    fn run_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// Where the test finds what the runtime would mount.
    fn seen(&self, path: PathBuf) -> PathBuf {
        self.namespace.as_ref().map(|namespace| namespace.path(&path)).unwrap_or(path)
    }

    /// Directory that the pod's container writes to.
    pub(crate) fn region(&self, uid: &str) -> PathBuf {
        let view = self.kubelet.view();
        let given = view.pods[uid].containers[0].given.as_ref().expect("it was started");
        let mount = given.mounts.iter().find(|mount| mount.container_path == "/var/run/divvy/region");
        self.seen(PathBuf::from(&mount.expect("mounted").host_path))
    }

    pub(crate) fn innocent_books(&self) -> PathBuf {
        self.region(&self.innocent).join("books")
    }

    /// Regions that are mounted, once for each mount.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let containers = self.run_dir().join("containers");
        let mounts = self.namespace.as_ref().map(MountNamespace::mounts).unwrap_or_default();
        mounts.into_iter().filter(|mount| mount.starts_with(&containers)).collect()
    }

    // --- checks ---

    /// Ends the pod. The daemon serves meanwhile and afterwards, nothing is left of the pod, and the other tenant's region is as it
    /// was.
    pub(crate) async fn survives(&mut self, uid: &str) {
        let before = fs::read(self.innocent_books()).unwrap();
        self.end(uid).await;
        self.serves().await;
        self.until_dead("removal", |left| left == 0).await;
        self.serves().await;
        assert_eq!(fs::read(self.innocent_books()).unwrap(), before);
    }

    /// Admits a pod, with the same process as ever.
    pub(crate) async fn serves(&mut self) {
        self.run().await;
        assert_eq!(self.daemon.ended(), Ok(()), "{}", self.log());
    }
}
