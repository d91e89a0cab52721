//! One object of the API server, as it changes.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _, future};
use kube::runtime::utils::Backoff as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::Requests;
use super::backoff::backoff;

/// The object whenever it has changed; `None` when there is none. Failures are logged; the stream never ends.
pub fn watch_object<K>(
    api: Api<K>,
    resource: &str,
    name: &str,
    requests: Requests,
) -> impl Stream<Item = Option<K>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let request = format!("watch {resource}/{name}");
    // Goes the way of the stream's own, which doesn't show it.
    let mut delays = backoff();
    watcher::watch_object(api, name).backoff(backoff()).filter_map(move |seen| {
        future::ready(match seen {
            Ok(object) => {
                delays.reset();
                requests.succeeded(&request);
                Some(object)
            }
            Err(error) => {
                let pause = delays.next().unwrap_or_default();
                // The API server has forgotten where we were, as it does every few minutes: the object is listed anew.
                if !matches!(&error, watcher::Error::WatchError(status) if status.code == 410) {
                    requests.watch_failed(&request, &error, pause);
                }
                None
            }
        })
    })
}
