//! `bind`: a plan, a promise, and the Binding that carries it to the node.

use std::collections::BTreeMap;
use std::time::Instant;

use divvy_api::annotation;
use divvy_api::names::annotation::PLANNED;
use serde::Serialize;

use super::Extender;
use super::wire::{self, BindingArgs, BindingResult, Malformed};

/// What is to be done about a call of `bind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// Post this, then say [`Extender::committed`] or [`Extender::failed`], whose answer is the scheduler's.
    Post(Binding),
    /// Nothing; the answer says why.
    Answer(Vec<u8>),
}

/// A `v1.Binding` to be posted to `/api/v1/namespaces/{namespace}/pods/{name}/binding`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID, by which its promise is known.
    pub uid: String,
    /// The node.
    pub node: String,
    /// The pod's annotation of that name.
    pub planned: String,
    /// JSON. The API server adds its annotations to the pod in the same write, and refuses it for a pod of another UID
    /// (`assignPod` of `pkg/registry/core/pod/storage`).
    pub body: Vec<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    target: Target<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    annotations: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct Target<'a> {
    kind: &'a str,
    name: &'a str,
}

// === impl Extender ===

impl Extender {
    /// `bind`. A call that comes again gets the same cards again.
    pub fn bind(&self, body: &[u8], now: Instant) -> Result<Bind, Malformed> {
        let BindingArgs { pod_name: name, pod_namespace: namespace, pod_uid: uid, node } = wire::decode("bind", body)?;
        let Some(demand) = self.demand(&uid) else {
            let unknown =
                format!("pod {namespace}/{name} is not known yet, or has been given cards already: try again");
            return Ok(Bind::Answer(answer(&unknown)));
        };
        let planned = match self.index.reserve(&demand, &node, now) {
            Ok(planned) => annotation::encode(&planned),
            Err(refused) => return Ok(Bind::Answer(answer(&refused.to_string()))),
        };
        let annotations = BTreeMap::from([(PLANNED, planned.as_str())]);
        let metadata = Metadata { namespace: &namespace, name: &name, uid: &uid, annotations };
        let target = Target { kind: "Node", name: &node };
        let body = wire::encode(&Body { api_version: "v1", kind: "Binding", metadata, target });
        Ok(Bind::Post(Binding { namespace, name, uid, node, planned, body }))
    }

    /// The API server took the binding.
    pub fn committed(&self, binding: &Binding, now: Instant) -> Vec<u8> {
        self.index.committed(&binding.uid, now);
        answer("")
    }

    /// The API server refused the binding, in these words.
    pub fn failed(&self, binding: &Binding, error: &str) -> Vec<u8> {
        self.index.failed(&binding.uid);
        answer(error)
    }

    /// Nobody knows whether the pod is bound: its promise lives until the watch tells, or its term ends.
    pub fn undecided(&self, error: &str) -> Vec<u8> {
        answer(error)
    }
}

fn answer(error: &str) -> Vec<u8> {
    wire::encode(&BindingResult { error })
}
