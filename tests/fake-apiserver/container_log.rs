//! Logs of containers: what a test has written, as an API server gets it from the kubelet.

use std::collections::HashMap;

use hyper::body::Bytes;

use super::object::{self, Object};
use super::route::Params;
use super::status::{Answer, Refusal};
use super::target::Target;

/// The logs, by namespace, pod, container and whether it is the one before the last start.
#[derive(Debug, Default)]
pub(crate) struct Logs(HashMap<Key, Bytes>);

type Key = (String, String, String, bool);

// === impl Logs ===

impl Logs {
    pub(crate) fn write(&mut self, [namespace, pod, container]: [&str; 3], previous: bool, text: Bytes) {
        self.0.insert((namespace.to_owned(), pod.to_owned(), container.to_owned(), previous), text);
    }

    /// The log that is asked for. A container that has no log has written nothing.
    pub(crate) fn read(&self, target: &Target, pod: &Object, params: &Params) -> Answer<Bytes> {
        let all =
            ["containers", "initContainers"].into_iter().filter_map(|list| pod["spec"][list].as_array()).flatten();
        let names: Vec<&str> = all.map(|container| object::text(container, "/name")).collect();
        let (name, previous) = (object::name(pod), params.is("previous"));
        let container = match (params.get("container"), &*names) {
            ("", [only]) => only,
            ("", all) => {
                return Err(Refusal::bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: {all:?}"
                )));
            }
            (given, all) if all.contains(&given) => given,
            (given, _) => {
                return Err(Refusal::bad_request(format!("container {given} is not valid for pod {name}")));
            }
        };
        let key = (target.namespace.clone(), target.name.clone(), container.to_owned(), previous);
        match self.0.get(&key) {
            Some(text) => Ok(last_lines(text, params.number("tailLines"))),
            None if previous => Err(Refusal::bad_request(format!(
                "previous terminated container \"{container}\" in pod \"{name}\" not found"
            ))),
            None => Ok(Bytes::new()),
        }
    }
}

fn last_lines(text: &Bytes, lines: Option<usize>) -> Bytes {
    let Some(lines) = lines else { return text.clone() };
    let ends = text.iter().enumerate().rev().filter(|(at, byte)| **byte == b'\n' && at + 1 < text.len());
    let start = ends.map(|(at, _)| at + 1).nth(lines.saturating_sub(1)).unwrap_or(0);
    if lines == 0 { Bytes::new() } else { text.slice(start..) }
}
