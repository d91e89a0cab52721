//! Asks daemons for `/metrics`, when somebody asks for figures of their pods and what is known is older than a few seconds. Nodes
//! that nobody asks about cost nothing, and each is asked by one task at a time.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use divvy_runtime::api_server::errors::chain;
use divvy_runtime::logging::WarnOnce;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, join_all};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::daemons::Daemons;
use super::page::{Page, Reader};
use super::samples::Samples;
use crate::metrics::Metrics;

/// A daemon that was asked less long ago isn't asked again. Below the period of the autoscaler, 15 s, and long enough for a rate.
const FRESH: Duration = Duration::from_secs(10);
/// What is known of a node that nobody has asked about for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// Longest wait for a daemon's whole page.
const DEADLINE: Duration = Duration::from_secs(3);
/// Longest wait for a connection.
const CONNECTING: Duration = Duration::from_secs(1);
/// Longest wait for all daemons of a question. Those that answer later serve the next one. With the API server's part, 5 s, it is
/// less than the 10 s after which a connection that hasn't had an answer yet is closed.
const PATIENCE: Duration = Duration::from_secs(4);
/// Daemons that are asked at the same time.
const AT_ONCE: usize = 64;

/// What daemons have answered. Clones share it.
#[derive(Clone, Debug)]
pub struct Scraper {
    daemons: Daemons,
    nodes: Arc<Mutex<HashMap<Arc<str>, Node>>>,
    client: Client<HttpConnector, Empty<Bytes>>,
    places: Arc<Semaphore>,
    metrics: Metrics,
}

/// A node that somebody has asked about.
#[derive(Debug)]
struct Node {
    samples: Samples,
    /// When its daemon was asked last.
    asked: Instant,
    /// The end of asking it, while that goes on.
    asking: Option<Shared<BoxFuture<'static, ()>>>,
    warning: WarnOnce,
}

// === impl Scraper ===

impl Scraper {
    /// Nothing has been asked yet.
    pub fn new(daemons: Daemons, metrics: Metrics) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECTING));
        // A connection for each question: daemons are many, and asked every few seconds at most.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Self { daemons, nodes: Arc::default(), client, places: Arc::new(Semaphore::new(AT_ONCE)), metrics }
    }

    /// Asks the daemons of these nodes, unless they were asked a moment ago, and waits for what they answer.
    pub async fn ask(&self, nodes: impl IntoIterator<Item = &Arc<str>>) {
        let asking: Vec<_> = {
            let (mut known, now) = (self.nodes(), Instant::now());
            known.retain(|_, node| now.saturating_duration_since(node.asked) < FORGOTTEN);
            nodes.into_iter().filter_map(|node| self.begin(&mut known, node, now)).collect()
        };
        // What hasn't come by then is as if it weren't known.
        drop(tokio::time::timeout(PATIENCE, join_all(asking)).await);
    }

    /// Looks at what is known of a node; nodes are locked meanwhile.
    pub fn look<T>(&self, node: &Arc<str>, look: impl FnOnce(&Samples) -> T) -> Option<T> {
        self.nodes().get(node).map(|node| look(&node.samples))
    }

    /// What is known, for `/debug/state`.
    pub fn state(&self) -> Value {
        let now = Instant::now();
        let node = |node: &Node| {
            let age = node.samples.age(now).map(|age| age.as_secs());
            json!({ "pageAgeSeconds": age, "problem": node.warning.current() })
        };
        let asked: Map<_, _> = self.nodes().iter().map(|(name, of)| (name.to_string(), node(of))).collect();
        json!({ "daemons": self.daemons.count(), "asked": asked })
    }

    fn begin(
        &self,
        known: &mut HashMap<Arc<str>, Node>,
        name: &Arc<str>,
        now: Instant,
    ) -> Option<Shared<BoxFuture<'static, ()>>> {
        if let Some(node) = known.get(name)
            && (node.asking.is_some() || now.saturating_duration_since(node.asked) < FRESH)
        {
            return node.asking.clone();
        }
        let (scraper, of) = (self.clone(), Arc::clone(name));
        // A task of its own: it ends whether or not whoever has asked is still there.
        let task = tokio::spawn(async move {
            let answer = scraper.scrape(&of).await;
            scraper.take(&of, answer);
        });
        let asking = task.map(drop).boxed().shared();
        let node = known.entry(Arc::clone(name)).or_insert_with(|| Node::new(now));
        (node.asked, node.asking) = (now, Some(asking.clone()));
        Some(asking)
    }

    fn take(&self, name: &Arc<str>, answer: Result<Page, String>) {
        self.metrics.scraped(if answer.is_ok() { "ok" } else { "error" });
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(name) else { return };
        node.asking = None;
        match answer {
            Ok(page) => {
                node.warning.clear();
                node.samples.take(page, Instant::now(), SystemTime::now());
            }
            Err(why) => {
                node.warning.warn(format!("node {name}: no metrics of its pods: {why}"));
            }
        }
    }

    async fn scrape(&self, node: &Arc<str>) -> Result<Page, String> {
        let _place = self.places.acquire().await.map_err(|closed| closed.to_string())?;
        let address = self.daemons.address(node).ok_or("no pod of divvy-node runs there")?;
        let page = tokio::time::timeout(DEADLINE, self.fetch(address)).await;
        let page = page.map_err(|_elapsed| format!("no answer within {}s", DEADLINE.as_secs())).flatten();
        page.map_err(|why| format!("http://{address}/metrics: {why}"))
    }

    async fn fetch(&self, address: SocketAddr) -> Result<Page, String> {
        let uri = format!("http://{address}/metrics").parse().map_err(|error| chain(&error))?;
        let answer = self.client.get(uri).await.map_err(|error| chain(&error))?;
        if answer.status() != hyper::StatusCode::OK {
            return Err(format!("answered {}", answer.status()));
        }
        let (mut body, mut reader) = (answer.into_body(), Reader::default());
        while let Some(frame) = body.frame().await {
            let part = frame.map_err(|error| chain(&error))?.into_data().unwrap_or_default();
            reader.push(&part).map_err(|error| error.to_string())?;
        }
        reader.finish().map_err(|error| error.to_string())
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Arc<str>, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Node ===

impl Node {
    fn new(asked: Instant) -> Self {
        Self { samples: Samples::default(), asked, asking: None, warning: WarnOnce::default() }
    }
}
