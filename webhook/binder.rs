//! Bindings, posted in the scheduler's place.
//!
//! An answer that doesn't come says nothing: the pod may be bound. Then the pod itself is looked at, and if that says
//! nothing either, its reservation lives on until the watch shows the pod or it expires.

use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::names::annotation::PLANNED;
use divvy_runtime::api_server::errors::describe;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{sleep, timeout};

use crate::extender::{Bind, Binding, Extender, Malformed};

/// Posts for one extender.
#[derive(Clone)]
pub struct Binder {
    client: Client,
    extender: Arc<Extender>,
}

/// What the API server made of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Posted {
    Bound,
    Refused(String),
    Unknown(String),
}

/// Longest wait for an answer: the scheduler waits 5 s, and bind may make two requests.
const DEADLINE: Duration = Duration::from_secs(2);
/// Longest wait for the watch to show the pod. kube-scheduler binds beside its scheduling cycle, so nobody else waits.
const WATCH_LAG: Duration = Duration::from_millis(500);
/// Between two looks at what it has shown.
const WATCH_PAUSE: Duration = Duration::from_millis(10);

// === impl Binder ===

impl Binder {
    /// Posts what this extender plans.
    pub fn new(client: Client, extender: Arc<Extender>) -> Self {
        Self { client, extender }
    }

    /// Answers a call of `bind`; nothing is posted after `until`.
    pub async fn bind(&self, body: &[u8], until: Instant) -> Result<Vec<u8>, Malformed> {
        let asked = Instant::now();
        let binding = loop {
            match self.extender.bind(body, Instant::now())? {
                Bind::Post(binding) => break binding,
                Bind::Unknown(_) if asked.elapsed() < WATCH_LAG => sleep(WATCH_PAUSE).await,
                Bind::Answer(answer) | Bind::Unknown(answer) => return Ok(answer),
            }
        };
        Ok(match self.post(&binding, until).await {
            Posted::Bound => self.extender.committed(&binding, Instant::now()),
            Posted::Refused(why) => self.extender.failed(&binding, &why),
            Posted::Unknown(why) => self.extender.undecided(&why),
        })
    }

    async fn post(&self, binding: &Binding, until: Instant) -> Posted {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &binding.namespace);
        let params = PostParams::default();
        let object = binding.object();
        let post = pods.create_subresource::<_, Status>("binding", &binding.name, &params, &object);
        let patience = DEADLINE.min(until.saturating_duration_since(Instant::now()));
        let why = match timeout(patience, post).await {
            Ok(Ok(_)) => return Posted::Bound,
            // Somebody has bound it: maybe we have, and our answer was lost.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => status.message,
            Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) => {
                return Posted::Refused(status.message);
            }
            Ok(Err(error @ kube::Error::BuildRequest(_))) => return Posted::Refused(describe(&error)),
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => format!("the API server didn't answer within {patience:?}"),
        };
        Self::look(&pods, binding, why).await
    }

    /// Whether the pod was bound as told.
    async fn look(pods: &Api<Pod>, binding: &Binding, why: String) -> Posted {
        match timeout(DEADLINE, pods.get(&binding.name)).await {
            Ok(Ok(pod)) if pod.metadata.uid.as_deref() != Some(&*binding.uid) => Posted::Refused(why),
            Ok(Ok(pod)) => match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
                Some(node) if node == binding.node && pod.annotations().get(PLANNED) == Some(&binding.planned) => {
                    Posted::Bound
                }
                Some(node) => Posted::Refused(format!("the pod is bound to node {node} already")),
                // What was posted may still arrive.
                None => Posted::Unknown(why),
            },
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Posted::Refused(why),
            Ok(Err(_)) | Err(_) => Posted::Unknown(why),
        }
    }
}
