//! All nodes of one program: their publishers, and the watch that brings them pods.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use divvy_api::ResourceNames;
use divvy_api::Tier;
use divvy_api::gpunode::Scales;
use divvy_api::names::annotation::CARDS;
use divvy_api::usage::NodeUsage;
use divvy_node::apiserver::desired::Desired;
use divvy_node::apiserver::{PublishSettings, Publisher};
use divvy_node::kubelet::registration::RegistrationStatus;
use divvy_node::pod_list;
use divvy_node::prompt::prompts;
use divvy_node::states::{ConfigStatus, States};
use divvy_node_core::pod::{Phase, Pod, PodRef};
use divvy_runtime::api_server::ApiServer;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::node::{Node, SLOTS};
use super::{Args, Counts, name};

/// Publishers that are started at once.
const AT_ONCE: usize = 8;
/// Statuses that are written at once.
const STATUSES: usize = 64;
/// Time after which a kubelet writes a status again that was refused.
const AGAIN: Duration = Duration::from_secs(1);

/// The nodes, and the kubelets' client.
struct Played {
    nodes: BTreeMap<String, Node>,
    /// Which node a pod is on, by UID.
    places: BTreeMap<String, String>,
    annotated: HashSet<String>,
    client: Client,
    statuses: Arc<Semaphore>,
    counts: Arc<Counts>,
}

/// What the daemon's parts would tell its publisher: kept, so that the publisher sees no end of them.
type Senders = (watch::Sender<RegistrationStatus>, watch::Sender<Arc<NodeUsage>>);

/// Starts all publishers, and admits pods as they come.
pub(super) async fn play(args: &Args, counts: Arc<Counts>) -> anyhow::Result<()> {
    let file = Kubeconfig::read_from(&args.kubeconfig).context("reading the administrator's kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file.clone(), &KubeConfigOptions::default()).await?;
    let client = ApiServer::new(config)?.client;
    let names: BTreeSet<String> = (args.first..args.first + args.count).map(name).collect();
    let nodes = Api::<v1::Node>::all(client.clone()).list_metadata(&kube::api::ListParams::default()).await?;
    let mut played = BTreeMap::new();
    let mut due = Vec::new();
    for object in nodes.items.into_iter().filter(|node| names.contains(&node.name_any())) {
        let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
        let directory = args.directory.join(&name);
        let node = Node::new(&name, &directory).with_context(|| format!("node {name}"))?;
        due.push((name.clone(), uid, directory, Arc::clone(&node.allocator)));
        played.insert(name, node);
    }
    anyhow::ensure!(played.len() == names.len(), "{} of {} Nodes exist", played.len(), names.len());
    let stop = CancellationToken::new();
    let started = futures::stream::iter(due).map(|(name, uid, directory, allocator)| {
        let (file, client, counts, stop) = (&file, &client, &counts, &stop);
        async move {
            let api_server = of_node(client, file, &name, &uid).await.with_context(|| format!("token of {name}"))?;
            let (registered, registration) = watch::channel(RegistrationStatus::Registered);
            let (usage_sender, usage) = watch::channel(Arc::<NodeUsage>::default());
            let (_, offers) = watch::channel(Arc::default());
            let (_, serving) = watch::channel(None);
            let (_, config) = watch::channel(ConfigStatus::default());
            let states = States { registration, offers, serving, config, usage };
            let settings = settings(&name, &directory);
            let desired = watch::Sender::new(Desired::default());
            let (publisher, _) =
                Publisher::new(settings, &api_server, allocator, states, desired, prompts().1, stop.clone());
            tokio::spawn(publisher.run());
            Counts::add(&counts.nodes);
            anyhow::Ok::<Senders>((registered, usage_sender))
        }
    });
    let _kept: Vec<Senders> = started.buffer_unordered(AT_ONCE).try_collect().await?;
    let (places, annotated, statuses) = (BTreeMap::new(), HashSet::new(), Arc::new(Semaphore::new(STATUSES)));
    Played { nodes: played, places, annotated, client, statuses, counts }.follow().await
}

/// A client of the daemon of this node.
pub(crate) async fn daemon_of(kubeconfig: &Path, number: usize) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).context("reading the administrator's kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file.clone(), &KubeConfigOptions::default()).await?;
    let client = ApiServer::new(config)?.client;
    let (name, nodes) = (name(number), Api::<v1::Node>::all(client.clone()));
    let uid = nodes.get(&name).await?.uid().context("a Node without UID")?;
    Ok(of_node(&client, &file, &name, &uid).await?.client)
}

/// A client with a token that is bound to the node, as the kubelet requests one for the daemon's pod.
async fn of_node(client: &Client, file: &Kubeconfig, name: &str, uid: &str) -> anyhow::Result<ApiServer> {
    let accounts = Api::<v1::ServiceAccount>::namespaced(client.clone(), "divvy-system");
    let bound = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    let request = json!({"spec": {"audiences": [], "boundObjectRef": bound, "expirationSeconds": 86400}});
    let request = serde_json::from_value(request)?;
    let granted = accounts.create_token_request("divvy-node", &PostParams::default(), &request).await?;
    let mut file = file.clone();
    for user in &mut file.auth_infos {
        let token = json!({"token": granted.status.as_ref().context("no token")?.token});
        user.auth_info = Some(serde_json::from_value(token)?);
    }
    Ok(ApiServer::new(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

fn settings(name: &str, directory: &Path) -> PublishSettings {
    PublishSettings {
        node_name: name.to_owned(),
        names: ResourceNames::default(),
        scales: Scales { memory: 100, cores: 100 },
        tier: Tier::Shim,
        slots_per_card: SLOTS,
        writes_node: true,
        utilization: false,
        state_dir: directory.to_owned(),
    }
}

// === impl Played ===

impl Played {
    /// Follows the bound pods for ever.
    async fn follow(mut self) -> anyhow::Result<()> {
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &ApiResource::erase::<v1::Pod>(&()));
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let mut events = std::pin::pin!(watcher::watcher(api, bound));
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(pod)) => {
                    listed.extend(pod.uid());
                    self.seen(pod)?;
                }
                Ok(Event::InitDone) => {
                    let known: Vec<String> = self.nodes.values().flat_map(Node::uids).collect();
                    known.iter().filter(|uid| !listed.contains(*uid)).try_for_each(|uid| self.gone(uid))?;
                }
                Ok(Event::Apply(pod)) => self.seen(pod)?,
                Ok(Event::Delete(pod)) => self.gone(&pod.uid().unwrap_or_default())?,
                Err(error) => println!("daemons: watching pods: {error}"),
            }
        }
        Ok(())
    }

    fn seen(&mut self, mut object: DynamicObject) -> anyhow::Result<()> {
        let Some(name) = object.data["spec"]["nodeName"].as_str().map(str::to_owned) else { return Ok(()) };
        let Some(node) = self.nodes.get_mut(&name) else { return Ok(()) };
        let uid = object.uid().context("a pod without UID")?;
        if object.annotations().contains_key(CARDS) && self.annotated.insert(uid.clone()) {
            Counts::add(&self.counts.annotated);
        }
        if node.has(&uid) {
            return Ok(());
        }
        object.metadata.managed_fields = None;
        let pod = decode(&object)?;
        if pod.phase != Phase::Pending {
            return Ok(());
        }
        let admitted = node.admit(Arc::clone(&pod));
        self.places.insert(uid, name);
        let count = |counts: &Counts, runs| Counts::add(if runs { &counts.running } else { &counts.refused });
        let status = status(&pod, admitted.as_ref().err());
        let (client, statuses, counts) = (self.client.clone(), Arc::clone(&self.statuses), Arc::clone(&self.counts));
        tokio::spawn(async move {
            write(&client, &statuses, &pod.reference(), &status).await;
            count(&counts, admitted.is_ok());
        });
        Ok(())
    }

    fn gone(&mut self, uid: &str) -> anyhow::Result<()> {
        let place = self.places.remove(uid);
        if let Some(node) = place.and_then(|name| self.nodes.get_mut(&name)) {
            node.end(uid)?;
            Counts::add(&self.counts.ended);
        }
        Ok(())
    }
}

fn decode(pod: &DynamicObject) -> anyhow::Result<Arc<Pod>> {
    let list = serde_json::to_vec(&json!({"kind": "PodList", "items": [pod]}))?;
    pod_list::decode(&list)?.pop().context("a list of one pod")
}

/// The status that a kubelet writes when all containers have started, or when it refuses the pod.
fn status(pod: &Pod, refusal: Option<&anyhow::Error>) -> Value {
    if let Some(refusal) = refusal {
        println!("daemons: pod {pod}: {refusal:#}");
        let message = format!("{refusal:#}");
        return json!({"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}});
    }
    let now = Timestamp::now().to_string();
    let started = |container: &divvy_api::ContainerSpec| {
        json!({
            "name": container.name, "image": "work", "imageID": "work", "containerID": format!("containerd://{}", pod.uid),
            "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": now}},
        })
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"].map(condition);
    json!({"status": {
        "phase": "Running", "startTime": now, "hostIP": "10.0.0.1", "podIP": "10.0.0.1", "conditions": conditions,
        "containerStatuses": pod.containers.iter().map(started).collect::<Vec<_>>(),
    }})
}

/// Writes a pod's status until it is written or the pod is gone.
async fn write(client: &Client, statuses: &Semaphore, pod: &PodRef, status: &Value) {
    let pods = Api::<v1::Pod>::namespaced(client.clone(), &pod.namespace);
    loop {
        let permit = statuses.acquire().await;
        let written = pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(status)).await;
        drop(permit);
        match written {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => println!("daemons: status of pod {}/{}: {error}", pod.namespace, pod.name),
        }
        tokio::time::sleep(AGAIN).await;
    }
}
