//! The kubelet's or the API server's list of this node's pods, reduced to the fields that the daemon needs.

mod known;
mod wire;

use std::sync::Arc;

use divvy_node_core::pod::Pod;
use divvy_runtime::list::ListError;

pub use self::known::{Decoder, Known, Reader};

/// Reads a `v1.PodList` as the kubelet's `/pods` serves it (JSON only: protobuf is answered 406).
///
/// Fields that aren't needed are passed over; a list cut short, or a pod without UID, is an error.
pub fn decode(json: &[u8]) -> Result<Vec<Arc<Pod>>, DecodeError> {
    let mut reader = Arc::new(Known::default()).reader();
    reader.push(json)?;
    Ok(reader.finish()?.0)
}

/// A pod list that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not the JSON of a list, or cut short.
    #[error("not a pod list: {0}")]
    List(#[from] ListError),
    /// An item that isn't a pod.
    #[error("items[{index}] is not a pod: {error}")]
    Pod {
        /// Position in the list.
        index: usize,
        /// What is wrong; line and column are those of the item.
        error: serde_json::Error,
    },
    /// A pod without UID, which can't be told from another one of the same name.
    #[error("pod {namespace}/{name} has no metadata.uid")]
    NoUid {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use divvy_api::ContainerKind;
    use divvy_node_core::pod::ContainerState;

    use super::*;

    const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
      {"metadata":{"name":"train","namespace":"ml","uid":"u1","annotations":{"divvy.dev/numa":"strict"},"managedFields":[{"x":1}]},
       "spec":{"initContainers":[
           {"name":"fetch","resources":{}},
           {"name":"proxy","restartPolicy":"Always","resources":{"limits":{"nvidia.com/gpu":"1"}}}],
         "containers":[{"name":"main","image":"x","resources":{"limits":{"nvidia.com/gpu":2,"cpu":"1"},"requests":null}}]},
       "status":{"phase":"Pending","conditions":[],
         "initContainerStatuses":[{"name":"fetch","restartCount":0,"state":{"terminated":{"exitCode":0}},"lastState":{}}],
         "containerStatuses":[{"name":"main","restartCount":3,"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{}}}]}},
      {"metadata":{"name":"new","namespace":"ml","uid":"u2","annotations":null},"spec":{"containers":[{"name":"c"}]},"status":{}}]}"#;

    #[test]
    fn kubelet_list_is_decoded_to_the_needed_fields() {
        let pods = decode(LIST.as_bytes()).expect("a list");
        let train = &pods[0];
        assert_eq!((train.uid.as_str(), train.namespace.as_str(), train.name.as_str()), ("u1", "ml", "train"));
        let order: Vec<_> = train.containers.iter().map(|c| (c.name.as_str(), c.kind, c.index)).collect();
        let (init, sidecar, app) = (ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::App);
        assert_eq!(order, [("fetch", init, 0), ("proxy", sidecar, 1), ("main", app, 0)]);
        assert_eq!(train.containers[2].limits["nvidia.com/gpu"], "2", "numbers are taken like strings");
        assert_eq!(train.states["main"], ContainerState::Waiting { started_before: true });
        assert!(train.has_started() && !train.has_ended());
        assert!(!pods[1].has_started(), "a pod under admission has no statuses");
    }

    #[test]
    fn truncated_list_is_an_error() {
        for end in 0..LIST.len() {
            assert!(decode(&LIST.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn invalid_lists_are_refused() {
        let said = |text: &str| decode(text.as_bytes()).expect_err("refused").to_string();
        assert_eq!(decode(br#"{"kind":"PodList","items":null}"#).expect("a list of nothing"), []);
        assert_eq!(said("{}"), "not a pod list: missing field `items` at line 1 column 2");
        assert!(said(r#"{"items":[{"spec":1}]}"#).starts_with("items[0] is not a pod: invalid type"));
        assert!(said("Unauthorized").starts_with("not a pod list: expected value at line 1"));
        let nameless = r#"{"items":[{"metadata":{"name":"a","namespace":"b"}}]}"#;
        assert_eq!(said(nameless), "pod b/a has no metadata.uid");
    }

    #[test]
    fn share_ends_with_the_containers_not_with_the_phase() {
        let text = LIST.replace("Pending", "Failed");
        let mut pod = decode(text.as_bytes()).expect("a list").swap_remove(0);
        assert!(pod.has_ended(), "nothing runs");
        Arc::make_mut(&mut pod).states.insert("proxy".into(), ContainerState::Running);
        assert!(!pod.has_ended(), "Failed, but a container is still up");
    }
}
