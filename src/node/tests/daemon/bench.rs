//! One node with one daemon.

pub(crate) mod cluster;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use divvy_testkit::binaries::Binaries;
use divvy_testkit::books;
use divvy_testkit::outside::Given;
use divvy_testkit::pods::GPU;
use fake_kubelet::{
    Admission, Kubelet, KubeletOptions, KubeletView, Phase, PodsFault, RestartOptions, Timing, Workload,
};
use fake_nvml::Scenario;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use self::cluster::Cluster;

/// How long anything may take on a machine that builds at the same time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const CARDS: u32 = 2;
/// MiB of each card.
pub(crate) const MEMORY: u64 = 16 << 10;
/// The image's settings of the allocator (`ENV` in the Dockerfile).
const ALLOCATOR: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "131072")];

pub(crate) struct Bench {
    pub(crate) kubelet: Kubelet,
    pub(crate) scenario: Scenario,
    pub(crate) address: SocketAddr,
    /// `/usage`, `/config` and `/debug`.
    pub(crate) admin: SocketAddr,
    keys: Map<String, Value>,
    child: Option<Child>,
    cluster: Option<Cluster>,
    directory: tempfile::TempDir,
}

/// Where the daemon's own words go.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stderr {
    Log,
    /// To a disk that is full.
    Full,
}

pub(crate) async fn binaries() -> &'static Binaries {
    static BINARIES: OnceCell<Binaries> = OnceCell::const_new();
    BINARIES.get_or_init(async || Binaries::get(false).await.expect("they can be built")).await
}

/// A pod with one container, and a name of its own.
pub(crate) fn pod(limits: &[(&str, &str)]) -> Workload {
    static BORN: AtomicU32 = AtomicU32::new(0);
    Workload::new(format!("p{}", BORN.fetch_add(1, Ordering::Relaxed))).app("main", limits)
}

/// A pod with a part of one card.
pub(crate) fn part(mib: &str) -> Workload {
    pod(&[(GPU, "1"), ("nvidia.com/gpumem", mib)])
}

// === impl Bench ===

impl Bench {
    /// A node whose daemon has registered all its cards.
    pub(crate) async fn new() -> Self {
        Self::with(json!({})).await
    }

    /// The same, with keys of its own.
    pub(crate) async fn with(keys: Value) -> Self {
        let mut bench = Self::stopped(keys).await;
        bench.start(Stderr::Log).await;
        bench.ready().await;
        bench
    }

    /// A node whose daemon hasn't been started.
    pub(crate) async fn stopped(own: Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut options = KubeletOptions::new(root.join("k"), "node", 1);
        options.timing = Timing {
            admit_after_boot: Duration::from_millis(500),
            node_status: Duration::from_millis(500),
            ..Timing::default()
        };
        let kubelet = Kubelet::start(options).await.unwrap();
        let [a, b, c] = rand::random::<[u8; 3]>();
        // Nobody else's, so that its port is free whenever the daemon comes back.
        let address: SocketAddr = format!("127.{}.{b}.{}:9402", a.max(1), c.clamp(1, 254)).parse().unwrap();
        let admin = SocketAddr::new(address.ip(), 9404);
        let mut keys = json!({
            "version": "v1",
            "nodeName": "node",
            "kubeletRootDir": kubelet.root_dir(),
            "kubeletUrl": format!("https://{}", kubelet.address()),
            "kubeletCa": kubelet.ca_file(),
            "kubeletTokenFile": kubelet.token_file(),
            "kubeletSettleTime": "2s",
            "cgroupRoot": kubelet.cgroups(),
            "stateDir": root.join("state"),
            "runDir": root.join("run"),
            // Not there, unless a test puts it there.
            "libdivvyPath": root.join("libdivvy.so"),
            "cdiDir": root.join("cdi"),
            "hostRoot": root.join("host"),
            "deviceListStrategy": "envvar",
            "listenAddress": address,
            "adminAddress": admin,
            "probeInterval": "100ms",
            "recoverAfter": "300ms",
        });
        let keys_of = |value: Value| value.as_object().unwrap().clone();
        let (mut keys, own) = (keys_of(keys.take()), keys_of(own));
        keys.extend(own);
        let scenario = Scenario::uniform(CARDS, "NVIDIA L4", MEMORY << 20);
        scenario.write_sysfs(&root.join("host/sys")).unwrap();
        fake_nvml::install_driver(&binaries().await.nvml, &root.join("host")).unwrap();
        let bench = Self { kubelet, scenario, address, admin, keys, child: None, cluster: None, directory };
        bench.scenario.write(&bench.path("scenario.json")).unwrap();
        bench.idle_pod().await;
        bench
    }

    /// A kubelet that runs the daemon's own pod lists at least that one.
    async fn idle_pod(&self) {
        let uid = self.kubelet.add_pod(Workload::new("divvy-node").app("main", &[]).pod()).unwrap();
        assert_eq!(self.kubelet.admitted(&uid).await, Ok(Admission::Admitted));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn set_key(&mut self, key: &str, value: impl Into<Value>) {
        self.keys.insert(key.to_owned(), value.into());
    }

    pub(crate) fn change_scenario(&mut self, change: impl FnOnce(&mut Scenario)) {
        change(&mut self.scenario);
        self.scenario.write(&self.path("scenario.json")).unwrap();
    }

    // --- the process ---

    /// Writes the keys to the daemon's file, where it finds them if it runs.
    pub(crate) fn write_keys(&self) {
        fs::write(self.path("config.yaml"), Value::from(self.keys.clone()).to_string()).unwrap();
    }

    pub(crate) async fn start(&mut self, stderr: Stderr) {
        self.write_keys();
        let log = match stderr {
            Stderr::Log => fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap(),
            Stderr::Full => fs::OpenOptions::new().write(true).open("/dev/full").unwrap(),
        };
        // With the signal that a limit on file sizes sends ignored, such a limit is as good as a full disk.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(&binaries().await.daemon);
        command.arg("--config-file").arg(self.path("config.yaml"));
        command.env("FAKE_NVML_SCENARIO", self.path("scenario.json")).env("NO_COLOR", "1").envs(ALLOCATOR);
        self.child = Some(command.stderr(log).kill_on_drop(true).spawn().unwrap());
    }

    pub(crate) async fn kill(&mut self) {
        self.child.take().unwrap().kill().await.unwrap();
    }

    /// Kills it, lets something happen, and starts it again.
    pub(crate) async fn killed(&mut self, meanwhile: impl FnOnce(&Self)) {
        let before = self.kubelet.view().registrations.len();
        self.kill().await;
        meanwhile(self);
        self.start(Stderr::Log).await;
        self.registered(before).await;
    }

    pub(crate) fn pid(&self) -> String {
        self.child.as_ref().unwrap().id().expect("it runs").to_string()
    }

    pub(crate) async fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.pid()]).status().await.unwrap();
        assert!(sent.success());
    }

    /// Largest file that the process can write from now on.
    pub(crate) async fn limit_file_size(&self, bytes: Option<u64>) {
        let limit = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        // The soft limit alone, so that it can be raised again.
        let set = Command::new("prlimit").args(["--pid", &self.pid(), &format!("--fsize={limit}:")]).status().await;
        assert!(set.unwrap().success());
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.child.as_mut().unwrap().wait()).await;
        ended.unwrap_or_else(|_| panic!("it doesn't end: {}", self.log())).unwrap()
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    // --- waiting ---

    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut(&KubeletView) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, self.kubelet.wait_until(&mut condition)).await;
        assert!(waited.is_ok(), "waiting for {what}: {:#?}\n{}", self.kubelet.view().pods, self.log());
    }

    /// Asks again and again until the answer will do.
    pub(crate) async fn until_so<T>(&self, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
        let asked = async {
            loop {
                if let Some(answer) = ask().await {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        answer.unwrap_or_else(|_| panic!("waiting for {what}: {}", self.log()))
    }

    pub(crate) async fn until_said(&self, text: &str) {
        self.until_so(text, async || self.log().contains(text).then_some(())).await;
    }

    pub(crate) async fn registered(&self, before: usize) {
        self.until("registration", |view| view.registrations.len() > before).await;
    }

    /// All slots are healthy.
    pub(crate) async fn ready(&self) {
        self.ready_beside_full(0, 0).await;
    }

    /// All slots are healthy, but of so many full GPUs those alone that are held.
    pub(crate) async fn ready_beside_full(&self, full: usize, held: usize) {
        let slots = (CARDS as usize - full) * 32 + held;
        self.until("all slots", |view| view.healthy.get(GPU).is_some_and(|ids| ids.len() == slots)).await;
    }

    /// The daemon accepts new pods, and the kubelet knows of it.
    pub(crate) async fn serving(&self) {
        self.until_so("serving", async || {
            let (_, metrics) = self.page("/metrics").await?;
            metrics.contains("\ndivvy_serving{} 1.0\n").then_some(())
        })
        .await;
        self.ready().await;
    }

    // --- pods ---

    /// Binds a pod to the node; returns its UID.
    pub(crate) async fn add(&self, workload: Workload) -> String {
        let Some(cluster) = &self.cluster else { return self.kubelet.add_pod(workload.pod()).unwrap() };
        let uid = cluster.create(workload);
        self.kubelet.arrived(&uid).await;
        uid
    }

    pub(crate) async fn run(&self, workload: Workload) -> String {
        let uid = self.add(workload).await;
        let admitted = self.kubelet.admitted(&uid).await;
        assert_eq!(admitted, Ok(Admission::Admitted), "{}", self.log());
        self.until("the pod to run", |view| view.pods[&uid].phase == Phase::Running).await;
        uid
    }

    /// The message of a pod that must fail.
    pub(crate) async fn refused(&self, workload: Workload) -> String {
        let uid = self.add(workload).await;
        match self.kubelet.admitted(&uid).await {
            Ok(Admission::Rejected(refusal)) => {
                assert_eq!(refusal.reason, "UnexpectedAdmissionError");
                refusal.message
            }
            other => panic!("not refused but {other:?}"),
        }
    }

    /// Fails the next pod, and the one after it is fine.
    pub(crate) async fn refused_once(&self, fault: PodsFault) -> String {
        self.kubelet.set_faults(|faults| faults.pods = fault);
        let message = self.refused(part("100")).await;
        self.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
        self.serving().await;
        self.run(part("100")).await;
        message
    }

    pub(crate) async fn gone(&self, uid: &str) {
        self.kubelet.delete(uid).unwrap();
        self.until("the pod's end", |view| !view.pods.contains_key(uid)).await;
    }

    pub(crate) async fn restart_kubelet(&self, lose_checkpoint: bool) {
        let view = self.kubelet.view();
        self.kubelet.restart(RestartOptions { lose_checkpoint, ..RestartOptions::default() }).await.unwrap();
        self.registered(view.registrations.len()).await;
        let healthy = |view: &KubeletView| view.healthy.get(GPU).map(std::collections::BTreeSet::len);
        self.until("as many slots as before", |now| healthy(now) == healthy(&view)).await;
    }

    /// What a container was given at its last start: cards and MiB of each.
    pub(crate) fn given(&self, uid: &str) -> Vec<(String, u64)> {
        self.given_to(uid, 0)
    }

    /// The same of the pod's container at this position.
    pub(crate) fn given_to(&self, uid: &str, container: usize) -> Vec<(String, u64)> {
        let view = self.kubelet.view();
        let answer = view.pods[uid].containers[container].given.clone().expect("it was started");
        let limits = Given::read(&answer).limits.expect("mounted").expect("readable");
        limits.cards.into_iter().map(|(card, share)| (card.to_string(), share.memory.as_mib())).collect()
    }

    /// The daemon's books say that containers named `main` of live pods hold these amounts in MiB.
    pub(crate) async fn until_booked(&self, mib: &[u64]) {
        let mut expected = mib.to_vec();
        expected.sort_unstable();
        self.until_so(&format!("books of {mib:?}"), async || {
            let mut found: Vec<u64> = books::read(self.address).await.ok()?.values().map(|bytes| bytes >> 20).collect();
            found.sort_unstable();
            (found == expected).then_some(())
        })
        .await;
    }

    /// Status and text of a page of `listenAddress`.
    pub(crate) async fn page(&self, path: &str) -> Option<(u16, String)> {
        page(self.address, path).await
    }

    /// Status and text of a page of `adminAddress`.
    pub(crate) async fn admin_page(&self, path: &str) -> Option<(u16, String)> {
        page(self.admin, path).await
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path("state/journal")
    }
}

/// Status and text of a page.
pub(crate) async fn page(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let answer = client.get(format!("http://{address}{path}").parse().unwrap()).await.ok()?;
    let status = answer.status().as_u16();
    let text = answer.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&text).into_owned()))
}

/// Length of a file.
pub(crate) fn length(file: &Path) -> u64 {
    fs::metadata(file).unwrap().len()
}
