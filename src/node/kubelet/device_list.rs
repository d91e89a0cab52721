//! `ListAndWatch`: streams a resource's devices and every change of them, until the session ends.

use std::pin::Pin;
use std::sync::Arc;

use divvy_api::ResourceName;
use divvy_proto::deviceplugin as api;
use futures::{Stream, StreamExt as _, future, stream};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
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

// === impl DeviceList ===

impl DeviceList {
    /// Streams the current list, and every later one.
    pub(super) fn stream(&self) -> Devices {
        let Self { resource, offers, session, silence } = self.clone();
        // Dropped with the stream, when the kubelet closes it: then the daemon has to register again.
        let guard: DropGuard = session.clone().drop_guard();
        let lists = WatchStream::new(offers).filter_map(move |offers| {
            // A resource that isn't offered any more is about to be registered no more.
            let offer = offers.iter().find(|offer| offer.resource == resource);
            future::ready(offer.map(|offer| Ok(api::ListAndWatchResponse { devices: offer.devices.clone() })))
        });
        // A silent list stays open. A server that waits for its streams would wait forever: the kubelet never closes this one.
        let lists = lists.take_until(silence.cancelled_owned()).chain(stream::pending());
        let lists = lists.take_until(session.cancelled_owned());
        Box::pin(lists.inspect(move |_| {
            let _held_as_long_as_the_stream = &guard;
        }))
    }
}
