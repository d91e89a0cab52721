//! Lists in pages whose size follows that of the objects, read item by item.

use std::fmt;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{AsyncBufRead as _, AsyncBufReadExt as _};
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;

use super::errors::describe;
use crate::list::{Items, ListMeta, Splitter};

/// Objects on the first page: 160 MB, if all are as large as etcd takes them.
const FIRST_PAGE: u32 = 20;
/// Most objects on a page, as kubectl and client-go have it.
const LARGEST_PAGE: usize = 500;
/// Bytes of JSON that a page is to have. The API server builds a page of pods in its own memory.
const PAGE_BYTES: usize = 32 << 20;
/// Longest time without progress: until the response begins, and between its parts. An API server that is busy lets a request
/// wait up to a quarter of `--request-timeout`, 15 s, before it begins (priority and fairness).
const STALLED: Duration = Duration::from_secs(20);
/// Longest time for one page, however steadily it comes: `--request-timeout` of the API server, which ends it then too.
const LONGEST: Duration = Duration::from_secs(60);

/// A list of one kind that is read page by page, and goes on where it stopped.
#[derive(Debug)]
pub struct Pages {
    path: String,
    next: ListParams,
    /// Whether the objects come without their spec and status.
    is_metadata: bool,
}

/// A page that wasn't read.
#[derive(Debug, thiserror::Error)]
pub enum PageError<E> {
    /// The API server refuses it, or can't be reached.
    #[error("{}", describe(.0))]
    Api(#[from] kube::Error),
    /// The response isn't what it should be.
    #[error("{0}")]
    Invalid(E),
    /// The response stops.
    #[error("nothing more for {}s after {} MiB", STALLED.as_secs(), .0 >> 20)]
    Stalled(usize),
    /// The response doesn't end.
    #[error("more than the {} MiB that came within {}s: objects are very large", .0 >> 20, LONGEST.as_secs())]
    Endless(usize),
}

// === impl PageError ===

impl<E: fmt::Display> From<PageError<E>> for kube::Error {
    fn from(error: PageError<E>) -> Self {
        match error {
            PageError::Api(error) => error,
            PageError::Invalid(_) => Self::SerdeError(serde::de::Error::custom(error)),
            PageError::Stalled(_) | PageError::Endless(_) => Self::Service(error.to_string().into()),
        }
    }
}

// === impl Pages ===

impl Pages {
    /// The list of the objects at this path, `/api/v1/pods` or the like, that these fields select. The first page names no
    /// resource version, so it is no older than its request, and the others are of the same version.
    pub fn new(path: &str, fields: &str) -> Self {
        Self::first(path, ListParams::default().fields(fields), false)
    }

    /// The same, of the objects' metadata alone (`PartialObjectMetadataList`), as `selected` selects them.
    pub fn of_metadata(path: &str, selected: ListParams) -> Self {
        Self::first(path, selected, true)
    }

    fn first(path: &str, selected: ListParams, is_metadata: bool) -> Self {
        Self { path: path.to_owned(), next: selected.limit(FIRST_PAGE), is_metadata }
    }

    /// Whether the next page is the first one.
    pub fn is_at_start(&self) -> bool {
        self.next.continue_token.is_none()
    }

    /// Reads the next page; returns who took its items, and the list's metadata, whose token is that of another page. After an
    /// error the page is still the next one, unless the API server has forgotten the list: then the first page is.
    pub async fn read<T: Items>(&mut self, client: &Client, items: T) -> Result<(T, ListMeta), PageError<T::Error>> {
        let page = self.page(client, items).await;
        if matches!(&page, Err(PageError::Api(kube::Error::Api(status))) if status.code == 410) {
            self.next.continue_token = None;
        }
        let (items, metadata, bytes) = page?;
        let size = bytes / self.next.limit.map_or(1, |limit| limit.max(1) as usize) + 1;
        let limit = (PAGE_BYTES / size).clamp(1, LARGEST_PAGE);
        self.next.limit = u32::try_from(limit).ok();
        self.next.continue_token.clone_from(&metadata.continue_token);
        Ok((items, metadata))
    }

    async fn page<T: Items>(&self, client: &Client, items: T) -> Result<(T, ListMeta, usize), PageError<T::Error>> {
        let request = Request::new(&self.path);
        let request = if self.is_metadata { request.list_metadata(&self.next) } else { request.list(&self.next) };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let started = Instant::now();
        let mut splitter = Splitter::new(items);
        let mut bytes = 0;
        let body = in_time(started, bytes, client.request_stream(request)).await??;
        let mut body = pin!(body);
        loop {
            let part = in_time(started, bytes, body.fill_buf()).await?.map_err(kube::Error::ReadEvents)?;
            if part.is_empty() {
                break;
            }
            splitter.push(part).map_err(PageError::Invalid)?;
            let length = part.len();
            bytes += length;
            body.as_mut().consume(length);
        }
        let (items, metadata) = splitter.finish().map_err(PageError::Invalid)?;
        Ok((items, metadata, bytes))
    }
}

/// What comes next of a response that was requested at `started` and has had so many bytes.
async fn in_time<T, E>(started: Instant, bytes: usize, next: impl Future<Output = T>) -> Result<T, PageError<E>> {
    let next = tokio::time::timeout(STALLED.min(LONGEST.saturating_sub(started.elapsed())), next).await;
    next.map_err(
        |_elapsed| {
            if started.elapsed() < LONGEST { PageError::Stalled(bytes) } else { PageError::Endless(bytes) }
        },
    )
}
