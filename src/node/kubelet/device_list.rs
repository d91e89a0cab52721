//! `ListAndWatch`: streams a resource's devices and every change of them, until the session ends.

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

/// Devices of one resource for one session, from the registration to the kubelet's next restart.
#[derive(Clone, Debug)]
pub(super) struct DeviceList {
    pub(super) resource: ResourceName,
    /// All devices of each resource, with their health.
    pub(super) offers: watch::Receiver<Arc<Vec<Offer>>>,
    /// Cancelled when the session ends. A `ListAndWatch` that the kubelet closes ends the session.
    pub(super) session: CancellationToken,
    /// Cancelled when another plugin has taken the resource: further lists from the daemon would replace that plugin's.
    pub(super) silence: CancellationToken,
}

/// Stream of `ListAndWatch`.
pub(super) type Devices = Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

/// Lists until the session ends.
struct UntilCancelled {
    lists: Devices,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    silence: CancellationToken,
}

// === impl DeviceList ===

impl DeviceList {
    /// Streams the current list, and every later one.
    pub(super) fn stream(&self) -> Devices {
        let Self { resource, offers, session, silence } = self.clone();
        // Dropped with the stream, when the kubelet closes it: then the daemon has to register again.
        let guard: DropGuard = session.clone().drop_guard();
        let lists = WatchStream::new(offers).filter_map(move |offers| {
            let _held_as_long_as_the_stream = &guard;
            // A resource that isn't offered any more is about to be registered no more.
            let offer = offers.iter().find(|offer| offer.resource == resource)?;
            Some(Ok(api::ListAndWatchResponse { devices: offer.devices.clone() }))
        });
        // A server that waits for its streams would wait forever: the kubelet never closes this one.
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
