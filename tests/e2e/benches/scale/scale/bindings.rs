//! What one Binding costs the API server: by whom it is posted, with the annotation `planned` or without, with the policies or
//! without, and with or without two replicas that watch. There is no scheduler, and nobody runs the pods.

use std::collections::BTreeMap;

use anyhow::Context as _;
use divvy_api::annotation::{self, Planned, PlannedCards};
use divvy_api::names::annotation::PLANNED;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::fakes::{self, Fake};
use divvy_e2e::program::Program;
use divvy_runtime::api_server;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::RUN;
use crate::figures::spread;
use crate::fleet::{self, number};
use crate::play;
use crate::rounds::{count, enforced};

/// Bindings that are posted at once.
const AT_ONCE: usize = 8;

/// A way to post a Binding.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// Name of the kubeconfig.
    by: &'static str,
    annotation: Option<&'static str>,
    policies: bool,
    replicas: bool,
}

const PLAIN: Way =
    Way { name: "the scheduler's account", by: "scheduler", annotation: None, policies: true, replicas: true };
/// One thing changed at a time. A Binding of another account with the key of our annotation would be refused by the policies.
const WAYS: [Way; 7] = [
    PLAIN,
    Way { name: "no policies", policies: false, ..PLAIN },
    Way { name: "no replicas", replicas: false, ..PLAIN },
    Way { name: "neither policies nor replicas", policies: false, replicas: false, ..PLAIN },
    Way { name: "as long an annotation", annotation: Some("example.com/planned"), ..PLAIN },
    Way { name: "the webhook's account", by: "divvy-webhook", ..PLAIN },
    Way { name: "the webhook's account, planned", by: "divvy-webhook", annotation: Some(PLANNED), ..PLAIN },
];

/// Posts the same Bindings in every way in each round, and prints the processor time of each.
pub(super) async fn compare(cluster: &mut Cluster) -> anyhow::Result<()> {
    let (nodes, pods) = (number("DIVVY_E2E_NODES", 1000)?, number("DIVVY_E2E_PODS", RUN)?);
    let rounds = number("DIVVY_E2E_ROUNDS", 10)?;
    cluster.start_webhook().await?;
    cluster.unregister_webhook().await?;
    fakes::remove_the_node(cluster).await?;
    cluster.control_plane.scheduler.kill().await?;
    let fake = |number| Fake { name: play::name(number), amounts: fleet::amounts(), cards: Vec::new() };
    fakes::make(cluster, (0..nodes).map(fake).collect()).await?;
    let mut runs: BTreeMap<usize, [Vec<f64>; 2]> = BTreeMap::new();
    for round in 0..rounds {
        for (at, way) in WAYS.iter().enumerate() {
            let spent =
                post(cluster, way, nodes, pods).await.with_context(|| format!("round {round}, {}", way.name))?;
            println!("  round {round}, {}: API server and etcd, ms a Binding: {spent:.2?}", way.name);
            let [api, etcd] = runs.entry(at).or_default();
            api.push(spent[0]);
            etcd.push(spent[1]);
        }
    }
    for (way, [api, etcd]) in WAYS.iter().zip(runs.values()) {
        println!("  {}: API server {} ms of processors a Binding, etcd {}", way.name, spread(api, 2), spread(etcd, 2));
        let differences: Vec<f64> = api.iter().zip(&runs[&0][0]).map(|(with, without)| with - without).collect();
        println!("    more than {}, pairs: {}", PLAIN.name, spread(&differences, 2));
    }
    Ok(())
}

/// Creates pods, binds them, and deletes them; milliseconds of processors of API server and etcd for one Binding.
async fn post(cluster: &mut Cluster, way: &Way, nodes: usize, pods: usize) -> anyhow::Result<[f64; 2]> {
    if way.replicas {
        cluster.webhook.programs().try_for_each(Program::start_if_down)?;
        cluster.webhook_ready().await?;
    } else {
        for program in cluster.webhook.programs() {
            program.kill().await?;
        }
    }
    if way.policies {
        cluster.apply(&["policy"]).await?;
    } else {
        cluster.delete(&["policy"]).await?;
    }
    enforced(cluster, way.policies).await?;
    fleet::create(cluster, (0..pods).map(|number| fleet::pod("bound", number))).await?;
    let kubeconfig = cluster.files.at(format!("{}.kubeconfig", way.by));
    let client = api_server::connect(Some(&kubeconfig)).await?.context("no API server")?.client;
    let before = spent(cluster);
    let posts = (0..pods).map(|number| bind(client.clone(), number, play::name(number % nodes), way.annotation));
    let posts: Vec<_> = posts.collect();
    futures::stream::iter(posts).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let after = spent(cluster);
    fleet::delete(cluster, (0..pods).map(|number| format!("bound-{number}"))).await?;
    Ok([0, 1].map(|at: usize| (after[at] - before[at]) * 1e3 / count(pods)))
}

/// Seconds of processors that API server and etcd have spent.
pub(super) fn spent(cluster: &Cluster) -> [f64; 2] {
    let plane = &cluster.control_plane;
    [&plane.api, &plane.etcd].map(|program| program.processor_time().unwrap_or_default().as_secs_f64())
}

/// Posts one as divvy-webhook does.
async fn bind(client: Client, number: usize, node: String, key: Option<&'static str>) -> anyhow::Result<()> {
    let name = format!("bound-{number}");
    let object = binding(&name, &node, key)?;
    let pods = Api::<v1::Pod>::namespaced(client, "default");
    let posted = pods.create_subresource::<_, Status>("binding", &name, &PostParams::default(), &object).await;
    posted.map(drop).with_context(|| format!("binding {name} to {node}"))
}

fn binding(name: &str, node: &str, key: Option<&'static str>) -> anyhow::Result<v1::Binding> {
    let annotations = key.map(|key| -> anyhow::Result<Value> {
        let chosen = vec![format!("GPU-{node}-0").parse().context("UUID of a GPU")?];
        let containers = [("main".to_owned(), PlannedCards { chosen, reused: Vec::new() })].into();
        Ok(json!({key: annotation::encode(&Planned { node: node.to_owned(), containers, ..Planned::default() })}))
    });
    let metadata = json!({"name": name, "namespace": "default", "annotations": annotations.transpose()?});
    Ok(serde_json::from_value(json!({"metadata": metadata, "target": {"kind": "Node", "name": node}}))?)
}
