//! The whole of it: one control plane, one node, one daemon.

mod aggregated_api;
mod aggregation;
mod agreement;
mod in_pods;
mod install;
mod webhook;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use divvy_testkit::binaries::Binaries;
use divvy_testkit::books;
use divvy_testkit::pods::PodShape;
use fake_nvml::Scenario;
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub use self::aggregated_api::Aggregated;
pub use self::aggregation::AggregatedApi;
pub use self::agreement::Look;
use crate::api::Api;
use crate::certs::Pki;
use crate::containers::{self, ContainerKey};
use crate::control_plane::ControlPlane;
use crate::daemon::{Calls, Daemon, HOST};
use crate::files::{Files, Ports, Programs};
use crate::installation::Installation;
use crate::kubectl::Kubectl;
use crate::node::{self, CARD_MEMORY, CARDS, Containerd, NODE, whole_of};
use crate::pods::{self, JOBS, PODS};
use crate::program::Program;
use crate::webhook::Webhook;
use crate::{checkpoint, foreign_nvml, namespace, view};

/// Longest wait for anything that doesn't say otherwise, on a machine that does something else too.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// How long what is seen may be out of step.
const LAG: Duration = Duration::from_secs(20);
/// How long the API server's objects may lag behind the books.
pub const FOLLOWS: Duration = Duration::from_secs(10);
/// The kubelet's own default, which pods expect.
const KUBELET_PORT: u16 = 10250;
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/divvy-system/daemonsets/divvy-node";
/// The node's own object.
pub const NODE_PATH: &str = "/api/v1/nodes/node-a";

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// An administrator's client.
    pub api: Api,
    /// `kubectl` of the same administrator.
    pub kubectl: Kubectl,
    /// etcd and what reads it.
    pub control_plane: ControlPlane,
    /// The container runtime.
    pub containerd: Containerd,
    /// The kubelet.
    pub kubelet: Program,
    /// divvy-node.
    pub daemon: Daemon,
    /// divvy-webhook, which runs where a scenario starts it.
    pub webhook: Webhook,
    /// What its NVML answers.
    pub scenario: Scenario,
    /// Files of the run.
    pub files: Files,
    /// How Divvy is installed.
    pub installation: Installation,
    /// kube-proxy, which runs where pods have a network.
    proxy: Program,
    programs: Programs,
    /// Where NVML's stand-in finds what it answers.
    scenario_file: PathBuf,
    /// Whether the kubelet has lost its checkpoint under pods that still live.
    pub forgot: bool,
    /// Pods by UID, as they were last seen: some live on when the API server has forgotten them, or is away.
    pods: BTreeMap<String, Value>,
    /// Calls that earlier lives of the daemon answered.
    calls: Calls,
}

/// What there is at first.
fn cards(installation: &Installation) -> anyhow::Result<Scenario> {
    match foreign_nvml(installation) {
        Some(library) => foreign_nvml::scenario(&library),
        None => Ok(Scenario::uniform(CARDS, "NVIDIA H100 80GB HBM3", CARD_MEMORY)),
    }
}

/// Library that stands for our stand-in, where programs find one in a folder of the host.
fn foreign_nvml(installation: &Installation) -> Option<PathBuf> {
    std::env::var_os("DIVVY_NVML").map(PathBuf::from).filter(|_| installation.is_of_pods())
}

// === impl Cluster ===

impl Cluster {
    /// Starts everything, in the namespaces that this process is in.
    pub async fn start(
        programs: &Programs,
        files: Files,
        binaries: &Binaries,
        installation: Installation,
    ) -> anyhow::Result<Self> {
        let network = installation.network();
        network.create().context("creating the node's network")?;
        let mut ports = Ports::free()?;
        if network.is_own {
            ports.kubelet = KUBELET_PORT;
        }
        files.directory("logs")?;
        let cgroup = namespace::mount(&files, NODE, &network)?;
        let pki = Pki::create(&files, NODE, &network)?;
        let mut scenario_file = files.at("scenario.json");
        if installation.is_of_pods() {
            let library = foreign_nvml(&installation).unwrap_or_else(|| binaries.nvml.clone());
            scenario_file = namespace::install_library(&files, &library, "libnvidia-ml.so.1")?.join("scenario.json");
        }
        let scenario = cards(&installation)?;
        scenario.write(&scenario_file).context("writing the scenario")?;
        scenario.write_sysfs(&files.at(HOST).join("sys")).context("writing sysfs")?;
        let token = files.at("token");
        let mut cluster = Self {
            api: Api::new(&pki, ports.api)?,
            kubectl: Kubectl::new(programs.get("kubectl"), &files.at("."), pki.kubeconfig("admin", ports.api)?),
            control_plane: ControlPlane::new(programs, &files, &pki, &ports, &network)?,
            containerd: Containerd::new(programs, &files, &network)?,
            kubelet: node::kubelet(programs, &files, &pki, &ports, &network, &cgroup)?,
            daemon: Daemon::new(binaries, &files, &pki, &ports, &token, &namespace::seen(&cgroup))?,
            webhook: Webhook::new(binaries, &files, &pki, &ports)?,
            scenario,
            programs: programs.clone(),
            proxy: network.proxy(programs, &files, &pki.kubeconfig("admin", ports.api)?, NODE)?,
            scenario_file,
            files,
            installation,
            forgot: false,
            pods: BTreeMap::new(),
            calls: Calls::new(),
        };
        cluster.start_all(programs).await?;
        Ok(cluster)
    }

    async fn start_all(&mut self, programs: &Programs) -> anyhow::Result<()> {
        self.control_plane.etcd.start()?;
        self.containerd.program.start()?;
        self.control_plane.api.start()?;
        self.until("containerd", PATIENCE, async |this| Ok(this.containerd.answers().await.then_some(()))).await?;
        self.containerd.import_images(programs, &self.files).await.context("importing images")?;
        self.api_ready().await?;
        self.control_plane.controller_manager.start()?;
        self.control_plane.scheduler.start()?;
        self.kubelet.start()?;
        self.node_ready().await?;
        self.until("the default service account", PATIENCE, async |this| {
            this.api.find("/api/v1/namespaces/default/serviceaccounts/default").await
        })
        .await?;
        if self.installation.is_of_pods() {
            self.proxy.start()?;
            self.install_pods().await.context("installing Divvy")?;
        } else {
            self.install().await.context("installing divvy-node")?;
            self.start_daemon().await?;
        }
        self.amounts_ready().await
    }

    /// A file of `KUBE_BIN_DIR` that only some scenarios use, if it is there.
    pub fn given(&self, name: &str) -> Option<PathBuf> {
        self.programs.find_given(name)
    }

    /// Waits until `look` finds something, and looks again when it fails; each program that ends by itself is an error.
    pub async fn until<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut look: impl AsyncFnMut(&mut Self) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            let found = look(self).await;
            if let Ok(Some(found)) = found {
                return Ok(found);
            }
            self.processes().try_for_each(Program::check)?;
            if Instant::now() > deadline {
                let problem = found.err().map_or_else(String::new, |error| format!(": {error:#}"));
                bail!("no {what} within {}s{problem}", patience.as_secs());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut Program> {
        let node = [&mut self.containerd.program, &mut self.kubelet, &mut self.daemon.program];
        self.control_plane.programs().into_iter().chain(node).chain(self.webhook.programs()).chain([&mut self.proxy])
    }

    /// Starts what is down, with what it was configured with at first: after a scenario that broke off.
    pub async fn repair(&mut self) -> anyhow::Result<()> {
        let node = [&mut self.containerd.program, &mut self.kubelet];
        self.control_plane.programs().into_iter().chain(node).try_for_each(Program::start_if_down)?;
        self.api_ready().await?;
        if self.installation.is_of_pods() {
            self.end_pods().await?;
            let first = cards(&self.installation)?;
            self.change_cards(|scenario| *scenario = first)?;
            if self.api.find(DAEMON_SET).await?.is_none() {
                self.install_pods().await?;
            }
            self.daemon_ready().await?;
            return self.clear().await;
        }
        self.daemon.program.start_if_down()?;
        self.stop_webhook().await?;
        self.renew().await
    }

    /// Ends all pods, and puts cards, kubelet and daemon back to how they were at first.
    ///
    /// A kubelet keeps a resource for five minutes after its last plugin, and takes no amounts of it from the Node's status
    /// meanwhile; only without its checkpoint it knows of none.
    pub async fn renew(&mut self) -> anyhow::Result<()> {
        self.end_pods().await?;
        self.kubelet.kill().await?;
        self.daemon.program.kill().await?;
        std::fs::remove_file(checkpoint::path()).context("removing the checkpoint")?;
        let first = cards(&self.installation)?;
        self.change_cards(|scenario| *scenario = first)?;
        self.scenario.write_sysfs(&self.files.at(HOST).join("sys")).context("writing sysfs")?;
        node::configure_kubelet(&self.files, &json!({"topologyManagerPolicy": "none", "featureGates": {}}))?;
        self.daemon.configure_anew()?;
        self.kubelet.start()?;
        self.node_ready().await?;
        self.start_daemon().await?;
        self.clear().await
    }

    /// Waits until the API server answers that it is ready.
    pub async fn api_ready(&mut self) -> anyhow::Result<()> {
        self.until("kube-apiserver", PATIENCE, async |this| Ok(this.api.is_ready().await.then_some(()))).await
    }

    /// Waits until the node is Ready.
    pub async fn node_ready(&mut self) -> anyhow::Result<()> {
        self.until("node that is Ready", PATIENCE, async |this| {
            let node = this.api.get(NODE_PATH).await?;
            Ok(view::condition(&node, "Ready").filter(|condition| condition["status"] == "True").map(drop))
        })
        .await
    }

    /// Starts the daemon, and waits until the kubelet has it registered.
    pub async fn start_daemon(&mut self) -> anyhow::Result<()> {
        self.begin_daemon()?;
        self.daemon_ready().await
    }

    /// Starts the daemon. Where it is a pod's, the kubelet does.
    pub fn begin_daemon(&mut self) -> anyhow::Result<()> {
        if self.installation.is_of_pods() { Ok(()) } else { self.daemon.program.start() }
    }

    /// Waits until the kubelet has the daemon registered.
    pub async fn daemon_ready(&mut self) -> anyhow::Result<()> {
        self.until("divvy-node that is ready", PATIENCE, async |this| {
            // While the API server is away, the pod is the one before.
            if this.installation.is_of_pods()
                && let Ok(address) = this.pod_of_daemon().await
            {
                this.daemon.address = address;
            }
            Ok(this.daemon.is_ready().await.then_some(()))
        })
        .await
    }

    /// Kills the daemon. What it counted stays counted.
    pub async fn kill_daemon(&mut self) -> anyhow::Result<()> {
        // One that doesn't answer has counted nothing that can be known.
        self.calls = self.calls().await.unwrap_or_else(|_| self.calls.clone());
        if self.installation.is_of_pods() { in_pods::kill_daemon() } else { self.daemon.program.kill().await }
    }

    /// Calls of the kubelet that were answered by the daemon in all its lives since [`Self::restart_daemon`].
    pub async fn calls(&self) -> anyhow::Result<Calls> {
        let mut sum = self.calls.clone();
        for (call, count) in self.daemon.calls().await? {
            *sum.entry(call).or_default() += count;
        }
        Ok(sum)
    }

    /// Kills the daemon and starts it with these keys; calls are counted from here on.
    pub async fn restart_daemon(&mut self, keys: &Value) -> anyhow::Result<()> {
        if self.installation.is_of_pods() {
            ensure!(*keys == json!({}), "a pod's configuration is changed otherwise");
            in_pods::kill_daemon()?;
        } else {
            self.daemon.program.kill().await?;
        }
        self.calls.clear();
        self.daemon.configure(keys)?;
        self.start_daemon().await
    }

    /// Waits until the kubelet shows all that the node has as allocatable, slots included.
    pub async fn amounts_ready(&mut self) -> anyhow::Result<()> {
        self.until("allocatable amounts of a whole node", PATIENCE, async |this| {
            for (resource, amount) in whole_of(&this.scenario) {
                let shown = this.allocatable(resource).await?;
                ensure!(shown == amount, "{resource}: {shown} of {amount}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the node shows slots as allocatable, whatever pods hold: full GPUs offer no free ones.
    pub async fn amounts_ready_beside_pods(&mut self) -> anyhow::Result<()> {
        let [(slots, _), ..] = whole_of(&self.scenario);
        self.until("allocatable slots", PATIENCE, async |this| Ok((this.allocatable(slots).await? > 0).then_some(())))
            .await
    }

    /// What the node shows as allocatable of a resource.
    pub async fn allocatable(&self, resource: &str) -> anyhow::Result<u64> {
        let node = self.api.get(NODE_PATH).await?;
        let amount = node["status"]["allocatable"][resource].as_str().unwrap_or("0");
        Ok(divvy_api::quantity::parse_count(amount)?)
    }

    /// Changes what NVML answers.
    pub fn change_cards(&mut self, change: impl FnOnce(&mut Scenario)) -> anyhow::Result<()> {
        change(&mut self.scenario);
        self.scenario.write(&self.scenario_file).context("writing the scenario")
    }

    /// Creates pods, all at once, as the webhook would let them through.
    pub async fn create(&self, shapes: impl IntoIterator<Item = PodShape>) -> anyhow::Result<()> {
        self.create_objects(shapes.into_iter().map(pods::object).collect::<anyhow::Result<_>>()?).await
    }

    /// Creates these pods, all at once.
    pub async fn create_objects(&self, objects: Vec<Value>) -> anyhow::Result<()> {
        let mut creations = JoinSet::new();
        for object in objects {
            let api = self.api.clone();
            creations.spawn(async move { api.create(PODS, &object).await });
        }
        creations.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>().map(drop)
    }

    /// Waits until a pod shows what is looked for.
    pub async fn until_pod<T>(&mut self, name: &str, found: impl Fn(&Value) -> Option<T>) -> anyhow::Result<T> {
        self.until(&format!("news of pod {name}"), PATIENCE, async |this| {
            let pods = this.list().await?;
            Ok(pods.iter().find(|pod| view::name(pod) == name).and_then(&found))
        })
        .await
    }

    /// Waits until the node shows so much of a resource as allocatable.
    pub async fn until_allocatable(&mut self, resource: &str, amount: u64) -> anyhow::Result<()> {
        self.until(&format!("{amount} of {resource}"), PATIENCE, async |this| {
            let shown = this.allocatable(resource).await?;
            ensure!(shown == amount, "{shown} are allocatable");
            Ok(Some(()))
        })
        .await
    }

    /// Kills the kubelet, and waits until another one has the node Ready and the daemon registered.
    pub async fn restart_kubelet(&mut self) -> anyhow::Result<()> {
        self.kubelet.kill().await?;
        self.kubelet.start()?;
        self.node_ready().await?;
        self.daemon_ready().await
    }

    /// Lists the pods, and remembers them.
    pub async fn list(&mut self) -> anyhow::Result<Vec<Value>> {
        let mut list = self.api.get(PODS).await?;
        let Some(Value::Array(pods)) = list.get_mut("items").map(Value::take) else { bail!("not a list of pods") };
        self.pods.extend(pods.iter().map(|pod| (view::uid(pod).to_owned(), pod.clone())));
        Ok(pods)
    }

    /// Waits until `count` pods run with all their containers. A pod that fails is an error.
    pub async fn all_running(&mut self, count: usize) -> anyhow::Result<()> {
        let pods = self.all_settled(count).await?;
        let failed = pods.iter().filter(|pod| view::is_over(pod));
        let failures: Vec<_> = failed.map(|pod| format!("{}: {}", view::name(pod), view::failure(pod))).collect();
        if failures.is_empty() { Ok(()) } else { bail!("{} pods failed: {}", failures.len(), failures.join("; ")) }
    }

    /// Waits until `count` pods either run with all their containers or are over, and returns them.
    pub async fn all_settled(&mut self, count: usize) -> anyhow::Result<Vec<Value>> {
        self.until(&format!("{count} pods that run or are over"), 2 * PATIENCE, async |this| {
            let pods = this.list().await?;
            let waiting: Vec<&Value> = pods.iter().filter(|pod| !view::is_ready(pod) && !view::is_over(pod)).collect();
            if pods.len() < count || !waiting.is_empty() {
                bail!(
                    "{} of {}, not yet: {:?}",
                    pods.len() - waiting.len(),
                    pods.len(),
                    view::names(waiting.into_iter())
                );
            }
            Ok(Some(pods))
        })
        .await
    }

    /// Kills a container's process, and waits until another one has come that was given the same.
    pub async fn restart_container(&mut self, key: &ContainerKey) -> anyhow::Result<()> {
        let old = self.look()?.running.remove(key).with_context(|| format!("container {key:?} doesn't run"))?;
        containers::kill(&old)?;
        let what = format!("restart of container {key:?}");
        let new = async |this: &mut Self| Ok(this.look()?.running.remove(key).filter(|new| new.pid != old.pid));
        let new = self.until(&what, PATIENCE, new).await?;
        ensure!(new.is_given_as(&old), "container {key:?} had {:?}, now {:?}", old.given, new.given);
        Ok(())
    }

    /// Ends all pods and Jobs, and waits until nothing is left of them anywhere.
    pub async fn clear(&mut self) -> anyhow::Result<()> {
        self.end_pods().await?;
        // A kubelet that has just started isn't believed at once that a pod is gone.
        self.until("end of all shares", 2 * LAG, async |this| {
            let (booked, directories) = (books::read(this.daemon.address).await?, this.daemon.directories());
            if !booked.is_empty() || directories > 0 {
                bail!("{directories} directories, and in the books: {booked:?}");
            }
            Ok(Some(()))
        })
        .await?;
        self.amounts_ready().await
    }

    /// Ends all pods and Jobs, and waits until none of their processes is left.
    pub async fn end_pods(&mut self) -> anyhow::Result<()> {
        self.api.delete(JOBS).await?;
        self.until("end of all pods", PATIENCE, async |this| {
            // Jobs make new ones until they are gone.
            this.api.delete(PODS).await?;
            let (pods, running) = (this.list().await?, this.look()?.running);
            let own = |(owner, _): &&ContainerKey| this.pods.contains_key(owner);
            Ok((pods.is_empty() && !running.keys().any(|key| own(&key))).then_some(()))
        })
        .await?;
        self.pods.clear();
        self.forgot = false;
        Ok(())
    }
}
