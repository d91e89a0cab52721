//! One object of the API server, as it changes.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _, future};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::backoff::backoff;
use super::errors::describe_watch;
use crate::logging::WarnOnce;

/// The object whenever it has changed; `None` when there is none. Problems are logged; the stream never ends.
pub fn watch_object<K>(api: Api<K>, kind: &'static str, name: &str) -> impl Stream<Item = Option<K>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (mut warning, name) = (WarnOnce::default(), name.to_owned());
    watcher::watch_object(api, &name).backoff(backoff()).filter_map(move |seen| {
        future::ready(match seen {
            Ok(object) => {
                warning.clear();
                Some(object)
            }
            // The API server has forgotten where we were, as it does every few minutes: the object is listed anew.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => None,
            Err(error) => {
                let hint = if is_unknown(&error) { ": apply its CustomResourceDefinition" } else { "" };
                warning.warn(format!("{kind} {name}: watch failed, retrying: {}{hint}", describe_watch(&error)));
                None
            }
        })
    })
}

/// Whether the API server doesn't know this kind of object: a missing object is no error.
fn is_unknown(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}
