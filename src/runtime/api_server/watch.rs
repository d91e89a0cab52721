//! An object of the API server, as it changes.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::{Delays, Requests};

/// The object whenever it has changed; `None` when there is none. Failures are logged, with a pause after each that grows until
/// there is an answer; the stream never ends.
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
    let begun = (Box::pin(watcher::watch_object(api, name)), Delays::default());
    stream::unfold(begun, move |(mut objects, mut delays)| {
        let request = request.clone();
        let requests = requests.clone();
        async move {
            loop {
                match objects.next().await? {
                    Ok(object) => {
                        delays.reset();
                        requests.succeeded(&request);
                        return Some((object, (objects, delays)));
                    }
                    Err(error) => {
                        let pause = delays.after_watch(&error);
                        // The API server has forgotten where we were, as it does every few minutes: it is listed anew.
                        if !matches!(&error, watcher::Error::WatchError(status) if status.code == 410) {
                            requests.watch_failed(&request, &error, pause);
                        }
                        sleep(pause).await;
                    }
                }
            }
        }
    })
}
