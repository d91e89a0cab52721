//! Watches of the API server, for as long as the dashboard is served.

use std::collections::HashSet;
use std::fmt::Debug;
use std::pin::pin;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::state::{DashboardState, Kind, Object};
use crate::cluster::Cluster;
use crate::view::inspect::NodeView;

/// Pods that wait for a node, and pods on their way to one: what others hold, their nodes report.
const ON_THEIR_WAY: &str = "status.phase=Pending";

/// Tells the state what the cluster has, for ever.
pub(super) async fn follow(cluster: &Cluster, state: &DashboardState) {
    let client = cluster.client();
    let all = watcher::Config::default();
    let pods = Api::<Pod>::all(client.clone());
    tokio::join!(
        each(cluster, state, Kind::GpuNodes, cluster.gpu_nodes(), all.clone()),
        each(cluster, state, Kind::Nodes, Api::<NodeView>::all(client), all.clone()),
        each(cluster, state, Kind::Pods, pods, all.fields(ON_THEIR_WAY)),
    );
}

/// Follows the objects of one kind. Where that fails it is tried again, after longer and longer pauses.
async fn each<K>(cluster: &Cluster, state: &DashboardState, kind: Kind, objects: Api<K>, config: watcher::Config)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Into<Object> + 'static,
{
    let mut events = pin!(watcher(objects, config).default_backoff());
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                let object = object.into();
                listed.insert(object.key());
                state.apply(object);
            }
            Ok(Event::InitDone) => state.keep(kind, &listed),
            Ok(Event::Apply(object)) => state.apply(object.into()),
            Ok(Event::Delete(object)) => state.delete(&object.into()),
            Err(error) => state.fails(kind, &cluster.watch_refusal(error)),
        }
    }
}
