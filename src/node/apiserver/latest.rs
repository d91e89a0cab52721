//! An object of the API server as it is now, as far as known.

use std::fmt::Debug;
use std::time::Duration;

use divvy_runtime::api_server::{Requests, watch_object};
use futures::StreamExt as _;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch::Receiver;
use tokio::sync::watch::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// An object as last received from the API server.
#[derive(Clone, Debug)]
pub(super) enum Cached<K> {
    /// Not received yet.
    Unknown,
    /// No object of that name exists.
    Gone,
    /// The object.
    Present(Box<K>),
}

/// An object as last received: by the watch, or as the answer to a write, which the watch shows later. Where only the watch
/// counted, an API server whose watches are late would be written to again and again.
pub(super) struct Latest<K> {
    watched: Receiver<Cached<K>>,
    answer: Option<Answer<K>>,
}

struct Answer<K> {
    object: Cached<K>,
    came: Instant,
}

/// Longest time for which an answer stands against a watch that shows an earlier version: an API server that was restored from
/// a backup counts from a lower one.
const LATE: Duration = Duration::from_secs(60);

/// Follows one object until `stop`.
pub(super) fn watch<K>(
    api: Api<K>,
    resource: &'static str,
    name: &str,
    requests: &Requests,
    stop: &CancellationToken,
) -> Latest<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (sender, receiver) = tokio::sync::watch::channel(Cached::Unknown);
    let objects = watch_object(api, resource, name, requests.clone()).take_until(stop.clone().cancelled_owned());
    tokio::spawn(objects.for_each(move |object| {
        sender.send_replace(object.map_or(Cached::Gone, |object| Cached::Present(Box::new(object))));
        std::future::ready(())
    }));
    Latest { watched: receiver, answer: None }
}

/// Whether the watch shows what an object was before this answer. Versions grow with each write.
fn is_before<K: Resource>(watched: &Cached<K>, answer: &Cached<K>) -> bool {
    let (Cached::Present(watched), Cached::Present(answer)) = (watched, answer) else { return false };
    let version = |object: &K| object.meta().resource_version.as_deref()?.parse::<u64>().ok();
    let versions = version(watched).zip(version(answer));
    watched.meta().uid == answer.meta().uid && versions.is_some_and(|(watched, answer)| watched < answer)
}

// === impl Latest ===

impl<K: Clone + Resource> Latest<K> {
    /// Waits until the watch shows something new.
    pub(super) async fn changed(&mut self) -> Result<(), RecvError> {
        self.watched.changed().await?;
        self.compare();
        Ok(())
    }

    /// The object as it is now, as far as known.
    pub(super) fn get(&mut self) -> Cached<K> {
        if self.watched.has_changed().unwrap_or_default() {
            self.compare();
        }
        self.answer.as_ref().map_or_else(|| self.watched.borrow().clone(), |answer| answer.object.clone())
    }

    /// Takes over the answer to a write; `Unknown` is none.
    pub(super) fn answered(&mut self, object: Cached<K>) {
        if !matches!(object, Cached::Unknown) {
            self.answer = Some(Answer { object, came: Instant::now() });
        }
    }

    /// Drops the answer, unless what the watch shows is older.
    fn compare(&mut self) {
        let watched = self.watched.borrow_and_update();
        self.answer.take_if(|answer| answer.came.elapsed() >= LATE || !is_before(&watched, &answer.object));
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::gpunode::{GpuNode, GpuNodeSpec};
    use tokio::sync::watch::{Sender, channel};
    use tokio::time::advance;

    use super::*;

    fn version(uid: &str, version: &str) -> Cached<GpuNode> {
        let mut object = GpuNode::new("node", GpuNodeSpec::default());
        (object.metadata.uid, object.metadata.resource_version) = (Some(uid.to_owned()), Some(version.to_owned()));
        Cached::Present(Box::new(object))
    }

    fn latest() -> (Sender<Cached<GpuNode>>, Latest<GpuNode>) {
        let (sender, watched) = channel(version("a", "9"));
        (sender, Latest { watched, answer: None })
    }

    fn shown(latest: &mut Latest<GpuNode>) -> Option<String> {
        match latest.get() {
            Cached::Present(object) => object.metadata.resource_version,
            Cached::Unknown | Cached::Gone => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answer_stands_until_the_watch_has_come_as_far() {
        let (sender, mut latest) = latest();
        latest.answered(version("a", "100"));
        sender.send_replace(version("a", "20"));
        latest.changed().await.expect("news");
        assert_eq!(shown(&mut latest).as_deref(), Some("100"), "of before the write");
        latest.answered(Cached::Unknown);
        sender.send_replace(version("a", "99"));
        assert_eq!(shown(&mut latest).as_deref(), Some("100"));
        for news in [version("a", "100"), version("a", "101"), version("b", "7"), version("a", "x"), Cached::Gone] {
            let expected = match &news {
                Cached::Present(object) => object.metadata.resource_version.clone(),
                Cached::Unknown | Cached::Gone => None,
            };
            latest.answered(version("a", "100"));
            sender.send_replace(news);
            assert_eq!(shown(&mut latest), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answer_ends_where_versions_begin_anew() {
        let (sender, mut latest) = latest();
        latest.answered(version("a", "100"));
        advance(LATE).await;
        assert_eq!(shown(&mut latest).as_deref(), Some("100"), "there is no news");
        sender.send_replace(version("a", "20"));
        assert_eq!(shown(&mut latest).as_deref(), Some("20"));
    }

    #[test]
    fn object_found_gone_by_a_write_is_gone_before_the_watch_knows() {
        let (sender, mut latest) = latest();
        latest.answered(Cached::Gone);
        assert_eq!(shown(&mut latest), None);
        sender.send_replace(version("b", "12"));
        assert_eq!(shown(&mut latest).as_deref(), Some("12"), "made again");
    }
}
