//! The state for `/debug/state`: what is served, and what isn't there for it yet.

use std::sync::Arc;

use divvy_serving::tls::Identity;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::front_proxy::FrontProxy;
use crate::nodes::Nodes;
use crate::objects::Kind;

/// Sources of the state.
#[derive(Clone, Debug)]
pub struct DebugState {
    /// The served objects and the watch that they are from.
    pub nodes: Nodes,
    /// Places of lists that are free.
    pub lists: Arc<Semaphore>,
    /// Places of watches that are free.
    pub watches: Arc<Semaphore>,
    /// Whether there is a certificate to serve.
    pub identity: Identity,
    /// Whether kube-apiserver would be let in.
    pub front_proxy: FrontProxy,
}

// === impl DebugState ===

impl DebugState {
    /// The state now.
    pub fn read(&self) -> Value {
        let watch = self.nodes.state().now();
        let store = self.nodes.store();
        let kind = |kind: Kind| {
            let served = json!({ "objects": store.count(kind), "latestVersion": store.latest(kind).to_string() });
            (kind.plural().to_owned(), served)
        };
        json!({
            "watch": { "listed": watch.listed, "problem": watch.problem },
            "nodes": store.nodes().map(|name| &**name).collect::<Vec<_>>(),
            "served": Kind::ALL.map(kind).into_iter().collect::<Map<_, _>>(),
            "freeListPlaces": self.lists.available_permits(),
            "freeWatchPlaces": self.watches.available_permits(),
            "hasCertificate": self.identity.now().is_some(),
            "knowsFrontProxy": self.front_proxy.is_known(),
        })
    }
}
