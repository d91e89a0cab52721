//! `bind`: a plan, a reservation, and the Binding that carries it to the node.

use std::collections::BTreeMap;
use std::time::Instant;

use divvy_api::annotation;
use divvy_api::names::annotation::PLANNED;
use serde::Serialize;

use super::Extender;
use super::wire::{self, BindingArgs, BindingResult, Malformed};

/// Next step of a `bind` call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// Binding to post, and then to pass to [`Extender::committed`] or [`Extender::failed`], which return the response.
    Post(Binding),
    /// Response of a call that binds nothing, with the reason.
    Answer(Vec<u8>),
}

/// A `v1.Binding` to be posted to `/api/v1/namespaces/{namespace}/pods/{name}/binding`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID, by which its reservation is known.
    pub uid: String,
    /// The node.
    pub node: String,
    /// Value of the annotation `planned`, which the pod gets.
    pub planned: String,
    /// Request body in JSON. The API server adds its annotations to the pod in the same write, and refuses it for a pod of another UID
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
    /// Handles `bind`. A repeated call reserves the same cards.
    pub fn bind(&self, body: &[u8], now: Instant) -> Result<Bind, Malformed> {
        let BindingArgs { pod_name: name, pod_namespace: namespace, pod_uid: uid, node } = wire::decode("bind", body)?;
        let Some(demand) = self.demand(&uid) else {
            let unknown =
                format!("pod {namespace}/{name} is not known yet, or has been allocated GPUs already: try again");
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

    /// Marks the reservation as bound: the API server has accepted the Binding.
    pub fn committed(&self, binding: &Binding, now: Instant) -> Vec<u8> {
        self.index.committed(&binding.uid, now);
        answer("")
    }

    /// Drops the reservation: the API server has refused the Binding with this error.
    pub fn failed(&self, binding: &Binding, error: &str) -> Vec<u8> {
        self.index.failed(&binding.uid);
        answer(error)
    }

    /// Response where it is unknown whether the pod is bound: the reservation stays until the watch shows the pod, or expires.
    pub fn undecided(&self, error: &str) -> Vec<u8> {
        answer(error)
    }
}

fn answer(error: &str) -> Vec<u8> {
    wire::encode(&BindingResult { error })
}
