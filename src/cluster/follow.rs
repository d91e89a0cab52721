//! One object of the API server, as it changes.

use std::fmt::Debug;

use divvy_settings::logging::Once;
use futures::{Stream, StreamExt as _, future};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::pauses::Pauses;
use crate::words::why;

/// The object whenever it has changed; `None` when there is none. Problems are said, not told; ends never.
pub fn follow<K>(api: Api<K>, kind: &'static str, name: &str) -> impl Stream<Item = Option<K>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (mut said, name) = (Once::default(), name.to_owned());
    watch_object(api, &name).backoff(Pauses::default()).filter_map(move |seen| {
        future::ready(match seen {
            Ok(object) => {
                said.over();
                Some(object)
            }
            // The API server has forgotten where we were, as it does every few minutes: the object is listed anew.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => None,
            Err(error) => {
                said.warn(format!("{kind} {name}: not followed for now: {}", why(&error)));
                None
            }
        })
    })
}
