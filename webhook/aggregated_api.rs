//! The aggregated API `metrics.nvidia.com/v1alpha1` of nvidia-gpu-scheduler, with standard lists and watches. Off by default.
//!
//! ```text
//! GpuNodes ──watches──▶ objects ──▶ store ◀──list, watch── routes ◀──TLS── kube-apiserver ◀── kubectl, clients
//!                       pure        pure, one lock           ▲
//! ConfigMap extension-apiserver-authentication ──watch──▶ front_proxy: who may call
//! ```
//!
//! Only kube-apiserver calls, as the front proxy: it has authenticated and authorized the user before, by the roles of the
//! cluster. So no user is asked for here, and the headers that name one aren't read.
//!
//! The objects name containers, and say when a report was written and since when its daemon is ready. The index keeps none of
//! that, so they have a store of their own, filled by the watch of `GpuNode`s that fills the index. It is there only where the API
//! is switched on, and is the same on all replicas but for its versions.

mod accept;
mod discovery;
mod form;
pub mod front_proxy;
mod metrics;
pub mod objects;
mod openapi;
pub mod query;
pub mod routes;
pub mod shared_store;
pub mod status;
pub mod store;
pub mod watching;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use self::front_proxy::FrontProxy;
use self::metrics::RequestCounter;
use self::objects::ServedKind;
use self::shared_store::SharedStore;

/// Most watches at a time.
const MOST_WATCHES: usize = 2000;
/// Most lists that are on their way at a time: one of 5 000 nodes has 10 MB.
const MOST_LISTS: usize = 16;

/// Whether the API is served, and how watches are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggregatedApiMode {
    /// Not at all.
    #[default]
    Off,
    /// As Kubernetes answers them.
    On,
    /// In nvidia-gpu-scheduler's form where a client asks as that system's do.
    LegacyWatch,
}

/// Answers kube-apiserver. Clones share all of it.
#[derive(Clone, Debug)]
pub struct AggregatedApi {
    /// The objects.
    pub store: SharedStore,
    /// Who may call.
    pub front_proxy: FrontProxy,
    /// Whether plain watches are answered as nvidia-gpu-scheduler does.
    is_legacy: bool,
    /// Places of lists.
    lists: Arc<Semaphore>,
    /// Places of watches.
    watches: Arc<Semaphore>,
    requests: RequestCounter,
}

// === impl AggregatedApi ===

impl AggregatedApi {
    /// None where it is off.
    pub fn new(mode: AggregatedApiMode, registry: &mut Registry) -> Option<Self> {
        let is_legacy = match mode {
            AggregatedApiMode::Off => return None,
            AggregatedApiMode::On => false,
            AggregatedApiMode::LegacyWatch => true,
        };
        let store = SharedStore::default();
        let watches = Arc::new(Semaphore::new(MOST_WATCHES));
        let requests = metrics::register(registry, &store, &watches);
        let lists = Arc::new(Semaphore::new(MOST_LISTS));
        let front_proxy = FrontProxy::default();
        Some(Self { store, front_proxy, is_legacy, lists, watches, requests })
    }

    /// The state for `/debug/state`.
    pub fn state(&self) -> Value {
        let store = self.store.lock();
        let kind = |kind: ServedKind| {
            let served = json!({ "objects": store.count(kind), "latestVersion": store.latest(kind).to_string() });
            (kind.plural().to_owned(), served)
        };
        json!({
            "served": ServedKind::ALL.map(kind).into_iter().collect::<Map<_, _>>(),
            "freeListPlaces": self.lists.available_permits(),
            "freeWatchPlaces": self.watches.available_permits(),
            "knowsFrontProxy": self.front_proxy.is_known(),
        })
    }
}
