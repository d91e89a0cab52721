//! `bind`: a plan, a reservation, and the Binding that carries it to the node.

use std::time::Instant;

use divvy_api::annotation;
use divvy_api::names::annotation::PLANNED;
use divvy_index::demand::Demand;
use k8s_openapi::api::core::v1::{self, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Extender;
use super::wire::{self, BindingArgs, BindingResult, Malformed};

/// Next step of a `bind` call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// Binding to post, and then to pass to [`Extender::committed`] or [`Extender::failed`], which return the response.
    Post(Binding),
    /// Response of a call that binds nothing, with the reason.
    Answer(Vec<u8>),
    /// The same, about a pod that the watch has not shown, but may show soon.
    Unknown(Vec<u8>),
}

/// Binding of a pod to be created.
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
}

// === impl Extender ===

impl Extender {
    /// Handles `bind`, for pods that the watch has shown. A repeated call reserves the same cards.
    pub fn bind(&self, body: &[u8], now: Instant) -> Result<Bind, Malformed> {
        let BindingArgs { pod_name: name, pod_namespace: namespace, pod_uid: uid, node } = wire::decode("bind", body)?;
        if uid.is_empty() {
            // The API server would bind any pod of this name (`assignPod`: a precondition only where there is a UID).
            return Ok(Bind::Answer(answer(&format!("pod {namespace}/{name}: PodUID is empty"))));
        }
        let Some(demand) = self.index.demand(&uid) else {
            let unknown =
                format!("pod {namespace}/{name} is not known yet, or has been allocated GPUs already: try again");
            return Ok(Bind::Unknown(answer(&unknown)));
        };
        if (&demand.namespace, &demand.name) != (&namespace, &name) {
            let Demand { namespace: of, name: is, .. } = &*demand;
            let other = format!("the pod with UID {uid} is {of}/{is}, not {namespace}/{name}");
            return Ok(Bind::Answer(answer(&other)));
        }
        let planned = match self.index.reserve(&demand, &node, now) {
            Ok(planned) => annotation::encode(&planned),
            Err(refused) => return Ok(Bind::Answer(answer(&refused.to_string()))),
        };
        Ok(Bind::Post(Binding { namespace, name, uid, node, planned }))
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

// === impl Binding ===

impl Binding {
    /// The object. The API server adds its annotations to the pod in the same write, and refuses it for a pod of another UID
    /// (`assignPod` of `pkg/registry/core/pod/storage`).
    pub fn object(&self) -> v1::Binding {
        let Self { namespace, name, uid, node, planned } = self;
        let metadata = ObjectMeta {
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: Some(uid.clone()),
            annotations: Some([(PLANNED.to_owned(), planned.clone())].into()),
            ..ObjectMeta::default()
        };
        let target =
            ObjectReference { kind: Some("Node".to_owned()), name: Some(node.clone()), ..ObjectReference::default() };
        v1::Binding { metadata, target }
    }
}

fn answer(error: &str) -> Vec<u8> {
    wire::encode(&BindingResult { error })
}
