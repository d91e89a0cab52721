//! List and watch of one kind. Of a list one object is in memory at a time, whatever tenants have made of their pods; kube's
//! watcher keeps a page of 500 two times over.

use std::time::Duration;

use divvy_runtime::api_server::backoff;
use divvy_runtime::api_server::errors::describe;
use divvy_runtime::api_server::pages::Pages;
use divvy_runtime::list::Each;
use futures::{StreamExt as _, stream};
use kube::api::{WatchEvent, WatchParams};
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::ExponentialBackoff;
use kube::{Api, ResourceExt as _};
use tokio::time::{sleep, timeout};

use super::{Entry, KindStatus, Listing, Watches};

/// Seconds after which the API server ends a watch, as kube has it by default.
const WATCH: u32 = 290;
/// Time after which a watch is given up that says nothing: its connection may be gone without a word, as kube's client asks for
/// no TCP keepalive. The API server sends a bookmark about every minute, but for kinds of which nothing has happened since its
/// start (`dispatchEvents` of `apiserver/pkg/storage/cacher`); to watch those again costs little.
const SILENCE: Duration = Duration::from_secs(90);
/// Time after which a watch works, though nothing has happened. One that ends sooner is a failure, as client-go has it
/// (`very short watch`): somebody in between may close every watch at once.
const SHORT: Duration = Duration::from_secs(1);

/// Time after which it is looked again whether an optional kind has been defined.
const UNDEFINED: Duration = Duration::from_secs(30);

/// Why a watch has ended.
enum End {
    /// End of the time that was asked for.
    Closed,
    /// Version that the API server has forgotten.
    Expired,
    /// Failure of the request, or of the API server.
    Failed(kube::Error),
}

/// A watch that said nothing before it ended.
#[derive(Debug, thiserror::Error)]
#[error("the watch ended within {SHORT:?} without an event")]
struct ShortWatch;

impl Watches {
    /// Keeps the state up to date with the objects that these fields select, for ever.
    pub(super) async fn follow<E: Entry>(&self, fields: &str) {
        let request = format!("watch {}", E::KIND.as_str());
        let mut pauses = backoff();
        let mut pages = Pages::new(&E::url_path(&(), None), fields);
        let mut listing = Listing::default();
        let mut version = None;
        loop {
            let error = match &mut version {
                None => match self.list::<E>(&mut pages, &mut listing).await {
                    Ok(listed) => {
                        self.works::<E>(&request);
                        pauses.reset();
                        self.note(E::KIND, |kind| kind.listed = true);
                        version = listed.filter(|version| !version.is_empty());
                        if version.is_some() {
                            continue;
                        }
                        kube::Error::SerdeError(serde::de::Error::custom("the list has no resource version"))
                    }
                    Err(kube::Error::Api(status)) if E::IS_OPTIONAL && status.code == 404 => {
                        E::undefined(self);
                        self.note(E::KIND, |kind| *kind = KindStatus { listed: true, ..KindStatus::default() });
                        sleep(UNDEFINED).await;
                        continue;
                    }
                    Err(error) => error,
                },
                Some(from) => match self.watch::<E>(fields, from, &request, &mut pauses).await {
                    End::Closed => continue,
                    // As happens every few minutes: all are listed again.
                    End::Expired => {
                        version = None;
                        sleep(pauses.next().unwrap_or_default()).await;
                        continue;
                    }
                    End::Failed(error) => error,
                },
            };
            let pause = pauses.next().unwrap_or_default();
            self.api_server.requests.failed(&request, &error, pause);
            self.note(E::KIND, |kind| {
                kind.problem = Some(describe(&error));
                // 403: rights of an older version; 5xx: its definition's conversion webhook is gone. 429 and silence pass.
                kind.is_waived |= E::IS_FOREIGN && matches!(&error, kube::Error::Api(status) if status.code != 429);
            });
            sleep(pause).await;
        }
    }

    /// Reads what is left of the list; returns its version. After an error the pages that have been read stay read, unless the
    /// API server has forgotten the list meanwhile: with thousands of nodes and an API server that is busy, a list that began
    /// anew might never end.
    async fn list<E: Entry>(&self, pages: &mut Pages, listing: &mut Listing) -> kube::Result<Option<String>> {
        loop {
            if pages.is_at_start() {
                *listing = Listing::before::<E>(&self.index);
            }
            let each = Each::new(|entry: E| {
                listing.keys.insert(entry.key().into_owned());
                entry.apply(self);
            });
            let (_, metadata) = pages.read(&self.api_server.client, each).await?;
            if pages.is_at_start() {
                E::keep(self, listing);
                return Ok(metadata.resource_version);
            }
        }
    }

    /// Watches from this version on, which goes along, until the watch ends.
    async fn watch<E: Entry>(
        &self,
        fields: &str,
        version: &mut String,
        request: &str,
        pauses: &mut ExponentialBackoff,
    ) -> End {
        let params = WatchParams::default().fields(fields).timeout(WATCH);
        let api = Api::<E>::all(self.api_server.client.clone());
        let events = match api.watch(&params, version).await {
            Ok(events) => events,
            Err(kube::Error::Api(status)) if status.code == 410 => return End::Expired,
            // No longer defined, and perhaps its objects went unseen: the list says so.
            Err(kube::Error::Api(status)) if E::IS_OPTIONAL && status.code == 404 => return End::Expired,
            Err(error) => return End::Failed(error),
        };
        let mut events = std::pin::pin!(events);
        let first = timeout(SHORT, events.next()).await;
        if matches!(first, Ok(None)) {
            return End::Failed(kube::Error::Service(Box::new(ShortWatch)));
        }
        self.works::<E>(request);
        let mut events = stream::iter(first.ok().flatten()).chain(events);
        while let Ok(Some(event)) = timeout(SILENCE, events.next()).await {
            let seen = match event {
                Ok(WatchEvent::Added(entry) | WatchEvent::Modified(entry)) => {
                    let version = entry.resource_version();
                    entry.apply(self);
                    version
                }
                Ok(WatchEvent::Deleted(entry)) => {
                    entry.delete(self);
                    entry.resource_version()
                }
                Ok(WatchEvent::Bookmark(bookmark)) => Some(bookmark.metadata.resource_version),
                Ok(WatchEvent::Error(status)) if status.code == 410 => return End::Expired,
                Ok(WatchEvent::Error(status)) => return End::Failed(kube::Error::Api(status)),
                Err(error) => return End::Failed(error),
            };
            pauses.reset();
            if let Some(seen) = seen.filter(|seen| !seen.is_empty()) {
                *version = seen;
            }
        }
        End::Closed
    }

    fn works<E: Entry>(&self, request: &str) {
        self.api_server.requests.succeeded(request);
        self.note(E::KIND, |kind| kind.problem = None);
    }
}
