//! Watches of the API server's objects, with back-off.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _, future};
use kube::runtime::utils::Backoff as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::Requests;
use super::backoff::backoff;
use super::errors::describe_watch;

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
    let watched = with_backoff(watcher::watch_object(api, name), format!("watch {resource}/{name}"), requests);
    watched.filter_map(|seen| future::ready(seen.ok()))
}

/// A watch that pauses after failures, logs them and passes them on in words. `request`: its verb and resource.
pub fn with_backoff<T>(
    watch: impl Stream<Item = Result<T, watcher::Error>>,
    request: String,
    requests: Requests,
) -> impl Stream<Item = Result<T, String>> {
    // Goes the way of the stream's own, which doesn't show it.
    let mut delays = backoff();
    watch.backoff(backoff()).filter_map(move |seen| {
        future::ready(match seen {
            Ok(object) => {
                delays.reset();
                requests.succeeded(&request);
                Some(Ok(object))
            }
            Err(error) => {
                let pause = delays.next().unwrap_or_default();
                let expired = matches!(&error, watcher::Error::WatchError(status) if status.code == 410);
                // The API server has forgotten where we were, as it does every few minutes: the objects are listed anew.
                (!expired).then(|| {
                    requests.watch_failed(&request, &error, pause);
                    Err(describe_watch(&error))
                })
            }
        })
    })
}
