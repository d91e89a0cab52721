//! Objects of the API server, as they change.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _, future, stream};
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::errors::describe_watch;
use super::{Delays, Requests};

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
    let seen = retried(watcher::watch_object(api, name), format!("watch {resource}/{name}"), requests, |_object| true);
    seen.filter_map(|object| future::ready(object.ok()))
}

/// The objects of a kind that `config` selects: all of them at first and whenever the API server has forgotten where we were, and each change.
/// Failures are logged, and passed on in words; the stream never ends.
pub fn watch_all<K>(
    api: Api<K>,
    resource: &str,
    config: watcher::Config,
    requests: Requests,
) -> impl Stream<Item = Result<watcher::Event<K>, String>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    // Init comes before the API server is asked, after a failure too.
    let is_answer = |event: &watcher::Event<K>| !matches!(event, watcher::Event::Init);
    retried(watcher(api, config), format!("watch {resource}"), requests, is_answer)
}

/// What a watcher yields, with a pause after each failure, which grows until an item is an answer of the API server.
fn retried<T: Send + 'static>(
    items: impl Stream<Item = watcher::Result<T>> + Send + 'static,
    request: String,
    requests: Requests,
    is_answer: impl Fn(&T) -> bool + Copy + Send + 'static,
) -> impl Stream<Item = Result<T, String>> + Send {
    let begun = (Box::pin(items), Delays::default());
    stream::unfold(begun, move |(mut items, mut delays)| {
        let (request, requests) = (request.clone(), requests.clone());
        async move {
            let item = match items.next().await? {
                Ok(item) => {
                    if is_answer(&item) {
                        delays.reset();
                        requests.succeeded(&request);
                    }
                    Ok(item)
                }
                Err(error) => {
                    let pause = delays.after_watch(&error);
                    // The API server has forgotten where we were, as it does every few minutes: all is listed anew.
                    if !matches!(&error, watcher::Error::WatchError(status) if status.code == 410) {
                        requests.watch_failed(&request, &error, pause);
                    }
                    sleep(pause).await;
                    Err(describe_watch(&error))
                }
            };
            Some((item, (items, delays)))
        }
    })
}
