//! `ListAndWatch`: a resource's list of devices, and every change of it, until the session ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use divvy_api::ResourceName;
use divvy_proto::deviceplugin as api;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use super::advertise::Offer;

/// What one resource lists for one session: from our registration to the kubelet's next restart.
#[derive(Clone, Debug)]
pub(super) struct DeviceList {
    pub(super) resource: ResourceName,
    /// Our resources, and all devices of each with their health.
    pub(super) offers: watch::Receiver<Arc<Vec<Offer>>>,
    /// Cancelled when the session ends. A `ListAndWatch` that the kubelet closes ends the session.
    pub(super) session: CancellationToken,
    /// Cancelled when another plugin has taken our resource: further lists of ours would replace its own.
    pub(super) silence: CancellationToken,
}

/// What `ListAndWatch` streams.
pub(super) type Devices = Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

/// The lists until the session ends.
struct UntilCancelled {
    lists: Devices,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    silence: CancellationToken,
}

// === impl DeviceList ===

impl DeviceList {
    /// The list as it is, and as it becomes.
    pub(super) fn stream(&self) -> Devices {
        let Self { resource, offers, session, silence } = self.clone();
        // Dropped with the stream, that is when the kubelet goes away: then we have to register again.
        let guard: DropGuard = session.clone().drop_guard();
        let lists = WatchStream::new(offers).filter_map(move |offers| {
            let _held_as_long_as_the_stream = &guard;
            // A resource that isn't offered any more is about to be registered no more.
            let offer = offers.iter().find(|offer| offer.resource == resource)?;
            Some(Ok(api::ListAndWatchResponse { devices: offer.devices.clone() }))
        });
        // A server that waits for its streams would wait for ever: the kubelet never closes this one by itself.
        let ended = Box::pin(session.cancelled_owned());
        Box::pin(UntilCancelled { lists: Box::pin(lists), ended, silence })
    }
}

impl Stream for UntilCancelled {
    type Item = Result<api::ListAndWatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if self.silence.is_cancelled() { Poll::Pending } else { self.lists.as_mut().poll_next(context) }
    }
}
